#pragma once

#include <chrono>
#include <vector>

#include "kernels/execute/arithmetic_rank.hpp"
#include "sim/base/time.hpp"

namespace tidemark::execute {

/// How long each op of a program took on the wall clock, from the end of the one before: a hook of ArithmeticRank.
class OpClock {
 public:
  /// Whoever copies the hook writes here.
  [[nodiscard]] std::function<void(const ArithmeticRank&)> hook() {
    return [this](const ArithmeticRank& rank) {
      const Clock::time_point now = Clock::now();
      if (times_.size() != rank.program().ops.size()) times_.assign(rank.program().ops.size(), {});
      times_[rank.op()] =
          Duration{std::chrono::duration_cast<std::chrono::nanoseconds>(now - last_).count() * std::int64_t{1000}};
      last_ = Clock::now();
    };
  }
  void start() { last_ = Clock::now(); }
  /// By op.
  [[nodiscard]] const std::vector<Duration>& times() const { return times_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
  std::vector<Duration> times_;
};

}  // namespace tidemark::execute
