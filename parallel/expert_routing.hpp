#pragma once

#include <cstdint>
#include <vector>

#include "parallel/model.hpp"

namespace tidemark::parallel {

/// How tokens come to the ranks of their experts: each to its own, or all to all who hold experts of the layer.
enum class TokenDispatcher : std::uint8_t { AllToAll, AllGather };

/// What is stated of routing, which nobody knows before training.
struct ExpertRouting {
  TokenDispatcher dispatcher = TokenDispatcher::AllToAll;
  double capacity_factor = 0;         ///< an expert takes so many times its equal share; 0: all tokens that choose it
  bool pads_to_capacity = false;      ///< … and no fewer
  double imbalance = 1;               ///< the rank that gets most tokens gets so many times its equal share
  std::vector<std::int64_t> loads{};  ///< of each expert, in proportion; empty: equal, but for `imbalance`
  bool operator==(const ExpertRouting&) const = default;
};

/// How many of a rank's tokens choose each expert, in a group of so many ranks: what the first rank gets beyond its
/// equal share, the others lack. Every token chooses `experts.chosen` different ones.
[[nodiscard]] std::vector<std::int64_t> choices_of_experts(const Experts& experts, const ExpertRouting& routing,
                                                           std::int64_t tokens, std::int32_t ranks);
/// Who is chosen so that these counts come out.
[[nodiscard]] std::int64_t chosen_expert(const std::vector<std::int64_t>& counts, std::int64_t tokens,
                                         std::int64_t token, std::int64_t choice);
/// How many tokens an expert takes at most (core/transformer/moe/moe_utils.py get_capacity).
[[nodiscard]] std::int64_t capacity_of(const Experts& experts, const ExpertRouting& routing, std::int64_t tokens);
/// How many rows of a rank's tokens each expert takes, after what capacity drops and pads.
[[nodiscard]] std::vector<std::int64_t> rows_of_experts(const Experts& experts, const ExpertRouting& routing,
                                                        std::int64_t tokens, std::int32_t ranks);

}  // namespace tidemark::parallel
