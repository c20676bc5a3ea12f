#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "scenarios/plan/space/space.hpp"

// What is said and written of a space besides searching it.

namespace tidemark::scenarios {

/// Throws InputError where the space has no candidate at all: nothing was searched.
void refuse_no_candidates(const Space& space, const std::string& file);
/// Models and clusters that its candidates read, whichever axes name them.
[[nodiscard]] std::vector<std::filesystem::path> files_read(const Space& space);
/// A candidate as a scenario file in another folder has it: what lies beside the space is named from the root.
[[nodiscard]] std::string scenario_text(const Space& space, std::int64_t candidate);

}  // namespace tidemark::scenarios
