#include "scenarios/convert/shell/slurm_variables.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/convert/draft.hpp"
#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {
namespace {

// "gpu:h100:8" asks for eight; "2-4" leaves it open.
std::optional<std::int64_t> count_in(std::string_view word) {
  word = word.substr(word.rfind(':') + 1);
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), count);
  const bool whole = end == word.data() + word.size();
  if (error == std::errc::result_out_of_range && whole) return std::numeric_limits<std::int64_t>::max();
  return error == std::errc{} && whole ? std::optional(count) : std::nullopt;
}

// Of "gpu:8,lscratch:100" what is of GPUs.
std::string_view of_gpus(std::string_view word) {
  while (!word.empty() && !word.starts_with("gpu")) {
    const std::size_t comma = word.find(',');
    word = comma == std::string_view::npos ? std::string_view() : word.substr(comma + 1);
  }
  return word.substr(0, word.find(','));
}

}  // namespace

std::map<std::string, std::string> slurm_variables(std::string_view script, const std::string& file,
                                                   std::optional<Place> within) {
  constexpr std::string_view directive = "#SBATCH";
  constexpr std::int64_t most = std::int64_t{1} << 20;  // devices of a scenario
  std::optional<std::int64_t> nodes, tasks, tasks_per_node, devices_per_node;
  std::istringstream lines{std::string(script)};
  int number = 0, number_of_directives = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.starts_with(directive)) continue;
    ++number_of_directives;
    std::ranges::replace(line, '=', ' ');
    std::istringstream words(line.substr(directive.size()));
    std::string option, value;
    if (!(words >> option >> value)) continue;
    const std::optional<std::int64_t> count = count_in(option == "--gres" ? of_gpus(value) : value);
    std::optional<std::int64_t>* const counted = option == "--nodes" || option == "-N"               ? &nodes
                                                 : option == "--ntasks" || option == "-n"            ? &tasks
                                                 : option == "--ntasks-per-node"                     ? &tasks_per_node
                                                 : option == "--gpus-per-node" || option == "--gres" ? &devices_per_node
                                                                                                     : nullptr;
    if (!count || counted == nullptr || (counted == &devices_per_node && devices_per_node)) continue;
    if (*count < 1 || *count > most) {
      const Place place = within.value_or(Place{number, 1});
      throw InputError(Problem{file, place.line, place.column,
                               fmt::format("{} {} is no number of nodes, tasks or devices", option, value),
                               "1 to 1048576 would be"});
    }
    *counted = count;
  }
  if (!tasks && nodes && tasks_per_node) tasks = *nodes * *tasks_per_node;
  std::map<std::string, std::string> found;
  // A script that says what it asks sbatch for is one that sbatch runs: "[ -z $SLURM_JOB_ID ] && sbatch $0" asks.
  if (number_of_directives > 0) found = {{"SLURM_JOB_ID", "1"}, {"SLURM_JOBID", "1"}};
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

std::optional<std::int64_t> devices_of_allocation(std::string_view script, const std::string& file) {
  const std::map<std::string, std::string> said = slurm_variables(script, file, {});
  const auto nodes = said.find("SLURM_NNODES"), each = said.find("SLURM_GPUS_PER_NODE");
  if (nodes == said.end() || each == said.end()) return std::nullopt;
  return product({*count_in(nodes->second), *count_in(each->second)});
}

}  // namespace tidemark::scenarios
