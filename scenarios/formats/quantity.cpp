#include "scenarios/formats/quantity.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t size;
};

// Largest unit first: printing takes the first that divides, up to the one of size 1.
constexpr std::array byte_units{Unit{"TiB", std::int64_t{1} << 40},
                                Unit{"GiB", std::int64_t{1} << 30},
                                Unit{"MiB", std::int64_t{1} << 20},
                                Unit{"KiB", std::int64_t{1} << 10},
                                Unit{"B", 1},
                                Unit{"TB", 1'000'000'000'000},
                                Unit{"GB", 1'000'000'000},
                                Unit{"MB", 1'000'000},
                                Unit{"kB", 1'000},
                                Unit{"KB", 1'000}};
constexpr std::array bandwidth_units{Unit{"TB/s", 1'000'000'000'000},
                                     Unit{"GB/s", 1'000'000'000},
                                     Unit{"MB/s", 1'000'000},
                                     Unit{"kB/s", 1'000},
                                     Unit{"B/s", 1},
                                     Unit{"Tb/s", 125'000'000'000},
                                     Unit{"Gb/s", 125'000'000},
                                     Unit{"Mb/s", 125'000},
                                     Unit{"kb/s", 125},
                                     Unit{"TiB/s", std::int64_t{1} << 40},
                                     Unit{"GiB/s", std::int64_t{1} << 30},
                                     Unit{"MiB/s", std::int64_t{1} << 20}};
constexpr std::array duration_units{Unit{"s", picoseconds_per_second}, Unit{"ms", 1'000'000'000}, Unit{"us", 1'000'000},
                                    Unit{"ns", 1'000}, Unit{"ps", 1}};
constexpr std::array operation_units{Unit{"PFLOP/s", 1'000'000'000'000'000}, Unit{"TFLOP/s", 1'000'000'000'000},
                                     Unit{"GFLOP/s", 1'000'000'000}, Unit{"MFLOP/s", 1'000'000}, Unit{"FLOP/s", 1}};
constexpr std::array power_units{Unit{"kW", 1'000}, Unit{"W", 1}};
constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\t'; }

std::string_view digits_of(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  const auto count = static_cast<std::size_t>(end - text.begin());
  const std::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

/// The value of a run of digits; nothing when it is too large.
std::optional<std::int64_t> value_of(std::string_view digits) {
  std::int64_t value = 0;
  for (const char c : digits) {
    const std::int64_t digit = c - '0';
    if (value > (largest - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

struct Parsed {
  std::optional<std::int64_t> count;
  std::string why;
  std::optional<std::int64_t> below{};  ///< without the part that is too small for the unit of size 1
};

/// `text` in the unit of size 1, which `whole_of` names in the plural.
Parsed parse(std::string_view text, std::span<const Unit> units, std::string_view whole_of) {
  const auto refuse = [&](std::string_view why) {
    return Parsed{std::nullopt, in_quotes(text) + " " + std::string(why)};
  };
  std::string_view rest = text;
  const std::string_view whole_digits = digits_of(rest);
  std::string_view fraction_digits;
  if (!rest.empty() && rest.front() == '.') {
    rest.remove_prefix(1);
    fraction_digits = digits_of(rest);
    if (fraction_digits.empty()) return refuse("is not a number and a unit");
  }
  if (whole_digits.empty()) return refuse("is not a number and a unit");
  while (!rest.empty() && is_space(rest.front())) rest.remove_prefix(1);
  if (rest.empty()) return refuse("has no unit");
  const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == rest; });
  if (unit == units.end()) return refuse("has an unknown unit");

  const std::optional<std::int64_t> whole = value_of(whole_digits);
  if (!whole || *whole > largest / unit->size) return refuse("is too large");

  // fraction x unit / 10^digits has to be whole; reduced first, so that nothing overflows.
  while (!fraction_digits.empty() && fraction_digits.back() == '0') fraction_digits.remove_suffix(1);
  std::int64_t below = 0;  // rounded down, digit by digit from the last
  for (auto digit = fraction_digits.rbegin(); digit != fraction_digits.rend(); ++digit)
    below = ((*digit - '0') * unit->size + below) / 10;
  const auto refuse_part = [&] {
    Parsed refused = refuse("is not a whole number of " + std::string(whole_of));
    if (unit->size > 1 && *whole * unit->size <= largest - below) refused.below = *whole * unit->size + below;
    return refused;
  };
  std::int64_t scale = 1;
  for (std::size_t i = 0; i < fraction_digits.size(); ++i) {
    if (scale > largest / 10) return refuse_part();
    scale *= 10;
  }
  const std::int64_t fraction = value_of(fraction_digits).value_or(0);
  const std::int64_t common = std::gcd(unit->size, scale);
  if (fraction % (scale / common) != 0) return refuse_part();
  const std::int64_t parts = fraction / (scale / common) * (unit->size / common);
  if (*whole * unit->size > largest - parts) return refuse("is too large");
  return {*whole * unit->size + parts, {}};
}

/// In the first of `units` that divides `count`; the unit of size 1 divides every count.
std::string print(std::int64_t count, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (unit.size == 1 || (count != 0 && count % unit.size == 0))
      return std::to_string(count / unit.size) + " " + std::string(unit.name);
  }
  return {};
}

template <class Quantity>
std::optional<Quantity> quantity(const Parsed& parsed) {
  return parsed.count ? std::optional(Quantity{*parsed.count}) : std::nullopt;
}

}  // namespace

ParsedBytes parse_bytes(std::string_view text) {
  Parsed parsed = parse(text, byte_units, "bytes");
  const std::optional<Bytes> below = parsed.below ? std::optional(Bytes{*parsed.below}) : std::nullopt;
  return {quantity<Bytes>(parsed), std::move(parsed.why), below};
}

ParsedBandwidth parse_bandwidth(std::string_view text) {
  Parsed parsed = parse(text, bandwidth_units, "bytes per second");
  return {quantity<Bandwidth>(parsed), std::move(parsed.why)};
}

ParsedDuration parse_duration(std::string_view text) {
  Parsed parsed = parse(text, duration_units, "picoseconds");
  return {quantity<Duration>(parsed), std::move(parsed.why)};
}

ParsedOperationRate parse_operation_rate(std::string_view text) {
  Parsed parsed = parse(text, operation_units, "operations per second");
  return {quantity<OperationRate>(parsed), std::move(parsed.why)};
}

ParsedPower parse_power(std::string_view text) {
  Parsed parsed = parse(text, power_units, "watts");
  return {quantity<Power>(parsed), std::move(parsed.why)};
}

std::string text(Bytes bytes) { return print(bytes.count(), byte_units); }
std::string text(Bandwidth bandwidth) { return print(bandwidth.count(), bandwidth_units); }
std::string text(Duration duration) { return print(duration.count(), duration_units); }
std::string text(OperationRate rate) { return print(rate.count(), operation_units); }
std::string text(Power power) { return print(power.count(), std::span(power_units).last<1>()); }

std::string text(Ratio ratio) {
  const std::int64_t millionths = ratio.count() % one.count();
  std::string out = std::to_string(ratio.count() / one.count());
  if (millionths == 0) return out;
  const std::string digits = std::to_string(millionths);
  out += '.';
  out.append(6 - digits.size(), '0');
  out += digits;
  out.resize(out.find_last_not_of('0') + 1);
  return out;
}

}  // namespace tidemark::scenarios
