#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/graph.hpp"
#include "parallel/lower.hpp"
#include "scenarios/scenario.hpp"
#include "sim/base/time.hpp"
#include "sim/clock/folding.hpp"
#include "sim/clock/summary.hpp"
#include "sim/clock/time_prices.hpp"
#include "sim/clock/trace.hpp"
#include "sim/memory/allocator_options.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/prices.hpp"

namespace tidemark::scenarios {

/// What a scenario becomes before anything is simulated: every value of the flow, in order.
struct JobOutline {
  explicit JobOutline(const Scenario& scenario);

  Scenario scenario;  ///< its attention kernel settled
  Runtime runtime;
  ModelGraph graph;
  std::vector<Role> roles;
  RepeatingWorkload outline;  ///< of the stages
  Prices prices;
  Folding folding;   ///< of the stages at `prices`
  TimePrices times;  ///< of `folding`, where transfers share links

  [[nodiscard]] LoweringInput lowering() const { return {graph, scenario.layout, scenario.train, runtime}; }
  [[nodiscard]] const Role& role_of(Rank rank) const;
};

/// With its programs op by op.
struct Job : JobOutline {
  explicit Job(const Scenario& its) : JobOutline(its), stages(unrolled(outline)) {}

  Workload stages;  ///< one program per pipeline stage: what time depends on
};

/// What a transfer takes where others use its links.
enum class LinkModel : std::uint8_t {
  MaxMin,     ///< bytes on every link of its routes, which concurrent transfers share max-min fairly
  AlphaBeta,  ///< a latency, and bytes over its slowest link; nothing is shared
};

/// How much is told of what happened.
enum class Told : std::uint8_t {
  Whole,
  Figures,  ///< how much and how long: neither when peaks are reached, nor where a step's time goes
};

struct PredictOptions {
  LinkModel links = LinkModel::MaxMin;
  Told told = Told::Whole;
};

/// Ranks with one memory timeline: the same program at the same prices.
struct RankGroup {
  std::vector<Rank> ranks;
  Coordinates coordinates;  ///< of the lowest
  DriverPrices prices;
  /// Within the device; where it ran out, without a limit. Frees come at once, but for `peak_device_upper`.
  MemoryRecord memory;
  Bytes of_deferred_frees, of_outliving_batches;  ///< of `peak_device_upper`
  std::optional<OutOfDeviceMemory> failure;
  std::string failed_op;       ///< label of the failure's moment
  std::string device_peak_op;  ///< labels of the peaks' moments
  std::string allocated_peak_op;
  Instant device_peak_time, allocated_peak_time;  ///< of the host thread
};

/// How long a step takes, and where its time goes: each share is of the mean rank's step.
struct StepPrediction {
  Duration step;
  double tokens_per_s_per_device = 0;
  double mfu = 0;      ///< model operations, causal attention counted once and nothing recomputed, over the peak rate
  double kernels = 0;  ///< share: the compute stream runs kernels
  double bubble = 0;   ///< share: it waits for other ranks to come to a transfer
  double idle = 0;     ///< share: it waits for its host thread
  std::vector<double> exposed;  ///< share by CommSlot: it waits while bytes move
};

/// The answer of `predict`.
struct Prediction {
  Scenario scenario;
  std::int64_t parameters = 0;  ///< of the model, unpadded
  std::vector<Communicator> communicators;
  std::vector<RankGroup> groups;
  StepPrediction step;
  bool completed = true;  ///< at central values against the full capacity
  bool fits = true;       ///< at upper values, with the headroom asked for
  std::vector<std::string> assumptions;
  std::vector<std::string> not_modelled;

  /// The group that reaches highest at the upper ends of its estimates; the lowest ranks among equals.
  [[nodiscard]] const RankGroup& highest() const;
};

/// Called with the number of programs done and of all; from any thread, one call at a time.
using Progress = std::function<void(std::size_t done, std::size_t all)>;

/// Memory of every rank over the whole job, and the time of a step. Roles are simulated in parallel; the answer does
/// not depend on how many threads there are.
[[nodiscard]] Prediction predict(const Scenario& scenario, const Progress& progress = {},
                                 const PredictOptions& options = {});
/// The same of a job whose time was simulated with the same options.
[[nodiscard]] Prediction predict(const Job& job, const Trace& trace, const Progress& progress = {},
                                 const PredictOptions& options = {});

/// Runs the job's stages on the simulated clock.
[[nodiscard]] Trace simulate_time(const Job& job, const PredictOptions& options = {});
/// The same, without a timeline.
[[nodiscard]] Trace simulate_ends(const JobOutline& job);

/// The scenario with what it leaves to its device decided. Throws InputError where its programs would be too long.
[[nodiscard]] Scenario settled(Scenario scenario);
/// What a step of that length makes.
[[nodiscard]] double tokens_per_s_per_device(const Scenario& scenario, Duration step);

/// The habits of the framework that runs the scenario, and what they make of its model. Attention has to be settled.
[[nodiscard]] Runtime runtime_of(const Scenario& scenario);
[[nodiscard]] GraphOptions graph_options_of(const Scenario& scenario);

/// What NCCL's memory depends on besides the cluster.
[[nodiscard]] NcclSettings nccl_settings(const RuntimeChoice& runtime);
/// The allocator's settings, on a device of the scenario's cluster.
[[nodiscard]] AllocatorOptions allocator_options_of(const Scenario& scenario);
/// The same, free to take the whole device: for what would be needed.
[[nodiscard]] AllocatorOptions without_limit(AllocatorOptions options);

/// What lowering may know of the scenario's cluster.
[[nodiscard]] Target target_of(const Cluster& cluster);

}  // namespace tidemark::scenarios
