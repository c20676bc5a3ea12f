#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/execute/world/world.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "scenarios/validate/math_times.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::scenarios {

/// A workload as hosts run it: one op after another, transfers to their end.
[[nodiscard]] Workload in_host_order(Workload workload);

/// What a step of the scenario takes when it is trained with real numbers on a machine of that cluster's file, by its
/// calibration: the programs that run, op by op, on the simulated clock.
[[nodiscard]] std::vector<MathStep> predicted_math_steps(const Scenario& scenario, const Cluster& machine);

/// Trains it so often, in the types of the job, and takes the time. All ranks take part; the answer at rank 0.
[[nodiscard]] std::vector<MathStep> measured_math_steps(const Scenario& scenario, execute::World& world,
                                                        std::int64_t repeats);

}  // namespace tidemark::scenarios
