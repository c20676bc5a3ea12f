#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "scenarios/namespace.hpp"

// Which keys a scenario file has, as its reader tells: it is asked about a key that it does not know, and about each
// one that it does with a value that none takes. So a new key is here once it is read.

namespace tidemark::scenarios {

struct ScenarioKey {
  std::string table;                  ///< "layout", "runtime.switches"; empty at the top
  std::string name;                   ///< "tensor"
  std::string takes;                  ///< "a whole number"
  std::string values;                 ///< "1 to 1048576", "\"none\", \"full\" or \"selective\""
  std::string usual;                  ///< where it is left out, as JSON; empty: it depends, or nothing is there
  std::vector<std::string> runtimes;  ///< those that read it; of tables that all read, all of them
  std::string path() const { return table.empty() ? name : table + '.' + name; }
};

/// All keys of all runtimes, table by table, each name once: of a switch that several runtimes have, as the first says.
/// Megatron's switches are its flags (`megatron_flags`) and are not among them.
[[nodiscard]] std::vector<ScenarioKey> scenario_keys(const std::filesystem::path& data_root);

/// What a key means, in a sentence; empty where nobody has said it.
[[nodiscard]] std::string meaning_of(const std::string& path);

}  // namespace tidemark::scenarios
