#pragma once

#include "kernels/namespace.hpp"
#include "sim/clock/folding.hpp"
#include "sim/clock/time_costs.hpp"
#include "sim/program/workload.hpp"
#include "topology/cluster.hpp"
#include "topology/collective.hpp"
#include "topology/route/traffic.hpp"

namespace tidemark::kernels {

/// How long every kernel, collective and message of a workload takes on a cluster, and the links they share. Rank r
/// runs on device r. A class of ranks pays what its first rank pays, and links that are loaded alike are one, with the
/// sharers that each of them has: exact where `folding` respects the links, as `fold(…, router.traffic())` and
/// `unfolded` do.
[[nodiscard]] TimeCosts cost_time(const Workload& workload, const Folding& folding, const Cluster& cluster,
                                  const CollectiveOptions& options = {});

/// The same where a router of the workload on the cluster is at hand.
[[nodiscard]] TimeCosts cost_time(const Workload& workload, const Folding& folding, const Cluster& cluster,
                                  Router& router);

}  // namespace tidemark::kernels
