#pragma once

#include <vector>

#include "scenarios/predict/job.hpp"
#include "sim/base/estimate.hpp"

namespace tidemark::scenarios {

/// What NCCL takes of each node's host besides tensors, where a job keeps any there; else nothing.
[[nodiscard]] std::vector<Estimate> nccl_host_memory(const Job& job);

}  // namespace tidemark::scenarios
