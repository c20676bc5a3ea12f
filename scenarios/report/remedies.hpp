#pragma once

#include <string>
#include <vector>

#include "scenarios/scenario.hpp"
#include "sim/program/program.hpp"

namespace tidemark::scenarios {

/// What helps where memory runs out in that phase, of what the scenario does not do yet, in keys of scenario files, the
/// least disruptive first. What each comes to, `advise` simulates.
[[nodiscard]] std::vector<std::string> remedies_of(Phase phase, const Scenario& scenario);

}  // namespace tidemark::scenarios
