#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "parallel/model/model.hpp"
#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {

/// One key of a scenario's `[model_override]`: takes the place of the same key of the config.json. `place` says where
/// it was asked for, so that a bad value is reported there; its message and hint are not used.
struct ConfigOverride {
  std::string key;
  std::variant<bool, std::int64_t, double, std::string> value;
  Problem place;
};

/// The model that a Hugging Face config.json describes, of the dense families that are known. What the file leaves out
/// has the default of the `transformers` library; what would change memory and is not modelled is an InputError.
Model read_model(const std::filesystem::path& path, const std::vector<ConfigOverride>& overrides = {});

/// The same from text; `file` names it in messages and gives the model its name.
Model parse_model(std::string_view text, const std::filesystem::path& file,
                  const std::vector<ConfigOverride>& overrides = {});

}  // namespace tidemark::scenarios
