#pragma once

#include <cstdint>

#include "parallel/model.hpp"

namespace tidemark::parallel {

/// Operations of one forward pass over one sequence of so many tokens, as model FLOPs utilization counts them.
struct ForwardOperations {
  double linears = 0;    ///< two per weight of a matrix and token
  double attention = 0;  ///< two products, half of each masked
  [[nodiscard]] double all() const { return linears + attention; }
};
[[nodiscard]] ForwardOperations forward_operations(const Model& model, std::int64_t sequence);

}  // namespace tidemark::parallel
