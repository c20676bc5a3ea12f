#pragma once

#include <string_view>

#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/scenario.hpp"

namespace tidemark::scenarios {

inline constexpr std::string_view layers_key = "layers";

/// `layers = ["3 dense", "58 experts"]`: which of the model's own kinds of mixer and MLP each layer has, in place of
/// what its config.json says. The list begins again until all layers have theirs.
void read_layers(TomlReader& top, Model& model);

}  // namespace tidemark::scenarios
