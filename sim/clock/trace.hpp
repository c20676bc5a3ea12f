#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/program/program.hpp"

namespace tidemark::sim {

/// Work of one stream. A transfer is `ready` when its rank has come to it; it may have to wait for others to begin.
struct Span {
  std::uint32_t op = 0;
  StreamId stream;
  Instant ready;
  Instant begin;
  Instant end;
  bool operator==(const Span&) const = default;
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

/// What happened on the ranks of one class.
struct ClassTrace {
  std::vector<Span> spans;         ///< in order of their ends being known; empty unless asked for
  std::vector<Instant> host;       ///< by op: when the host thread came to it; empty unless asked for
  std::vector<Instant> step_ends;  ///< by step, construction first: when host and streams had done with it
  bool operator==(const ClassTrace&) const = default;
};

/// What happened, class by class.
struct Trace {
  std::variant<Completed, Deadlock> outcome;
  std::vector<ClassTrace> classes;
  Instant end;
  std::int64_t events = 0;  ///< queue entries handled and kernels completed
  bool operator==(const Trace&) const = default;
};

}  // namespace tidemark::sim
