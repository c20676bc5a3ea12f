#pragma once

#include <compare>
#include <cstdint>

#include "sim/base/units.hpp"

namespace tidemark::sim {

/// Simulated time: a whole number of picoseconds.
using Duration = Quantity<struct PicosecondUnit>;

/// A point of simulated time. Instants have distances; they do not add.
class Instant {
 public:
  constexpr Instant() = default;
  constexpr explicit Instant(Duration since_start) : since_start_(since_start) {}
  [[nodiscard]] constexpr Duration since_start() const { return since_start_; }

  friend constexpr Instant operator+(Instant at, Duration later) { return Instant{at.since_start_ + later}; }
  friend constexpr Instant operator-(Instant at, Duration earlier) { return Instant{at.since_start_ - earlier}; }
  friend constexpr Duration operator-(Instant a, Instant b) { return a.since_start_ - b.since_start_; }
  friend constexpr auto operator<=>(Instant, Instant) = default;

 private:
  Duration since_start_;
};

/// Bytes per second.
using Bandwidth = Quantity<struct BytePerSecondUnit>;

inline constexpr std::int64_t picoseconds_per_second = 1'000'000'000'000;

constexpr double seconds(Duration d) {
  return static_cast<double>(d.count()) / static_cast<double>(picoseconds_per_second);
}

/// How long a transfer takes, rounded up: never free. `rate` > 0.
constexpr Duration operator/(Bytes n, Bandwidth rate) {
  __extension__ using Wide = __int128;
  const Wide work = static_cast<Wide>(n.count()) * picoseconds_per_second;
  return Duration{static_cast<std::int64_t>((work + rate.count() - 1) / rate.count())};
}

namespace literals {
constexpr Duration operator""_ps(unsigned long long n) { return Duration{static_cast<std::int64_t>(n)}; }
constexpr Duration operator""_ns(unsigned long long n) { return Duration{static_cast<std::int64_t>(n) * 1'000}; }
constexpr Duration operator""_us(unsigned long long n) { return Duration{static_cast<std::int64_t>(n) * 1'000'000}; }
constexpr Duration operator""_ms(unsigned long long n) {
  return Duration{static_cast<std::int64_t>(n) * 1'000'000'000};
}
constexpr Bandwidth operator""_GBps(unsigned long long n) {
  return Bandwidth{static_cast<std::int64_t>(n) * 1'000'000'000};
}
}  // namespace literals

}  // namespace tidemark::sim
