#pragma once

#include <vector>

#include "sim/base/time.hpp"
#include "sim/clock/folding.hpp"
#include "sim/clock/time_costs.hpp"
#include "sim/clock/trace.hpp"
#include "sim/program/program.hpp"
#include "sim/program/structure/repeats.hpp"
#include "sim/program/workload.hpp"

// Ranks wait for each other in transfers alone. When these were is what a trace tells; all that a class did between
// them follows from its own program, one class at a time.

namespace tidemark::sim {

/// Work of one stream. A transfer is `ready` when its rank has come to it; it may have to wait for others to begin.
struct Span {
  std::uint32_t op = 0;
  StreamId stream;
  Instant ready;
  Instant begin;
  Instant end;
  Duration meeting = {};  ///< of an exchange, after its begin: until its last message begins
  bool operator==(const Span&) const = default;
};

/// What the ranks of one class did, op by op.
struct ClassTimeline {
  std::vector<Span> spans;    ///< in order of ops; of what was never begun there is none
  std::vector<Instant> host;  ///< by op: when the host thread came to it; zero where it never did
  std::vector<Cycle> cycles;  ///< that come again: `spans` and `host` are of a job without that
  bool operator==(const ClassTimeline&) const = default;
};

/// Of the class that runs the program in the trace. `times` are the class's of what the trace was simulated with.
[[nodiscard]] ClassTimeline timeline_of(const Program& program, const OpTimes& times, const ClassTrace& reported);

/// The same of a job that leaves out of each leapt cycle all that comes again but `kept` times, as
/// ClassTimeline::cycles then say. `few` is the program without it (`without_cycles`).
[[nodiscard]] ClassTimeline short_timeline_of(const Program& few, const OpTimes& times, const ClassTrace& reported,
                                              std::int64_t kept);
[[nodiscard]] RepeatingProgram without_cycles(RepeatingProgram program, const ClassTrace& reported, std::int64_t kept);

/// Of every class.
[[nodiscard]] std::vector<ClassTimeline> timelines(const Workload& workload, const Folding& folding,
                                                   const TimeCosts& costs, const Trace& trace);

}  // namespace tidemark::sim
