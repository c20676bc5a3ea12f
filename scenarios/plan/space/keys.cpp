#include "scenarios/plan/space/keys.hpp"

#include <initializer_list>
#include <numeric>

#include "scenarios/plan/same_job.hpp"

namespace tidemark::scenarios {
namespace {

std::uint64_t mixed(std::uint64_t hash, std::int64_t part) {
  return (hash ^ static_cast<std::uint64_t>(part)) * 0x100000001b3ULL;  // FNV-1a over whole numbers
}

std::uint64_t hash_of_numbers(std::initializer_list<std::int64_t> parts) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const std::int64_t part : parts) hash = mixed(hash, part);
  return hash;
}

template <class T>
std::int64_t place_of(const std::shared_ptr<const T>& shared) {
  return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(shared.get()));
}

}  // namespace

Scenario memory_key(const Scenario& scenario) {
  Scenario key = same_job(scenario);
  // Else, whose shard goes with whose attention, and with whose experts.
  if (key.layout.context == 1 && key.layout.expert == 1) key.layout.order = Layout{}.order;
  return key;
}

Scenario time_key(const Scenario& scenario) {
  Scenario key = same_job(scenario);
  key.runtime.allocator.clear();
  return key;
}

Scenario state_key(const Scenario& scenario) {
  Scenario key = same_job(scenario);
  key.train.micro_batch = 1;
  key.train.global_batch = 0;
  key.train.recompute = {};
  key.runtime.allocator.clear();
  return key;
}

Scenario passes_key(const Scenario& scenario, const std::vector<LayerRun>& runs) {
  Scenario key = scenario;
  key.name.clear();
  key.gpus = 0;
  key.model.layers = scenario.model.layers.one_of_each_kind();  // runs say which layers there are
  key.layout = layout_of_passes(scenario.layout);
  key.train.global_batch = 0;
  key.train.steps = 2;
  if (key.train.recompute.kind == Recompute::Full && key.train.recompute.method == RecomputeMethod::Block)
    key.train.recompute.layers = std::accumulate(runs.begin(), runs.end(), 0, [](std::int32_t sum, const LayerRun& r) {
      return sum + (r.in_block ? r.layers() : 0);
    });
  key.runtime.headroom = Bytes{};
  key.run = {};
  key.runtime.allocator.clear();
  return key;
}

std::uint64_t hash_of(const Scenario& s) {
  const Recomputation& r = s.train.recompute;
  std::uint64_t hash = hash_of_numbers(
      {s.layout.tensor, s.layout.context, s.layout.pipeline, s.layout.data, s.layout.chunks, s.layout.sequence_parallel,
       s.train.micro_batch, s.train.sequence_length, static_cast<std::int64_t>(s.layout.sharding),
       static_cast<std::int64_t>(r.kind), static_cast<std::int64_t>(r.method), r.layers, r.modules.bits(),
       static_cast<std::int64_t>(s.train.gradient_dtype), s.model.layers.size(), s.layout.expert,
       s.layout.expert_tensor, static_cast<std::int64_t>(s.layout.context_kind), s.layout.context_inner});
  for (const MeshAxis axis : s.layout.order) hash = mixed(hash, static_cast<std::int64_t>(axis));
  for (const std::int32_t layers : s.layout.stage_layers) hash = mixed(hash, layers);
  return hash;
}

std::uint64_t hash_of(const SampleKey& key) {
  std::uint64_t hash = mixed(hash_of(key.scenario), static_cast<std::int64_t>(key.kind));
  for (const LayerRun& run : key.runs) {
    for (const LayerKind its : run.unit) hash = mixed(hash, static_cast<std::int64_t>(its));
    hash = mixed(hash, run.times);
  }
  return hash;
}

std::uint64_t hash_of(const FabricKey& key) { return hash_of_numbers({key.devices}); }

std::uint64_t hash_of(const GroupPlaces& places) {
  std::uint64_t hash =
      hash_of_numbers({place_of(places.fabric), places.sharers, static_cast<std::int64_t>(places.messages)});
  for (const std::vector<std::int32_t>& devices : places.groups)
    for (const std::int32_t device : devices) hash = mixed(hash, device);
  return hash;
}

std::uint64_t hash_of(const ClockKey& key) {
  std::uint64_t hash = hash_of_numbers({place_of(key.sample)});
  for (const auto& its : key.costs) hash = mixed(hash, place_of(its));
  return hash;
}

ScheduleKey schedule_key(const Layout& layout, std::int64_t micro_batches) {
  return {Layout{.pipeline = layout.pipeline,
                 .schedule = layout.schedule,
                 .chunks = layout.chunks,
                 .chunk_group = layout.chunk_group},
          micro_batches};
}

std::uint64_t hash_of(const InFlightKey& key) {
  const auto& [layout, micro_batches] = key.schedule;
  return hash_of_numbers({static_cast<std::int64_t>(layout.schedule), layout.pipeline, layout.chunks,
                          layout.chunk_group, key.rank, micro_batches});
}

}  // namespace tidemark::scenarios
