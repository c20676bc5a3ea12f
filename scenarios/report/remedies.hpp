#pragma once

#include <string>
#include <vector>

#include "scenarios/plan/changes/accepted_changes.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "sim/program/program.hpp"

namespace tidemark::scenarios {

/// What helps where memory runs out in that phase, of what the scenario does not do yet, in keys of scenario files, the
/// least disruptive first. Of those that `advise` can simulate of this scenario, where `accepted` says which they are.
[[nodiscard]] std::vector<std::string> remedies_of(Phase phase, const Scenario& scenario,
                                                   const AcceptedChanges* accepted = nullptr);

}  // namespace tidemark::scenarios
