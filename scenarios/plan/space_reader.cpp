#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "scenarios/io/input_error.hpp"
#include "scenarios/io/problems.hpp"
#include "scenarios/io/suggestion.hpp"
#include "scenarios/io/text_file.hpp"
#include "scenarios/io/toml_reader.hpp"
#include "scenarios/plan/space.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::int64_t most_candidates = 1LL << 40;

// What an inline table of several keys sets, tables within it opened.
void add_settings(const TomlTable& table, const KeyPath& path, std::vector<AxisValue::Setting>& settings) {
  for (const TomlKey& key : table.keys) {
    KeyPath inner = path;
    inner.push_back(key.name);
    if (const auto* deeper = std::get_if<TomlTable>(&key.value.value))
      add_settings(*deeper, inner, settings);
    else
      settings.push_back({std::move(inner), key.value});
  }
}

std::string settings_text(const std::vector<AxisValue::Setting>& settings) {
  std::string out;
  for (const AxisValue::Setting& s : settings)
    out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", s.key.back(), text(s.value));
  return out.empty() ? "as it is" : out;
}

// `key` is a key of the scenario, a table of such keys, or a name of the user's own over tables of settings.
void read_axes(const TomlKey& key, const KeyPath& path, Problems& problems, std::vector<Axis>& axes) {
  KeyPath its = path;
  its.push_back(key.name);
  if (const auto* inner = std::get_if<TomlTable>(&key.value.value)) {
    for (const TomlKey& deeper : inner->keys) read_axes(deeper, its, problems, axes);
    return;
  }
  const std::string name = fmt::format("{}", fmt::join(its, "."));
  const auto* values = std::get_if<std::vector<TomlValue>>(&key.value.value);
  if (values == nullptr || values->empty()) {
    problems.add(key.value.place, fmt::format("the axis {} takes a list of values, not {}", name, text(key.value)),
                 fmt::format("such as {} = [{}]", key.name, text(key.value)));
    return;
  }
  Axis axis{name, {}};
  for (const TomlValue& value : *values) {
    AxisValue made;
    if (const auto* together = std::get_if<TomlTable>(&value.value)) {
      add_settings(*together, {}, made.settings);
      made.text = settings_text(made.settings);
    } else {
      made.settings.push_back({its, value});
      const auto* words = std::get_if<std::string>(&value.value);
      made.text = words != nullptr ? *words : text(value);
    }
    axis.values.push_back(std::move(made));
  }
  axes.push_back(std::move(axis));
}

void check_axes(const std::vector<Axis>& axes, const TomlKey& space, Problems& problems) {
  std::vector<std::pair<KeyPath, std::string>> seen;
  std::int64_t size = 1;
  for (const Axis& axis : axes) {
    for (const KeyPath& key : axis.keys()) {
      for (const auto& [other, by] : seen)
        if (other == key)
          problems.add(space.place, fmt::format("{} is set by the axes {} and {}", fmt::join(key, "."), by, axis.name),
                       "one axis whose values are tables sets several keys together");
      seen.emplace_back(key, axis.name);
    }
    const auto count = static_cast<std::int64_t>(axis.values.size());
    if (size > most_candidates / count) {
      problems.add(space.place, fmt::format("more than {} combinations", most_candidates),
                   "fewer values on some axis would do");
      return;
    }
    size *= count;
  }
}

[[noreturn]] void refuse_with(std::string message, std::string hint) {
  throw InputError(Problem{.file = "--with", .message = std::move(message), .hint = std::move(hint)});
}

void check_names(const std::vector<FurtherAxis>& further, const std::vector<std::string>& with) {
  std::vector<std::string> names;
  for (const FurtherAxis& f : further) names.push_back(f.name);
  for (const std::string& name : with)
    if (std::find(names.begin(), names.end(), name) == names.end())
      refuse_with(fmt::format("there is no axis {}", in_quotes(name)), one_of(names) + " would do");
}

// In the order in which they are declared, before the others.
void add_further_axes(const std::vector<std::string>& with, Space& space) {
  const std::vector<FurtherAxis> further = further_axes(space.base);
  check_names(further, with);
  std::vector<Axis> axes;
  for (const FurtherAxis& f : further) {
    if (std::find(with.begin(), with.end(), f.name) == with.end()) continue;
    const std::vector<KeyPath> keys = f.axis.keys();
    for (const Axis& axis : space.axes)
      for (const KeyPath& key : axis.keys())
        if (std::find(keys.begin(), keys.end(), key) != keys.end())
          refuse_with(fmt::format("{} would set {}, and so does the axis {}", f.name, fmt::join(key, "."), axis.name),
                      fmt::format("leave --with {} out, or that axis", f.name));
    axes.push_back(f.axis);
  }
  space.axes.insert(space.axes.begin(), std::make_move_iterator(axes.begin()), std::make_move_iterator(axes.end()));
}

}  // namespace

Space space_of(TomlTable document, const std::filesystem::path& file, const ScenarioFolders& folders,
               const std::vector<std::string>& with) {
  Problems problems(file.string());
  Space space{file.stem().string(), {}, folders, {}, {}};
  bool asked = false;
  for (const TomlKey& key : document.keys) {
    if (key.name != "space") continue;
    asked = true;
    if (const auto* axes = std::get_if<TomlTable>(&key.value.value))
      for (const TomlKey& axis : axes->keys) read_axes(axis, {}, problems, space.axes);
    else
      problems.add(key.value.place, fmt::format("space takes a table of axes, not {}", text(key.value)),
                   "begin it with [space] on a line of its own");
    check_axes(space.axes, key, problems);
  }
  problems.raise_if_any();
  std::erase_if(document.keys, [](const TomlKey& key) { return key.name == "space"; });
  space.base = std::move(document);
  space.files = files_of(space.base, file, folders);
  if (asked) {
    add_further_axes(with, space);
    return space;
  }

  // Model, cluster, devices and batch are the question; what the axes set need not go together in the base.
  Scenario base;
  base.model = space.files.models.begin()->second;
  base.cluster = space.files.clusters.begin()->second;
  TomlReader top(&space.base, {}, "", problems);
  constexpr IntegerRange any{1, 1 << 24};
  base.gpus = static_cast<std::int32_t>(top.integer("gpus", any, Presence::Required).value_or(1));
  TomlReader train = top.table("train", Presence::Required);
  base.train.global_batch = train.integer("global_batch", any, Presence::Required).value_or(1);
  TomlReader overrides = top.table("model_override");
  if (const auto layers = overrides.integer("num_hidden_layers", any)) base.model.layers = *layers;
  problems.raise_if_any();
  space.axes = default_axes(base);
  add_further_axes(with, space);
  return space;
}

Space read_space(const std::filesystem::path& path, const std::filesystem::path& data_root,
                 const std::vector<std::string>& with) {
  return space_of(parse_toml(read_text(path), path.string()), path, {path.parent_path(), data_root}, with);
}

}  // namespace tidemark::scenarios
