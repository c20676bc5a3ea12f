#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/namespace.hpp"
#include "topology/cluster.hpp"

namespace tidemark::scenarios {

/// Why times on these clusters do not compare: one's efficiencies were fitted on measured steps, another's are guesses,
/// so that the difference of their times is that of their sources. Nothing where all have one source.
[[nodiscard]] std::optional<std::string> why_times_do_not_compare(const std::vector<Cluster>& clusters);

}  // namespace tidemark::scenarios
