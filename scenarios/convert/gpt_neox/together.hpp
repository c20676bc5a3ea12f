#pragma once

#include <optional>

#include "scenarios/convert/convert.hpp"
#include "scenarios/convert/detect.hpp"

namespace tidemark::scenarios {

/// GPT-NeoX takes its configuration from several files, as in `deepy.py train.py -d configs 6-7B.yml local_setup.yml`:
/// all YAML of the request as one, and the request's files with the one of the model in their place. Nothing where
/// there is one, or none is of GPT-NeoX. InputError where a key stands in two of them.
[[nodiscard]] std::optional<FileContent> gpt_neox_together(ConvertRequest& requested);

}  // namespace tidemark::scenarios
