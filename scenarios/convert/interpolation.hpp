#pragma once

#include "scenarios/formats/toml_value.hpp"

namespace tidemark::scenarios {

/// Puts in place of OmegaConf's "${model.hidden_size}", "${.hidden_size}" and NeMo's "${multiply:4, ${.hidden_size}}"
/// what they come to, as far as the document says it. One that is of a key which is not there, or is null, goes with
/// its key; one that nothing here says stays as it is.
void interpolate(TomlTable& document);

}  // namespace tidemark::scenarios
