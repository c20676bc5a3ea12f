#include "scenarios/plan/space/space.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "parallel/job/mesh.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {
namespace {

std::vector<TomlKey>::iterator find(TomlTable& table, const std::string& name) {
  return std::find_if(table.keys.begin(), table.keys.end(), [&](const TomlKey& key) { return key.name == name; });
}

TomlValue& entry(TomlTable& table, const std::string& name, Place set_at) {
  if (const auto known = find(table, name); known != table.keys.end()) return known->value;
  constexpr std::size_t of_most_tables = 16;  // all at once: to grow is to move every key
  if (table.keys.size() == table.keys.capacity()) table.keys.reserve(std::max(of_most_tables, 2 * table.keys.size()));
  // Keys are in the order of their names.
  const auto place =
      std::find_if(table.keys.begin(), table.keys.end(), [&](const TomlKey& key) { return key.name > name; });
  return table.keys.insert(place, TomlKey{name, set_at, {{}, set_at}})->value;
}

void erase(TomlTable& document, const KeyPath& path) {
  TomlTable* table = &document;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    const auto inner = find(*table, path[i]);
    if (inner == table->keys.end() || !std::holds_alternative<TomlTable>(inner->value.value)) return;
    table = &std::get<TomlTable>(inner->value.value);
  }
  if (const auto its = find(*table, path.back()); its != table->keys.end()) table->keys.erase(its);
}

bool sets(const AxisValue& value, const KeyPath& key) {
  return std::any_of(
      value.settings.begin(), value.settings.end(),
      // From the end: most keys share their table.
      [&](const AxisValue::Setting& s) { return std::equal(s.key.rbegin(), s.key.rend(), key.rbegin(), key.rend()); });
}

// Gives the document one of the axis's values, whichever it had.
void choose(TomlTable& document, const Axis& axis, std::size_t chosen) {
  const AxisValue& its = axis.values[chosen];
  for (std::size_t v = 0; v < axis.values.size(); ++v) {
    if (v == chosen) continue;
    for (const AxisValue::Setting& setting : axis.values[v].settings)
      if (!sets(its, setting.key) && (v == 0 || !sets(axis.values[v - 1], setting.key))) erase(document, setting.key);
  }
  for (const AxisValue::Setting& setting : its.settings) set_value(document, setting.key, setting.value);
}

std::string without_numbers(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit)
      out += c;
    else if (out.empty() || out.back() != 'N')
      out += 'N';
  }
  return out;
}

// The axes along which ranks differ at all, in order.
std::vector<Mesh::Axis> long_axes(const Mesh& mesh) {
  std::vector<Mesh::Axis> axes = mesh.axes();
  std::erase_if(axes, [](const Mesh::Axis& axis) { return axis.size == 1; });
  return axes;
}

// Whether ranks stand where those of another layout stand, but for the order it names.
bool places_alike(const Layout& a, const Layout& b) {
  Layout same = b;
  same.order = a.order;
  return a == same && long_axes(dense_mesh(a)) == long_axes(dense_mesh(b)) &&
         long_axes(expert_mesh(a)) == long_axes(expert_mesh(b));
}

}  // namespace

KeyPath key_path(std::string_view key) {
  KeyPath path;
  for (std::size_t at = 0; at <= key.size();) {
    const std::size_t end = std::min(key.find('.', at), key.size());
    path.emplace_back(key.substr(at, end - at));
    at = end + 1;
  }
  return path;
}

const TomlValue* value_at(const TomlTable& document, const KeyPath& key) {
  const TomlTable* table = &document;
  for (std::size_t i = 0; i < key.size() && table != nullptr; ++i) {
    const auto found =
        std::find_if(table->keys.begin(), table->keys.end(), [&](const TomlKey& its) { return its.name == key[i]; });
    if (found == table->keys.end()) return nullptr;
    if (i + 1 == key.size()) return &found->value;
    table = std::get_if<TomlTable>(&found->value.value);
  }
  return nullptr;
}

void set_value(TomlTable& document, const KeyPath& key, const TomlValue& value) {
  TomlTable* table = &document;
  for (std::size_t i = 0; i + 1 < key.size(); ++i) {
    TomlValue& inner = entry(*table, key[i], value.place);
    if (!std::holds_alternative<TomlTable>(inner.value)) inner.value = TomlTable{};
    table = &std::get<TomlTable>(inner.value);
  }
  entry(*table, key.back(), value.place) = value;
}

std::vector<KeyPath> Axis::keys() const {
  std::vector<KeyPath> all;
  for (const AxisValue& value : values)
    for (const AxisValue::Setting& setting : value.settings)
      if (std::find(all.begin(), all.end(), setting.key) == all.end()) all.push_back(setting.key);
  return all;
}

bool says(const Space& space, const KeyPath& key) {
  const auto sets_it = [&](const Axis& axis) { return std::ranges::count(axis.keys(), key) > 0; };
  return value_at(space.base, key) != nullptr || std::ranges::any_of(space.axes, sets_it);
}

void take_default_headroom(Space& space) {
  const KeyPath key{"runtime", "headroom"};
  if (says(space, key)) return;
  set_value(space.base, key, {std::string(default_headroom), {}});
  space.headroom_by_default = true;
}

std::int64_t Space::size() const {
  std::int64_t size = 1;
  for (const Axis& axis : axes) {
    const auto count = static_cast<std::int64_t>(axis.values.size());
    ensure(count > 0 && size <= std::numeric_limits<std::int64_t>::max() / count, "readers keep spaces countable");
    size *= count;
  }
  return size;
}

std::vector<std::size_t> Space::values_of(std::int64_t candidate) const {
  std::vector<std::size_t> values(axes.size());
  for (std::size_t a = axes.size(); a-- > 0;) {
    const auto count = static_cast<std::int64_t>(axes[a].values.size());
    values[a] = static_cast<std::size_t>(candidate % count);
    candidate /= count;
  }
  return values;
}

TomlTable Space::document(std::int64_t candidate) const {
  TomlTable made = base;
  const std::vector<std::size_t> chosen = values_of(candidate);
  for (std::size_t a = 0; a < axes.size(); ++a) choose(made, axes[a], chosen[a]);
  return made;
}

namespace {

std::variant<Scenario, std::vector<Problem>> resolved_or_problems(const Space& space, const TomlTable& document) {
  auto read = scenario_or_problems(document, space.name, space.folders, space.files);
  try {
    if (auto* scenario = std::get_if<Scenario>(&read)) *scenario = resolved_scenario(std::move(*scenario));
  } catch (const InputError& error) {
    return error.problems();
  }
  return read;
}

// A combination that an earlier one already stands for: another value of one axis makes the same job.
bool repeats(const Space& space, std::int64_t index, const TomlTable& document, const Scenario& made) {
  const std::vector<std::size_t> chosen = space.values_of(index);
  for (std::size_t a = 0; a < space.axes.size(); ++a) {
    const Axis& axis = space.axes[a];
    // Only these keys can say nothing new.
    const bool may_repeat = axis.name == "layout.sequence_parallel" ? made.layout.tensor == 1
                            : axis.name == "layout.order"           ? long_axes(dense_mesh(made.layout)).size() < 3
                                                                    : false;
    for (std::size_t earlier = 0; may_repeat && earlier < chosen[a]; ++earlier) {
      TomlTable other = document;
      choose(other, axis, earlier);
      auto read = resolved_or_problems(space, other);
      auto* its = std::get_if<Scenario>(&read);
      // What is no candidate stands for nothing.
      if (its == nullptr || !places_alike(its->layout, made.layout)) continue;
      its->layout = made.layout;
      if (*its == made) return true;
    }
  }
  return false;
}

}  // namespace

std::optional<Scenario> base_scenario(const Space& space) {
  auto read = resolved_or_problems(space, space.base);
  auto* const its = std::get_if<Scenario>(&read);
  return its == nullptr ? std::nullopt : std::optional(std::move(*its));
}

std::variant<Scenario, NoCandidate> candidate(const Space& space, std::int64_t index) {
  const TomlTable document = space.document(index);
  auto read = resolved_or_problems(space, document);
  if (const auto* problems = std::get_if<std::vector<Problem>>(&read))
    return NoCandidate{without_numbers(problems->front().message)};
  auto& made = std::get<Scenario>(read);
  if (repeats(space, index, document, made)) return NoCandidate{"the same job as a combination before it"};
  return std::move(made);
}

}  // namespace tidemark::scenarios
