#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tidemark/scenario.hpp>

namespace tidemark {

/// Launch arguments and configurations of training frameworks as a scenario (docs/convert.md).
struct Conversion {
  Scenario scenario;
  std::vector<std::string> not_expressed;  ///< what changes memory or time and was left out, with its reason
  std::vector<std::string> assumed;        ///< what the input does not say
  std::vector<std::string> no_matter;      ///< what changes neither memory nor time
};
struct ConvertOptions {
  std::filesystem::path data_root;
  std::map<std::string, std::string> variables;  ///< of shell scripts
  std::string model, cluster;                    ///< as a scenario names them; empty: as the files have it
  std::optional<std::int64_t> gpus, sequence_length, micro_batch, global_batch;
};
/// Files that say one training together. Throws InputError where one cannot be read at all.
[[nodiscard]] Conversion convert(const std::vector<std::filesystem::path>& files, const ConvertOptions& options);

}  // namespace tidemark
