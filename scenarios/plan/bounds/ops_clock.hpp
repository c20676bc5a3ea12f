#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "scenarios/plan/bounds/group_costs.hpp"
#include "scenarios/plan/bounds/sample.hpp"
#include "sim/base/time.hpp"
#include "sim/clock/host_costs.hpp"
#include "sim/program/program.hpp"

namespace tidemark::scenarios {

/// The prices of the groups that an op's communicator has.
using CostsOf = std::function<const GroupCosts&(const TimedOp&)>;

/// Between which bounds ops on a compute stream and those beside it take, from when all before them is done. Low: every
/// collective is alone on the fabric, the host is never late and no kernel waits for a collective beside it. High: the
/// host starts with the streams and needs `launch` for each op.
[[nodiscard]] DurationBounds clock_bounds(const std::vector<TimedOp>& ops, Duration launch, const CostsOf& costs_of);

/// The low end with the second waves of kernels beside collectives, as ops settle it that everything follows on the
/// compute stream when they are done.
struct LowWithSecondWaves {
  Duration low;
  bool runs_on = false;           ///< a stream without collectives may be done later than the compute stream
  bool waits_for_before = false;  ///< a stream waits for what was recorded before these ops
};
/// Nothing where a collective takes longer in some group than in another, may begin before the ops, or is not over when
/// the compute stream is done.
[[nodiscard]] std::optional<LowWithSecondWaves> low_with_second_waves(const std::vector<TimedOp>& ops,
                                                                      const CostsOf& costs_of);

/// How many launches ops take, by phase.
using Launches = std::array<std::int64_t, phases>;
[[nodiscard]] Launches launches_of(const std::vector<TimedOp>& ops);
/// What they take of the host thread.
[[nodiscard]] Duration host_time(const Launches& launches, const HostCosts& costs);

}  // namespace tidemark::scenarios
