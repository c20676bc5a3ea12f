#include "sim/clock/summary.hpp"

#include <algorithm>

#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::sim {
namespace {

// What a stream does: a transfer in the communicator of that slot, or one of these.
using Work = std::int32_t;
constexpr Work kernels = -1, copy = -2, standing = -3;

Duration within(Instant from, Instant until, Instant begin, Instant end) {
  return std::max(std::min(end, until) - std::max(begin, from), Duration{});
}

// What streams do of a step's time. One that stands does what the stream that it waits for does: that has been handed
// all it is to do before, and goes through it without a gap.
class StreamAccount {
 public:
  StreamAccount(const Program& program, const ClassTimeline& timeline, Instant from, StepTimes& times)
      : program_(program), times_(times), works_(program.ops.size(), kernels), waits_for_(program.ops.size()) {
    find_works();
    for (const Span& span : timeline.spans)
      if (span.end > from) spans_of(span.stream).push_back(&span);
  }

  /// Of the stream, from the step's begin on.
  void add(StreamId stream, Instant from, Instant until) {
    if (stream.index() >= spans_.size()) return;
    const std::vector<const Span*>& its = spans_[stream.index()];
    for (auto span = std::ranges::upper_bound(its, from, {}, &Span::end); span != its.end() && (*span)->ready < until;
         ++span)
      add_part(**span, from, until);
  }

 private:
  void add_part(const Span& span, Instant from, Instant until) {
    const Work work = works_[span.op];
    if (work == standing) return add(waits_for_[span.op], std::max(span.begin, from), std::min(span.end, until));
    const Instant moves = span.begin + span.meeting;
    const Duration worked = within(from, until, moves, span.end);
    (work == kernels ? times_.kernels
     : work == copy  ? times_.copies
                     : times_.transferring[static_cast<std::size_t>(work)]) += worked;
    if (work >= 0) times_.waiting[static_cast<std::size_t>(work)] += within(from, until, span.ready, moves);
  }

  void find_works() {
    std::vector<StreamId> recorded_on(static_cast<std::size_t>(program_.events));
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      // Most ops are of these, and none gives a stream anything but kernels to do.
      if (std::holds_alternative<Launch>(op) || std::holds_alternative<Alloc>(op) || std::holds_alternative<Free>(op) ||
          std::holds_alternative<Mark>(op))
        continue;
      std::visit(Overloaded{
                     [&](const Collective& o) { works_[i] = o.comm.value; },
                     [&](const Exchange& o) { works_[i] = o.comm.value; },
                     [&](const Memcpy&) { works_[i] = copy; },
                     [&](const Record& o) { recorded_on[o.event.index()] = o.stream; },
                     [&](const Wait& o) {
                       works_[i] = standing;
                       waits_for_[i] = recorded_on[o.event.index()];
                     },
                     Ignored<Launch, Alloc, Free, CrossStreamUse, Sync, CreateDriver, CreateCommunicator, Bind, Unbind,
                             Mark>{},
                 },
                 op);
    }
  }

  std::vector<const Span*>& spans_of(StreamId stream) {
    if (stream.index() >= spans_.size()) spans_.resize(stream.index() + 1);
    return spans_[stream.index()];
  }

  const Program& program_;
  StepTimes& times_;
  std::vector<Work> works_;                      // by op
  std::vector<StreamId> waits_for_;              // by op
  std::vector<std::vector<const Span*>> spans_;  // by stream, one after another
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

Instant last_step_begin(const Trace& trace) { return step_end(trace, 1); }

StepTimes step_times(const Program& program, const ClassTimeline& timeline, const Trace& trace, std::size_t slots) {
  return step_times(program, timeline, last_step_begin(trace), last_step(trace), slots);
}

StepTimes step_times(const Program& program, const ClassTimeline& timeline, Instant from, Duration step,
                     std::size_t slots) {
  StepTimes times;
  times.step = step;
  times.transferring.resize(slots);
  times.waiting.resize(slots);
  StreamAccount(program, timeline, from, times).add(StreamId{0}, from, from + times.step);
  times.idle = times.step - times.kernels - times.copies;
  for (std::size_t slot = 0; slot < slots; ++slot) times.idle -= times.transferring[slot] + times.waiting[slot];
  return times;
}

}  // namespace tidemark::sim
