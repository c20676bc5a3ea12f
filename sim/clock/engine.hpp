#pragma once

#include "sim/clock/folding.hpp"
#include "sim/clock/network.hpp"
#include "sim/clock/time_costs.hpp"
#include "sim/clock/trace.hpp"
#include "sim/program/structure/repeats.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::sim {

/// Runs every class's program on the simulated clock: a host thread and streams per class, collectives as rendezvous of
/// all members, messages matched pairwise in order. Deterministic: the same input gives the same trace.
[[nodiscard]] Trace simulate(const Workload& workload, const Folding& folding, const TimeCosts& costs,
                             LinkSharing sharing = LinkSharing::MaxMinFair);

/// The same, quicker: of programs that are not unrolled, kernels in a row are one entry, and transfers that meet no
/// others are as kernels.
[[nodiscard]] Trace simulate(const RepeatingWorkload& workload, const Folding& folding, const TimeCosts& costs,
                             LinkSharing sharing = LinkSharing::MaxMinFair);

}  // namespace tidemark::sim
