#include "scenarios/plan/space/space_remarks.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "scenarios/cluster/times_compare.hpp"
#include "scenarios/formats/input_error.hpp"

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

// What bounds do not know (knows.cpp) and a base or an axis may ask of all candidates.
bool may_have(const Space& space, const KeyPath& key, bool (*asks)(const TomlValue& value)) {
  if (const TomlValue* const value = value_at(space.base, key); value != nullptr && asks(*value)) return true;
  for (const Axis& axis : space.axes)
    for (const AxisValue& value : axis.values)
      for (const AxisValue::Setting& setting : value.settings)
        if (setting.key == key && asks(setting.value)) return true;
  return false;
}

bool is_several(const TomlValue& ranks) {
  const auto* const number = std::get_if<std::int64_t>(&ranks.value);
  return number != nullptr && *number > 1;
}
bool is_host(const TomlValue& place) {
  const auto* const text = std::get_if<std::string>(&place.value);
  return text != nullptr && *text == "cpu";
}

}  // namespace

std::vector<std::string> space_remarks(const Space& space) {
  std::vector<std::string> remarks;
  if (space.headroom_by_default)
    remarks.push_back(fmt::format("{} must stay free on every device, the default headroom", default_headroom));
  for (const Axis& axis : space.axes) {
    if (!sets_the_cluster(axis)) continue;
    if (const std::optional<std::string> why = why_times_do_not_compare(clusters_along(axis, space)))
      remarks.push_back(*why);
  }
  const auto run_in_full = [&](const char* what) {
    remarks.push_back(fmt::format("{}: candidates run in full, because bounds do not cover it; name fewer axes", what));
  };
  if (may_have(space, {"layout", "context"}, is_several)) run_in_full("context parallelism");
  for (const char* key : {"optimizer", "parameters", "activations"})
    if (may_have(space, {"offload", key}, is_host)) {
      run_in_full("offload");
      break;
    }
  return remarks;
}

}  // namespace tidemark::scenarios
