#pragma once

#include <filesystem>
#include <string_view>

#include "parallel/model/expert_loads.hpp"
#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// How often experts of a model are chosen, from text: a line for each layer that has experts, or one for all of them,
/// of a whole number for each expert with commas between them, in whose proportion it is chosen. What follows a # is
/// left out. `file` names the text in messages. Throws InputError.
[[nodiscard]] ListedLoads parse_loads(std::string_view text, const std::filesystem::path& file, const Model& model);

}  // namespace tidemark::scenarios
