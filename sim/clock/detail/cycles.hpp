#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "sim/clock/detail/engine_state.hpp"
#include "sim/clock/event_queue.hpp"
#include "sim/clock/network.hpp"
#include "sim/clock/trace.hpp"

// In the middle of a step all classes do the same again and again, each time as much later. Once the engine's whole
// state is what it was some bodies ago, but for the time and for how many bodies are done, it comes to that state again
// after as many more bodies: these are not played.

namespace tidemark::sim {

class Cycles {
 public:
  struct Parts {
    EngineState& state;
    Pool<ActiveTransfer>& transfers;
    EventQueue<QueuedEvent>& queue;
    Network& network;
    Trace& trace;
  };
  explicit Cycles(const Parts& parts);

  /// Whether the stream that is watched has come to another body.
  [[nodiscard]] bool is_due() const { return watched_ != nullptr && watched_->next.place() >= next_look_; }

  /// To be called between two instants, of which `now` is the next: compares the state with earlier ones, and leaps
  /// over as many cycles as the loop still has.
  void look(Instant now);

 private:
  // All that decides what happens, but for the time and the number of bodies; and what a leap has to count on.
  struct Sample {
    std::vector<std::int64_t> state;
    Instant at;
    std::int64_t events = 0;
    struct Bodies {
      std::int64_t host = 0, lowest = 0, highest = 0;
    };
    std::vector<Bodies> bodies;                       // by class: that its host thread is in, and its streams
    std::vector<std::vector<std::size_t>> transfers;  // by class and stream: over so far
    std::vector<std::vector<std::int64_t>> done;      // by class and stream: the last stretch before which all is
    std::vector<std::vector<std::int64_t>> over;      // by class and channel: launches that may be asked for
    std::vector<std::vector<std::int64_t>> meetings;  // by class and slot: come to so far
    std::vector<std::int64_t> closed;                 // by group: meetings
  };
  class Taking;

  void watch();
  void end_loop();
  [[nodiscard]] std::int64_t cycles_left(const Sample& known, const Sample& here) const;
  void leap(const Sample& known, const Sample& here, std::int64_t cycles);
  void leap(std::int32_t c, const Sample& known, const Sample& here, std::int64_t cycles);
  void note_cycles(const Sample& known, const Sample& here, std::int64_t cycles);
  [[nodiscard]] std::vector<std::int32_t> open_exchanges() const;

  Parts parts_;
  std::size_t loop_ = 0;  // of those of each class
  const StreamState* watched_ = nullptr;
  std::int64_t next_look_ = 0;  // entry of the stream
  std::deque<Sample> samples_;  // the latest ones
};

}  // namespace tidemark::sim
