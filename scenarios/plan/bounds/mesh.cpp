#include "parallel/job/mesh.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "parallel/job/host_code.hpp"
#include "parallel/job/stages.hpp"
#include "parallel/lowering/lower.hpp"
#include "scenarios/plan/bounds/bounds.hpp"
#include "scenarios/plan/bounds/ops_clock.hpp"
#include "scenarios/predict/prediction.hpp"
#include "topology/route/cost.hpp"

// Of the mesh of a scenario: what its groups cost, what its ranks do besides passes, and whether samples stand for it.

namespace tidemark::scenarios {
namespace {

// Streams on which a rank sends and receives at once.
std::int32_t streams_of(P2pMode mode) {
  switch (mode) {
    case P2pMode::Free:
    case P2pMode::Batched:
      return 2;
    case P2pMode::Overlapped:
    case P2pMode::OverlappedWithFlush:
      return 4;
  }
  return 4;
}

// The shortest job on the scenario's mesh: who talks to whom, and what passes do, shows in it.
struct ShortestJob {
  Scenario scenario;
  std::vector<std::vector<LayerKind>> layers;  // by stage: one of each kind that there are in its place

  explicit ShortestJob(const Scenario& requested) : scenario(requested) {
    Layout& layout = scenario.layout;
    layout.chunks = std::min(requested.layout.chunks, 2);
    layout.first_layers = layout.last_layers = 0;
    layout.count_embedding = layout.count_loss = false;
    const std::span<const LayerKind> kinds = requested.model.layers.order();
    layers.resize(static_cast<std::size_t>(layout.stages()));
    for (std::int32_t p = 0; p < layout.pipeline; ++p) {
      const std::vector<Stage> chunks =
          chunks_of_rank(static_cast<std::int32_t>(requested.model.layers.size()), requested.layout, p);
      for (std::size_t c = 0; c < chunks.size(); ++c) {
        const parallel::Place place{
            p, static_cast<std::int32_t>(std::min<std::size_t>(c, 1))};  // the second is all others
        std::vector<LayerKind>& its = layers[static_cast<std::size_t>(layout.placement().stage_of(place))];
        for (const LayerKind kind : kinds_of(chunks[c], kinds))
          if (std::ranges::find(its, kind) == its.end()) its.push_back(kind);
      }
    }
    const LayerList& all = requested.model.layers;
    LayerList its_layers;
    layout.stage_layers.clear();
    for (std::vector<LayerKind>& its : layers) {
      if (its.empty()) its.push_back(all.kind(0));
      layout.stage_layers.push_back(static_cast<std::int32_t>(its.size()));
      for (const LayerKind kind : its) its_layers.append(1, all.kinds()[static_cast<std::size_t>(kind)]);
    }
    scenario.model.layers = std::move(its_layers);
    scenario.train.global_batch = std::int64_t{requested.layout.data} * shortest_step(requested.layout);
  }

  // Pipeline ranks that do alike in it: the first, those between, the last; of equal layers.
  using Likeness = std::pair<int, std::vector<std::vector<LayerKind>>>;
  [[nodiscard]] Likeness likeness(std::int32_t p) const {
    const Layout& layout = scenario.layout;
    Likeness its{p == 0 ? 0 : p + 1 < layout.pipeline ? 1 : 2, {}};
    for (std::int32_t c = 0; c < layout.chunks; ++c)
      its.second.push_back(layers[static_cast<std::size_t>(layout.placement().stage_of({p, c}))]);
    return its;
  }
};

// The streams on which a program moves bytes between ranks.
std::int32_t transferring_streams(const Program& program) {
  std::set<std::int32_t> streams;
  for (const Op& op : program.ops) {
    if (const auto* o = std::get_if<Collective>(&op)) streams.insert(o->stream.value);
    if (const auto* o = std::get_if<Exchange>(&op)) streams.insert(o->stream.value);
  }
  return static_cast<std::int32_t>(streams.size());
}

// Whether no stream has both collectives of passes and others.
bool on_streams_of_their_own(const Program& program, const PassGroups& of_passes) {
  std::set<std::int32_t> those, others;
  for (const Op& op : program.ops)
    if (const auto* o = std::get_if<Collective>(&op))
      (std::ranges::find(of_passes, o->comm) != of_passes.end() ? those : others).insert(o->stream.value);
  others.erase(0);  // the compute stream's hold none of its kernels up
  return std::ranges::none_of(those, [&](std::int32_t stream) { return others.contains(stream); });
}

// Where the last step of a program without passes begins, where its passes would, and where the gradient norm is known.
struct StatePlaces {
  std::size_t step = 0, passes = 0, norm = 0;
};
StatePlaces places_in(const Program& state, std::int32_t last_step, CommSlot norm) {
  StatePlaces at;
  for (std::size_t i = 0; i < state.ops.size(); ++i) {
    if (const auto* mark = std::get_if<Mark>(&state.ops[i]); mark != nullptr && mark->step == last_step) {
      if (at.step == 0)
        at.step = i;
      else if (at.passes == 0)
        at.passes = i;
    }
    const auto* collective = std::get_if<Collective>(&state.ops[i]);
    if (at.passes > 0 && at.norm == 0 && collective != nullptr && collective->comm == norm) at.norm = i + 1;
  }
  if (at.norm == 0) at.norm = state.ops.size();
  return at;
}

Bytes drivers_of(const Program& program, const DriverCosts& costs) {
  Bytes sum;
  for (const Op& op : program.ops) {
    if (const auto* o = std::get_if<CreateDriver>(&op)) sum += costs.of(o->resource).high;
    if (const auto* o = std::get_if<CreateCommunicator>(&op)) sum += costs.of(o->comm).high;
  }
  return sum;
}

}  // namespace

Duration Bounder::longest_launch(const Host& host) {
  const HostCosts costs = on_host(megatron_host_code(), host);
  Duration longest;
  for (std::size_t phase = 0; phase < phases; ++phase) longest = std::max(longest, costs.of(static_cast<Phase>(phase)));
  return longest;
}

Bounder::StateCost Bounder::state_cost(const Scenario& requested, const Program& state, const Communicators& comms,
                                       const Mesh& mesh) {
  const StatePlaces at = places_in(state, static_cast<std::int32_t>(requested.train.steps), comms.norm);
  const TimedBy by = timed_by(state, requested.cluster, comms.pipeline);
  const std::vector<std::int64_t> changes = flat_changes(state);
  const auto effect = [&](std::size_t from, std::size_t to) {
    return sim::effect_of(std::span(changes).subspan(from, to - from));
  };
  const auto timed = [&](std::size_t from, std::size_t to) {
    return clock_bounds(timed_ops(state, from, to, by), longest_launch(requested.cluster.host),
                        [&](const TimedOp& op) -> const GroupCosts& { return *mesh.costs[op.comm.index()]; });
  };
  StateCost cost;
  cost.before_passes = effect(0, at.passes).net;
  cost.highest = effect(0, state.ops.size()).highest;
  cost.last_step_highest = effect(0, at.step).net + effect(at.step, state.ops.size()).highest;
  cost.zero = timed(at.step, at.passes);
  cost.reduce = timed(at.passes, at.norm);
  cost.rest = timed(at.norm, state.ops.size());
  cost.launches = launches_of(timed_ops(state, at.step, state.ops.size(), by));
  return cost;
}

// What samples say of the passes of this job its program does: no less work in all (chunks in the middle of the model
// read batches too, where they are on the first rank or the last), and no less memory.
bool Bounder::samples_hold(const Scenario& shortest, std::int32_t p, const std::vector<Chunk>& chunks,
                           const Program& program, const Communicators& comms) {
  const auto step = static_cast<std::int32_t>(shortest.train.steps);
  PassGroups beside;
  if (shortest.runtime.overlap.gradients)
    beside = {comms.data, comms.shard, comms.replicate, comms.expert_data, comms.expert_shard};
  const auto found = work_of_passes(program, step, {pass_groups(comms), comms.pipeline, beside}, shortest.cluster);
  if (!found) return false;
  const std::int64_t micro_batches = micro_batches_of(shortest.train, shortest.layout);
  PassWork expected;
  for (const Chunk& chunk : chunks) {
    if (!chunk.sample) return false;
    const std::vector<Window>& windows = chunk.sample->windows;  // those of a kind do the same
    const auto backward =
        std::find_if(windows.begin(), windows.end(), [](const Window& w) { return !is_forward(w.kind); });
    if (backward == windows.end()) return false;
    expected.add(windows.front().work, micro_batches);
    expected.add(backward->work, micro_batches);
  }
  if (!found->covers(expected)) return false;
  const auto [begin, end] = passes_of(program, step);
  return lowest_of_passes(shortest, p, chunks, micro_batches) <= effect_of(program, begin, end).highest.count();
}

Bounder::Mesh Bounder::make_mesh(const Scenario& requested) {
  Mesh mesh;
  mesh.runtime = runtime_of(requested);
  const auto built = models_.model_of(requested.model, model_options_of(requested));
  const LoweringInput input{*built, requested.layout, requested.train, mesh.runtime};
  const Communicators comms = communicators_of(input);
  const ShortestWorkload shortest = lower_shortest_job(requested, comms, mesh);
  add_costs(requested, comms, shortest.streams, mesh);
  add_states(requested, input, comms, mesh);

  const Costs driver = cost(shortest.workload, requested.cluster, nccl_settings(requested.runtime));
  for (std::int32_t p = 0; p < requested.layout.pipeline; ++p) {
    const Rank rank = rank_at(requested.layout, {.pipeline = p});
    mesh.stages[static_cast<std::size_t>(p)].driver_upper =
        drivers_of(shortest.workload.program(rank), driver.of(rank));
  }
  return mesh;
}

// And sees in it whether samples hold.
Bounder::ShortestWorkload Bounder::lower_shortest_job(const Scenario& requested, const Communicators& comms,
                                                      Mesh& mesh) {
  const ShortestJob shortest_job(requested);
  const Scenario& shortest = shortest_job.scenario;
  const std::vector<std::vector<Chunk>> chunks = chunks_of(shortest);
  const auto built = models_.model_of(shortest.model, model_options_of(shortest));
  const LoweringInput small{*built, shortest.layout, shortest.train, mesh.runtime};
  ShortestWorkload made{{}, streams_of(traits_of(requested.layout.schedule).p2p)};
  Workload& workload = made.workload;
  workload.communicators = comms.table;
  workload.program_of_rank.resize(static_cast<std::size_t>(requested.layout.world_size()));
  std::map<ShortestJob::Likeness, std::int32_t> known_programs;
  std::vector<std::int32_t> program_of_pipeline;
  for (std::int32_t p = 0; p < requested.layout.pipeline; ++p) {
    const auto next = static_cast<std::int32_t>(workload.programs.size());
    const auto [known, added] = known_programs.try_emplace(shortest_job.likeness(p), next);
    program_of_pipeline.push_back(known->second);
    if (!added) continue;
    workload.programs.push_back(lower_role(small, {{.pipeline = p}, {}}));
    const Program& program = workload.programs.back();
    mesh.samples_hold =
        mesh.samples_hold && samples_hold(shortest, p, chunks[static_cast<std::size_t>(p)], program, comms);
    mesh.passes_alone = mesh.passes_alone && on_streams_of_their_own(program, pass_groups(comms));
    made.streams = std::max(made.streams, transferring_streams(program));
  }
  const GroupAxis pipeline = dense_mesh(requested.layout).along(axis::pp);
  for (Rank rank{0}; rank.value < requested.layout.world_size(); ++rank.value)
    workload.program_of_rank[rank.index()] = program_of_pipeline[static_cast<std::size_t>(pipeline.coordinate(rank))];
  return made;
}

void Bounder::add_costs(const Scenario& requested, const Communicators& comms, std::int32_t streams, Mesh& mesh) {
  const FabricKey fabric_key{requested.cluster, requested.layout.world_size(), fabric_options(requested.runtime.nccl)};
  const auto fabric = fabrics_.get(fabric_key, hash_of(fabric_key));
  // A device takes in what it forwards for a stage before its own, and for one after it.
  if (comms.pipeline.valid() && forwards(comms.table[comms.pipeline.index()], *fabric, requested.layout.world_size()))
    streams += 2;
  const std::int64_t sharers = link_sharers(*fabric, streams);
  for (const Communicator& communicator : comms.table) {
    const GroupPlaces places{fabric, distinct_groups(communicator, *fabric, requested.layout.world_size()), sharers,
                             communicator.messages};
    mesh.costs.push_back(costs_.get(places, hash_of(places)));
  }
  const PassGroups groups = pass_groups(comms);
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (groups[g].valid()) mesh.of_passes[g] = mesh.costs[groups[g].index()];
  if (comms.pipeline.valid()) mesh.pipeline = mesh.costs[comms.pipeline.index()];
}

void Bounder::add_states(const Scenario& requested, const LoweringInput& input, const Communicators& comms,
                         Mesh& mesh) {
  using Held = std::vector<std::pair<std::vector<LayerKind>, int>>;
  std::map<Held, std::size_t> known_states;  // -> stage
  const std::span<const LayerKind> kinds = requested.model.layers.order();
  for (std::int32_t p = 0; p < requested.layout.pipeline; ++p) {
    // Ranks that hold the same layers do the same with them.
    Held held;
    for (const Stage& stage :
         chunks_of_rank(static_cast<std::int32_t>(requested.model.layers.size()), requested.layout, p)) {
      const std::span<const LayerKind> its = kinds_of(stage, kinds);
      held.emplace_back(std::vector(its.begin(), its.end()), (stage.embedding ? 1 : 0) + (stage.head ? 2 : 0));
    }
    const auto [known, added] = known_states.try_emplace(held, mesh.stages.size());
    if (!added) {
      mesh.stages.push_back(mesh.stages[known->second]);
      continue;
    }
    const std::optional<Program> state = lower_state(input, {{.pipeline = p}, {}});
    mesh.samples_hold = mesh.samples_hold && state;
    mesh.stages.push_back(state ? state_cost(requested, *state, comms, mesh) : StateCost{});
  }
}

}  // namespace tidemark::scenarios
