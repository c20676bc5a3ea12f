#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "parallel/job/built_model.hpp"
#include "parallel/job/layout.hpp"
#include "scenarios/namespace.hpp"
#include "scenarios/plan/bounds/group_costs.hpp"
#include "scenarios/plan/bounds/sample.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "sim/base/time.hpp"
#include "topology/cluster.hpp"

// What candidates share, and by what. A key is a whole value, equal by a defaulted ==, and what is shared is made of
// its key alone: of the scenario as the key has it, where that is part of it. So a field that nobody has thought about
// tells candidates apart. To share more is to leave a field out here.

namespace tidemark::scenarios {

/// The scenario as all have it that take the same memory: in words of one job, wherever ranks stand.
[[nodiscard]] Scenario memory_key(const Scenario& scenario);
/// The same of those whose steps take as long: the allocator takes no time.
[[nodiscard]] Scenario time_key(const Scenario& scenario);
/// The same of those that do the same outside passes.
[[nodiscard]] Scenario state_key(const Scenario& scenario);
/// The same of those whose passes of a chunk of such runs of layers are alike.
[[nodiscard]] Scenario passes_key(const Scenario& scenario, const std::vector<LayerRun>& runs);

/// Of some of its fields.
[[nodiscard]] std::uint64_t hash_of(const Scenario& scenario);

struct ModelKey {
  Model model;
  ModelOptions options;
  bool operator==(const ModelKey&) const = default;
};

struct SampleKey {
  Scenario scenario;
  ChunkKind kind = ChunkKind::Only;
  std::vector<LayerRun> runs;
  bool operator==(const SampleKey&) const = default;
};
[[nodiscard]] std::uint64_t hash_of(const SampleKey& key);

struct FabricKey {
  Cluster cluster;
  std::int32_t devices = 0;
  FabricOptions options;
  bool operator==(const FabricKey&) const = default;
};
[[nodiscard]] std::uint64_t hash_of(const FabricKey& key);

[[nodiscard]] std::uint64_t hash_of(const GroupPlaces& places);

/// Of the groups that passes talk to, in their order; nothing of those that a job has none of.
using PassCosts = std::array<std::shared_ptr<const GroupCosts>, std::tuple_size_v<PassGroups>>;

/// Of the clocks of a sample's pieces. Sample and prices are shared themselves, so that equal ones are one.
struct ClockKey {
  std::shared_ptr<const ChunkSample> sample;
  PassCosts costs;
  Duration launch;
  bool operator==(const ClockKey&) const = default;
};
[[nodiscard]] std::uint64_t hash_of(const ClockKey& key);

/// Of the schedules of all pipeline ranks.
struct ScheduleKey {
  Layout layout;  ///< what schedules are made of
  std::int64_t micro_batches = 0;
  bool operator==(const ScheduleKey&) const = default;
};
[[nodiscard]] ScheduleKey schedule_key(const Layout& layout, std::int64_t micro_batches);

/// Of the moments with most in flight.
struct InFlightKey {
  ScheduleKey schedule;
  std::int32_t rank = 0;
  bool operator==(const InFlightKey&) const = default;
};
[[nodiscard]] std::uint64_t hash_of(const InFlightKey& key);

}  // namespace tidemark::scenarios
