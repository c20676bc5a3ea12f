#pragma once

#include <cstdint>
#include <vector>

#include "parallel/job/layout.hpp"
#include "parallel/schedule/dry_run.hpp"
#include "parallel/schedule/schedule.hpp"
#include "scenarios/namespace.hpp"
#include "sim/base/time.hpp"

// A step as passes, each one span: what runs when, and how much is in flight. Both are read from the schedules.

namespace tidemark::scenarios {

/// How long the passes of a chunk take.
struct PassSpans {
  Duration forward, backward;
  Duration host_forward{}, host_backward{};  ///< of the host thread
};

/// The passes of all pipeline ranks in one step.
class PassSchedule {
 public:
  PassSchedule(const Layout& layout, std::int64_t micro_batches);

  /// When each rank can have done its passes at the earliest, if they take `spans` (by rank and chunk) and hand-overs
  /// `message`, and devices begin at `begin`, their hosts at once.
  [[nodiscard]] std::vector<Duration> earliest_ends(const std::vector<std::vector<PassSpans>>& spans, Duration message,
                                                    const std::vector<Duration>& begin) const;
  /// When it has at the latest, however late its host is.
  [[nodiscard]] std::vector<Duration> latest_ends(const std::vector<std::vector<PassSpans>>& spans, Duration message,
                                                  const std::vector<Duration>& begin) const;

 private:
  StagePlacement placement_;
  P2pMode mode_;
  std::int64_t micro_batches_;
  std::vector<Steps> steps_;
};

/// Moments at which a rank has the most micro-batches in flight.
struct InFlight {
  struct At {
    ActionKind kind = ActionKind::Forward;
    std::int32_t chunk = 0;
    std::vector<std::int32_t> others;  ///< by chunk, without the pass's own
    bool operator==(const At&) const = default;
  };
  std::vector<At> moments;  ///< no other has as many of each for the same pass
};
[[nodiscard]] InFlight fullest_moments(const Schedule& schedule, std::int32_t chunks);

}  // namespace tidemark::scenarios
