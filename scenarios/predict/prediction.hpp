#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/predict/deadlock.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/predict/required_memory.hpp"
#include "scenarios/predict/time/step_causes.hpp"
#include "scenarios/scenario/memory_bounds.hpp"
#include "sim/base/time.hpp"
#include "sim/clock/summary.hpp"
#include "sim/clock/trace.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/costs.hpp"

namespace tidemark::scenarios {

/// How long a transfer takes when other transfers use its links.
enum class LinkModel : std::uint8_t {
  MaxMin,     ///< bytes on every link of its routes, which concurrent transfers share max-min fairly
  AlphaBeta,  ///< each as if alone: a latency, and bytes over its slowest link; links are not shared
};

/// Level of detail of an answer.
enum class PredictionDetail : std::uint8_t {
  Whole,
  Causes,   ///< memory, time and the causes of a step's time; required memory only where the filled memory does not
            ///< enough
  Figures,  ///< the same, without the moments of peaks and the causes of a step's time
};

/// When the reported memory reuses blocks that other streams use (record_stream).
enum class ReportedFrees : std::uint8_t {
  ByClock,  ///< when those streams have finished their earlier work
  AtOnce,   ///< as on the null device of a dry run
};

struct PredictOptions {
  LinkModel links = LinkModel::MaxMin;
  PredictionDetail reported = PredictionDetail::Whole;
  ReportedFrees frees = ReportedFrees::ByClock;
};

/// Where a rank's memory peaks if as many tokens arrive as the scenario's quantile (worst_case_routing.hpp).
struct WorstCaseMemory {
  Bytes allocated, reserved, device;
};

/// Ranks with one memory timeline: the same program at the same costs.
struct RankGroup {
  std::vector<Rank> ranks;
  Coordinates coordinates;  ///< of the lowest
  DriverCosts costs;
  /// Within the device; where it ran out, without a limit. Blocks that other streams use come back as
  /// PredictOptions::frees says, but for `peak_device_upper`; in a job that deadlocks at once.
  MemoryRecord memory;
  Bytes of_deferred_frees, rerun_batches_bytes;  ///< of `peak_device_upper`
  Bytes of_routing;                              ///< the same: for tokens beyond the stated loads
  Bytes unexplained;  ///< the same, as of `required.upper`: what measured runs of other runtimes were off by
  std::optional<WorstCaseMemory> worst_case;  ///< nothing where the loads are exact
  /// Its allocator would return the rest of the device's memory before it failed. The upper
  /// end holds what `peak_device_upper` does.
  RequiredMemory required;
  Bytes beyond_live;         ///< of `required.bytes`, where lent blocks come back at once: what is not in use
  bool fits_at_best = true;  ///< with the requested headroom, at the lower ends of estimates
  Bytes unlimited_upper;     ///< as `memory.peak_device_upper`, on a device without a limit
  Bytes host_upper;          ///< as `memory.host`, if pinned blocks wait until the host next waits for their copies
  Bytes of_frees_by_clock;   ///< how much more a device holds at most by the clock than if frees came at once
  std::optional<OutOfDeviceMemory> failure;
  std::string failed_op;       ///< label of the failure's moment
  std::string device_peak_op;  ///< labels of the peaks' moments
  std::string allocated_peak_op;
  std::string host_peak_op;
  std::optional<Instant> device_peak_time, allocated_peak_time,
      host_peak_time;  ///< of the host thread; nothing where it deadlocks
};

/// A node and the host memory of its ranks, as the sum of their peaks: ranks of a job go through their steps
/// together.
struct NodeMemory {
  std::int32_t node = 0;
  Bytes bytes;
  Bytes upper;  ///< the most that any node's ranks might hold
  Bytes nvme;   ///< the most that any node's ranks have in files
};

/// How long a step takes, and where the time of the mean rank's goes.
struct StepPrediction {
  Duration step;
  double tokens_per_s_per_device = 0;
  double mfu = 0;  ///< model operations, causal attention counted once and nothing recomputed, over the peak rate
  double hfu = 0;  ///< as `mfu`, of all matrix products and attention that ranks execute
  CauseTimes causes{};
  std::vector<double> exposed;  ///< share by CommSlot: the compute stream waits while bytes move

  [[nodiscard]] double share(StepCause cause) const {
    const auto part = causes[static_cast<std::size_t>(cause)];
    return step > Duration{} ? static_cast<double>(part.count()) / static_cast<double>(step.count()) : 0;
  }
  /// Share of the step that it waits for other ranks to reach a transfer.
  [[nodiscard]] double waiting() const { return share(StepCause::Bubble) + share(StepCause::OtherRanks); }
};

/// A name of a launch file that is not judged: it is unknown, or not modelled.
struct NotJudged {
  std::string file;
  int line = 0;  ///< 0: none
  std::string what, why;
  bool is_length = false;  ///< how long rows are, which the data decides
};

/// The answer of `predict`.
struct Prediction {
  Scenario scenario;
  std::int64_t parameters = 0;  ///< of the model, unpadded, and of adapters
  std::int64_t trained = 0;     ///< of those
  std::vector<Communicator> communicators;
  std::vector<RankGroup> groups;
  StepPrediction step;  ///< nothing of it where the job deadlocks
  std::optional<DeadlockReport> deadlock;
  NodeMemory fullest_node;  ///< the first of those that hold most
  bool completed = true;    ///< at central values against the full capacity, of every host too
  bool fits = true;         ///< required memory at its upper end fits, with the requested headroom
  /// Undecided: it does not fit at the upper ends, and fits at the lower ones.
  bool open = false;
  std::vector<std::string> assumptions;
  std::vector<std::string> not_modelled;
  std::vector<NotJudged> not_judged;  ///< while there is any, the answer is neither yes nor no
  std::vector<MemoryBound> bounds;    ///< that upper ends include in addition to the simulation
  bool open_below = false;            ///< open because bounded parts may need less than simulated

  /// "fits", "does_not_fit" or "cannot_say".
  [[nodiscard]] std::string_view verdict() const { return fits ? "fits" : open ? "cannot_say" : "does_not_fit"; }
  /// The group that reaches highest at the upper ends of its estimates; the lowest ranks among equals.
  [[nodiscard]] const RankGroup& highest() const;
  /// The group that must have most at the upper ends; the lowest ranks among equals.
  [[nodiscard]] const RankGroup& most_required() const;
  /// Device memory that the group would fill, at the upper ends.
  [[nodiscard]] Bytes filled(const RankGroup& group) const;
  /// How often a step of the group with most retries returns its cache.
  [[nodiscard]] std::int64_t retries_per_step() const;
  /// The fullest node's ranks hold more than its host has.
  [[nodiscard]] bool exceeds_host() const;
  /// … or might, where blocks of pinned memory wait for their copies.
  [[nodiscard]] bool may_exceed_host() const;
  /// Managed memory of a rank that is on the device when everything else takes `rest` of it.
  [[nodiscard]] Bytes resident(const MemoryRecord& memory, Bytes rest) const;
  /// The group that holds most on its host; the lowest ranks among equals.
  [[nodiscard]] const RankGroup& highest_on_host() const;
};

/// Memory of every rank over the whole job, and the time of a step. Roles are simulated in parallel; the answer does
/// not depend on how many threads there are.
[[nodiscard]] Prediction predict(const Scenario& scenario, const Progress& progress = {},
                                 const PredictOptions& options = {});
/// The same of a job whose time was simulated with the same links.
[[nodiscard]] Prediction predict(const Job& job, const Trace& trace, const Progress& progress = {},
                                 const PredictOptions& options = {});

/// Adds bounds of parts that are not simulated to the upper ends, and judges again.
void add_bounds(Prediction& prediction, std::vector<MemoryBound> bounds);
/// Leaves the answer open if anything is not judged.
void leave_open(Prediction& prediction, std::vector<NotJudged> not_judged);

/// Runs the job's stages on the simulated clock, to the end or to a deadlock.
[[nodiscard]] Trace simulate_time(const Job& job, LinkModel links = LinkModel::MaxMin);

/// The last step of a completed trace.
struct StepAccount {
  std::vector<StepTimes> classes;  ///< by class
  std::vector<double> operations;  ///< by program: of products and attention, of one rank
};
[[nodiscard]] StepAccount account_of(const Job& job, const Trace& trace);

/// What share of the devices' peak the products and attention of a step of that length come to (HFU): recomputed ones
/// and rows of padding too.
[[nodiscard]] double hardware_utilization(const Job& job, const StepAccount& account, Duration step);

/// Throughput with a step of that length.
[[nodiscard]] double tokens_per_s_per_device(const Scenario& scenario, Duration step);

}  // namespace tidemark::scenarios
