#pragma once

#include <concepts>
#include <cstdint>
#include <map>

#include "sim/base/units.hpp"

namespace tidemark::sim {

/// How a caching allocator learns that other streams are done with a block, as from CUDA events.
template <class Events>
concept StreamEvents = requires(Events& events, StreamId stream, const typename Events::Event& event) {
  { events.record(stream) } -> std::same_as<typename Events::Event>;  // cudaEventRecord
  { events.done(event) } -> std::same_as<bool>;                       // cudaEventQuery
  { events.wait(event) } -> std::same_as<void>;                       // cudaEventSynchronize
};

/// Events that are done when somebody says so: who has a clock, or knows what the host waited for.
class StreamProgress {
 public:
  struct Event {
    StreamId stream;
    std::int64_t number = 0;  // of those recorded on the stream
  };

  Event record(StreamId stream) { return {stream, ++streams_[stream].recorded}; }
  [[nodiscard]] bool done(const Event& event) const {
    const auto found = streams_.find(event.stream);
    return found != streams_.end() && event.number <= found->second.done;
  }
  void wait(const Event& event) {
    std::int64_t& done = streams_[event.stream].done;
    if (done < event.number) done = event.number;
  }
  /// All events recorded on the stream so far.
  void finish(StreamId stream) {
    if (const auto found = streams_.find(stream); found != streams_.end()) found->second.done = found->second.recorded;
  }
  /// The first `events` that were recorded on the stream.
  void finish(StreamId stream, std::int64_t events) { wait({stream, events}); }
  /// How many were recorded on the stream.
  [[nodiscard]] std::int64_t recorded(StreamId stream) const {
    const auto found = streams_.find(stream);
    return found == streams_.end() ? 0 : found->second.recorded;
  }
  /// The how-manieth from the last one of its stream; 0: it is done.
  [[nodiscard]] std::int64_t from_last(StreamId stream, std::int64_t number) const {
    const auto found = streams_.find(stream);
    if (found == streams_.end() || number <= found->second.done) return 0;
    return 1 + found->second.recorded - number;
  }

 private:
  struct Stream {
    std::int64_t recorded = 0;
    std::int64_t done = 0;
  };
  std::map<StreamId, Stream> streams_;
};
static_assert(StreamEvents<StreamProgress>);

}  // namespace tidemark::sim
