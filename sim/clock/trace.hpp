#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/clock/time_costs.hpp"
#include "sim/clock/timed_program.hpp"
#include "sim/program/program_times.hpp"

namespace tidemark::sim {

/// A transfer that a class took part in: for an exchange, from the first of its messages to the last.
struct TransferTimes {
  Instant begin;
  Instant end;
  Duration meeting = {};  ///< from the begin of its first message to that of its last, which somebody came late to
  bool operator==(const TransferTimes&) const = default;
};

/// A class of ranks that will never move again: the op that it stands at, and what it waits for.
struct Stall {
  std::int32_t rank_class = 0;
  std::uint32_t op = 0;
  std::string waiting_for;
  std::int32_t waits_for_class = -1;  ///< -1: nobody in particular
  bool operator==(const Stall&) const = default;
};

struct Completed {
  bool operator==(const Completed&) const = default;
};
/// Nothing moves any more. `cycle` holds classes, each waiting for the next and the last for the first; empty where a
/// class waits for one that has ended.
struct Deadlock {
  std::vector<Stall> stalls;
  std::vector<std::int32_t> cycle;
  bool operator==(const Deadlock&) const = default;
};

/// What happened on the ranks of one class, as far as it does not follow from their program alone (class_timeline.hpp).
struct ClassTrace {
  std::vector<Instant> step_ends;  ///< by step, construction first: when host and streams had done with it
  std::vector<std::vector<TransferTimes>> transfers;  ///< by StreamId, in order; but for those of `lone`
  std::map<CollectiveKey, Duration> lone;             ///< that meet no others on their links, and how long each takes
  Beside beside;                                      ///< what its kernels met
  /// In order. Everything that the class did at ops of a cycle is as much later each time. All classes leave out as
  /// many cycles of a step, and those of one program the same number of ops.
  std::vector<LeaptCycle> cycles;
  bool operator==(const ClassTrace&) const = default;
};

/// What happened, class by class.
struct Trace {
  std::variant<Completed, Deadlock> outcome;
  std::vector<ClassTrace> classes;
  Instant end;
  std::int64_t events = 0;  ///< queue entries handled and kernels completed
  std::int64_t leapt = 0;   ///< of them, in cycles that were as those before them
  bool operator==(const Trace&) const = default;
};

}  // namespace tidemark::sim
