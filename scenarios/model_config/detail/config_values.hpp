#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "scenarios/formats/problems.hpp"
#include "scenarios/model_config/config_reader.hpp"

namespace tidemark::scenarios {

/// A whole number that a key takes.
struct CountRule {
  std::string_view key;
  std::int64_t high;
  std::int64_t low = 1;  ///< 0: null says that, too
};

/// A config.json after its overrides, key by key. A problem is reported where its key was written.
class ConfigValues {
 public:
  ConfigValues(nlohmann::json document, const std::vector<ConfigOverride>& overrides, Problems& problems);

  /// The key's value; nothing when it is left out or null.
  [[nodiscard]] const nlohmann::json* find(std::string_view key) const;
  /// The key is in the file, be it null.
  [[nodiscard]] bool given(std::string_view key) const { return document_.contains(key); }
  /// Somebody asked for it.
  [[nodiscard]] bool read(std::string_view key) const { return read_.contains(key); }

  /// A file or an override that says `other` means `key` (transformers' attribute_map).
  void also_called(std::string_view key, std::string_view other);
  /// Overrides of keys that mean something in other families, and that nobody asked for in this one.
  void refuse_unread_overrides(std::string_view family);
  /// Keys of the file that nobody reads, one slip away from one that was looked for and is not there.
  void refuse_slips();

  void problem(std::string_view key, const ProblemText& message, std::string hint = {});

  /// `fallback` stands for a key that is left out; without it that is a problem. 0 when wrong.
  std::int64_t count(const CountRule& rule, std::optional<std::int64_t> fallback = std::nullopt);
  bool flag(std::string_view key, bool fallback = false);
  std::optional<std::string> text(std::string_view key);
  /// A number above `low` and up to `high`.
  double number(std::string_view key, const nlohmann::json& value, double low, double high);

 private:
  void apply(const ConfigOverride& o);
  [[nodiscard]] std::vector<std::string> all_keys() const;

  nlohmann::json document_;
  std::vector<ConfigOverride> overridden_;
  mutable std::set<std::string, std::less<>> read_;
  Problems* problems_;
};

}  // namespace tidemark::scenarios
