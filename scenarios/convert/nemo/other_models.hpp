#pragma once

#include "scenarios/convert/draft.hpp"

namespace tidemark::scenarios {

/// NeMo trains more than GPT with files of the same kind: what only those have is told as not modelled.
void refuse_other_models(const TomlTable& document, Draft& draft);

}  // namespace tidemark::scenarios
