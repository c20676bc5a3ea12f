#include "scenarios/plan/space_remarks.hpp"

#include <algorithm>
#include <optional>

#include "scenarios/io/input_error.hpp"
#include "scenarios/times_compare.hpp"

namespace tidemark::scenarios {
namespace {

bool sets_the_cluster(const Axis& axis) {
  const std::vector<KeyPath> keys = axis.keys();
  return std::find(keys.begin(), keys.end(), KeyPath{"cluster"}) != keys.end();
}

// Of the axis' values. One that cannot be read is left out: its combinations are dropped, with the reader's reason.
std::vector<Cluster> clusters_along(const Axis& axis, const Space& space) {
  Space alone = space;
  alone.axes = {axis};
  std::vector<Cluster> clusters;
  for (std::int64_t value = 0; value < alone.size(); ++value) {
    try {
      for (const auto& [name, cluster] : files_of(alone.document(value), space.name, space.folders).clusters)
        clusters.push_back(cluster);
    } catch (const InputError&) {
      continue;
    }
  }
  return clusters;
}

bool is_several(const TomlValue* ranks) {
  const auto* const number = ranks == nullptr ? nullptr : std::get_if<std::int64_t>(&ranks->value);
  return number != nullptr && *number > 1;
}

// What bounds do not know (knows.cpp) and a base or an axis may ask of all candidates.
bool cuts_sequences(const Space& space) {
  const KeyPath context{"layout", "context"};
  if (is_several(value_at(space.base, context))) return true;
  for (const Axis& axis : space.axes)
    for (const AxisValue& value : axis.values)
      for (const AxisValue::Setting& setting : value.settings)
        if (setting.key == context && is_several(&setting.value)) return true;
  return false;
}

}  // namespace

std::vector<std::string> space_remarks(const Space& space) {
  std::vector<std::string> remarks;
  for (const Axis& axis : space.axes) {
    if (!sets_the_cluster(axis)) continue;
    if (const std::optional<std::string> why = why_times_do_not_compare(clusters_along(axis, space)))
      remarks.push_back(*why);
  }
  if (cuts_sequences(space))
    remarks.emplace_back(
        "context parallelism: candidates run in full, because bounds do not cover it; name fewer axes");
  return remarks;
}

}  // namespace tidemark::scenarios
