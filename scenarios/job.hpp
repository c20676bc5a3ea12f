#pragma once

#include <vector>

#include "parallel/graph.hpp"
#include "parallel/lower.hpp"
#include "scenarios/scenario.hpp"
#include "sim/clock/folding.hpp"
#include "sim/clock/time_prices.hpp"
#include "sim/memory/allocator_options.hpp"
#include "sim/program/prices.hpp"
#include "sim/program/repeats.hpp"

namespace tidemark::scenarios {

/// What a scenario becomes before anything is simulated: every value of the flow, in order. Throws InternalError where
/// its programs are not sound.
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

/// The scenario with what it leaves to its device decided. Throws InputError where its programs would be too long.
[[nodiscard]] Scenario settled(Scenario scenario);

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
