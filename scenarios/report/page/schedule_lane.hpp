#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/predict/prediction.hpp"

namespace tidemark::scenarios {

/// What one rank does in one step: its passes to scale, and what it sends and receives beside them.
struct ScheduleLane {
  /// Kernels of one phase of a micro-batch, one after the other.
  struct Pass {
    Instant begin, end;
    Duration busy;  ///< in kernels
    Phase phase = Phase::Forward;
    std::int32_t micro_batch = -1;
  };
  /// Transfers with hardly a gap between them.
  struct Traffic {
    Instant begin, end;
    Duration busy;
    std::int32_t communicator = -1;  ///< by CommSlot; -1: copies between device and host
    Bytes bytes;
    std::int32_t transfers = 0;
  };
  Rank rank;
  std::vector<Pass> passes;
  std::vector<Traffic> traffic;
};

/// Gaps between transfers that are shorter than `finest` are not told. The trace has a timeline.
[[nodiscard]] ScheduleLane schedule_lane(const Job& job, const Trace& trace, Rank rank, std::int32_t step,
                                         Duration finest);

}  // namespace tidemark::scenarios
