#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "scenarios/cli/namespace.hpp"
#include "scenarios/plan/space.hpp"

// What plan and capacity ask of a space besides searching it.

namespace tidemark::cli {

/// Throws InputError where the space has no candidate at all: nothing was searched.
void refuse_no_candidates(const Space& space, const std::string& file);
/// Models and clusters that its candidates read, whichever axes name them.
[[nodiscard]] std::vector<std::filesystem::path> files_read(const Space& space);

}  // namespace tidemark::cli
