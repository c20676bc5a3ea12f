#pragma once

#include <cstdint>
#include <vector>

#include "sim/memory/stream_events.hpp"
#include "sim/program/program.hpp"

namespace tidemark::sim {

/// Events that are done once the host thread has waited for all that their streams had been given until then: the
/// latest that they can be, of what a program says. Nobody asks a clock.
class WaitedWork {
 public:
  struct Event {
    StreamId stream;
    std::int64_t work = 0;  // ops that the stream had been given
  };

  /// Ops are told in order.
  void note(const Op& op);

  [[nodiscard]] Event record(StreamId stream) const { return {stream, at(issued_, stream)}; }
  [[nodiscard]] bool done(const Event& event) const { return at(host_, event.stream) >= event.work; }
  void wait(const Event& event);

 private:
  using Clock = std::vector<std::int64_t>;  // by stream: how many of its ops lie before; those beyond its end: none
  static std::int64_t at(const Clock& clock, StreamId stream) {
    return stream.index() < clock.size() ? clock[stream.index()] : 0;
  }
  static std::int64_t& entry(Clock& clock, StreamId stream);
  static void merge(Clock& into, const Clock& from);
  static Clock& of(std::vector<Clock>& clocks, std::size_t index);

  Clock issued_, host_;
  std::vector<Clock> known_;     // by stream: of the others, what its next work comes after
  std::vector<Clock> recorded_;  // by event
};
static_assert(StreamEvents<WaitedWork>);

}  // namespace tidemark::sim
