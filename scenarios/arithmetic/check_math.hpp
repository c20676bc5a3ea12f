#pragma once

#include <string>

#include "kernels/execute/world.hpp"
#include "kernels/math/calculator.hpp"
#include "scenarios/math_check.hpp"
#include "scenarios/scenario.hpp"

// The programs of a scenario, run with real numbers: its model is trained by all its ranks, and by one rank that holds
// it whole. Losses, gradients and parameters say whether the programs mean what they were written for.

namespace tidemark::scenarios {

/// What real arithmetic cannot follow of a scenario, and on the next line what would do; empty where it can.
[[nodiscard]] std::string beyond_arithmetic(const Scenario& scenario);

/// Trains on the world's ranks, whose number is the scenario's. The answer at rank 0, an empty one elsewhere. Throws
/// RunFailure where a rank cannot go on, because others do not come or because a kernel reads what nobody wrote.
[[nodiscard]] MathCheck check_math(const Scenario& scenario, execute::World& world, math::Storage storage);

/// Where a rank's numbers lie and who computes them, and what carries them to other ranks.
struct Machine {
  math::Calculator& calculator;
  execute::World& messages;
};
/// The same, on other machines than the host, which the one rank runs on.
[[nodiscard]] MathCheck check_math(const Scenario& scenario, execute::World& world, math::Storage storage,
                                   const Machine& machine);

}  // namespace tidemark::scenarios
