#include "scenarios/cli/terminal/progress.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "scenarios/cli/terminal/terminal.hpp"

namespace tidemark::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// "1 h 12 min", "48 s": as exact as anybody waits.
std::string waiting(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(seconds, 0.0) + 0.5);
  if (whole < 100) return fmt::format("{} s", whole);
  if (whole < 6000) return fmt::format("{} min", (whole + 30) / 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

/// One line of a terminal that is written again and again, after the first second and ten times a second. In a log, a
/// line a minute.
class ProgressLine {
 public:
  void show(const std::string& what, std::int64_t done, std::int64_t all, const std::string& rest) {
    if (seconds_since(start_) < 1) return;
    // Threads report in any order.
    if (what == what_ && done < done_) return;
    what_ = what, done_ = done;
    if (!terminal_.is_one) {
      if (done >= all || seconds_since(shown_) < 60) return;
      shown_ = Clock::now();
      fmt::print(stderr, "{}: {} of {}, {}\n", what, done, all, rest);
      return;
    }
    if (done >= all) {
      fmt::print(stderr, "\r\033[K");
      return;
    }
    if (seconds_since(shown_) < 0.1) return;
    shown_ = Clock::now();
    constexpr std::int64_t cells = 20;
    const auto full = static_cast<std::size_t>(cells * done / std::max<std::int64_t>(all, 1));
    std::string line = fmt::format("{} [{:<{}}] {} of {}, {}", what, std::string(full, '#'), cells, done, all, rest);
    // A line that goes on below would stay.
    if (terminal_.columns > 1 && line.size() >= terminal_.columns) line.resize(terminal_.columns - 1);
    fmt::print(stderr, "\r\033[K{}", line);
    std::fflush(stderr);
  }
  [[nodiscard]] Clock::time_point start() const { return start_; }

 private:
  Terminal terminal_ = terminal(STDERR_FILENO);
  Clock::time_point start_ = Clock::now(), shown_ = start_;
  std::string what_;
  std::int64_t done_ = 0;
};

}  // namespace

Progress progress_on_terminal(std::string what, Loudness loudness) {
  if (loudness.quiet) return {};
  return [what = std::move(what), line = ProgressLine()](std::size_t done, std::size_t all) mutable {
    const double left = seconds_since(line.start()) / static_cast<double>(done) * static_cast<double>(all - done);
    line.show(what, static_cast<std::int64_t>(done), static_cast<std::int64_t>(all), waiting(left) + " left");
  };
}

PlanProgress plan_progress_on_terminal(Loudness loudness) {
  if (loudness.quiet) return {};
  struct Part {
    std::string what;
    std::int64_t before = 0;
    Clock::time_point start;
  };
  return [line = ProgressLine(), part = Part()](const std::string& what, std::int64_t done, std::int64_t all) mutable {
    if (what != part.what) part = {what, done - 1, Clock::now()};
    const double rate = static_cast<double>(done - part.before) / std::max(seconds_since(part.start), 1e-3);
    line.show(what, done, all,
              fmt::format("{:.1f} a second, at most {} left", rate, waiting(static_cast<double>(all - done) / rate)));
  };
}

}  // namespace tidemark::cli
