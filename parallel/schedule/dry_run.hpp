#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/schedule/messages.hpp"
#include "sim/base/time.hpp"

namespace tidemark::parallel {

/// A rank that waits for ever.
struct StuckRank {
  std::int32_t rank = 0;
  std::size_t step = 0;
  bool operator==(const StuckRank&) const = default;
};

/// A step of a pipeline, all passes and messages as spans of time.
struct DryRun {
  std::vector<Duration> ends;    ///< by rank, of its last step
  std::vector<StuckRank> stuck;  ///< nobody, unless ranks wait for each other or for what nobody sends
};

/// What each rank's host thread spends, which may run ahead of its device.
struct HostSpans {
  std::function<Duration(std::int32_t rank, const Action& action)> action;
  bool waits = false;  ///< for its device, after each exchange that is not beside actions
};

struct Spans {
  std::function<Duration(std::int32_t rank, const Action& action)> action;
  Duration message;             ///< from when both sides have begun; beside actions: from when it is sent
  std::vector<Duration> begin;  ///< by rank
  HostSpans host{};             ///< no action ends before its rank's host has handed it over
};

/// Runs the steps of all ranks.
[[nodiscard]] DryRun dry_run(const std::vector<Steps>& steps, const StagePlacement& placement, const Spans& spans);

/// Who waits for ever, in words: "rank 1 waits in [F0<0 B1>0]"; empty where all ranks run to their end.
[[nodiscard]] std::string deadlock(const std::vector<Steps>& steps, const StagePlacement& placement);

}  // namespace tidemark::parallel
