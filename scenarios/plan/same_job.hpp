#pragma once

#include "scenarios/scenario/scenario.hpp"

namespace tidemark::scenarios {

/// The scenario in words that scenarios of one and the same job share: layers of each stage as they come out, and
/// recomputation of as many layers as any stage has as that of every layer. Its name and its headroom are left out.
[[nodiscard]] Scenario same_job(const Scenario& scenario);

}  // namespace tidemark::scenarios
