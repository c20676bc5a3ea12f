#pragma once

#include <chrono>
#include <functional>
#include <limits>
#include <vector>

#include <malloc.h>

#include "kernels/arithmetic/arithmetic_rank.hpp"
#include "sim/base/time.hpp"

namespace tidemark::execute {

/// How long each op of a program took on the wall clock, from the end of the one before: a hook of ArithmeticRank.
/// From the first one on, memory that is given back stays with the process: whether the system takes pages back, and
/// has to find new ones when they are touched, would depend on what was freed in what order before (glibc's dynamic
/// thresholds), and take longer than what is timed. So a run before the first that counts is needed.
class OpClock {
 public:
  OpClock() {
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  }

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
