#pragma once

#include <cstdint>

#include "parallel/model.hpp"

namespace tidemark::parallel {

/// Operations of one forward pass over one sequence of so many tokens, as model FLOPs utilization counts them: two per
/// weight of a matrix and token, and causal attention's two products. Nothing else counts.
[[nodiscard]] double forward_operations(const Model& model, std::int64_t sequence);

}  // namespace tidemark::parallel
