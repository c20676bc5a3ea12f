#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/job.hpp"
#include "scenarios/plan/exact_memory.hpp"
#include "scenarios/plan/group_prices.hpp"
#include "scenarios/plan/keys.hpp"
#include "scenarios/plan/pass_schedule.hpp"
#include "scenarios/plan/sample.hpp"
#include "scenarios/plan/shared.hpp"
#include "scenarios/scenario.hpp"

namespace tidemark::scenarios {

/// What is certain of a candidate's figures without its programs (docs/planner.md has the proofs).
struct MemoryBounds {
  Bytes allocated_low, allocated_high;  ///< high: only where the allocator has its default settings
  Bytes device_upper_low;
};

/// Bounds of candidates, from samples that they share. From any thread.
class Bounder {
 public:
  explicit Bounder(SharedGraphs& graphs) : graphs_(graphs) {}

  /// Whether the bounds know everything that the scenario asks for. Where they do not, nothing is certain.
  [[nodiscard]] static bool knows(const Scenario& scenario);
  [[nodiscard]] MemoryBounds memory(const Scenario& scenario);
  [[nodiscard]] DurationBounds step(const Scenario& scenario);

 private:
  // Ranks of one pipeline stage outside their passes.
  struct StateCost {
    Effects before_passes;              ///< net: what is there when the last step's passes begin
    Effects all;                        ///< highest: with no pass at all
    Bytes last_step_highest;            ///< the same at least, within the last step
    std::int64_t other_roles = 0;       ///< how much more the state of another role can be
    DurationBounds zero, reduce, rest;  ///< of a step: before its passes, up to the gradient norm, after it
    std::int64_t launches = 0;          ///< in all three
    Bytes driver_upper;
  };
  /// What depends on where ranks stand, and not on their passes.
  struct Mesh {
    Runtime runtime;
    std::vector<StateCost> stages;
    std::vector<std::shared_ptr<const GroupPrices>> prices;  ///< by communicator
    std::shared_ptr<const GroupPrices> tensor, pipeline;     ///< of these two, where there are any
  };
  /// Clocks of a sample's windows and pieces, where its tensor-parallel groups lie so.
  struct PieceClock {
    Duration low, high;
    std::int64_t launches = 0;
  };
  using WindowClocks = std::vector<std::vector<PieceClock>>;
  /// A chunk of a rank: what it is, and what it is like.
  struct Chunk {
    ChunkKind kind = ChunkKind::Only;
    std::vector<LayerRun> runs;
    std::shared_ptr<const ChunkSample> sample;
  };

  [[nodiscard]] std::vector<std::vector<Chunk>> chunks_of(const Scenario& scenario);
  [[nodiscard]] std::shared_ptr<const InFlight> in_flight(const Layout& layout, std::size_t rank,
                                                          std::int64_t micro_batches);
  [[nodiscard]] std::shared_ptr<const Mesh> mesh_of(const Scenario& scenario);
  [[nodiscard]] Mesh make_mesh(const Scenario& scenario);
  [[nodiscard]] static WindowClocks make_clocks(const ClockKey& key);

  SharedGraphs& graphs_;
  Shared<SampleKey, ChunkSample> samples_{[](const SampleKey& k) { return sample(k.scenario, k.kind, k.runs); }};
  Shared<Scenario, Mesh> meshes_{[this](const Scenario& key) { return make_mesh(key); }};
  Shared<FabricKey, Fabric> fabrics_{[](const FabricKey& k) { return build_fabric(k.cluster, k.devices); }};
  Shared<GroupPlaces, GroupPrices> prices_{[](const GroupPlaces& places) { return GroupPrices(places); }};
  Shared<ClockKey, WindowClocks> clocks_{make_clocks};
  Shared<InFlightKey, InFlight> in_flight_{[](const InFlightKey& k) {
    return fullest_moments(schedule_of(k.layout, k.rank, static_cast<std::int32_t>(k.micro_batches)), k.layout.chunks);
  }};
};

}  // namespace tidemark::scenarios
