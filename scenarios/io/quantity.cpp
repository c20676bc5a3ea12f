#include "scenarios/io/quantity.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>

#include "scenarios/io/suggestion.hpp"

namespace tidemark {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t bytes;
};

// Largest binary unit first: printing takes the first that divides.
constexpr std::array units{Unit{"TiB", std::int64_t{1} << 40},
                           Unit{"GiB", std::int64_t{1} << 30},
                           Unit{"MiB", std::int64_t{1} << 20},
                           Unit{"KiB", std::int64_t{1} << 10},
                           Unit{"B", 1},
                           Unit{"TB", 1'000'000'000'000},
                           Unit{"GB", 1'000'000'000},
                           Unit{"MB", 1'000'000},
                           Unit{"kB", 1'000},
                           Unit{"KB", 1'000}};
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

}  // namespace

ParsedBytes parse_bytes(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return ParsedBytes{std::nullopt, in_quotes(text) + " " + std::string(why)};
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
  const auto* const unit = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == rest; });
  if (unit == units.end()) return refuse("has an unknown unit");

  const std::optional<std::int64_t> whole = value_of(whole_digits);
  if (!whole || *whole > largest / unit->bytes) return refuse("is too large");

  // fraction x unit / 10^digits has to be whole; reduced first, so that nothing overflows.
  while (!fraction_digits.empty() && fraction_digits.back() == '0') fraction_digits.remove_suffix(1);
  std::int64_t scale = 1;
  for (std::size_t i = 0; i < fraction_digits.size(); ++i) {
    if (scale > largest / 10) return refuse("is not a whole number of bytes");
    scale *= 10;
  }
  const std::int64_t fraction = value_of(fraction_digits).value_or(0);
  const std::int64_t common = std::gcd(unit->bytes, scale);
  if (fraction % (scale / common) != 0) return refuse("is not a whole number of bytes");
  const std::int64_t parts = fraction / (scale / common) * (unit->bytes / common);
  if (*whole * unit->bytes > largest - parts) return refuse("is too large");
  return {Bytes{*whole * unit->bytes + parts}, {}};
}

std::string text(Bytes bytes) {
  const std::int64_t count = bytes.count();
  for (const Unit& unit : units) {
    if (count == 0 || count % unit.bytes != 0) continue;
    return std::to_string(count / unit.bytes) + " " + std::string(unit.name);
  }
  return std::to_string(count) + " B";
}

}  // namespace tidemark
