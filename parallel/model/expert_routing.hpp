#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/model/expert_loads.hpp"
#include "parallel/model/model.hpp"

namespace tidemark::parallel {

/// How tokens come to the ranks of their experts: each to its own, once for each expert there, or all to all who hold
/// experts of the layer; or, flexibly, once to each rank that holds any of its experts.
enum class TokenDispatcher : std::uint8_t { AllToAll, AllGather, Flex };

/// How many of a rank's tokens choose any expert of those places.
struct TokensOfPlaces {
  std::vector<std::int64_t> ranks;   ///< of an expert group
  std::vector<std::int64_t> eights;  ///< of ranks that lie together, where the dispatcher's kernels talk over a network
  bool operator==(const TokensOfPlaces&) const = default;
};

/// What is stated of routing, which nobody knows before training.
struct ExpertRouting {
  TokenDispatcher dispatcher = TokenDispatcher::AllToAll;
  double capacity_factor = 0;     ///< an expert takes so many times its equal share; 0: all tokens that choose it
  bool pads_to_capacity = false;  ///< … and no fewer
  ExpertLoads loads = EqualLoads{};
  double quantile = 0.999;  ///< of steps in which no rank gets more than upper ends are told of
  /// Ranks get so many tokens that more come, of one layer and micro-batch, no more often than this, where each token
  /// chooses for itself; nothing: as many as the loads say.
  std::optional<double> overload_probability = {};
  /// Of each layer, or of all where they are alike: what dispatchers that send a token once to a rank go by.
  std::vector<TokensOfPlaces> tokens = {};
  bool operator==(const ExpertRouting&) const = default;
};

/// Where a layer's tokens go from each rank of an expert group.
class LayerRouting {
 public:
  /// Of a layer that has experts, with so many tokens of each rank that sends and so many ranks that share them out.
  LayerRouting(const Model& model, const ExpertRouting& routing, std::int32_t layer, std::int64_t tokens,
               std::int32_t ranks);
  LayerRouting(const Experts& experts, const ExpertRouting& routing, LayerWithExperts layer, std::int64_t tokens,
               std::int32_t ranks);

  /// How many of a rank's tokens choose each expert: each chooses `experts.chosen` different ones.
  [[nodiscard]] const std::vector<std::int64_t>& choices() const { return choices_; }
  /// How many rows of a rank's tokens each expert takes, after what capacity drops and pads.
  [[nodiscard]] const std::vector<std::int64_t>& rows() const { return rows_; }
  /// How many rows each expert of a rank gets, from so many that send.
  [[nodiscard]] std::vector<std::int64_t> received(std::int32_t rank, std::int64_t senders) const;
  /// Where tokens are sent once to a rank, how many of a rank's go to each place, and come to one or to its eight.
  [[nodiscard]] const TokensOfPlaces& tokens() const { return of_places_; }
  [[nodiscard]] std::int64_t received_tokens(std::int32_t rank, std::int64_t senders) const;
  [[nodiscard]] std::int64_t received_by_eight(std::int32_t eight, std::int64_t senders) const;

 private:
  [[nodiscard]] std::int64_t at_most(std::int64_t of_each, std::int64_t senders) const;
  [[nodiscard]] std::vector<std::int64_t> of_rank(const std::vector<std::int64_t>& all, std::int32_t rank) const;
  [[nodiscard]] double variance(const std::vector<std::int64_t>& choices) const;

  std::int64_t tokens_, chosen_, held_;  ///< of a rank; of a token; experts of a rank
  std::int64_t most_;                    ///< rows of one rank that an expert takes
  double rarity_ = 0;                    ///< minus the logarithm of how often more come; 0: what comes is stated
  std::vector<std::int64_t> choices_, rows_;
  TokensOfPlaces of_places_;
};

/// Which experts tokens choose together: any that make counts right, or as by chance. How often is stated, and with
/// whom matters where a token goes once to a rank.
enum class ChosenTogether : std::uint8_t { Anyhow, ByChance };
/// The experts that tokens choose so that these counts come out, token after token, where each chooses from no more
/// groups than it may; nothing where none were found.
[[nodiscard]] std::optional<std::vector<std::int64_t>> top_k_experts(const Experts& experts,
                                                                     const std::vector<std::int64_t>& counts,
                                                                     std::int64_t tokens,
                                                                     ChosenTogether together = ChosenTogether::Anyhow);
[[nodiscard]] constexpr ChosenTogether chosen_together(TokenDispatcher dispatcher) {
  return dispatcher == TokenDispatcher::Flex ? ChosenTogether::ByChance : ChosenTogether::Anyhow;
}
/// `ExpertRouting::tokens` of so many tokens a rank, whose experts so many ranks share out, and so many each expert;
/// nothing where no choices were found.
[[nodiscard]] std::optional<std::vector<TokensOfPlaces>> tokens_of_places(const Model& model,
                                                                          const ExpertRouting& routing,
                                                                          std::int64_t tokens, std::int32_t ranks,
                                                                          std::int32_t within);
/// How many tokens an expert takes at most (core/transformer/moe/moe_utils.py get_capacity).
[[nodiscard]] std::int64_t capacity_of(const Experts& experts, const ExpertRouting& routing, std::int64_t tokens);

/// Whether how many tokens ranks get is left to what tokens choose: no padding makes it a matter of the layout.
[[nodiscard]] constexpr bool left_to_tokens(const ExpertRouting& routing) {
  return routing.capacity_factor == 0 || !routing.pads_to_capacity;
}

}  // namespace tidemark::parallel
