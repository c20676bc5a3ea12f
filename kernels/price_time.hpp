#pragma once

#include "sim/folding.hpp"
#include "sim/time_prices.hpp"
#include "sim/workload.hpp"
#include "topology/cluster.hpp"
#include "topology/collective.hpp"

namespace tidemark {

/// How long every kernel, collective and message of a workload takes on a cluster, and the links they share. Rank r
/// runs on device r. A class of ranks pays what its first rank pays; where its other groups load the same links, they
/// count as sharers.
[[nodiscard]] TimePrices price_time(const Workload& workload, const Folding& folding, const Cluster& cluster,
                                    const CollectiveOptions& options = {});

}  // namespace tidemark
