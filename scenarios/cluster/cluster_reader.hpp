#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/namespace.hpp"
#include "topology/cluster.hpp"

namespace tidemark::scenarios {

/// The cluster that a TOML file describes: tables `device`, `host`, `node` and `fabric`. Throws InputError.
Cluster read_cluster(const std::filesystem::path& path);

/// The same from text; `file` names it in messages and gives the cluster its name.
Cluster parse_cluster(std::string_view text, const std::filesystem::path& file);

/// The key `price_per_gpu_hour` of a cluster's file or of a scenario's [run], in US dollars.
std::optional<Ratio> read_dollars_per_gpu_hour(TomlReader& table);

}  // namespace tidemark::scenarios
