#pragma once

#include <string>

#include "scenarios/scenario/scenario.hpp"

namespace tidemark::scenarios {

/// The resolved scenario as JSON, under the names of the scenario file. `indent` spaces per level; below 0: one line.
std::string scenario_json(const Scenario& scenario, int indent);

}  // namespace tidemark::scenarios
