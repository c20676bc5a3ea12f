#pragma once

#include <vector>

#include "sim/program/costs.hpp"
#include "sim/program/workload.hpp"
#include "topology/cluster.hpp"
#include "topology/namespace.hpp"

namespace tidemark::topology {

/// What the workload's driver resources and communicators take on this cluster. Ranks fill nodes in rank order.
[[nodiscard]] Costs cost(const Workload& workload, const Cluster& cluster, const NcclSettings& nccl = {});

/// What NCCL takes of each node's host for them, of all its ranks together.
[[nodiscard]] std::vector<Estimate> nccl_host_memory(const Workload& workload, const Cluster& cluster,
                                                     const NcclSettings& nccl = {});

}  // namespace tidemark::topology
