#pragma once

#include "scenarios/convert/draft.hpp"

namespace tidemark::scenarios {

/// llm-foundry's mpt_causal_lm: transformers' GPT-2 of the same shape, within a bound.
void read_mpt(Given& model, Draft& draft);

}  // namespace tidemark::scenarios
