#pragma once

#include <cstdint>
#include <vector>

#include "parallel/layout.hpp"
#include "parallel/schedule/schedule.hpp"
#include "scenarios/namespace.hpp"
#include "sim/base/time.hpp"

// A step as passes, each one span: what runs when, and how much is in flight.

namespace tidemark::scenarios {

// Whoever restates schedules asks these: another kind does not compile before it has its answer.

/// Whether ranks have several chunks that take turns.
[[nodiscard]] constexpr bool is_interleaved(ScheduleKind schedule) {
  switch (schedule) {
    case ScheduleKind::OneFOneB:
    case ScheduleKind::GPipe:
      return false;
    case ScheduleKind::Interleaved:
      return true;
  }
  return false;
}
/// Micro-batches that a rank has in flight when it begins its last forward pass before a backward one. Not of
/// interleaved schedules.
[[nodiscard]] std::int64_t run_ahead(const Layout& layout, std::int32_t pipeline, std::int64_t micro_batches);

/// How long the passes of a chunk take.
struct PassSpans {
  Duration forward, backward;
};

/// When each pipeline rank can have done its passes at the earliest, if they take `spans` (by rank and chunk) and
/// hand-overs `message`, and ranks begin at `begin`.
[[nodiscard]] std::vector<Duration> earliest_ends(const Layout& layout, std::int64_t micro_batches,
                                                  const std::vector<std::vector<PassSpans>>& spans, Duration message,
                                                  const std::vector<Duration>& begin);
/// When it has at the latest.
[[nodiscard]] std::vector<Duration> latest_ends(const Layout& layout, std::int64_t micro_batches,
                                                const std::vector<std::vector<PassSpans>>& spans, Duration message,
                                                const std::vector<Duration>& begin);

/// Moments of an interleaved schedule at which a rank has the most micro-batches in flight.
struct InFlight {
  struct At {
    ActionKind kind = ActionKind::Forward;
    std::int32_t chunk = 0;
    std::vector<std::int32_t> others;  ///< by chunk, without the pass's own
    bool operator==(const At&) const = default;
  };
  std::vector<At> moments;  ///< no other has as many of each for the same pass
};
[[nodiscard]] InFlight most_in_flight(const Layout& layout, std::int32_t pipeline, std::int64_t micro_batches);

}  // namespace tidemark::scenarios
