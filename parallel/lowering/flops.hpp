#pragma once

#include <cstdint>

#include "parallel/model/model.hpp"
#include "sim/program/structure/repeats.hpp"

namespace tidemark::parallel {

/// Operations of one forward pass over one sequence of so many tokens, as model FLOPs utilization counts them.
struct ForwardOperations {
  double linears = 0;    ///< two per weight of a matrix and token
  double attention = 0;  ///< two products, half of each masked; of state-space mixers the scan
  [[nodiscard]] double all() const { return linears + attention; }
};
[[nodiscard]] ForwardOperations forward_operations(const Model& model, std::int64_t sequence);

/// Of all matrix products and attention that a program's device carries out in a step, as hardware FLOPs utilization
/// counts them: those of recomputation too. Backward through attention is twice its forward pass, whose scores fused
/// kernels make again for themselves.
[[nodiscard]] double operations_of_step(const RepeatingProgram& program, std::int32_t step);

}  // namespace tidemark::parallel
