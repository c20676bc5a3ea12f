#pragma once

#include <string>

#include "kernels/execute/mutation/mutation.hpp"
#include "kernels/execute/world/world.hpp"
#include "kernels/math/engine/calculator.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "scenarios/validate/math_check.hpp"

// The programs of a scenario, run with real numbers: its model is trained by all its ranks, and by one rank that holds
// it whole. Losses, gradients and parameters say whether the programs mean what they were written for.

namespace tidemark::scenarios {

/// What real arithmetic cannot follow of a scenario, and on the next line what would do; empty where it can.
[[nodiscard]] std::string beyond_arithmetic(const Scenario& scenario);

/// Trains on the world's ranks, whose number is the scenario's; with something wrong on purpose, where that is asked
/// for. The answer at rank 0, an empty one elsewhere. Throws InputError, on all ranks alike, where there is nothing to
/// spoil; RunFailure where others do not come.
[[nodiscard]] MathCheck check_math(const Scenario& scenario, execute::World& world, math::Storage storage,
                                   Mutation mutation = Mutation::None);

/// Where a rank's numbers lie and who computes them, and what carries them to other ranks.
struct Machine {
  math::Calculator& calculator;
  execute::World& messages;
};
/// The same, on other machines than the host, which the one rank runs on.
[[nodiscard]] MathCheck check_math(const Scenario& scenario, execute::World& world, math::Storage storage,
                                   const Machine& machine, Mutation mutation = Mutation::None);

}  // namespace tidemark::scenarios
