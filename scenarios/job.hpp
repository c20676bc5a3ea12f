#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/built_model.hpp"
#include "parallel/lower.hpp"
#include "scenarios/scenario.hpp"
#include "sim/clock/folding.hpp"
#include "sim/clock/time_prices.hpp"
#include "sim/memory/allocator_options.hpp"
#include "sim/program/other_sizes.hpp"
#include "sim/program/prices.hpp"
#include "sim/program/repeats.hpp"
#include "topology/fabric.hpp"

namespace tidemark::scenarios {

/// What a scenario becomes before anything is simulated: every value of the flow, in order, but its programs.
struct PricedJob {
  explicit PricedJob(Scenario its);

  Scenario scenario;  ///< its attention kernel settled
  Runtime runtime;
  BuiltModel built;
  std::vector<Role> roles;
  std::vector<std::size_t> role_of_program;                         ///< whose each program on the clock is
  std::vector<std::shared_ptr<const OtherSizes>> sizes_of_program;  ///< as TimingClasses::sizes
  Prices prices;
  Folding folding;         ///< of the programs at `prices`
  TimePrices times;        ///< of `folding`, where transfers share links
  bool borrowing = false;  ///< some frees wait for other streams

  [[nodiscard]] LoweringInput lowering() const { return {built, scenario.layout, scenario.train, runtime}; }
  [[nodiscard]] const Role& role_of(Rank rank) const;
};

/// With one program for each class of roles that take equally long, as passes and how often they repeat. Throws
/// InternalError where programs are not sound.
struct JobOutline : PricedJob {
  /// Steps before the last may be as short as there can be, where only the last one matters.
  enum class Steps : std::uint8_t { All, Last };

  explicit JobOutline(const Scenario& asked, Steps whole = Steps::All);

  RepeatingWorkload outline;

  /// The program that stands for the role on the clock.
  [[nodiscard]] std::size_t program_of(const Role& role) const {
    return static_cast<std::size_t>(outline.program_of_rank[role.ranks.front().index()]);
  }
};

/// With the same programs op by op.
struct Job : PricedJob {
  explicit Job(const Scenario& asked) : Job(JobOutline(asked)) {}
  explicit Job(JobOutline&& its);

  Workload timed;

  /// The program that stands for the role on the clock.
  [[nodiscard]] std::size_t program_of(const Role& role) const {
    return static_cast<std::size_t>(timed.program_of_rank[role.ranks.front().index()]);
  }
};

/// The scenario with what it leaves to its device decided. Throws InputError where it cannot be lowered, or its
/// programs would be too long.
[[nodiscard]] Scenario settled(Scenario scenario);

/// The habits of the framework that runs the scenario, and what they make of its model. Attention has to be settled.
[[nodiscard]] Runtime runtime_of(const Scenario& scenario);
[[nodiscard]] ModelOptions model_options_of(const Scenario& scenario);

/// What NCCL's memory depends on besides the cluster.
[[nodiscard]] NcclSettings nccl_settings(const RuntimeChoice& runtime);
/// The scenario's cluster of so many devices, as NCCL uses it there.
[[nodiscard]] Fabric fabric_of(const Scenario& scenario, std::int32_t devices);
/// The allocator's settings, on a device of the scenario's cluster.
[[nodiscard]] AllocatorOptions allocator_options_of(const Scenario& scenario);
/// The same, free to take the whole device: for what would be needed.
[[nodiscard]] AllocatorOptions without_limit(AllocatorOptions options);

/// What lowering may know of the scenario's cluster.
[[nodiscard]] Target target_of(const Cluster& cluster);

}  // namespace tidemark::scenarios
