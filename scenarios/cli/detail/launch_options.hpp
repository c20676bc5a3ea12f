#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "scenarios/cli/namespace.hpp"
#include "scenarios/convert/convert.hpp"

namespace tidemark::cli {

/// What files of training frameworks do not say, or say otherwise.
struct LaunchOptions {
  std::string model, cluster;
  std::optional<std::int64_t> gpus, sequence, micro_batch, global_batch;
  std::vector<std::string> variables;  ///< NAME=VALUE
  std::vector<std::string> ignored;    ///< names that are not judged, and have no effect
  bool strict = false;                 ///< a name that is not judged is refused

  [[nodiscard]] bool any() const;
  [[nodiscard]] ConvertRequest requested(std::vector<std::filesystem::path> files) const;
};

/// Whether options alone, without a file, can ask a question.
enum class JobSource : std::uint8_t { File, FileOrOptions };
void add_launch_options(CLI::App& verb, LaunchOptions& options, JobSource source = JobSource::File);

/// What became of an input that is not a key of the scenario, as lines.
[[nodiscard]] std::string launch_remarks_text(const std::vector<Remark>& remarks, bool all);

}  // namespace tidemark::cli
