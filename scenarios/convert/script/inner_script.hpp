#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "scenarios/convert/shell/shell_words.hpp"

namespace tidemark::scenarios {

/// The script that another starts on each rank or node, "mpirun -np 64 … bash ${ROOT}/train.sh 7B", where one of its
/// name stands beside that, or a folder above.
struct InnerScript {
  std::filesystem::path file;
  std::map<std::string, std::string> variables;  ///< exported, set by mpirun's -x, and arguments: "1", "2", …
  std::optional<std::int64_t> gpus;              ///< as far as what starts it says
  Place place;
};
[[nodiscard]] std::optional<InnerScript> inner_script(const ShellScript& script, const std::string& file);

}  // namespace tidemark::scenarios
