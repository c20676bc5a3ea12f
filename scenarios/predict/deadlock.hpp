#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/predict/job.hpp"
#include "sim/clock/trace.hpp"

namespace tidemark::scenarios {

/// A rank that never moves again; others of its class stand there too.
struct StalledRank {
  Rank rank;               ///< the lowest of its class
  std::int32_t alike = 0;  ///< ranks of the class, itself included
  std::string op;          ///< text of the op that it stands at
  std::string phase;
  std::string waiting_for;
  std::optional<Rank> waits_for;  ///< that has not come; nothing where it waits for nobody in particular
  bool operator==(const StalledRank&) const = default;
};

/// Who waits for whom where a job deadlocks.
struct DeadlockReport {
  std::vector<StalledRank> stalls;
  std::vector<Rank>
      cycle;  ///< each waits for the next, the last for the first; empty where one waits for a rank that has ended
  bool operator==(const DeadlockReport&) const = default;
};

/// Nothing where the trace is that of a run to its end.
[[nodiscard]] std::optional<DeadlockReport> deadlock_of(const Job& job, const Trace& trace);

/// As lines of an answer.
[[nodiscard]] std::string deadlock_text(const DeadlockReport& report);

}  // namespace tidemark::scenarios
