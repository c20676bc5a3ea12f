#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/clock/timed_program.hpp"

namespace tidemark::sim {

/// The streams of one rank on a clock of their own (Beside): who holds multiprocessors when a kernel begins.
class RankAlone {
 public:
  RankAlone(const Beside& beside, std::size_t events) : beside_(beside), events_(any() ? events : 0) {}

  /// Whether any kernel can be held up at all: otherwise nothing need be told.
  [[nodiscard]] bool any() const { return !beside_.second_waves.empty() && !beside_.collectives.empty(); }

  /// How long a kernel runs that takes `duration` with the device to itself.
  Duration kernel(StreamId on, KernelId kernel, Duration duration) {
    Stream& its = stream(on);
    Duration longer;
    if (const Duration wave = beside_.second_waves[kernel.index()]; wave > Duration{})
      for (Stream& other : streams_)
        if (&other != &its) longer = std::max(longer, std::min(wave, left(other, its.tail)));
    its.tail += duration + longer;
    return duration + longer;
  }
  void collective(StreamId on, const CollectiveKey& key) {
    Stream& its = stream(on);
    const auto found = beside_.collectives.find(key);
    if (found == beside_.collectives.end()) return;
    its.held.push_back({its.tail, its.tail + found->second});
    its.tail = its.held.back().end;
  }
  void record(StreamId on, EventId event) { events_[event.index()] = stream(on).tail; }
  void wait(StreamId on, EventId event) {
    Stream& its = stream(on);
    its.tail = std::max(its.tail, events_[event.index()]);
  }

  [[nodiscard]] std::vector<Duration> tails() const {
    std::vector<Duration> tails;
    for (const Stream& its : streams_) tails.push_back(its.tail);
    return tails;
  }
  /// All of it happened so much later.
  void shift(Duration by) {
    for (Stream& its : streams_) {
      its.tail += by;
      for (Interval& held : its.held) held = {held.begin + by, held.end + by};
    }
    for (Duration& event : events_) event += by;
  }

 private:
  struct Interval {
    Duration begin, end;
  };
  struct Stream {
    Duration tail;
    std::deque<Interval> held;  ///< by its collectives, in order
  };

  Stream& stream(StreamId id) {
    if (id.index() >= streams_.size()) streams_.resize(id.index() + 1);
    return streams_[id.index()];
  }

  // How long the stream's collective of that moment goes on. Moments that are asked for grow: what is over stays so.
  static Duration left(Stream& of, Duration at) {
    while (!of.held.empty() && of.held.front().end <= at) of.held.pop_front();
    return !of.held.empty() && of.held.front().begin <= at ? of.held.front().end - at : Duration{};
  }

  const Beside& beside_;
  std::vector<Stream> streams_;   // by StreamId
  std::vector<Duration> events_;  // by EventId
};

}  // namespace tidemark::sim
