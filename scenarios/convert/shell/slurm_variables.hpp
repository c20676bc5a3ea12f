#pragma once

#include <cstdint>
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

/// The devices of all nodes that its #SBATCH lines ask for, where they say both.
[[nodiscard]] std::optional<std::int64_t> devices_of_allocation(std::string_view script, const std::string& file);

}  // namespace tidemark::scenarios
