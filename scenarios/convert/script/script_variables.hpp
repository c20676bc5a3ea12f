#pragma once

#include <string>

#include "scenarios/convert/draft.hpp"
#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/shell/launch_line.hpp"

// What a script puts into the environment of its training.

namespace tidemark::scenarios {

void read_variable(const std::string& name, const ShellWord& value, Draft& draft);
/// NVTE_FLASH_ATTN and its like, which choose Megatron's attention.
void settle_attention(const ShippedModels& models, Draft& draft);

}  // namespace tidemark::scenarios
