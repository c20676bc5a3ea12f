#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/formats/toml_value.hpp"
#include "scenarios/plan/space/space.hpp"

namespace tidemark::scenarios {

inline TomlValue value(std::int64_t n) { return {n, {}}; }
inline TomlValue value(bool b) { return {b, {}}; }
inline TomlValue value(std::string_view text) { return {std::string(text), {}}; }
inline TomlValue value(const char* text) { return value(std::string_view(text)); }  // which would rather be a bool

/// An axis whose first value leaves its keys as the document has them.
class Change {
 public:
  Change(const TomlTable& document, std::string name, std::vector<KeyPath> keys, std::string now)
      : document_(document), keys_(std::move(keys)) {
    axis_.name = std::move(name);
    AxisValue same{std::move(now), {}};
    for (const KeyPath& key : keys_)
      if (const TomlValue* its = value_at(document_, key)) same.settings.push_back({key, *its});
    axis_.values.push_back(std::move(same));
  }
  /// Another value; a key beyond those given keeps its value.
  Change& to(std::string text, std::vector<TomlValue> values) {
    AxisValue made{std::move(text), {}};
    for (std::size_t i = 0; i < values.size(); ++i) made.settings.push_back({keys_[i], values[i]});
    axis_.values.push_back(std::move(made));
    return *this;
  }
  Change& to(AxisValue made) {
    axis_.values.push_back(std::move(made));
    return *this;
  }
  void add_to(std::vector<Axis>& axes) {
    if (axis_.values.size() > 1) axes.push_back(std::move(axis_));
  }

 private:
  const TomlTable& document_;
  std::vector<KeyPath> keys_;
  Axis axis_;
};

inline Change one_key(const TomlTable& document, KeyPath key, std::string now) {
  std::string name = fmt::format("{}", fmt::join(key, "."));
  return {document, std::move(name), {std::move(key)}, std::move(now)};
}

}  // namespace tidemark::scenarios
