#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/memory/state_words.hpp"
#include "sim/memory/stream_events.hpp"

namespace tidemark::sim {

/// Vector clocks of streams: how much of each stream's work is done before another's. Work is counted by the events
/// that an allocator recorded behind lent blocks when these were freed.
class StreamClocks {
 public:
  /// What is done once an event is, among all that were recorded: most say what the one before them on their stream
  /// says. None: nothing.
  struct Clock {
    std::int32_t number = -1;
    bool operator==(const Clock&) const = default;
  };

  /// Of an event that is recorded on the stream now: the stream's own work, and what it waited for.
  [[nodiscard]] Clock record(StreamId stream, const StreamProgress& events) {
    Stream& its = of(stream);
    const std::int64_t own = events.recorded(stream);
    if (its.latest.number >= 0 && its.recorded == own && !its.learned) return its.latest;
    Counts counts = its.before;
    if (counts.size() <= stream.index()) counts.resize(stream.index() + 1, 0);
    counts[stream.index()] = own;
    its.latest = {static_cast<std::int32_t>(clocks_.size())};
    its.recorded = own;
    its.learned = false;
    clocks_.push_back({std::move(counts)});
    return its.latest;
  }
  /// Whether an event recorded on the stream now says what that one does.
  [[nodiscard]] bool says(Clock clock, StreamId stream, const StreamProgress& events) const {
    if (clock.number < 0 || stream.index() >= streams_.size()) return false;
    const Stream& its = streams_[stream.index()];
    return its.latest == clock && its.recorded == events.recorded(stream) && !its.learned;
  }

  /// From now on the stream's work comes after what that clock says.
  void wait(StreamId stream, Clock event) {
    if (event.number < 0) return;
    Stream& its = of(stream);
    if (its.waited == event) return;
    its.waited = event;
    const Counts& counts = clocks_[static_cast<std::size_t>(event.number)].counts;
    if (its.before.size() < counts.size()) its.before.resize(counts.size(), 0);
    for (std::size_t s = 0; s < counts.size(); ++s) {
      if (counts[s] <= its.before[s]) continue;
      its.before[s] = counts[s];
      its.learned = true;
    }
  }

  /// The host waited for an event of that clock.
  void finish(Clock event, StreamProgress& events) {
    if (event.number < 0) return;
    Recorded& its = clocks_[static_cast<std::size_t>(event.number)];
    if (std::exchange(its.finished, true)) return;
    for (std::size_t s = 0; s < its.counts.size(); ++s)
      if (its.counts[s] > 0) events.finish(StreamId{static_cast<std::int32_t>(s)}, its.counts[s]);
  }

  /// What of a clock is not done.
  void write(Clock clock, const StreamProgress& events, StateWords& state) const {
    write(clock.number < 0 ? Counts{} : clocks_[static_cast<std::size_t>(clock.number)].counts, events, state);
  }
  void write(const StreamProgress& events, StateWords& state) const {
    for (const Stream& its : streams_) write(its.before, events, state);
  }

 private:
  using Counts = std::vector<std::int64_t>;  // allocator's events by stream; those beyond its end: none
  struct Recorded {
    Counts counts;
    bool finished = false;  // the host has waited for it
  };
  struct Stream {
    Counts before;  // of the others, what its next work comes after
    Clock latest, waited;
    std::int64_t recorded = 0;  // events of its own, when the latest was
    bool learned = false;       // of others, since then
  };

  static void write(const Counts& counts, const StreamProgress& events, StateWords& state) {
    for (std::size_t s = 0; s < counts.size(); ++s)
      if (const auto open = events.from_last(StreamId{static_cast<std::int32_t>(s)}, counts[s]); open > 0)
        state.add(s, open);
    state.add(-1);
  }
  Stream& of(StreamId stream) {
    if (streams_.size() <= stream.index()) streams_.resize(stream.index() + 1);
    return streams_[stream.index()];
  }

  std::vector<Stream> streams_;
  std::vector<Recorded> clocks_;
};

}  // namespace tidemark::sim
