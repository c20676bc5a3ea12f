#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/problems.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/plan/space/space.hpp"
#include "scenarios/reader/document_parts.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::int64_t most_candidates = 1LL << 40;
constexpr std::size_t most_values = 4096;  // of an axis: far more than anybody waits for

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

// What an axis `offload` says in words. Of how many layers Megatron's activations are is not known yet.
constexpr std::array<std::string_view, 4> offload_words{"none", "optimizer", "parameters", "activations"};

void add_offload(const TomlValue& value, Problems& problems, AxisValue& made) {
  const std::string& word = std::get<std::string>(value.value);
  made.text = word;
  const auto set = [&](const char* key) {
    AxisValue::Setting& cpu = made.settings.emplace_back();
    cpu.key = {"offload", key};
    cpu.value = {std::string("cpu"), value.place};
  };
  if (word == "parameters") set("parameters");
  if (word == "parameters" || word == "optimizer") set("optimizer");
  if (word == "activations") set("activations");
  if (word != "none" && made.settings.empty()) {
    set(word.c_str());
    problems.add(value.place, fmt::format("offload: {} is not a choice of what is on hosts", in_quotes(word)),
                 one_of({offload_words.begin(), offload_words.end()}) + " would do");
  }
}

// Megatron's activations are of as many layers as the base says, or of all but the last.
void add_offloaded_layers(Space& space) {
  const KeyPath switched{"runtime", "switches", "cpu-offloading-num-layers"};
  const TomlValue* const requested = value_at(space.base, switched);
  const std::vector<FurtherAxis> further = further_axes(space);
  const auto offload = std::ranges::find(further, "offload", &FurtherAxis::name);
  if (offload == further.end()) return;  // the runtime has nothing to offload, or is none
  const Axis& known = offload->axis;
  const AxisValue& most = known.values.back();
  const bool of_layers = most.text.starts_with("activations of ");
  for (Axis& axis : space.axes)
    for (AxisValue& value : axis.values)
      if (axis.name == known.name && value.text == "activations" && of_layers) {
        if (requested != nullptr)
          value.settings.push_back({switched, *requested});
        else
          value = most;
      }
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
  if (values == nullptr) {
    problems.add(key.value.place, fmt::format("the axis {} takes a list of values, not {}", name, text(key.value)),
                 fmt::format("such as {} = [{}]", key.name, text(key.value)));
    return;
  }
  if (values->empty() || values->size() > most_values) {
    problems.add(key.value.place, fmt::format("the axis {} has {} values", name, values->size()),
                 fmt::format("1 to {} would do", most_values));
    return;
  }
  Axis axis{name, {}};
  for (const TomlValue& value : *values) {
    AxisValue made;
    if (const auto* together = std::get_if<TomlTable>(&value.value)) {
      add_settings(*together, {}, made.settings);
      made.text = settings_text(made.settings);
    } else if (its == KeyPath{"offload"} && std::holds_alternative<std::string>(value.value)) {
      add_offload(value, problems, made);
    } else {
      made.settings.push_back({its, value});
      const auto* words = std::get_if<std::string>(&value.value);
      made.text = words != nullptr ? *words : text(value);
    }
    axis.values.push_back(std::move(made));
  }
  axes.push_back(std::move(axis));
}

bool one_place(const Problem& a, const Place& b) { return a.line != 0 && a.line == b.line && a.column == b.column; }

/// Looks at each value of each axis with the others at their first, and finds keys and values that no combination makes
/// right: they would drop candidates, unsaid among those that do not go together.
class ValueCheck {
 public:
  ValueCheck(const Space& space, const std::filesystem::path& file) : space_(space), file_(file) {}

  void run(Problems& problems) const {
    std::vector<Problem> never;
    const auto add = [&](std::vector<Problem> found) {
      for (Problem& problem : found) {
        const auto said = [&](const Problem& p) { return p.file == problem.file && p.message == problem.message; };
        if (std::none_of(never.begin(), never.end(), said)) never.push_back(std::move(problem));
      }
    };
    add(not_excused(std::vector<std::size_t>(space_.axes.size(), 0)));
    for (std::size_t a = 0; a < space_.axes.size(); ++a)
      for (std::size_t v = 1; v < space_.axes[a].values.size(); ++v) add(not_excused(with(a, v)));
    if (!never.empty()) problems.add(InputError(std::move(never)));
  }

 private:
  using Chosen = std::vector<std::size_t>;

  [[nodiscard]] Chosen with(std::size_t axis, std::size_t value, Chosen chosen = {}) const {
    chosen.resize(space_.axes.size(), 0);
    chosen[axis] = value;
    return chosen;
  }

  [[nodiscard]] std::vector<Problem> wrong_keys(const Chosen& chosen) const {
    std::int64_t number = 0;
    for (std::size_t a = 0; a < chosen.size(); ++a)
      number = number * static_cast<std::int64_t>(space_.axes[a].values.size()) + static_cast<std::int64_t>(chosen[a]);
    return problems_of_keys(space_.document(number), file_, space_.folders, space_.files);
  }

  /// Which keys a table knows may depend on another key: a problem that vanishes with another axis' value is no mistake
  /// of this one.
  [[nodiscard]] std::vector<Problem> not_excused(const Chosen& chosen) const {
    std::vector<Problem> found = wrong_keys(chosen);
    for (std::size_t a = 0; a < chosen.size() && !found.empty(); ++a)
      for (std::size_t v = 0; v < space_.axes[a].values.size() && !found.empty(); ++v) {
        if (v == chosen[a]) continue;
        const std::vector<Problem> left = wrong_keys(with(a, v, chosen));
        std::erase_if(found, [&](const Problem& problem) {
          return !set_by(problem, a, chosen[a]) && std::find(left.begin(), left.end(), problem) == left.end();
        });
      }
    return found;
  }

  /// Without that value, or the file that it names, the problem is gone, of course.
  [[nodiscard]] bool set_by(const Problem& problem, std::size_t axis, std::size_t value) const {
    const bool elsewhere = problem.file != file_.string();
    const std::vector<AxisValue::Setting>& settings = space_.axes[axis].values[value].settings;
    return std::any_of(settings.begin(), settings.end(), [&](const AxisValue::Setting& s) {
      return elsewhere ? s.key == KeyPath{"model"} || s.key == KeyPath{"cluster"} : one_place(problem, s.value.place);
    });
  }

  const Space& space_;
  const std::filesystem::path& file_;
};

std::string all_settings(const AxisValue& value) {
  std::string all;
  for (const AxisValue::Setting& s : value.settings)
    all += fmt::format("{} = {}\n", fmt::join(s.key, "."), text(s.value));
  return all;
}

Place place_of(const AxisValue& value, Place otherwise) {
  return value.settings.empty() ? otherwise : value.settings.front().value.place;
}

void check_axes(const std::vector<Axis>& axes, const TomlKey& space, Problems& problems) {
  std::vector<std::pair<KeyPath, std::string>> seen;
  std::int64_t size = 1;
  for (const Axis& axis : axes) {
    std::set<std::string> said;
    for (const AxisValue& value : axis.values)
      if (!said.insert(all_settings(value)).second)
        problems.add(place_of(value, space.place), fmt::format("the axis {} has {} twice", axis.name, value.text),
                     "leave one of them out");
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
  const bool all = std::ranges::find(with, "runtime") != with.end();
  const std::vector<FurtherAxis> further = further_axes(space, all ? Runtimes::All : Runtimes::One);
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

// Degrees of tensor parallelism within an expert that the reader of scenarios takes of no layout yet.
void drop_unmodelled_expert_tensor(const Scenario& base, Space& space) {
  const KeyPath key{"layout", "expert_tensor"}, batch{"train", "global_batch"};
  for (Axis& axis : space.axes) {
    if (axis.keys() != std::vector<KeyPath>{key}) continue;
    const auto refused = [&](const AxisValue& value) {
      Space one{space.name, space.base, space.folders, space.files, {{axis.name, {value}}}};
      one.axes.front().values.front().settings.push_back({batch, {std::int64_t{base.gpus}, {}}});
      return std::holds_alternative<NoCandidate>(candidate(one, 0));
    };
    std::erase_if(axis.values, [&](const AxisValue& v) { return &v != &axis.values.front() && refused(v); });
  }
}

// False where the document has no such table.
bool read_space_table(const TomlTable& document, Problems& problems, std::vector<Axis>& axes) {
  bool requested = false;
  for (const TomlKey& key : document.keys) {
    if (key.name != "space") continue;
    requested = true;
    if (const auto* keys = std::get_if<TomlTable>(&key.value.value))
      for (const TomlKey& axis : keys->keys)
        if (axis.name == "space")
          problems.add(axis.place, "unknown key \"space\"",
                       "an axis is a key of the job, such as layout.tensor = [1, 2], or offload");
        else
          read_axes(axis, {}, problems, axes);
    else
      problems.add(key.value.place, fmt::format("space takes a table of axes, not {}", text(key.value)),
                   "begin it with [space] on a line of its own");
    check_axes(axes, key, problems);
  }
  return requested;
}

// Model, cluster, devices and batch are the question; what the axes set need not go together in the base.
Scenario base_of(const Space& space, Problems& problems) {
  Scenario base;
  base.model = space.files.models.begin()->second;
  base.cluster = space.files.clusters.begin()->second;
  TomlReader top(&space.base, {}, "", problems);
  constexpr IntegerRange any{1, 1 << 24};
  base.gpus = static_cast<std::int32_t>(top.integer("gpus", any, Presence::Required).value_or(1));
  TomlReader train = top.table("train", Presence::Required);
  base.train.global_batch = train.integer("global_batch", any, Presence::Required).value_or(1);
  base.train.sequence_length = train.integer("sequence_length", any).value_or(1);
  TomlReader overrides = top.table("model_override");
  if (const auto layers = overrides.integer("num_hidden_layers", any)) base.model.layers.resize(*layers);
  // A name that is none is told with the other values.
  const TomlValue* const runtime = value_at(space.base, {"runtime", "name"});
  if (const auto* name = runtime == nullptr ? nullptr : std::get_if<std::string>(&runtime->value))
    if (std::ranges::find(runtimes(), *name, &RuntimeKind::name) != runtimes().end()) base.runtime.name = *name;
  return base;
}

// Which of the axis's keys somebody set beside the file (set_overrides); nothing: none of them.
std::optional<KeyPath> key_set_beside(const Space& space, const Axis& axis) {
  for (const KeyPath& key : axis.keys())
    if (const TomlValue* const value = value_at(space.base, key); value != nullptr && value->place.line < 0) return key;
  return std::nullopt;
}

void refuse_axes_set_beside(const Space& space, Problems& problems) {
  for (const Axis& axis : space.axes)
    if (const auto key = key_set_beside(space, axis))
      problems.add(value_at(space.base, *key)->place, fmt::format("the space searches {}, too", axis.name),
                   "leave one of them out");
  problems.raise_if_any();
}

}  // namespace

Space space_of(TomlTable document, const std::filesystem::path& file, const ScenarioFolders& folders,
               const std::vector<std::string>& with) {
  Problems problems(file.string());
  Space space{file.stem().string(), {}, folders, {}, {}};
  const bool requested = read_space_table(document, problems, space.axes);
  problems.raise_if_any();
  std::erase_if(document.keys, [](const TomlKey& key) { return key.name == "space"; });
  space.base = std::move(document);
  space.files = files_of(space.base, file, folders);
  for (const Axis& axis : space.axes)
    for (const AxisValue& value : axis.values)
      for (const AxisValue::Setting& setting : value.settings)
        if (setting.key.size() == 1) add_files_of({{{setting.key.front(), {}, setting.value}}}, folders, space.files);
  if (requested) {
    add_offloaded_layers(space);
    add_further_axes(with, space);
    refuse_axes_set_beside(space, problems);
    ValueCheck(space, file).run(problems);
    problems.raise_if_any();
    return space;
  }

  const Scenario base = base_of(space, problems);
  problems.raise_if_any();
  const bool all = std::ranges::find(with, "runtime") != with.end();
  space.axes = default_axes(base, all ? Runtimes::All : Runtimes::One);
  drop_unmodelled_expert_tensor(base, space);
  std::erase_if(space.axes, [&](const Axis& axis) { return key_set_beside(space, axis).has_value(); });
  add_further_axes(with, space);
  refuse_axes_set_beside(space, problems);
  ValueCheck(space, file).run(problems);
  problems.raise_if_any();
  return space;
}

Space read_space(const std::filesystem::path& path, const std::filesystem::path& data_root,
                 const std::vector<std::string>& with) {
  return space_of(parse_toml(read_text(path), path.string()), path, {path.parent_path(), data_root}, with);
}

}  // namespace tidemark::scenarios
