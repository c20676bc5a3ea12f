#pragma once

#include <string>

#include "scenarios/scenario/scenario.hpp"
#include "sim/program/program.hpp"

namespace tidemark::scenarios {

/// What it takes to run programs with real numbers, in both types.
struct MathWork {
  double multiply_adds = 0;  ///< of matrix products
  double elements = 0;       ///< that kernels read and write, and draw at random
  Bytes memory = {};         ///< held at once of what kernels read and write
};
[[nodiscard]] MathWork work_of(const Program& program);
/// Of all ranks, and of the one that holds the model whole.
[[nodiscard]] MathWork work_of(const Scenario& scenario);

/// Why so much is not done unasked: it would take too long, or too much memory. Empty where neither is so.
[[nodiscard]] std::string too_much_arithmetic(const MathWork& work);

}  // namespace tidemark::scenarios
