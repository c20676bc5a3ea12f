#pragma once

#include "kernels/namespace.hpp"
#include "sim/prices.hpp"
#include "sim/workload.hpp"
#include "topology/cluster.hpp"

namespace tidemark::kernels {

/// What the workload's driver resources and communicators take on this cluster. Ranks fill nodes in rank order.
[[nodiscard]] Prices price(const Workload& workload, const Cluster& cluster, const NcclSettings& nccl = {});

}  // namespace tidemark::kernels
