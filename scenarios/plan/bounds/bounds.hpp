#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/job/job.hpp"
#include "parallel/job/mesh.hpp"
#include "scenarios/plan/bounds/exact_memory.hpp"
#include "scenarios/plan/bounds/group_costs.hpp"
#include "scenarios/plan/bounds/ops_clock.hpp"
#include "scenarios/plan/bounds/pass_schedule.hpp"
#include "scenarios/plan/bounds/sample.hpp"
#include "scenarios/plan/bounds/shared.hpp"
#include "scenarios/plan/space/keys.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::scenarios {

/// What a candidate takes at least, without its programs (docs/planner.md has the proofs).
struct MemoryBounds {
  Bytes allocated, device_upper;
};

/// Bounds of candidates, from samples that they share. From any thread.
class Bounder {
 public:
  explicit Bounder(SharedModels& models) : models_(models) {}

  /// Whether everything that the scenario asks for has been thought about.
  [[nodiscard]] static bool has_bounds(const Scenario& scenario);
  /// Whether, besides, what bounds rest on is found in programs of its chunks and of its mesh. Of what is not covered
  /// nothing is certain.
  [[nodiscard]] bool covers(const Scenario& scenario);
  [[nodiscard]] MemoryBounds memory(const Scenario& scenario);
  [[nodiscard]] DurationBounds step(const Scenario& scenario);
  /// What the fullest stage keeps of parameters, gradients and optimizer at least: no program need be written for that.
  /// Of what is known only.
  [[nodiscard]] Bytes held(const Scenario& scenario);

  /// What bounds of a candidate rest on; nothing where it is not covered.
  struct Ground;
  [[nodiscard]] std::optional<Ground> proof_of(const Scenario& scenario);
  [[nodiscard]] MemoryBounds memory(const Scenario& scenario, const Ground& ground);
  [[nodiscard]] DurationBounds step(const Scenario& scenario, const Ground& ground);

 private:
  // Ranks of one pipeline stage outside their passes.
  struct StateCost {
    Bytes before_passes;                ///< what is there when the last step's passes begin
    Bytes highest, last_step_highest;   ///< with no pass at all: of the whole job, and within its last step
    DurationBounds zero, reduce, rest;  ///< of a step: before its passes, up to the gradient norm, after it
    Launches launches{};                ///< in all three
    Bytes driver_upper;
  };
  /// What depends on where ranks stand, and not on their passes.
  struct Mesh {
    Runtime runtime;
    std::vector<StateCost> stages;
    std::vector<std::shared_ptr<const GroupCosts>> costs;  ///< by communicator
    PassCosts of_passes;
    std::shared_ptr<const GroupCosts> pipeline;  ///< where there is one
    bool samples_hold = true;                    ///< in the shortest job on it
    bool passes_alone = true;                    ///< no other collectives on the streams of those of passes
  };
  /// Clocks of a sample's windows and pieces, where the groups that it talks to lie so.
  struct PieceClock {
    Duration low, high;
    std::optional<LowWithSecondWaves> second_waves;
    Launches launches{};
  };
  struct WindowClocks {
    std::vector<std::vector<PieceClock>> pieces;  ///< by window
    bool second_waves = true;                     ///< known of each piece, wherever it comes
  };
  /// A chunk of a rank: what it is, and what it is like.
  struct Chunk {
    ChunkKind kind = ChunkKind::Only;
    std::vector<LayerRun> runs;
    std::shared_ptr<const ChunkSample> sample;  ///< nothing where none stands for it
  };

  [[nodiscard]] std::vector<std::vector<Chunk>> chunks_of(const Scenario& scenario);
  [[nodiscard]] std::shared_ptr<const Mesh> mesh_of(const Scenario& scenario);
  /// Of the host, whichever phase an op is of: which one is not kept.
  [[nodiscard]] static Duration longest_launch(const Host& host);
  /// The shortest job on a mesh, as ranks of it run it.
  struct ShortestWorkload {
    Workload workload;
    std::int32_t streams = 0;  ///< on which a rank has transfers at once, at most
  };
  [[nodiscard]] Mesh make_mesh(const Scenario& scenario);
  [[nodiscard]] ShortestWorkload lower_shortest_job(const Scenario& requested, const Communicators& comms, Mesh& mesh);
  void add_costs(const Scenario& requested, const Communicators& comms, std::int32_t streams, Mesh& mesh);
  static void add_states(const Scenario& requested, const LoweringInput& input, const Communicators& comms, Mesh& mesh);
  [[nodiscard]] Bytes make_held(const Scenario& scenario);
  [[nodiscard]] static StateCost state_cost(const Scenario& requested, const Program& state, const Communicators& comms,
                                            const Mesh& mesh);
  [[nodiscard]] bool samples_hold(const Scenario& shortest, std::int32_t pipeline, const std::vector<Chunk>& chunks,
                                  const Program& program, const Communicators& comms);
  /// Bytes above what is there when a step's passes begin.
  [[nodiscard]] std::int64_t lowest_of_passes(const Scenario& scenario, std::int32_t pipeline,
                                              const std::vector<Chunk>& chunks, std::int64_t micro_batches);
  [[nodiscard]] static WindowClocks make_clocks(const ClockKey& key);
  struct ChunkSpans {
    PassSpans shortest, longest;
  };
  [[nodiscard]] static ChunkSpans spans_of(const Chunk& chunk, const WindowClocks& clocks, const HostCosts& host,
                                           bool second_waves);

  SharedModels& models_;
  Shared<SampleKey, std::optional<ChunkSample>> samples_{
      [](const SampleKey& k) { return sample(k.scenario, k.kind, k.runs); }};
  Shared<Scenario, Mesh> meshes_{[this](const Scenario& key) { return make_mesh(key); }};
  Shared<FabricKey, Fabric> fabrics_{[](const FabricKey& k) { return build_fabric(k.cluster, k.devices, k.options); }};
  Shared<GroupPlaces, GroupCosts> costs_{[](const GroupPlaces& places) { return GroupCosts(places); }};
  Shared<ClockKey, WindowClocks> clocks_{make_clocks};
  Shared<InFlightKey, InFlight> in_flight_{[](const InFlightKey& k) {
    const auto& [layout, micro_batches] = k.schedule;
    return fullest_moments(schedule_of(layout, k.rank, static_cast<std::int32_t>(micro_batches)), layout.chunks);
  }};
  Latest<ScheduleKey, PassSchedule> schedules_{8};
  Latest<Scenario, Bytes> held_{8};  ///< candidates that follow each other often hold the same
};

struct Bounder::Ground {
  std::shared_ptr<const Mesh> mesh;
  std::vector<std::vector<Chunk>> chunks;  ///< by pipeline rank
};

}  // namespace tidemark::scenarios
