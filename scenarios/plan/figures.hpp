#pragma once

#include "scenarios/plan/plan.hpp"
#include "scenarios/predict/prediction.hpp"

namespace tidemark::scenarios {

[[nodiscard]] Figures figures_of(const Prediction& prediction);

/// What the fullest device lacks, headroom included; zero or less where it fits, if it completes.
[[nodiscard]] Bytes memory_shortfall(const Scenario& scenario, Bytes device_upper);
/// What the fullest host lacks; nothing where it has enough, or the cluster's file does not say what hosts have.
[[nodiscard]] Bytes host_memory_shortfall(const Scenario& scenario, const Figures& figures);
[[nodiscard]] bool fits(const Scenario& scenario, const Figures& figures);

}  // namespace tidemark::scenarios
