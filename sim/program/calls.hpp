#pragma once

#include "sim/program/structure/repeats.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::sim {

/// The workload with each call once that one of its programs makes: every collective of a group by kind and size, every
/// exchange by what goes which way, every copy between device and host. That is all that prices, links and classes of
/// ranks depend on, and programs of many micro-batches say it again and again. Kernels stay as they are.
[[nodiscard]] Workload calls_of(const Workload& workload);
[[nodiscard]] Workload calls_of(const RepeatingWorkload& workload);

}  // namespace tidemark::sim
