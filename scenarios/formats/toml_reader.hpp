#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/formats/problems.hpp"
#include "scenarios/formats/toml_value.hpp"
#include "sim/base/time.hpp"
#include "sim/base/units.hpp"
#include "topology/rates.hpp"

namespace tidemark::scenarios {

enum class Modelled : std::uint8_t { Yes, NotYet };

/// One value that a key can have; one that is not modelled yet is part of the format, but refused.
struct Option {
  std::string_view text;
  Modelled modelled = Modelled::Yes;
};

/// What a whole number may be, both ends included.
struct IntegerRange {
  std::int64_t low = 0;
  std::int64_t high = 0;
};

/// Of an integer within a range that fits.
constexpr std::int32_t narrow(std::int64_t n) { return static_cast<std::int32_t>(n); }

inline constexpr IntegerRange rank_count{1, 1 << 20};

enum class Presence : std::uint8_t { Optional, Required };

/// Typed access to one table of a TOML file. What is wrong goes to `problems`, with its place; the reader of a table
/// that is missing finds nothing. The tables have to outlive it, and so have the names of keys.
class TomlReader {
 public:
  /// `name` as in "[layout]"; empty for the top of the file.
  TomlReader(const TomlTable* table, Place place, std::string name, Problems& problems)
      : table_(table), place_(place), name_(std::move(name)), problems_(&problems) {
    constexpr std::size_t keys_of_most_tables = 32;
    if (table_ != nullptr) known_.reserve(keys_of_most_tables);
  }

  TomlReader table(std::string_view key, Presence presence = Presence::Optional);

  std::optional<bool> boolean(std::string_view key, Presence presence = Presence::Optional);
  std::optional<std::int64_t> integer(std::string_view key, IntegerRange range, Presence presence = Presence::Optional);
  std::optional<std::string> string(std::string_view key, Presence presence = Presence::Optional);
  std::optional<Bytes> bytes(std::string_view key, Presence presence = Presence::Optional);
  std::optional<Bandwidth> bandwidth(std::string_view key, Presence presence = Presence::Optional);
  std::optional<Duration> duration(std::string_view key, Presence presence = Presence::Optional);
  std::optional<OperationRate> operation_rate(std::string_view key, Presence presence = Presence::Optional);
  std::optional<Power> power(std::string_view key, Presence presence = Presence::Optional);
  /// A number between `low` and `high` with at most six decimals.
  std::optional<Ratio> ratio(std::string_view key, Ratio low, Ratio high, Presence presence = Presence::Optional);
  /// Which of `options` the key's text is.
  std::optional<std::size_t> option(std::string_view key, std::span<const Option> options,
                                    Presence presence = Presence::Optional);
  /// The value as it stands, for keys of several types.
  const TomlValue* raw(std::string_view key);
  /// Every key of the table, for tables with keys of the user's choosing; all of them count as known.
  const std::vector<TomlKey>& keys();

  /// Refuses a key of the format that is not modelled yet, when it asks for something: `what` it asks for ("… is"), and
  /// the values that ask for nothing, as TOML writes them; the first one is suggested.
  void refuse(std::string_view key, std::string_view what, std::initializer_list<std::string_view> neutral);
  /// Reports keys that nobody asked for; a hint names the one of `tables` that has such a key. Call it last.
  void refuse_unknown_keys(std::span<const TomlReader* const> tables = {});

  /// Keys that were asked for, perhaps more than once.
  [[nodiscard]] std::span<const std::string_view> requested() const { return known_; }

  [[nodiscard]] bool present() const { return table_ != nullptr; }
  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  /// No problem with this key so far: left out, or read well.
  [[nodiscard]] bool sound(std::string_view key) const { return !unsound_.contains(key); }
  /// Where the key's value is; where the table is when the key is left out.
  [[nodiscard]] Place place(std::string_view key) const;
  /// What depends on the key is not to be judged; the reason has been reported.
  void refuse_to_judge(std::string_view key) { unsound_.emplace(key); }
  /// Reports a problem of the key's value.
  void problem(std::string_view key, ProblemText message, std::string hint = {});

 private:
  [[nodiscard]] const TomlKey* find(std::string_view key) const;
  /// `wanted` is the hint where a required one is missing.
  const TomlKey* look_up(std::string_view key, Presence presence, std::string_view wanted);
  void wrong_type(const TomlKey& key, std::string_view wanted, std::string hint);
  /// The key's text; `example` is the hint where it is no text.
  const std::string* text_with_unit(std::string_view key, std::string_view example, Presence presence);
  /// " in [layout]", or nothing at the top.
  [[nodiscard]] std::string where() const { return name_.empty() ? std::string() : " in [" + name_ + "]"; }

  const TomlTable* table_;
  Place place_;
  std::string name_;
  Problems* problems_;
  std::vector<std::string_view> known_;  // asked for, in that order, perhaps more than once
  std::set<std::string, std::less<>> unsound_;
};

}  // namespace tidemark::scenarios
