#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "sim/memory/state_words.hpp"
#include "sim/memory/stream_clocks.hpp"
#include "sim/memory/stream_events.hpp"
#include "sim/program/launch_queue.hpp"

namespace tidemark::sim {

/// What is certainly done because the host thread could hand over more: a launch that finds its channel full returns
/// once the device has begun the oldest launch there, and so is past all that this one came after. No clock is needed.
class QueuedLaunches {
 public:
  explicit QueuedLaunches(const LaunchQueue& queue)
      : queue_(queue), channels_(static_cast<std::size_t>(queue.channels)) {}

  /// The stream is handed so many launches, one after the other.
  void launch(StreamId stream, std::int64_t count, StreamClocks& clocks, StreamProgress& events) {
    Channel& its = channels_[queue_.channel_of(stream)];
    if (stream.index() >= known_.size()) known_.resize(stream.index() + 1);
    // Launches that come after the same as the last one of their stream tell nothing new.
    const StreamClocks::Clock now = clocks.record(stream, events);
    if (std::exchange(known_[stream.index()], now) != now) its.queued.push_back({its.launched, now});
    its.launched += count;
    for (; !its.queued.empty() && its.queued.front().launch < its.launched - queue_.depth; its.queued.pop_front())
      clocks.finish(its.queued.front().after, events);
  }
  /// Launches that may still tell something.
  void write(const StreamClocks& clocks, const StreamProgress& events, StateWords& state) const {
    for (const Channel& its : channels_) {
      for (const Queued& queued : its.queued) {
        state.add(its.launched - queued.launch);
        clocks.write(queued.after, events, state);
      }
      state.add(-1);
    }
    for (std::size_t s = 0; s < known_.size(); ++s)
      state.add(clocks.says(known_[s], StreamId{static_cast<std::int32_t>(s)}, events));
  }

 private:
  struct Queued {
    std::int64_t launch = 0;  // of its channel
    StreamClocks::Clock after;
  };
  struct Channel {
    std::int64_t launched = 0;
    std::deque<Queued> queued;  // in order; where what they come after grew
  };

  LaunchQueue queue_;
  std::vector<Channel> channels_;
  std::vector<StreamClocks::Clock> known_;  // by stream: of its last launch
};

}  // namespace tidemark::sim
