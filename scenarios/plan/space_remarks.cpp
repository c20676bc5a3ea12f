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

}  // namespace

std::vector<std::string> space_remarks(const Space& space) {
  std::vector<std::string> remarks;
  for (const Axis& axis : space.axes) {
    if (!sets_the_cluster(axis)) continue;
    if (const std::optional<std::string> why = why_times_do_not_compare(clusters_along(axis, space)))
      remarks.push_back(*why);
  }
  return remarks;
}

}  // namespace tidemark::scenarios
