#include "sim/clock/summary.hpp"

#include <algorithm>

#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::sim {
namespace {

// What a stream does: a transfer in the communicator of that slot, or one of these.
using Work = std::int32_t;
constexpr Work kernels = -1, copy = -2;

// What each op of a program gives its stream to do, and what a wait waits for: the last transfer or copy before the
// event's record, on the recorded stream.
class Works {
 public:
  explicit Works(const Program& program) : events_(static_cast<std::size_t>(program.events), kernels) {
    works_.resize(program.ops.size(), kernels);
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      const Op& op = program.ops[i];
      // Most ops are of these, and none gives a stream anything but kernels to do.
      if (std::holds_alternative<Launch>(op) || std::holds_alternative<Alloc>(op) || std::holds_alternative<Free>(op) ||
          std::holds_alternative<Mark>(op))
        continue;
      std::visit(Overloaded{
                     [&](const Collective& o) { works_[i] = last(o.stream) = o.comm.value; },
                     [&](const Exchange& o) { works_[i] = last(o.stream) = o.comm.value; },
                     [&](const Memcpy& o) { works_[i] = last(o.stream) = copy; },
                     [&](const Record& o) { works_[i] = events_[o.event.index()] = last(o.stream); },
                     [&](const Wait& o) { works_[i] = events_[o.event.index()]; },
                     Ignored<Launch, Alloc, Free, Borrow, Sync, CreateDriver, CreateCommunicator, Bind, Unbind, Mark>{},
                 },
                 op);
    }
  }
  [[nodiscard]] Work operator[](std::uint32_t op) const { return works_[op]; }

 private:
  Work& last(StreamId stream) {
    if (stream.index() >= last_.size()) last_.resize(stream.index() + 1, kernels);
    return last_[stream.index()];
  }

  std::vector<Work> works_;   // by op
  std::vector<Work> events_;  // by event
  std::vector<Work> last_;    // by stream
};

Instant step_end(const Trace& trace, std::size_t steps_before_last) {
  Instant end;
  for (const ClassTrace& its : trace.classes) {
    ensure(its.step_ends.size() > steps_before_last, "a trace has a construction and steps");
    end = std::max(end, its.step_ends[its.step_ends.size() - 1 - steps_before_last]);
  }
  return end;
}

}  // namespace

Duration last_step(const Trace& trace) { return step_end(trace, 0) - step_end(trace, 1); }

StepTimes step_times(const Program& program, const ClassTimeline& timeline, const Trace& trace, std::size_t slots) {
  const Instant from = step_end(trace, 1);
  const Works works(program);
  StepTimes times;
  times.step = last_step(trace);
  times.transferring.resize(slots);
  times.waiting.resize(slots);
  times.idle = times.step;
  for (const Span& span : timeline.spans) {
    if (span.stream.value != 0 || span.end <= from) continue;
    const Duration worked = span.end - std::max(span.begin, from);
    const Duration waited = std::max(span.begin, from) - std::max(span.ready, from);
    if (const Work work = works[span.op]; work == kernels) {
      times.kernels += worked;
    } else if (work == copy) {
      times.copies += worked;
    } else {
      times.transferring[static_cast<std::size_t>(work)] += worked;
      times.waiting[static_cast<std::size_t>(work)] += waited;
    }
    times.idle -= worked + waited;
  }
  return times;
}

}  // namespace tidemark::sim
