#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/predict/prediction.hpp"

namespace tidemark::scenarios {

/// The memory of one rank over one step, told by few points: of every stretch of events the highest and the lowest.
struct MemoryCurve {
  /// Tensors whose names differ by their layer alone, or what a driver holds.
  struct Kind {
    std::string name;
    Category category = Category::Temporaries;
  };
  struct Change {
    std::int32_t kind = 0;
    Bytes bytes;
    std::int32_t tensors = 0;
  };
  struct Point {
    Instant time;  ///< when the device comes to it; the host thread, which asks for memory, is there no later
    Phase phase = Phase::Construction;
    std::int32_t micro_batch = -1;
    std::int32_t place = 0;  ///< of `places`
    Bytes allocated, reserved, driver;
    Bytes pinned, pageable;       ///< on the host
    std::vector<Change> changes;  ///< since the point before; of the first one: since there was nothing
  };
  Rank rank;
  std::vector<Kind> kinds;
  std::vector<std::string> places;  ///< operators of the model, or what the framework is at
  std::vector<Point> points;
};

/// Of the group's ranks, which are alike. `stretches`: how many there are at most. The trace has a timeline.
[[nodiscard]] MemoryCurve memory_curve(const Job& job, const Trace& trace, const RankGroup& group, std::int32_t step,
                                       std::size_t stretches);

/// The most that the device holds in each of as many equal parts of the time from `begin` to `end`.
[[nodiscard]] std::vector<Bytes> highest_by_time(const Job& job, const Trace& trace, const RankGroup& group,
                                                 Instant begin, Instant end, std::size_t parts);

}  // namespace tidemark::scenarios
