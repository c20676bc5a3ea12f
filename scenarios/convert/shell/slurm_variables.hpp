#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "scenarios/formats/problems.hpp"

namespace tidemark::scenarios {

/// What a job finds in its environment by the #SBATCH lines of its script (sbatch(1)): nodes, tasks, devices.
/// `within`: the place of the command that is given the script, where another one has it. Throws InputError of a number
/// that is none of these.
[[nodiscard]] std::map<std::string, std::string> slurm_variables(std::string_view script, const std::string& file,
                                                                 std::optional<Place> within = {});

}  // namespace tidemark::scenarios
