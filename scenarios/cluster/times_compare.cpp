#include "scenarios/cluster/times_compare.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tidemark::scenarios {

std::optional<std::string> why_times_do_not_compare(const std::vector<Cluster>& clusters) {
  std::vector<std::pair<std::string, std::vector<std::string>>> devices_by_source;
  for (const Cluster& cluster : clusters) {
    const std::string& source = cluster.device.efficiency.source;
    auto known = std::find_if(devices_by_source.begin(), devices_by_source.end(),
                              [&](const auto& entry) { return entry.first == source; });
    if (known == devices_by_source.end()) known = devices_by_source.insert(known, {source, {}});
    std::vector<std::string>& devices = known->second;
    if (std::find(devices.begin(), devices.end(), cluster.device.name) == devices.end())
      devices.push_back(cluster.device.name);
  }
  if (devices_by_source.size() < 2) return std::nullopt;
  std::vector<std::string> sides;
  for (const auto& [source, devices] : devices_by_source)
    sides.push_back(fmt::format("{} ({})", fmt::join(devices, ", "), source));
  return fmt::format(
      "times of different clusters are not comparable if their efficiencies come from different sources: {}",
      fmt::join(sides, " against "));
}

}  // namespace tidemark::scenarios
