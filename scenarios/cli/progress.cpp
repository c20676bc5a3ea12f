#include "scenarios/cli/progress.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

namespace tidemark::cli {

Progress progress_on_terminal(std::string what) {
  if (isatty(STDERR_FILENO) == 0) return {};
  const auto start = std::chrono::steady_clock::now();
  return [what = std::move(what), start, shown = start](std::size_t done, std::size_t all) mutable {
    using namespace std::chrono_literals;
    const auto now = std::chrono::steady_clock::now();
    if (now - start < 1s) return;
    if (done == all) {
      fmt::print(stderr, "\r\033[K");
      return;
    }
    if (now - shown < 100ms) return;
    shown = now;
    const double seconds = std::chrono::duration<double>(now - start).count();
    fmt::print(stderr, "\r\033[K{}: {} of {}, about {:.0f} s left", what, done, all,
               seconds / static_cast<double>(done) * static_cast<double>(all - done));
    std::fflush(stderr);
  };
}

PlanProgress plan_progress_on_terminal() {
  if (isatty(STDERR_FILENO) == 0) return {};
  using Clock = std::chrono::steady_clock;
  struct Part {
    std::string what;
    std::int64_t before = 0;
    Clock::time_point start;
  };
  const auto start = Clock::now();
  return [start, shown = start, part = Part{{}, 0, start}](const std::string& what, std::int64_t done,
                                                           std::int64_t all) mutable {
    using namespace std::chrono_literals;
    const auto now = Clock::now();
    if (what != part.what) part = {what, done - 1, now};
    if (now - start < 1s) return;
    if (done >= all) {
      fmt::print(stderr, "\r\033[K");
      return;
    }
    if (now - shown < 100ms) return;
    shown = now;
    const double seconds = std::chrono::duration<double>(now - part.start).count();
    const double rate = static_cast<double>(done - part.before) / std::max(seconds, 1e-3);
    fmt::print(stderr, "\r\033[K{}: {} of {}, {:.1f} a second, at most {:.0f} s left", what, done, all, rate,
               static_cast<double>(all - done) / rate);
    std::fflush(stderr);
  };
}

}  // namespace tidemark::cli
