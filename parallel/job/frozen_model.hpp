#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "parallel/namespace.hpp"

namespace tidemark::parallel {

/// What a job holds a model for, beside the one that it trains.
enum class ModelRole : std::uint8_t {
  Reference,  ///< says how likely an answer was before training
  Reward,     ///< says in one number what an answer is worth
};

/// A model that is never trained: of the trained one's shape and precision, cut as that is, and there all the time.
struct FrozenModel {
  ModelRole role = ModelRole::Reference;

  [[nodiscard]] std::string_view name() const { return role == ModelRole::Reference ? "reference" : "reward"; }
  /// Its head gives one number for a token, and not one for each word of the vocabulary.
  [[nodiscard]] bool scalar_head() const { return role == ModelRole::Reward; }
  bool operator==(const FrozenModel&) const = default;
};

using FrozenModels = std::vector<FrozenModel>;

[[nodiscard]] inline bool holds(const FrozenModels& models, ModelRole role) {
  return std::ranges::find(models, role, &FrozenModel::role) != models.end();
}

}  // namespace tidemark::parallel
