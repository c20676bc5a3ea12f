#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/execute/world/world.hpp"
#include "scenarios/calibrate/point.hpp"

// What `calibrate` measures of hosts: ranks that are processes, one core each, with MPI between them, as `validate
// --math` runs programs. A task is a text, done by all ranks at once.

namespace tidemark::scenarios {

struct HostTasks {
  std::vector<std::string> scenarios;  ///< files whose own kernels are measured too
  std::filesystem::path data_root;
  std::int32_t ranks_per_node = 0;  ///< nodes are so many ranks one after another; 0: all are on one
  std::int64_t repeats = 9;
  bool brief = false;  ///< fewer sizes: to see that it works
};

/// In the order in which they are done.
[[nodiscard]] std::vector<std::string> task_list(const HostTasks& requested, const execute::World& world);
/// Done on this rank, beside the others.
[[nodiscard]] std::vector<Point> measured(const std::string& task, const HostTasks& requested, execute::World& world);

}  // namespace tidemark::scenarios
