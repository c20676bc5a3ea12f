#include "scenarios/plan/capacity.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_reader.hpp"

namespace tidemark::scenarios {
namespace {

Space pinned(const Space& space, const std::vector<std::pair<std::size_t, std::size_t>>& values) {
  Space made = space;
  for (const auto& [axis, value] : values) made.axes[axis].values = {space.axes[axis].values[value]};
  return made;
}

// The number in the whole space of a candidate of a pinned one.
std::int64_t number_in(const Space& whole, const Space& pinned, std::int64_t candidate,
                       const std::vector<std::pair<std::size_t, std::size_t>>& values) {
  std::vector<std::size_t> chosen = pinned.values_of(candidate);
  for (const auto& [axis, value] : values) chosen[axis] = value;
  std::int64_t number = 0;
  for (std::size_t a = 0; a < chosen.size(); ++a)
    number = number * static_cast<std::int64_t>(whole.axes[a].values.size()) + static_cast<std::int64_t>(chosen[a]);
  return number;
}

}  // namespace

Study study_of(TomlTable document, const std::filesystem::path& file, const ScenarioFolders& folders) {
  Problems problems(file.string());
  TomlReader top(&document, {}, "", problems);
  if (!top.has("capacity"))
    problems.add({}, "capacity is missing",
                 "a table [capacity] says which axis of [space] grows, as in largest = \"train.sequence_length\"; "
                 "tidemark list studies lists files to copy");
  TomlReader table = top.table("capacity");
  const std::optional<std::string> largest =
      table.string("largest", table.present() ? Presence::Required : Presence::Optional);
  const std::optional<std::string> by = table.string("by");
  table.refuse_unknown_keys();
  problems.raise_if_any();
  TomlTable rest = document;
  std::erase_if(rest.keys, [](const TomlKey& key) { return key.name == "capacity"; });
  Study study{space_of(std::move(rest), file, folders), 0, std::nullopt};
  std::vector<std::string> names;
  for (const Axis& axis : study.space.axes) names.push_back(axis.name);
  const auto axis = [&](const char* key, const std::string& name) -> std::size_t {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
    const std::string meant = nearest(name, names);
    table.problem(key, fmt::format("{} = {} is not an axis of [space]", key, in_quotes(name)),
                  meant.empty() ? one_of(names) : fmt::format("did you mean {}?", in_quotes(meant)));
    return 0;
  };
  study.grows = axis("largest", *largest);
  if (by) study.by = axis("by", *by);
  if (by && *by == *largest) table.problem("by", "by and largest name one axis");
  problems.raise_if_any();
  return study;
}

Study read_study(const std::filesystem::path& path, const std::filesystem::path& data_root) {
  return study_of(parse_toml(read_text(path), path.string()), path, {path.parent_path(), data_root});
}

std::vector<Limit> limits(const Study& study, const PlanProgress& progress) {
  std::vector<Limit> found;
  const std::size_t rows = study.by ? study.space.axes[*study.by].values.size() : 1;
  const std::size_t steps = study.space.axes[study.grows].values.size();
  for (std::size_t row = 0; row < rows; ++row) {
    Limit limit{row, {}, {}, {}, {}};
    std::int64_t candidates = 0;
    std::map<std::string, std::int64_t> dropped;
    // From the largest down: nothing says that what fits at a value fits below it.
    for (std::size_t value = steps; value-- > 0 && !limit.largest;) {
      std::vector<std::pair<std::size_t, std::size_t>> fixed{{study.grows, value}};
      if (study.by) fixed.emplace_back(*study.by, row);
      Space space = pinned(study.space, fixed);
      if (!study.headroom.empty() && study.headroom[value])
        set_value(space.base, {"runtime", "headroom"}, *study.headroom[value]);
      const Plan plan = scenarios::plan(space, {.top = 1});
      candidates += plan.candidates;
      for (const auto& [why, count] : plan.dropped) dropped[why] += count;
      if (progress)
        progress("frontier", static_cast<std::int64_t>(row * steps + steps - value),
                 static_cast<std::int64_t>(rows * steps));
      if (plan.best.empty()) {
        limit.next.reset();
        if (!plan.near_misses.empty()) {
          limit.next = plan.near_misses.front();
          limit.next->candidate = number_in(study.space, space, limit.next->candidate, fixed);
        }
        continue;
      }
      limit.largest = value;
      limit.best = plan.best.front();
      limit.best->candidate = number_in(study.space, space, limit.best->candidate, fixed);
    }
    const auto most = std::ranges::max_element(dropped, {}, &std::pair<const std::string, std::int64_t>::second);
    if (candidates == 0 && most != dropped.end()) limit.refused = most->first;
    found.push_back(std::move(limit));
  }
  return found;
}

}  // namespace tidemark::scenarios
