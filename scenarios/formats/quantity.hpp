#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "scenarios/namespace.hpp"
#include "sim/base/time.hpp"
#include "sim/base/units.hpp"
#include "topology/rates.hpp"

// Quantities as files write them: a number that is not negative, and a unit. Reading is exact: a text that is no whole
// number of the quantity's smallest unit is refused. Printing gives the shortest exact text that reads back.

namespace tidemark::scenarios {

/// Bytes read from a text, or why they could not be.
struct ParsedBytes {
  std::optional<Bytes> bytes;
  std::string why;  ///< empty when `bytes` is set
  /// Where a part of a byte is all that is wrong: without it.
  std::optional<Bytes> below{};
};
struct ParsedBandwidth {
  std::optional<Bandwidth> bandwidth;
  std::string why;
};
struct ParsedDuration {
  std::optional<Duration> duration;
  std::string why;
};
struct ParsedOperationRate {
  std::optional<OperationRate> rate;
  std::string why;
};
struct ParsedPower {
  std::optional<Power> power;
  std::string why;
};

/// "80 GiB", "81559 MiB", "79.25 GiB", "85520809984 B". Binary units count in 1024s, decimal ones (kB, MB, GB, TB) in
/// 1000s.
ParsedBytes parse_bytes(std::string_view text);
/// "450 GB/s", "3.35 TB/s", "400 Gb/s": bytes or, with a small b, bits; in whole bytes per second.
ParsedBandwidth parse_bandwidth(std::string_view text);
/// "2 us", "850 ns", "1.5 ms", "0.5 s"; in whole picoseconds.
ParsedDuration parse_duration(std::string_view text);
/// "989.4 TFLOP/s", "2.25 PFLOP/s"; in whole operations per second.
ParsedOperationRate parse_operation_rate(std::string_view text);
/// "700 W", "1.2 kW"; in whole watts.
ParsedPower parse_power(std::string_view text);

/// In the largest binary unit that divides it, such as "80 GiB".
std::string text(Bytes bytes);
/// In the largest decimal unit that divides it, such as "450 GB/s".
std::string text(Bandwidth bandwidth);
std::string text(Duration duration);
std::string text(OperationRate rate);
/// In watts, such as "700 W".
std::string text(Power power);
/// As a decimal fraction, such as "0.85" or "2".
std::string text(Ratio ratio);

}  // namespace tidemark::scenarios
