#pragma once

#include "scenarios/plan/tie_analysis.hpp"
#include "scenarios/scenario/scenario.hpp"

namespace tidemark::scenarios {

/// What a step of the scenario, which takes so long, is made of, in the mean of all ranks: kernels by operation (those
/// bound by memory together: they rest on one constant), transfers by kind and communicator. What transfers take more
/// than kernels leave hides behind these; waiting for other ranks and for the host is made of all of them alike.
/// Kernels and transfers whose times were measured are not off.
[[nodiscard]] StepParts step_parts(const Scenario& scenario, Duration step);

}  // namespace tidemark::scenarios
