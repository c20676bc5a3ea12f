#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/execute/world/world.hpp"
#include "scenarios/calibrate/host_tasks.hpp"
#include "scenarios/calibrate/point.hpp"
#include "scenarios/plan/plan.hpp"

namespace tidemark::scenarios {

struct CalibrateOptions {
  HostTasks tasks;
  std::string journal;  ///< file that remembers what was measured; empty: none
  std::string release;  ///< which build of Tidemark: a journal is of one
};

/// The ranks' hosts, each once, in the order of ranks; at every rank.
[[nodiscard]] std::vector<std::string> hosts_of(execute::World& world, const std::string& mine);

/// How many ranks each of those hosts has, where they follow each other and all have as many; 0 where not. `mine` as
/// above; at every rank.
[[nodiscard]] std::int32_t ranks_per_host(execute::World& world, const std::string& mine);

/// Measures on all ranks of the world, task by task. Everything that was measured at rank 0, nothing elsewhere. Throws
/// InputError at rank 0 alone where the journal is not of this question; the other ranks return.
[[nodiscard]] std::optional<std::vector<Point>> calibrate(execute::World& world, const CalibrateOptions& options,
                                                          const std::vector<std::string>& hosts,
                                                          const PlanProgress& progress = {});

}  // namespace tidemark::scenarios
