#pragma once

#include <vector>

#include "scenarios/formats/toml_value.hpp"
#include "scenarios/plan/space/space.hpp"
#include "scenarios/scenario/scenario.hpp"

namespace tidemark::scenarios {

/// Whether a runtime and its modules can take adapters, and bases of few bits under them.
[[nodiscard]] bool takes_adapters(const Scenario& scenario);
[[nodiscard]] bool takes_quantized_bases(const Scenario& scenario);
/// Whether Liger's kernels can take the place of modules, and do not yet.
[[nodiscard]] bool takes_liger(const Scenario& scenario);

/// Less of the model that is trained, and fewer bits of the rest: LoRA, QLoRA, smaller ranks.
void add_adapters(const TomlTable& document, const Scenario& scenario, std::vector<Axis>& axes);

}  // namespace tidemark::scenarios
