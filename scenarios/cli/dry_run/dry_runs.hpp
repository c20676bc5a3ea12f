#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/cli/namespace.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/dry_run/dry_run.hpp"

namespace tidemark::cli {

/// What is asked of the ranks of a dry run.
struct DryRunRequest {
  std::vector<std::string> command;
  std::vector<std::int64_t> ranks;  ///< none: the first and the last
  std::optional<std::int64_t> world_size;
  std::int64_t steps = 3;
  std::chrono::seconds time_limit{1800};
  std::string routing = "even";
  bool snapshots = false;
  bool show_output = false;
  Loudness loudness;
};

/// A folder below the system's temporary one, which goes with it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  void remove() const noexcept;

 private:
  std::filesystem::path path_;
};

/// Runs the ranks one after another, again without a limit where memory ran out. Snapshots lie in `folder`
/// (`snapshot_file`). What scripts printed is said on standard error where they failed. Throws InputError where the
/// command cannot be run, std::runtime_error where a rank ends without a word.
[[nodiscard]] DryRunAnswer run_dry(const DryRunRequest& requested, const Cluster& cluster,
                                   const TemporaryFolder& folder);

/// Whose processes they are. What accelerate's configuration says is not asked for.
[[nodiscard]] DryWorld world_of(const LaunchCommand& launch, const DryRunRequest& requested, const Cluster& cluster);

[[nodiscard]] std::filesystem::path snapshot_file(const TemporaryFolder& folder, const DryRank& rank);

}  // namespace tidemark::cli
