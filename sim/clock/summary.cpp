#include "sim/clock/summary.hpp"

#include <algorithm>

#include "sim/base/ensure.hpp"

namespace tidemark::sim {
namespace {

constexpr std::int32_t no_slot = -1;

// By event: the communicator of the last transfer before its record, on the recorded stream.
std::vector<std::int32_t> slots_of_events(const Program& program) {
  std::vector<std::int32_t> of_event(static_cast<std::size_t>(program.events), no_slot);
  std::vector<std::int32_t> last;  // by stream
  const auto at = [&](StreamId stream) -> std::int32_t& {
    if (stream.index() >= last.size()) last.resize(stream.index() + 1, no_slot);
    return last[stream.index()];
  };
  for (const Op& op : program.ops) {
    if (const auto* o = std::get_if<Collective>(&op)) at(o->stream) = o->comm.value;
    if (const auto* o = std::get_if<Exchange>(&op)) at(o->stream) = o->comm.value;
    if (const auto* o = std::get_if<Record>(&op)) of_event[o->event.index()] = at(o->stream);
  }
  return of_event;
}

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

std::vector<StepTimes> step_times(const Workload& workload, const Folding& folding, const Trace& trace) {
  const Instant from = step_end(trace, 1);
  std::vector<StepTimes> found;
  for (std::size_t c = 0; c < folding.classes.size(); ++c) {
    const Program& program = workload.programs[static_cast<std::size_t>(folding.classes[c].program)];
    const std::vector<std::int32_t> slot_of_event = slots_of_events(program);
    StepTimes times;
    times.step = last_step(trace);
    times.transferring.resize(workload.communicators.size());
    times.waiting.resize(workload.communicators.size());
    times.idle = times.step;
    for (const Span& span : trace.classes[c].spans) {
      if (span.stream.value != 0 || span.end <= from) continue;
      const Duration worked = span.end - std::max(span.begin, from);
      const Duration waited = std::max(span.begin, from) - std::max(span.ready, from);
      std::int32_t slot = no_slot;
      if (const auto* o = std::get_if<Collective>(&program.ops[span.op])) slot = o->comm.value;
      if (const auto* o = std::get_if<Exchange>(&program.ops[span.op])) slot = o->comm.value;
      if (const auto* o = std::get_if<Wait>(&program.ops[span.op])) slot = slot_of_event[o->event.index()];
      if (slot == no_slot) {
        times.kernels += worked;
      } else {
        times.transferring[static_cast<std::size_t>(slot)] += worked;
        times.waiting[static_cast<std::size_t>(slot)] += waited;
      }
      times.idle -= worked + waited;
    }
    found.push_back(std::move(times));
  }
  return found;
}

}  // namespace tidemark::sim
