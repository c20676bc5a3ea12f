#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/program.hpp"
#include "sim/time.hpp"

namespace tidemark {

/// Work of one stream: the op of that index ran from start to end.
struct Span {
  std::uint32_t op = 0;
  StreamId stream;
  Instant start;  ///< of a collective or exchange: when this rank was ready; others may have kept it waiting
  Instant begin;  ///< when the work itself began
  Instant end;
  bool operator==(const Span&) const = default;
};

/// A class of ranks that will never move again: the op it stands at, and the class it waits for.
struct Stall {
  std::int32_t rank_class = 0;
  std::uint32_t op = 0;
  std::string waiting_for;
  std::int32_t waits_for_class = -1;
  bool operator==(const Stall&) const = default;
};

struct Completed {
  bool operator==(const Completed&) const = default;
};
/// Nothing moves any more. `cycle` are indices of stalls, each waiting for the next, the last for the first.
struct Deadlock {
  std::vector<Stall> stalls;
  std::vector<std::size_t> cycle;
  bool operator==(const Deadlock&) const = default;
};

/// What happened on the ranks of one class.
struct ClassTrace {
  std::vector<Span> spans;         ///< by stream in order; empty unless asked for
  std::vector<Instant> host;       ///< by op: when the host thread came to it; empty unless asked for
  std::vector<Instant> step_ends;  ///< by step, construction first: when host and streams were done with it
  Duration busy;                   ///< of stream 0 with kernels
  bool operator==(const ClassTrace&) const = default;
};

/// What happened, class by class.
struct Trace {
  std::variant<Completed, Deadlock> outcome;
  std::vector<ClassTrace> classes;
  Instant end;
  std::int64_t events = 0;  ///< queue entries and stream completions
  bool operator==(const Trace&) const = default;
};

}  // namespace tidemark
