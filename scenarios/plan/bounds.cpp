#include "scenarios/plan/bounds.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

#include "parallel/lower.hpp"
#include "parallel/mesh.hpp"
#include "parallel/sizes.hpp"
#include "parallel/stages.hpp"
#include "scenarios/outliving_batches.hpp"
#include "scenarios/plan/pass_schedule.hpp"
#include "scenarios/prediction.hpp"
#include "sim/base/ensure.hpp"
#include "topology/route/price.hpp"

namespace tidemark::scenarios {
namespace {

constexpr Duration ages_ago{std::numeric_limits<std::int64_t>::min() / 4};

Effects repeated(const Effects& e, std::int64_t times) {
  const auto of = [&](const Effect& one) -> Effect {
    const Bytes before_last = one.net * (times - 1);
    return {one.net * times, std::max(one.highest, before_last + one.highest)};
  };
  return {of(e.lower), of(e.upper)};
}

// Calls `visit(piece, times)` for each piece of a window, units between the first and the last as often as a chunk of
// those runs has them.
template <class Visit>
void for_each_piece(const Window& window, const std::vector<LayerRun>& runs, Visit visit) {
  for (std::size_t i = 0; i < window.pieces.size(); ++i) {
    const Piece& piece = window.pieces[i];
    const bool between = piece.run >= 0 && piece.unit == 1 && runs[static_cast<std::size_t>(piece.run)].times > 3;
    visit(i, between ? runs[static_cast<std::size_t>(piece.run)].times - 2 : 1);
  }
}

// Memory of a chunk's passes, relative to what is there when a step's passes begin.
struct PassMemory {
  std::int64_t each = 0;                                                                ///< a micro-batch in flight
  std::int64_t forward = std::numeric_limits<std::int64_t>::max(), backward = forward;  ///< highest point of a pass
};

struct PassMemories {
  PassMemory lower, upper;
};

PassMemories pass_memories(const ChunkSample& sample, const std::vector<LayerRun>& runs) {
  std::vector<Effects> of_window;
  for (const Window& window : sample.windows) {
    Effects all;
    for_each_piece(window, runs, [&](std::size_t piece, std::int64_t times) {
      all = then(all, repeated(window.pieces[piece].effects, times));
    });
    of_window.push_back(all);
  }
  PassMemories found;
  found.upper.forward = found.upper.backward = 0;
  // The second micro-batch, which comes upon what the first left behind; where none runs ahead, nothing is in flight.
  const bool ahead = sample.windows.size() > 2 && is_forward(sample.windows[1].kind);
  found.lower.each = ahead ? of_window[1].lower.net.count() : 0;
  found.upper.each = ahead ? of_window[1].upper.net.count() : 0;
  std::int64_t lower = 0, upper = 0;
  for (std::size_t w = 0; w < of_window.size(); ++w) {
    const Window& window = sample.windows[w];
    const bool forward = is_forward(window.kind);
    std::int64_t& low = forward ? found.lower.forward : found.lower.backward;
    std::int64_t& high = forward ? found.upper.forward : found.upper.backward;
    low = std::min(low, lower + of_window[w].lower.highest.count() - window.others * found.lower.each);
    high = std::max(high, upper + of_window[w].upper.highest.count() - window.others * found.upper.each);
    lower += of_window[w].lower.net.count();
    upper += of_window[w].upper.net.count();
  }
  return found;
}

/// Ops on a compute stream and one beside it; everything before them is done at 0.
template <class Price>
Duration clock(const std::vector<TimedOp>& ops, bool host_is_late, Duration launch, Price price) {
  Duration host = host_is_late ? Duration{} : ages_ago;
  Duration tail, aside = host_is_late ? Duration{} : ages_ago;
  std::map<std::int32_t, Duration> events;
  for (const TimedOp& op : ops) {
    Duration& stream = op.aside ? aside : tail;
    switch (op.kind) {
      case TimedOp::Kind::Compute:
      case TimedOp::Kind::Transfer:
        host += launch;
        stream = std::max(stream, host) + (op.kind == TimedOp::Kind::Compute ? op.duration : price(op));
        break;
      case TimedOp::Kind::Signal:
        events[op.event] = std::max(stream, host);
        break;
      case TimedOp::Kind::Await:
        if (const auto event = events.find(op.event); event != events.end()) stream = std::max(stream, event->second);
        break;
    }
  }
  return host_is_late ? std::max({tail, aside, host}) : tail;
}

std::int64_t launches_of(const std::vector<TimedOp>& ops) {
  return std::count_if(ops.begin(), ops.end(), [](const TimedOp& op) {
    return op.kind == TimedOp::Kind::Compute || op.kind == TimedOp::Kind::Transfer;
  });
}

/// `prices_of(op)`: those of the groups that a transfer is among.
template <class PricesOf>
DurationBounds clock_bounds(const std::vector<TimedOp>& ops, Duration launch, PricesOf prices_of) {
  const auto low = [&](const TimedOp& op) { return prices_of(op).collective(op.collective, op.size).low; };
  const auto high = [&](const TimedOp& op) { return prices_of(op).collective(op.collective, op.size).high; };
  // The host thread runs ahead: what it takes counts over a whole step.
  return {clock(ops, false, launch, low), clock(ops, true, launch, high)};
}

}  // namespace

std::vector<std::vector<Bounder::Chunk>> Bounder::chunks_of(const Scenario& s) {
  std::vector<std::vector<Chunk>> all;
  for (std::int32_t p = 0; p < s.layout.pipeline; ++p) {
    std::vector<Chunk>& its = all.emplace_back();
    for (const Stage& stage : chunks_of_rank(static_cast<std::int32_t>(s.model.layers), s.layout, p)) {
      Chunk chunk;
      chunk.kind = stage.embedding && stage.head ? ChunkKind::Only
                   : stage.embedding             ? ChunkKind::First
                   : stage.head                  ? ChunkKind::Last
                                                 : ChunkKind::Middle;
      chunk.runs = layer_runs(stage.layers(), s.train.recompute);
      // The neighbour is often alike.
      const auto same = [&](const Chunk& c) { return c.kind == chunk.kind && c.runs == chunk.runs; };
      for (auto other = all.rbegin(); !chunk.sample && other != all.rend() && other - all.rbegin() < 2; ++other)
        for (const Chunk& c : *other)
          if (same(c)) chunk.sample = c.sample;
      if (!chunk.sample) {
        const std::vector<LayerRun> few = sampled(chunk.runs);
        const SampleKey key{passes_key(s, few), chunk.kind, few};
        chunk.sample = samples_.get(key, hash_of(key));
      }
      its.push_back(std::move(chunk));
    }
  }
  return all;
}

std::shared_ptr<const Bounder::Mesh> Bounder::mesh_of(const Scenario& s) {
  const Scenario key = state_key(s);
  return meshes_.get(key, hash_of(key));
}

Bounder::Mesh Bounder::make_mesh(const Scenario& asked) {
  const Runtime runtime = runtime_of(asked);
  const auto graph = graphs_.graph_of(asked.model, graph_options_of(asked));
  const LoweringInput input{*graph, asked.layout, asked.train, runtime};
  const Communicators comms = communicators_of(input);

  // Who talks to whom shows in the shortest job on the same mesh.
  Scenario shortest = asked;
  shortest.layout.chunks = std::min(asked.layout.chunks, 2);
  shortest.layout.stage_layers.assign(static_cast<std::size_t>(shortest.layout.stages()), 1);
  shortest.layout.first_layers = shortest.layout.last_layers = 0;
  shortest.layout.count_embedding = shortest.layout.count_loss = false;
  shortest.model.layers = shortest.layout.stages();
  shortest.train.global_batch =
      std::int64_t{asked.layout.data} * (is_interleaved(asked.layout.schedule) ? asked.layout.group() : 2);
  const auto small_graph = graphs_.graph_of(shortest.model, graph_options_of(shortest));
  const LoweringInput small{*small_graph, shortest.layout, shortest.train, runtime};
  Workload workload;
  workload.communicators = comms.table;
  workload.program_of_rank.resize(static_cast<std::size_t>(asked.layout.world_size()));
  // The first rank of the pipeline, those between, the last: others talk as these do.
  const auto kind_of = [&](std::int32_t p) { return p == 0 ? 0 : p + 1 < asked.layout.pipeline ? 1 : 2; };
  std::array<std::int32_t, 3> program_of_kind{-1, -1, -1};
  for (std::int32_t p = 0; p < asked.layout.pipeline; ++p) {
    std::int32_t& program = program_of_kind[static_cast<std::size_t>(kind_of(p))];
    if (program >= 0) continue;
    program = static_cast<std::int32_t>(workload.programs.size());
    workload.programs.push_back(lower_role(small, {{.pipeline = p}, {}}));
  }
  const GroupAxis pipeline = dense_mesh(asked.layout).along(axis::pp);
  for (Rank rank{0}; rank.value < asked.layout.world_size(); ++rank.value)
    workload.program_of_rank[rank.index()] =
        program_of_kind[static_cast<std::size_t>(kind_of(pipeline.coordinate(rank)))];
  const Prices driver = price(workload, asked.cluster, nccl_settings(asked.runtime));

  const FabricKey fabric_key{asked.cluster, asked.layout.world_size()};
  const auto fabric = fabrics_.get(fabric_key, hash_of(fabric_key));
  const std::int32_t streams = is_interleaved(asked.layout.schedule) ? 4 : 2;
  const std::int64_t sharers = link_sharers(asked.cluster, streams);
  Mesh mesh;
  mesh.runtime = runtime;
  for (const Communicator& communicator : comms.table) {
    const GroupPlaces places{fabric, distinct_groups(communicator, *fabric, asked.layout.world_size()), sharers};
    mesh.prices.push_back(prices_.get(places, hash_of(places)));
  }
  if (comms.tensor.valid()) mesh.tensor = mesh.prices[comms.tensor.index()];
  if (comms.pipeline.valid()) mesh.pipeline = mesh.prices[comms.pipeline.index()];

  const Duration launch = asked.cluster.host.launch;
  std::map<std::vector<std::pair<std::int32_t, int>>, std::size_t> known_states;  // -> stage
  for (std::int32_t p = 0; p < asked.layout.pipeline; ++p) {
    // Ranks that hold as many layers do the same with them.
    std::vector<std::pair<std::int32_t, int>> held;
    for (const Stage& stage : chunks_of_rank(static_cast<std::int32_t>(asked.model.layers), asked.layout, p))
      held.emplace_back(stage.layers(), (stage.embedding ? 1 : 0) + (stage.head ? 2 : 0));
    const auto [known, added] = known_states.try_emplace(held, mesh.stages.size());
    const Rank rank = rank_at(asked.layout, {.pipeline = p});
    const DriverPrices& its = driver.of(rank);
    const auto driver_upper = [&] {
      Bytes sum;
      for (const Op& op : workload.program(rank).ops) {
        if (const auto* o = std::get_if<CreateDriver>(&op)) sum += its.of(o->resource).high;
        if (const auto* o = std::get_if<CreateCommunicator>(&op)) sum += its.of(o->comm).high;
      }
      return sum;
    };
    if (!added) {
      mesh.stages.push_back(mesh.stages[known->second]);
      mesh.stages.back().driver_upper = driver_upper();
      continue;
    }
    const Program state = lower_state(input, {{.pipeline = p}, {}});
    StateCost cost;
    std::size_t step = 0, passes = 0, norm = 0;
    for (std::size_t i = 0; i < state.ops.size(); ++i) {
      const auto* mark = std::get_if<Mark>(&state.ops[i]);
      if (mark != nullptr && mark->step == asked.train.steps) {
        if (step == 0)
          step = i;
        else if (passes == 0)
          passes = i;
      }
      const auto* collective = std::get_if<Collective>(&state.ops[i]);
      if (passes > 0 && norm == 0 && collective != nullptr && collective->comm == comms.norm) norm = i + 1;
    }
    if (norm == 0) norm = state.ops.size();
    cost.before_passes = effects_of(state, 0, passes);
    cost.all = effects_of(state, 0, state.ops.size());
    cost.last_step_highest =
        effects_of(state, 0, step).lower.net + effects_of(state, step, state.ops.size()).lower.highest;
    const auto timed = [&](std::size_t from, std::size_t to) {
      return clock_bounds(timed_ops(state, from, to, asked.cluster.device), launch,
                          [&](const TimedOp& op) -> const GroupPrices& { return *mesh.prices[op.comm.index()]; });
    };
    cost.zero = timed(step, passes);
    cost.reduce = timed(passes, norm);
    cost.rest = timed(norm, state.ops.size());
    cost.launches = launches_of(timed_ops(state, step, state.ops.size(), asked.cluster.device));

    cost.driver_upper = driver_upper();
    if (asked.layout.sharding != Sharding::None) {
      const Sizes sizes = sizes_of(graph->model, asked.layout, asked.train, runtime);
      for (const Stage& stage : chunks_of_rank(static_cast<std::int32_t>(asked.model.layers), asked.layout, p)) {
        const auto parameters = stage_parameters(*graph, stage, runtime);
        const BufferLayout buffer =
            buffer_layout(*graph, parameters, sizes, runtime, stage, asked.layout.sharding, asked.layout.data);
        std::int64_t mine = 0;
        for (const ShardPiece& piece : buffer.pieces(0, asked.layout.data)) mine += piece.elements;
        // Master, two moments, a copy of the gradients in fp32, a clone; each piece's blocks rounded.
        const std::int64_t more = buffer.elements / asked.layout.data - mine;
        const auto pieces = static_cast<std::int64_t>(parameters.size() + buffer.buckets.size());
        cost.other_roles += more * 20 + pieces * 5 * ((1 << 20) + 512);
      }
    }
    mesh.stages.push_back(std::move(cost));
  }
  return mesh;
}

MemoryBounds Bounder::memory(const Scenario& s) {
  ensure(knows(s), "bounds are asked of what they know");
  const auto mesh = mesh_of(s);
  const std::vector<std::vector<Chunk>> chunks = chunks_of(s);
  const std::int64_t micro_batches = micro_batches_of(s.train, s.layout);
  MemoryBounds bounds;
  for (std::size_t p = 0; p < chunks.size(); ++p) {
    const StateCost& state = mesh->stages[p];
    std::int64_t caches_low = 0, caches_high = 0, boundary = 0;
    std::vector<PassMemories> passes;
    for (const Chunk& chunk : chunks[p]) {
      caches_low = std::max(caches_low, chunk.sample->caches.lower.net.count());
      caches_high += chunk.sample->caches.upper.net.count();
      boundary = std::max(boundary, chunk.sample->boundary.count());
      passes.push_back(pass_memories(*chunk.sample, chunk.runs));
    }
    std::int64_t low = 0, high = 0;
    if (is_interleaved(s.layout.schedule)) {
      // The function of the interleaved schedule holds other variables: what crosses between stages, a few times.
      const std::int64_t held = 4 * boundary;
      const std::int64_t held_high =
          (2 * s.layout.chunks + 2 * (s.layout.group() - s.layout.pipeline) + 8) * (boundary + (2 << 20));
      const InFlightKey key = in_flight_key(s.layout, static_cast<std::int32_t>(p), micro_batches);
      const auto most = in_flight_.get(key, hash_of(key));
      for (const InFlight::At& at : most->moments) {
        std::int64_t others_low = 0, others_high = 0;
        for (std::size_t c = 0; c < passes.size(); ++c) {
          others_low += at.others[c] * passes[c].lower.each;
          others_high += at.others[c] * passes[c].upper.each;
        }
        const PassMemories& its = passes[static_cast<std::size_t>(at.chunk)];
        const bool forward = is_forward(at.kind);
        low = std::max(low, others_low + (forward ? its.lower.forward : its.lower.backward) - held);
        high = std::max(high, others_high + (forward ? its.upper.forward : its.upper.backward) + held_high);
      }
    } else {
      const std::int64_t ahead = run_ahead(s.layout, static_cast<std::int32_t>(p), micro_batches);
      const PassMemory &lower = passes.front().lower, &upper = passes.front().upper;
      low = ahead * lower.each + std::max(lower.forward, lower.backward);
      // In a schedule that keeps the last stage's micro-batches in flight, each holds no more than a pass at its
      // highest.
      const std::int64_t each =
          std::max(upper.each, run_ahead(s.layout, s.layout.pipeline - 1, micro_batches) > 0 ? upper.forward : 0);
      high = ahead * each + std::max(upper.forward, upper.backward);
    }
    const std::int64_t there_low = state.before_passes.lower.net.count() + caches_low;
    const std::int64_t there_high = state.before_passes.upper.net.count() + caches_high;
    const Bytes in_last_step{std::max(there_low + low, state.last_step_highest.count())};
    const Bytes allocated = std::max(in_last_step, state.all.lower.highest);
    bounds.allocated_low = std::max(bounds.allocated_low, allocated);
    bounds.allocated_high =
        std::max(bounds.allocated_high,
                 Bytes{std::max(there_high + high, state.all.upper.highest.count() + caches_high) + state.other_roles});
    // Drivers have all they take by the last of several steps. Before, a full device may have made the allocator give
    // back what it held when they came.
    const Bytes drivers = s.train.steps > 1 ? state.driver_upper : Bytes{};
    const Bytes batches = of_outliving_batches(s, mesh->runtime, static_cast<std::int32_t>(p));
    bounds.device_upper_low = std::max(bounds.device_upper_low, std::max(allocated, in_last_step + drivers) + batches);
  }
  // Settings of the allocator make blocks larger, never smaller.
  if (!s.runtime.allocator.empty()) bounds.allocated_high = Bytes{std::numeric_limits<std::int64_t>::max()};
  return bounds;
}

Bounder::WindowClocks Bounder::make_clocks(const ClockKey& key) {
  // Passes talk to nobody else, hand-overs apart.
  const auto tensor = [&](const TimedOp&) -> const GroupPrices& { return *key.tensor; };
  WindowClocks clocks;
  for (const Window& window : key.sample->windows) {
    std::vector<PieceClock>& its = clocks.emplace_back();
    for (const Piece& piece : window.pieces) {
      const DurationBounds bounds = clock_bounds(piece.ops, key.launch, tensor);
      its.push_back({bounds.low, bounds.high, launches_of(piece.ops)});
    }
  }
  return clocks;
}

DurationBounds Bounder::step(const Scenario& s) {
  ensure(knows(s), "bounds are asked of what they know");
  const auto mesh = mesh_of(s);
  const std::vector<std::vector<Chunk>> chunks = chunks_of(s);
  const Duration launch = s.cluster.host.launch;
  std::vector<std::vector<PassSpans>> low, high;  // by pipeline rank and chunk
  Bytes boundary;
  const std::int64_t micro_batches = micro_batches_of(s.train, s.layout);
  Duration of_host;
  for (const std::vector<Chunk>& of_rank : chunks) {
    std::int64_t launches = 0;
    low.emplace_back();
    high.emplace_back();
    for (const Chunk& chunk : of_rank) {
      const ClockKey key{chunk.sample, mesh->tensor, launch};
      const auto clocks = clocks_.get(key, hash_of(key));
      constexpr Duration longest{std::numeric_limits<std::int64_t>::max()};
      PassSpans shortest{longest, longest}, slowest;
      std::int64_t fewest[2] = {longest.count(), longest.count()};  // launches, by pass
      for (std::size_t w = 0; w < clocks->size(); ++w) {
        Duration from, to;
        std::int64_t its_launches = 0;
        for_each_piece(chunk.sample->windows[w], chunk.runs, [&](std::size_t piece, std::int64_t times) {
          const PieceClock& clock = (*clocks)[w][piece];
          from += clock.low * times;
          to += clock.high * times;
          its_launches += clock.launches * times;
        });
        const bool forward = is_forward(chunk.sample->windows[w].kind);
        Duration& least = forward ? shortest.forward : shortest.backward;
        Duration& most = forward ? slowest.forward : slowest.backward;
        least = std::min(least, from);
        most = std::max(most, to);
        fewest[forward ? 0 : 1] = std::min(fewest[forward ? 0 : 1], its_launches);
      }
      launches += fewest[0] + fewest[1];
      low.back().push_back(shortest);
      high.back().push_back(slowest);
      boundary = std::max(boundary, chunk.sample->boundary);
    }
    of_host = std::max(of_host, launch * (launches * micro_batches + mesh->stages[low.size() - 1].launches));
  }
  const DurationBounds message = mesh->pipeline ? mesh->pipeline->message(boundary) : DurationBounds{};
  std::vector<Duration> begin_low, begin_high;
  for (const StateCost& stage : mesh->stages) {
    begin_low.push_back(stage.zero.low);
    begin_high.push_back(stage.zero.high);
  }
  const std::vector<Duration> ends_low = earliest_ends(s.layout, micro_batches, low, message.low, begin_low);
  const std::vector<Duration> ends_high = latest_ends(s.layout, micro_batches, high, message.high + launch, begin_high);
  Duration reduced_low, reduced_high, rest_low, rest_high;
  for (std::size_t p = 0; p < mesh->stages.size(); ++p) {
    reduced_low = std::max(reduced_low, ends_low[p] + mesh->stages[p].reduce.low);
    reduced_high = std::max(reduced_high, ends_high[p] + mesh->stages[p].reduce.high);
    rest_low = std::max(rest_low, mesh->stages[p].rest.low);
    rest_high = std::max(rest_high, mesh->stages[p].rest.high);
  }
  return {std::max(reduced_low + rest_low, of_host), reduced_high + rest_high};
}

}  // namespace tidemark::scenarios
