#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

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

  Event record(StreamId stream) { return {stream, ++of(stream).recorded}; }
  [[nodiscard]] bool done(const Event& event) const { return event.number <= at(event.stream).done; }
  void wait(const Event& event) {
    std::int64_t& done = of(event.stream).done;
    if (done < event.number) done = event.number;
  }
  /// All events recorded on the stream so far.
  void finish(StreamId stream) {
    Stream& its = of(stream);
    its.done = its.recorded;
  }
  /// The first `events` that were recorded on the stream.
  void finish(StreamId stream, std::int64_t events) { wait({stream, events}); }
  /// How many were recorded on the stream.
  [[nodiscard]] std::int64_t recorded(StreamId stream) const { return at(stream).recorded; }
  /// The how-manieth from the last one of its stream; 0: it is done.
  [[nodiscard]] std::int64_t from_last(StreamId stream, std::int64_t number) const {
    const Stream its = at(stream);
    return number <= its.done ? 0 : 1 + its.recorded - number;
  }

 private:
  struct Stream {
    std::int64_t recorded = 0;
    std::int64_t done = 0;
  };
  Stream& of(StreamId stream) {
    if (streams_.size() <= stream.index()) streams_.resize(stream.index() + 1);
    return streams_[stream.index()];
  }
  [[nodiscard]] Stream at(StreamId stream) const {
    return stream.index() < streams_.size() ? streams_[stream.index()] : Stream{};
  }

  std::vector<Stream> streams_;
};
static_assert(StreamEvents<StreamProgress>);

}  // namespace tidemark::sim
