#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/dry_run/launch_command.hpp"
#include "scenarios/dry_run/rank_report.hpp"
#include "sim/base/estimate.hpp"
#include "topology/cluster.hpp"
#include "topology/nccl_settings.hpp"

// The answer of `dry-run`: what ranks of a training held of a device that does nothing, and what a real device holds
// besides.

namespace tidemark::scenarios {

/// How a job's processes lie on nodes.
struct DryWorld {
  std::int64_t ranks = 1;
  std::int64_t per_node = 1;  ///< processes, each with a device of its own
  friend bool operator==(const DryWorld&, const DryWorld&) = default;
};

struct DryRow {
  std::string name;
  Estimate cost;
  friend bool operator==(const DryRow&, const DryRow&) = default;
};

/// What a process holds of its device before any communicator: context, loaded code, cuBLAS's handle.
[[nodiscard]] std::vector<DryRow> process_rows(const Cluster& cluster);
/// The same, and NCCL of the groups that the rank used on the device.
[[nodiscard]] std::vector<DryRow> driver_rows(const Cluster& cluster, const NcclSettings& settings,
                                              const RankReport& report, const DryWorld& world);
/// NCCL of the whole world, before it is known which groups a job makes.
[[nodiscard]] std::vector<DryRow> world_communicator_rows(const Cluster& cluster, const NcclSettings& settings,
                                                          const DryWorld& world);
[[nodiscard]] Estimate sum_of(const std::vector<DryRow>& rows);

/// One rank that was run.
struct DryRank {
  RankReport report;               ///< on a device of the cluster's size
  std::optional<RankReport> need;  ///< on one without a limit, where memory ran out
  std::vector<DryRow> rows;
  Bytes limit;  ///< what the allocator could get

  /// Where what it holds is read from: without a limit, if memory ran out under one.
  [[nodiscard]] const RankReport& held() const { return need ? *need : report; }
  [[nodiscard]] Bytes device() const { return held().peak().reserved + sum_of(rows).bytes; }
  [[nodiscard]] Bytes device_upper() const { return held().peak().reserved + sum_of(rows).high; }
  /// Whether memory ran out for good: a script that caught it and took further steps went on.
  [[nodiscard]] bool ran_out() const;
  /// Whether it ended by an exception, or before a step with a status of its own.
  [[nodiscard]] bool script_failed() const;
};

enum class DryVerdict : std::uint8_t { Fits, DoesNotFit, CannotSay, ScriptFailed };

struct DryRunAnswer {
  std::vector<std::string> command;
  LaunchCommand launch;
  DryWorld world;
  Cluster cluster;
  std::int64_t steps_requested = 3;
  std::vector<DryRank> ranks;             ///< in their order
  std::vector<std::string> not_modelled;  ///< of the environment
  std::vector<std::string> comparisons;   ///< texts, of each rank, beside a prediction
  std::optional<bool> agrees;             ///< with it

  [[nodiscard]] DryVerdict verdict() const;
};

[[nodiscard]] std::string dry_run_text(const DryRunAnswer& answer);
[[nodiscard]] std::string dry_run_json(const DryRunAnswer& answer);

}  // namespace tidemark::scenarios
