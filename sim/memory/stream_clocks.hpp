#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/memory/state_words.hpp"
#include "sim/memory/stream_events.hpp"

namespace tidemark::sim {

/// Vector clocks of streams: how much of each stream's work is done before another's. Work is counted by the events
/// that an allocator recorded behind it when borrowed blocks were freed.
class StreamClocks {
 public:
  using Clock = std::vector<std::int64_t>;  ///< allocator's events by stream; those beyond its end: none

  /// What is done once an event is that is recorded on the stream now: the stream's own work, and what it waited for.
  [[nodiscard]] Clock record(StreamId stream, const StreamProgress& events) {
    Clock clock = before(stream);
    const auto its = static_cast<std::size_t>(stream.value);
    if (clock.size() <= its) clock.resize(its + 1, 0);
    clock[its] = events.recorded(stream);
    return clock;
  }

  /// From now on the stream's work comes after what that clock says.
  void wait(StreamId stream, const Clock& event) {
    Clock& clock = before(stream);
    if (clock.size() < event.size()) clock.resize(event.size(), 0);
    bool later = false;
    for (std::size_t s = 0; s < event.size(); ++s) {
      later |= event[s] > clock[s];
      clock[s] = std::max(clock[s], event[s]);
    }
    if (later) ++learned_[stream.index()];
  }
  /// How often the stream's work came to be after more than before.
  [[nodiscard]] std::int64_t learned(StreamId stream) const {
    return stream.index() < learned_.size() ? learned_[stream.index()] : 0;
  }

  /// What of a clock is not done.
  static void write(const Clock& clock, const StreamProgress& events, StateWords& state) {
    for (std::size_t s = 0; s < clock.size(); ++s)
      if (const auto open = events.from_last(StreamId{static_cast<std::int32_t>(s)}, clock[s]); open > 0)
        state.add(s, open);
    state.add(-1);
  }
  void write(const StreamProgress& events, StateWords& state) const {
    for (const Clock& clock : before_) write(clock, events, state);
  }

  /// The host waited for an event of that clock.
  static void finish(const Clock& event, StreamProgress& events) {
    for (std::size_t s = 0; s < event.size(); ++s)
      if (event[s] > 0) events.finish(StreamId{static_cast<std::int32_t>(s)}, event[s]);
  }

 private:
  Clock& before(StreamId stream) {
    const auto its = static_cast<std::size_t>(stream.value);
    if (before_.size() <= its) {
      before_.resize(its + 1);
      learned_.resize(its + 1, 0);
    }
    return before_[its];
  }

  std::vector<Clock> before_;  // by stream: of the others, what its next work comes after
  std::vector<std::int64_t> learned_;
};

}  // namespace tidemark::sim
