#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/execute/mutation/mutation.hpp"
#include "kernels/execute/world/host_collectives.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::execute {

/// What a rank runs where a job's meaning was spoiled on purpose.
struct WrongMeaning {
  Program program;
  std::vector<Group> groups;  ///< by slot
  std::string what;           ///< was done, and where: "layers.0.mlp.norm (step 1, …): rms_norm_backward reads …"
};

/// The workload's program of a rank, wrong in the way asked for, and on all ranks alike: programs hold their frees.
/// What is spoiled is the first place of a step where a loss or a gradient must show it; nothing where there is none.
[[nodiscard]] std::optional<WrongMeaning> with_wrong_meaning(const Workload& workload, Rank rank, Mutation mutation);

}  // namespace tidemark::execute
