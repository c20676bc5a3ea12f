#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/job/built_model.hpp"
#include "parallel/lowering/lower.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "sim/clock/class_timeline.hpp"
#include "sim/clock/folding.hpp"
#include "sim/clock/time_costs.hpp"
#include "sim/memory/allocator_options.hpp"
#include "sim/program/costs.hpp"
#include "sim/program/launch_queue.hpp"
#include "sim/program/structure/other_sizes.hpp"
#include "sim/program/structure/repeats.hpp"
#include "topology/fabric.hpp"

namespace tidemark::scenarios {

/// Called with the number of programs done and of all; from any thread, one call at a time.
using Progress = std::function<void(std::size_t done, std::size_t all)>;

/// What a scenario becomes before anything is simulated: every value of the flow, in order, but its programs.
struct PricedJob {
  explicit PricedJob(Scenario its);

  Scenario scenario;  ///< its attention kernel settled
  Runtime runtime;
  BuiltModel built;
  std::vector<Role> roles;
  std::vector<std::size_t> role_of_program;                         ///< whose each program on the clock is
  std::vector<std::shared_ptr<const OtherSizes>> sizes_of_program;  ///< as TimingClasses::sizes
  Costs costs;
  Folding folding;                      ///< of the programs at `prices`
  TimeCosts times;                      ///< of `folding`, where transfers share links
  bool has_cross_stream_frees = false;  ///< some frees wait for other streams
  bool asks_the_clock = false;          ///< the reported value asks the clock for some of them

  [[nodiscard]] LoweringInput lowering() const { return {built, scenario.layout, scenario.train, runtime}; }
  [[nodiscard]] const Role& role_of(Rank rank) const;
};

/// What was measured of framework code, as it is on a cluster's processors, and the driver's launches.
[[nodiscard]] HostCosts on_host(HostCosts measured, const Host& host);
/// What each rank's host thread spends on the cluster's processors, and how far it may run ahead of its device.
void set_host(const PricedJob& job, TimeCosts& times);

/// With one program for each class of roles that take equally long, as passes and how often they repeat. Throws
/// InternalError where programs are not sound.
struct Job : PricedJob {
  /// Steps before the last may be as short as there can be, where only the last one matters. Whether programs are sound
  /// is then left to whoever runs the job whole.
  enum class Steps : std::uint8_t { All, Last };

  explicit Job(const Scenario& requested, Steps whole = Steps::All, const Progress& lowered = {});

  RepeatingWorkload outline;
  Workload calls;  ///< of `outline`

  [[nodiscard]] std::int32_t world_size() const { return calls.world_size(); }
  [[nodiscard]] const std::vector<Communicator>& communicators() const { return outline.communicators; }
  /// The program that stands for the role on the clock.
  [[nodiscard]] std::size_t program_of(const Role& role) const {
    return static_cast<std::size_t>(outline.program_of_rank[role.ranks.front().index()]);
  }
  /// Op by op, made anew each time.
  [[nodiscard]] Program program(std::size_t which) const { return outline.programs[which].unrolled(); }
  [[nodiscard]] std::size_t class_of(Rank rank) const {
    return static_cast<std::size_t>(folding.class_of_rank[rank.index()]);
  }
};

/// What ranks of the class did, which run that program, op by op.
[[nodiscard]] inline ClassTimeline timeline_of(const Job& job, const Trace& trace, std::size_t rank_class,
                                               const Program& program) {
  return timeline_of(program, job.times.classes[rank_class], trace.classes[rank_class]);
}

/// The scenario with what it leaves to its device decided. Throws InputError where it cannot be lowered, or its
/// programs would be too long.
[[nodiscard]] Scenario resolved_scenario(Scenario scenario);
/// The scenario for programs that are carried out: each rank's is its own wherever data would lie elsewhere.
[[nodiscard]] Scenario executed(Scenario scenario);

/// The habits of the framework that runs the scenario, and what they make of its model. Attention has to be settled.
[[nodiscard]] Runtime runtime_of(const Scenario& scenario);
[[nodiscard]] ModelOptions model_options_of(const Scenario& scenario);

/// What NCCL's memory depends on besides the cluster.
[[nodiscard]] NcclSettings nccl_settings(const RuntimeChoice& runtime);
/// How far a rank's host thread may run ahead of its device.
[[nodiscard]] LaunchQueue launch_queue_of(const Scenario& scenario);
/// The scenario's cluster of so many devices, as NCCL uses it there.
[[nodiscard]] Fabric fabric_of(const Scenario& scenario, std::int32_t devices);
/// The allocator's settings, on a device of the scenario's cluster.
[[nodiscard]] AllocatorOptions allocator_options_of(const Scenario& scenario);
/// The same, free to take the whole device: for what would be needed.
[[nodiscard]] AllocatorOptions without_limit(AllocatorOptions options);

/// What lowering may know of the scenario's cluster.
[[nodiscard]] Target target_of(const Cluster& cluster);

}  // namespace tidemark::scenarios
