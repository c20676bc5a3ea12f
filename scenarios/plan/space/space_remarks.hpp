#pragma once

#include <string>
#include <vector>

#include "scenarios/plan/space/space.hpp"

namespace tidemark::scenarios {

/// What any search of the space has to say beside its figures: that times of its clusters do not compare.
/// Reads the clusters that its axes name.
[[nodiscard]] std::vector<std::string> space_remarks(const Space& space);

}  // namespace tidemark::scenarios
