#pragma once

#include <string_view>
#include <vector>

#include "scenarios/predict/job.hpp"
#include "topology/fabric.hpp"
#include "topology/fabric_graph.hpp"

namespace tidemark::scenarios {

/// What all ranks put on the links in the last step: every link that carries something, busiest first.
[[nodiscard]] std::vector<LinkUse> loads_of_step(const Job& job, const Fabric& fabric);

[[nodiscard]] std::string_view link_type_name(LinkType type);

}  // namespace tidemark::scenarios
