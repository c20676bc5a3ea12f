#pragma once

#include <vector>

#include "scenarios/formats/toml_value.hpp"
#include "scenarios/plan/space/space.hpp"
#include "scenarios/scenario/scenario.hpp"

namespace tidemark::scenarios {

/// What may be changed about a job that does not fit, one axis per kind of change. The first value of each is the
/// scenario's own.
struct Changes {
  std::vector<Axis> of_job;       ///< what is trained stays the same
  std::vector<Axis> of_training;  ///< shorter sequences, fewer bits
};
/// Whether Megatron's data loader makes a mask of a GiB or more, which fused attention does not look at.
[[nodiscard]] bool loads_large_mask(const Scenario& scenario);
[[nodiscard]] Changes changes_of(const TomlTable& document, const Scenario& scenario);

}  // namespace tidemark::scenarios
