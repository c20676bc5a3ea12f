#pragma once

#include <map>
#include <string>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/shell/launch_line.hpp"

namespace tidemark::scenarios {

/// Whether it starts Megatron-Bridge's scripts/performance by the names of a recipe.
[[nodiscard]] bool is_bridge_experiment(const LaunchLine& line);
/// The configuration that it comes to; model, cluster, devices and releases go to the draft where that has none.
/// `variables`: "bridge" names the release.
[[nodiscard]] TomlTable bridge_experiment(const LaunchLine& line, const std::map<std::string, std::string>& variables,
                                          const ShippedModels& models, Draft& draft);

}  // namespace tidemark::scenarios
