#include "scenarios/plan/bounds/bounds.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "kernels/cost/roofline.hpp"
#include "parallel/frameworks/megatron/optimizer/optimizer.hpp"
#include "parallel/job/host_code.hpp"
#include "parallel/job/mesh.hpp"
#include "parallel/job/sizes.hpp"
#include "parallel/job/stages.hpp"
#include "scenarios/plan/bounds/pass_schedule.hpp"
#include "scenarios/predict/measured/measured_ranges.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/predict/upper_ends/rerun_batches.hpp"

namespace tidemark::scenarios {
namespace {

Effect repeated(const Effect& one, std::int64_t times) {
  return {one.net * times, std::max(one.highest, one.net * (times - 1) + one.highest)};
}

// Memory of a chunk's passes, at least, relative to what is there when a step's passes begin.
struct PassMemory {
  std::int64_t each = 0;                                                                ///< a micro-batch in flight
  std::int64_t forward = std::numeric_limits<std::int64_t>::max(), backward = forward;  ///< highest point of a pass
};

PassMemory pass_memory(const ChunkSample& sample, const std::vector<LayerRun>& runs) {
  std::vector<Effect> of_window;
  for (const Window& window : sample.windows) {
    Effect all;
    for (const Piece& piece : window.pieces) all = then(all, repeated(piece.effect, times_of(piece, runs)));
    of_window.push_back(all);
  }
  PassMemory found;
  // The second micro-batch, which comes upon what the first left behind; where none runs ahead, nothing is in flight.
  const bool ahead = sample.windows.size() > 2 && is_forward(sample.windows[1].kind);
  found.each = ahead ? of_window[1].net.count() : 0;
  std::int64_t before = 0;
  for (std::size_t w = 0; w < of_window.size(); ++w) {
    const Window& window = sample.windows[w];
    std::int64_t& lowest = is_forward(window.kind) ? found.forward : found.backward;
    lowest = std::min(lowest, before + of_window[w].highest.count() - window.others * found.each);
    before += of_window[w].net.count();
  }
  return found;
}

// A sample's schedule has four variables of its own that hold what crosses between stages (input, output and the
// gradients of both), of which another function may hold none.
std::int64_t missing_variables(P2pMode mode) {
  switch (mode) {
    case P2pMode::Batched:
      return 0;
    case P2pMode::Free:
    case P2pMode::Overlapped:
    case P2pMode::OverlappedWithFlush:
      return 4;
  }
  return 4;
}

}  // namespace

std::vector<std::vector<Bounder::Chunk>> Bounder::chunks_of(const Scenario& s) {
  std::vector<std::vector<Chunk>> all;
  const std::span<const LayerKind> kinds = s.model.layers.order();
  for (std::int32_t p = 0; p < s.layout.pipeline; ++p) {
    std::vector<Chunk>& its = all.emplace_back();
    for (const Stage& stage : chunks_of_rank(static_cast<std::int32_t>(s.model.layers.size()), s.layout, p)) {
      Chunk chunk;
      chunk.kind = stage.embedding && stage.head ? ChunkKind::Only
                   : stage.embedding             ? ChunkKind::First
                   : stage.head                  ? ChunkKind::Last
                                                 : ChunkKind::Middle;
      chunk.runs = layer_runs(kinds_of(stage, kinds), s.train.recompute);
      // The neighbour is often alike.
      const auto same = [&](const Chunk& c) { return c.kind == chunk.kind && c.runs == chunk.runs; };
      for (auto other = all.rbegin(); !chunk.sample && other != all.rend() && other - all.rbegin() < 2; ++other)
        for (const Chunk& c : *other)
          if (same(c)) chunk.sample = c.sample;
      if (!chunk.sample) {
        const std::vector<LayerRun> few = sampled(chunk.runs);
        const SampleKey key{passes_key(s, few), chunk.kind, few};
        const auto made = samples_.get(key, hash_of(key));
        if (*made) chunk.sample = {made, &**made};
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

// Every rank has a buffer of its stage's gradients, whole, and the parameters whole in another one or apart from each
// other: sharding divides what the optimizer keeps, over all who hold the same at most.
Bytes Bounder::make_held(const Scenario& s) {
  const auto built = models_.model_of(s.model, model_options_of(s));
  const Sizes sizes = sizes_of(s.model, s.layout, s.train, runtime_of(s));
  const Bytes of_element = size_of(s.train.precision) + size_of(s.train.gradient_dtype);
  const Bytes of_optimizer =
      (parallel::megatron::moments_of(s.train.optimizer) + (s.train.precision == DType::FP32 ? 0 : 1)) *
      size_of(DType::FP32);
  const bool sharded = s.layout.sharding != Sharding::None;
  const std::int64_t owners = sharded ? s.layout.replicas() : 1;
  const std::int64_t owners_of_experts = sharded ? s.layout.experts_data() : 1;
  Bytes most;
  for (std::int32_t p = 0; p < s.layout.pipeline; ++p) {
    std::int64_t dense = 0, of_experts = 0;
    for (const Stage& stage : chunks_of_rank(static_cast<std::int32_t>(s.model.layers.size()), s.layout, p))
      for (const ParameterId id : stage_parameters(*built, stage, s.layout))
        ((*built)[id].of_expert() ? of_experts : dense) += sizes.elements((*built)[id]);
    most = std::max(
        most, (dense + of_experts) * of_element + (dense / owners + of_experts / owners_of_experts) * of_optimizer);
  }
  return most;
}

Bytes Bounder::held(const Scenario& s) {
  return *held_.get(state_key(s), [this](const Scenario& key) { return std::make_shared<Bytes>(make_held(key)); });
}

std::optional<Bounder::Ground> Bounder::proof_of(const Scenario& s) {
  if (!has_bounds(s)) return std::nullopt;
  Ground ground{mesh_of(s), chunks_of(s)};
  if (!ground.mesh->samples_hold) return std::nullopt;
  for (const std::vector<Chunk>& of_rank : ground.chunks)
    for (const Chunk& chunk : of_rank)
      if (!chunk.sample) return std::nullopt;
  return ground;
}

bool Bounder::covers(const Scenario& s) { return proof_of(s).has_value(); }
MemoryBounds Bounder::memory(const Scenario& s) { return memory(s, proof_of(s).value()); }
DurationBounds Bounder::step(const Scenario& s) { return step(s, proof_of(s).value()); }

std::int64_t Bounder::lowest_of_passes(const Scenario& s, std::int32_t p, const std::vector<Chunk>& chunks,
                                       std::int64_t micro_batches) {
  std::int64_t boundary = 0;
  std::vector<PassMemory> passes;
  for (const Chunk& chunk : chunks) {
    boundary = std::max(boundary, chunk.sample->boundary.count());
    passes.push_back(pass_memory(*chunk.sample, chunk.runs));
  }
  const std::int64_t variables = missing_variables(traits_of(s.layout.schedule).p2p);
  const InFlightKey key{schedule_key(s.layout, micro_batches), p};
  std::int64_t lowest = 0;
  for (const InFlight::At& at : in_flight_.get(key, hash_of(key))->moments) {
    const PassMemory& its = passes[static_cast<std::size_t>(at.chunk)];
    std::int64_t all = (is_forward(at.kind) ? its.forward : its.backward) - variables * boundary;
    for (std::size_t c = 0; c < passes.size(); ++c) all += at.others[c] * passes[c].each;
    lowest = std::max(lowest, all);
  }
  return lowest;
}

MemoryBounds Bounder::memory(const Scenario& s, const Ground& ground) {
  const auto& [mesh, chunks] = ground;
  const std::int64_t micro_batches = micro_batches_of(s.train, s.layout);
  const double unexplained_share = range_of(MeasuredFigure::Allocated, s.runtime.name).share;
  MemoryBounds bounds;
  for (std::size_t p = 0; p < chunks.size(); ++p) {
    const StateCost& state = mesh->stages[p];
    const auto rank = static_cast<std::int32_t>(p);
    Bytes caches;
    for (const Chunk& chunk : chunks[p]) caches = std::max(caches, chunk.sample->caches);
    const Bytes in_passes = state.before_passes + caches + Bytes{lowest_of_passes(s, rank, chunks[p], micro_batches)};
    const Bytes in_last_step = std::max(in_passes, state.last_step_highest);
    const Bytes allocated = std::max(in_last_step, state.highest);
    bounds.allocated = std::max(bounds.allocated, allocated);
    // Drivers have all they take by the last of several steps. Before, a full device may have made the allocator give
    // back what it held when they came.
    const Bytes drivers = s.train.steps > 1 ? state.driver_upper : Bytes{};
    const Bytes batches = rerun_batches_bytes(s, mesh->runtime, rank);
    const Bytes more = unexplained(unexplained_share, allocated);
    bounds.device_upper = std::max(bounds.device_upper, std::max(allocated, in_last_step + drivers) + batches + more);
  }
  return bounds;
}

Bounder::WindowClocks Bounder::make_clocks(const ClockKey& key) {
  // Passes talk to nobody else, hand-overs apart: samples are cut where that is so.
  const PassGroups& groups = key.sample->groups;
  const auto costs = [&](const TimedOp& op) -> const GroupCosts& {
    return *key.costs[static_cast<std::size_t>(std::ranges::find(groups, op.comm) - groups.begin())];
  };
  WindowClocks clocks;
  std::map<std::shared_ptr<const std::vector<TimedOp>>, PieceClock> known;
  for (const Window& window : key.sample->windows) {
    std::vector<PieceClock>& its = clocks.pieces.emplace_back();
    for (const Piece& piece : window.pieces) {
      const auto [found, added] = known.try_emplace(piece.ops);
      if (added) {
        const DurationBounds bounds = clock_bounds(*piece.ops, key.launch, costs);
        found->second = {bounds.low, bounds.high, low_with_second_waves(*piece.ops, costs), launches_of(*piece.ops)};
      }
      its.push_back(found->second);
    }
  }
  bool runs_on = false, waits_for_before = false;
  for (const auto& [ops, clock] : known) {
    clocks.second_waves = clocks.second_waves && clock.second_waves;
    if (!clock.second_waves) continue;
    runs_on = runs_on || clock.second_waves->runs_on;
    waits_for_before = waits_for_before || clock.second_waves->waits_for_before;
  }
  clocks.second_waves = clocks.second_waves && !(runs_on && waits_for_before);
  return clocks;
}

Bounder::ChunkSpans Bounder::spans_of(const Chunk& chunk, const WindowClocks& clocks, const HostCosts& host,
                                      bool second_waves) {
  constexpr Duration longest{std::numeric_limits<std::int64_t>::max()};
  ChunkSpans spans{{longest, longest}, {}};
  std::array<Duration, 2> of_host{longest, longest};  // by pass, at least
  for (std::size_t w = 0; w < clocks.pieces.size(); ++w) {
    Duration from, to;
    Duration on_host;
    const Window& window = chunk.sample->windows[w];
    for (std::size_t piece = 0; piece < window.pieces.size(); ++piece) {
      const PieceClock& clock = clocks.pieces[w][piece];
      const std::int64_t times = times_of(window.pieces[piece], chunk.runs);
      from += (second_waves ? clock.second_waves->low : clock.low) * times;
      to += clock.high * times;
      on_host += host_time(clock.launches, host) * times;
    }
    const bool forward = is_forward(window.kind);
    Duration& least = forward ? spans.shortest.forward : spans.shortest.backward;
    Duration& most = forward ? spans.longest.forward : spans.longest.backward;
    least = std::min(least, from);
    most = std::max(most, to);
    Duration& of_pass = of_host[forward ? 0 : 1];
    of_pass = std::min(of_pass, on_host);
  }
  spans.shortest.host_forward = of_host[0];
  spans.shortest.host_backward = of_host[1];
  return spans;
}

DurationBounds Bounder::step(const Scenario& s, const Ground& ground) {
  const auto& [mesh, chunks] = ground;
  const HostCosts host = on_host(megatron_host_code(), s.cluster.host);
  const Duration late_launch = longest_launch(s.cluster.host);
  std::vector<std::vector<PassSpans>> low, high;  // by pipeline rank and chunk
  bool alike = true;
  Bytes boundary;
  const std::int64_t micro_batches = micro_batches_of(s.train, s.layout);
  Duration of_host;
  for (const std::vector<Chunk>& of_rank : chunks) {
    Duration of_passes;
    low.emplace_back();
    high.emplace_back();
    for (const Chunk& chunk : of_rank) {
      alike = alike && chunk.sample->alike;
      const ClockKey key{chunk.sample, mesh->of_passes, late_launch};
      const auto clocks = clocks_.get(key, hash_of(key));
      const ChunkSpans spans = spans_of(chunk, *clocks, host, mesh->passes_alone && clocks->second_waves);
      of_passes += spans.shortest.host_forward + spans.shortest.host_backward;
      low.back().push_back(spans.shortest);
      high.back().push_back(spans.longest);
      boundary = std::max(boundary, chunk.sample->boundary);
    }
    of_host = std::max(of_host, of_passes * micro_batches + host_time(mesh->stages[low.size() - 1].launches, host));
  }
  const DurationBounds message = mesh->pipeline ? mesh->pipeline->message(boundary) : DurationBounds{};
  std::vector<Duration> begin_low, begin_high;
  for (const StateCost& stage : mesh->stages) {
    begin_low.push_back(stage.zero.low);
    begin_high.push_back(stage.zero.high);
  }
  const auto schedule = schedules_.get(schedule_key(s.layout, micro_batches), [](const ScheduleKey& key) {
    return std::make_shared<PassSchedule>(key.layout, key.micro_batches);
  });
  const std::vector<Duration> ends_low = schedule->earliest_ends(low, message.low, begin_low);
  const std::vector<Duration> ends_high = schedule->latest_ends(high, message.high + late_launch, begin_high);
  Duration reduced_low, reduced_high, rest_low, rest_high;
  for (std::size_t p = 0; p < mesh->stages.size(); ++p) {
    reduced_low = std::max(reduced_low, ends_low[p] + mesh->stages[p].reduce.low);
    reduced_high = std::max(reduced_high, ends_high[p] + mesh->stages[p].reduce.high);
    rest_low = std::max(rest_low, mesh->stages[p].rest.low);
    rest_high = std::max(rest_high, mesh->stages[p].rest.high);
  }
  // Samples run the passes of the first rank of a stage, whom others may keep waiting; and nothing beside them.
  alike = alike && !s.runtime.overlap.gradients;
  return {std::max(reduced_low + rest_low, of_host), alike ? reduced_high + rest_high : for_ever};
}

}  // namespace tidemark::scenarios
