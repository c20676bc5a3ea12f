#pragma once

#include <vector>

#include "scenarios/convert/draft.hpp"
#include "scenarios/scenario/scenario.hpp"

namespace tidemark::scenarios {

/// What `[parallelism]` of torchtitan says of a pipeline. The degrees, the batches and the number of GPUs have been
/// read.
void read_titan_pipeline(Given& parallelism, Draft& draft);

/// The same of a scenario, for `[parallelism]`; nothing where there is no pipeline.
[[nodiscard]] std::vector<TomlKey> titan_pipeline_keys(const Scenario& scenario);

}  // namespace tidemark::scenarios
