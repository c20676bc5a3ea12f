#pragma once

#include "scenarios/convert/formats.hpp"

namespace tidemark::scenarios {

/// Whether a configuration of LitGPT's is of `litgpt pretrain`, and that as a scenario.
[[nodiscard]] bool is_litgpt_pretraining(const TomlTable& document);
void read_litgpt_pretraining(const TomlTable& document, const ShippedModels& models, Draft& draft);

}  // namespace tidemark::scenarios
