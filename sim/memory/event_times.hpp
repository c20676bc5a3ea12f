#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "sim/memory/state_words.hpp"
#include "sim/memory/stream_events.hpp"
#include "sim/program/program_times.hpp"

namespace tidemark::sim {

/// When the events are done that an allocator records behind borrowed blocks, by a simulated clock.
class EventTimes {
 public:
  explicit EventTimes(const ProgramTimes& times) : times_(times) {}

  /// A block is borrowed by the stream: events may be recorded there.
  void watch(StreamId stream) {
    const auto known = std::ranges::any_of(streams_, [&](const Stream& its) { return its.id == stream; });
    if (!known) streams_.push_back({stream, 0, {}});
  }
  /// A block was freed at that op: events recorded for it are done once their streams are with what came before it.
  /// When the last of them is; nothing where there are none.
  std::optional<Instant> note(std::size_t op, const StreamProgress& events) {
    std::optional<Instant> last;
    for (Stream& its : streams_) {
      if (events.recorded(its.id) == its.noted) continue;
      its.noted = events.recorded(its.id);
      its.open.push_back({its.noted, times_.done(its.id, op)});
      last = std::max(last.value_or(Instant{}), its.open.back().done);
    }
    return last;
  }
  /// The host thread is at that op, at the instant returned: what is done by then, is.
  Instant finish(std::size_t op, StreamProgress& events) {
    const Instant now = times_.host_at(op);
    for (Stream& its : streams_) {
      for (; !its.open.empty() && its.open.front().done <= now; its.open.pop_front())
        events.finish(its.id, its.open.front().number);
    }
    return now;
  }
  /// What is open at the op that the host thread is at, `finish` having told what is not.
  void write(std::size_t op, const StreamProgress& events, StateWords& state) const {
    const Instant now = times_.host_at(op);
    for (const Stream& its : streams_) {
      state.add(its.id, std::max(times_.done(its.id, op) - now, Duration{}), its.open.size());
      for (const Event& event : its.open) state.add(events.from_last(its.id, event.number), event.done - now);
    }
  }
  /// All of it happened so much later.
  void shift(Duration later) {
    for (Stream& its : streams_)
      for (Event& event : its.open) event.done = event.done + later;
  }

 private:
  struct Event {
    std::int64_t number = 0;  // of those of its stream
    Instant done;
  };
  struct Stream {
    StreamId id;
    std::int64_t noted = 0;  // events
    std::deque<Event> open;  // in order
  };

  const ProgramTimes& times_;
  std::vector<Stream> streams_;
};

}  // namespace tidemark::sim
