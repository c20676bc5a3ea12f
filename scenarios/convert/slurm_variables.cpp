#include "scenarios/convert/slurm_variables.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <sstream>

namespace tidemark::scenarios {
namespace {

// "gpu:h100:8" asks for eight.
std::optional<std::int64_t> count_in(const std::string& word) {
  const std::string number = word.substr(word.rfind(':') + 1);
  std::int64_t count = 0;
  if (std::from_chars(number.data(), number.data() + number.size(), count).ec != std::errc{}) return std::nullopt;
  return count;
}

}  // namespace

std::map<std::string, std::string> slurm_variables(std::string_view script) {
  constexpr std::string_view directive = "#SBATCH";
  std::optional<std::int64_t> nodes, tasks, tasks_per_node, devices_per_node;
  std::istringstream lines{std::string(script)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(directive)) continue;
    std::ranges::replace(line, '=', ' ');
    std::istringstream words(line.substr(directive.size()));
    std::string option, value;
    if (!(words >> option >> value)) continue;
    const std::optional<std::int64_t> count = count_in(value);
    if (!count) continue;
    if (option == "--nodes" || option == "-N") nodes = count;
    if (option == "--ntasks" || option == "-n") tasks = count;
    if (option == "--ntasks-per-node") tasks_per_node = count;
    if (!devices_per_node && (option == "--gpus-per-node" || option == "--gres")) devices_per_node = count;
  }
  if (!tasks && nodes && tasks_per_node) tasks = *nodes * *tasks_per_node;
  std::map<std::string, std::string> found;
  const auto set = [&](const std::optional<std::int64_t>& count, std::initializer_list<const char*> names) {
    if (!count) return;
    for (const char* name : names) found.emplace(name, std::to_string(*count));
  };
  set(nodes, {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
  set(tasks, {"SLURM_NTASKS", "SLURM_NPROCS"});
  set(tasks_per_node, {"SLURM_NTASKS_PER_NODE"});
  set(devices_per_node, {"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"});
  return found;
}

}  // namespace tidemark::scenarios
