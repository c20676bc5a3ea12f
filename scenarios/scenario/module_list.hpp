#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/frameworks/transformers/adapters.hpp"
#include "parallel/model/model.hpp"
#include "scenarios/formats/toml_reader.hpp"

// Keys that name modules of a model, as PEFT and transformers take them.

namespace tidemark::scenarios {

/// A list of names, or nothing where the key is left out; `hint` is what would do.
[[nodiscard]] std::vector<std::string> read_module_list(TomlReader& table, std::string_view key, std::string_view hint);

/// That a model has no module of that name among `modules`.
void report_unknown_module(TomlReader& table, std::string_view key, const std::string& name, const Model& model,
                           const std::vector<parallel::transformers::ModuleName>& modules,
                           std::string_view kind = "such");

}  // namespace tidemark::scenarios
