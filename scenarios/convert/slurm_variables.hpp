#pragma once

#include <map>
#include <string>
#include <string_view>

namespace tidemark::scenarios {

/// What a job finds in its environment by the #SBATCH lines of its script (sbatch(1)): nodes, tasks, devices.
[[nodiscard]] std::map<std::string, std::string> slurm_variables(std::string_view script);

}  // namespace tidemark::scenarios
