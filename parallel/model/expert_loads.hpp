#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "parallel/model/model.hpp"

// What is stated of how often experts are chosen, which nobody knows before training.

namespace tidemark::parallel {

/// All equally often.
struct EqualLoads {
  bool operator==(const EqualLoads&) const = default;
};

/// The first rank of an expert group gets so many times its equal share, the others what that leaves.
struct LoadOfOneRank {
  double factor = 1;
  bool operator==(const LoadOfOneRank&) const = default;
};

/// In proportion to whole numbers, such as tokens counted in a run: a list for each layer that has experts, or one for
/// all of them.
struct ListedLoads {
  std::vector<std::vector<std::int64_t>> of_layers;
  std::string file = {};  ///< where they are from, as a scenario calls it
  bool operator==(const ListedLoads&) const = default;
};

/// The n-th most chosen expert of a layer in proportion to n^-exponent (Zipf's law). Which expert is the n-th is drawn,
/// layer by layer.
struct ZipfLoads {
  double exponent = 0;
  std::uint64_t seed = 0;
  bool operator==(const ZipfLoads&) const = default;
};

/// Shares of a layer's experts are drawn from a symmetric Dirichlet distribution: the larger its concentration, the
/// more equal they are (their deviation is about their mean / sqrt(concentration)).
struct DirichletLoads {
  double concentration = 1;
  std::uint64_t seed = 0;
  bool operator==(const DirichletLoads&) const = default;
};

using ExpertLoads = std::variant<EqualLoads, LoadOfOneRank, ListedLoads, ZipfLoads, DirichletLoads>;

/// Whether that is the same in all layers.
[[nodiscard]] bool alike_in_all_layers(const ExpertLoads& loads);

/// A layer by its number in the model, and by its place among those that have experts.
struct LayerWithExperts {
  std::int32_t number = 0;
  std::int64_t place = 0;

  LayerWithExperts(std::int32_t its_number, std::int64_t its_place) : number(its_number), place(its_place) {}
  /// Where all layers have experts.
  LayerWithExperts(std::int32_t its_number) : LayerWithExperts(its_number, its_number) {}
};

/// Whole numbers in whose proportion experts of a layer are chosen; all one where nothing else is said of each.
[[nodiscard]] std::vector<std::int64_t> weights_of_experts(const Experts& experts, const ExpertLoads& loads,
                                                           LayerWithExperts layer);

}  // namespace tidemark::parallel
