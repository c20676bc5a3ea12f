#pragma once

#include <nlohmann/json.hpp>

#include "scenarios/scenario/scenario.hpp"

// The parts of a scenario's JSON that are long.

namespace tidemark::scenarios {

/// Under the names of a config.json.
[[nodiscard]] nlohmann::ordered_json model_json(const Model& model);
/// Under the names of a cluster file.
[[nodiscard]] nlohmann::ordered_json cluster_json(const Cluster& cluster);
/// The framework's switches, under the names that [runtime.switches] takes.
[[nodiscard]] nlohmann::ordered_json switches_json(const RuntimeChoice& runtime);

}  // namespace tidemark::scenarios
