#pragma once

#include <filesystem>
#include <string_view>

#include "topology/cluster.hpp"

namespace tidemark {

/// The cluster that a TOML file describes: tables `device`, `host`, `node` and `fabric`. Throws InputError.
Cluster read_cluster(const std::filesystem::path& path);

/// The same from text; `file` names it in messages and gives the cluster its name.
Cluster parse_cluster(std::string_view text, const std::filesystem::path& file);

}  // namespace tidemark
