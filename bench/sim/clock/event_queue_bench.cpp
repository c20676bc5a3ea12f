// The hold model: of N events, the soonest is popped and its successor pushed at a random later time. The baseline is
// std::priority_queue with the same order. Items are events, each popped and pushed once.
#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/namespace.hpp"
#include "sim/clock/event_queue.hpp"

namespace tidemark::bench {
namespace {

/// As small as what an engine schedules: who goes on, and with what.
struct Wake {
  std::int32_t who = 0;
  std::int32_t what = 0;
};

class StandardQueue {
 public:
  struct Event {
    Instant at;
    std::uint64_t sequence;
    Wake payload;
    friend bool operator>(const Event& a, const Event& b) {
      return std::tie(a.at, a.sequence) > std::tie(b.at, b.sequence);
    }
  };
  void push(Instant at, Wake payload) { queue_.push({at, pushed_++, payload}); }
  Event pop() {
    const Event event = queue_.top();
    queue_.pop();
    return event;
  }

 private:
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  std::uint64_t pushed_ = 0;
};

/// Uniform up to 2^20 ps, about a microsecond, with ties: xorshift, which costs both queues the same nanosecond.
class Delays {
 public:
  Duration operator()() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return Duration{static_cast<std::int64_t>(state_ & 0xfffff)};
  }

 private:
  std::uint64_t state_ = 88172645463325252U;
};

template <class Queue>
void hold(benchmark::State& state) {
  const auto resident = static_cast<std::int32_t>(state.range(0));
  Queue queue;
  Delays delays;
  for (std::int32_t who = 0; who < resident; ++who) queue.push(Instant{delays()}, {who, 0});
  const auto step = [&] {
    const auto event = queue.pop();
    queue.push(event.at + delays(), event.payload);
  };
  for (std::int32_t i = 0; i < 4 * resident; ++i) step();  // until the times are as spread as they get
  for (auto _ : state) step();
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(hold<EventQueue<Wake>>)->Name("EventQueue/hold")->Arg(1 << 10)->Arg(1 << 16)->Arg(1 << 20);
BENCHMARK(hold<StandardQueue>)->Name("std::priority_queue/hold")->Arg(1 << 10)->Arg(1 << 16)->Arg(1 << 20);

}  // namespace
}  // namespace tidemark::bench
