#include "scenarios/plan/space.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "parallel/mesh.hpp"
#include "scenarios/io/input_error.hpp"
#include "scenarios/prediction.hpp"
#include "sim/ensure.hpp"

namespace tidemark {
namespace {

TomlKey* find(TomlTable& table, const std::string& name) {
  const auto found =
      std::find_if(table.keys.begin(), table.keys.end(), [&](const TomlKey& key) { return key.name == name; });
  return found == table.keys.end() ? nullptr : &*found;
}

TomlValue& entry(TomlTable& table, const std::string& name) {
  if (TomlKey* known = find(table, name)) return known->value;
  const auto place =
      std::find_if(table.keys.begin(), table.keys.end(), [&](const TomlKey& k) { return k.name > name; });
  return table.keys.insert(place, TomlKey{name, {}, {}})->value;
}

void set(TomlTable& document, const KeyPath& path, const TomlValue& value) {
  TomlTable* table = &document;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    TomlValue& inner = entry(*table, path[i]);
    if (!std::holds_alternative<TomlTable>(inner.value)) inner.value = TomlTable{};
    table = &std::get<TomlTable>(inner.value);
  }
  entry(*table, path.back()) = value;
}

void erase(TomlTable& document, const KeyPath& path) {
  TomlTable* table = &document;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    TomlKey* inner = find(*table, path[i]);
    if (inner == nullptr || !std::holds_alternative<TomlTable>(inner->value.value)) return;
    table = &std::get<TomlTable>(inner->value.value);
  }
  std::erase_if(table->keys, [&](const TomlKey& key) { return key.name == path.back(); });
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

// The axes along which ranks differ at all, in the layout's order: layouts that agree in it place ranks alike.
std::vector<MeshAxis> order_that_matters(const Layout& layout) {
  std::vector<MeshAxis> order;
  for (const MeshAxis axis : layout.order)
    if (layout.degree(axis) > 1) order.push_back(axis);
  return order;
}

// Whether ranks stand where those of another layout stand, but for the order it names.
bool places_alike(const Layout& a, const Layout& b) {
  Layout same = b;
  same.order = a.order;
  return a == same && order_that_matters(a) == order_that_matters(b);
}

}  // namespace

std::vector<KeyPath> Axis::keys() const {
  std::vector<KeyPath> all;
  for (const AxisValue& value : values)
    for (const AxisValue::Setting& setting : value.settings)
      if (std::find(all.begin(), all.end(), setting.key) == all.end()) all.push_back(setting.key);
  return all;
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
  for (std::size_t a = 0; a < axes.size(); ++a) {
    for (const AxisValue& value : axes[a].values)
      for (const AxisValue::Setting& setting : value.settings) erase(made, setting.key);
    for (const AxisValue::Setting& setting : axes[a].values[chosen[a]].settings) set(made, setting.key, setting.value);
  }
  return made;
}

namespace {

// A combination that an earlier one already stands for: another value of one axis makes the same job.
bool repeats(const Space& space, std::int64_t index, const TomlTable& document, const Scenario& made) {
  const std::vector<std::size_t> chosen = space.values_of(index);
  for (std::size_t a = 0; a < space.axes.size(); ++a) {
    const Axis& axis = space.axes[a];
    // Only these keys can say nothing new.
    const bool may_repeat = axis.name == "layout.sequence_parallel" ? made.layout.tensor == 1
                            : axis.name == "layout.order"           ? order_that_matters(made.layout).size() < 3
                                                                    : false;
    for (std::size_t earlier = 0; may_repeat && earlier < chosen[a]; ++earlier) {
      TomlTable other = document;
      for (const KeyPath& key : axis.keys()) erase(other, key);
      for (const AxisValue::Setting& setting : axis.values[earlier].settings) set(other, setting.key, setting.value);
      try {
        Scenario its = settled(scenario_of(other, space.name, space.folders, space.files));
        if (!places_alike(its.layout, made.layout)) continue;
        its.layout = made.layout;
        if (its == made) return true;
      } catch (const InputError&) {
        // No candidate, so it stands for nothing.
      }
    }
  }
  return false;
}

}  // namespace

std::variant<Scenario, Dropped> candidate(const Space& space, std::int64_t index) {
  const TomlTable document = space.document(index);
  try {
    Scenario made = settled(scenario_of(document, space.name, space.folders, space.files));
    if (repeats(space, index, document, made)) return Dropped{"the same job as a combination before it"};
    return made;
  } catch (const InputError& error) {
    return Dropped{without_numbers(error.problems().front().message)};
  }
}

}  // namespace tidemark
