#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "parallel/model/model.hpp"
#include "scenarios/namespace.hpp"
#include "topology/cluster.hpp"

namespace tidemark::scenarios {

/// Where the files that a scenario names are looked for: `folder` first.
struct ScenarioFolders {
  std::filesystem::path folder;
  std::filesystem::path data_root;
};

/// Files that were read before, by the names that scenarios give them: whoever asks many scenarios of the same files
/// reads each once, and all of them say the same. A model is as its file has it, without overrides.
struct ScenarioFiles {
  struct File {
    std::filesystem::path path;
    std::string text;
  };
  std::map<std::string, File, std::less<>> texts;
  std::map<std::string, Model, std::less<>> models;
  std::map<std::string, Cluster, std::less<>> clusters;
};

}  // namespace tidemark::scenarios
