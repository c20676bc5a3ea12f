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
  explicit Works(const Program& program)
      : events_(static_cast<std::size_t>(program.events), kernels),
        recorded_on_(static_cast<std::size_t>(program.events)) {
    works_.resize(program.ops.size(), kernels);
    waits_for_.resize(program.ops.size());
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
                     [&](const Record& o) {
                       works_[i] = events_[o.event.index()] = last(o.stream);
                       recorded_on_[o.event.index()] = o.stream;
                     },
                     [&](const Wait& o) {
                       works_[i] = events_[o.event.index()];
                       waits_for_[i] = recorded_on_[o.event.index()];
                     },
                     Ignored<Launch, Alloc, Free, Borrow, Sync, CreateDriver, CreateCommunicator, Bind, Unbind, Mark>{},
                 },
                 op);
    }
  }
  [[nodiscard]] Work operator[](std::uint32_t op) const { return works_[op]; }
  /// The stream that a wait waits for; none of anything else.
  [[nodiscard]] StreamId waits_for(std::uint32_t op) const { return waits_for_[op]; }

 private:
  Work& last(StreamId stream) {
    if (stream.index() >= last_.size()) last_.resize(stream.index() + 1, kernels);
    return last_[stream.index()];
  }

  std::vector<Work> works_;            // by op
  std::vector<StreamId> waits_for_;    // by op
  std::vector<Work> events_;           // by event
  std::vector<StreamId> recorded_on_;  // by event
  std::vector<Work> last_;             // by stream
};

// When streams of kernels beside the first stand and wait for transfers. Who waits for such a stream waits for those.
class StandingStreams {
 public:
  StandingStreams(const ClassTimeline& timeline, const Works& works) {
    for (const Span& span : timeline.spans)
      if (span.stream.value != 0 && works.waits_for(span.op).valid() && works[span.op] != kernels) {
        if (span.stream.index() >= waits_.size()) waits_.resize(span.stream.index() + 1);
        waits_[span.stream.index()].push_back({span.begin, span.end, works[span.op]});
      }
  }
  /// Calls `tell(work, part)` of each part of a time in which the stream stands. Waits of a stream follow one another.
  template <class Tell>
  void each(StreamId stream, Instant begin, Instant end, const Tell& tell) const {
    if (!stream.valid() || stream.index() >= waits_.size()) return;
    const std::vector<Stood>& its = waits_[stream.index()];
    auto stood = std::ranges::upper_bound(its, begin, {}, &Stood::end);
    for (; stood != its.end() && stood->begin < end; ++stood)
      tell(stood->work, std::min(stood->end, end) - std::max(stood->begin, begin));
  }

 private:
  struct Stood {
    Instant begin, end;
    Work work = kernels;
  };
  std::vector<std::vector<Stood>> waits_;  // by stream
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
  const StandingStreams standing(timeline, works);
  StepTimes times;
  times.step = last_step(trace);
  times.transferring.resize(slots);
  times.waiting.resize(slots);
  times.idle = times.step;
  const auto add = [&](Work work, Duration part) {
    (work == kernels ? times.kernels
     : work == copy  ? times.copies
                     : times.transferring[static_cast<std::size_t>(work)]) += part;
  };
  for (const Span& span : timeline.spans) {
    if (span.stream.value != 0 || span.end <= from) continue;
    const Instant begin = std::max(span.begin, from);
    const Duration worked = span.end - begin, waited = begin - std::max(span.ready, from);
    const Work work = works[span.op];
    Duration rest = worked;
    if (work == kernels)
      standing.each(works.waits_for(span.op), begin, span.end, [&](Work other, Duration part) {
        add(other, part);
        rest -= part;
      });
    add(work, rest);
    if (work >= 0) times.waiting[static_cast<std::size_t>(work)] += waited;
    times.idle -= worked + waited;
  }
  return times;
}

}  // namespace tidemark::sim
