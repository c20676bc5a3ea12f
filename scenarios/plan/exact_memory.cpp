#include "scenarios/plan/exact_memory.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "kernels/price.hpp"
#include "kernels/price_time.hpp"
#include "kernels/traffic.hpp"
#include "parallel/lower.hpp"
#include "parallel/mesh.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/plan/tape.hpp"
#include "scenarios/prediction.hpp"
#include "sim/engine.hpp"
#include "sim/ensure.hpp"
#include "sim/summary.hpp"

namespace tidemark {
namespace {

bool same(const GraphOptions& a, const GraphOptions& b) {
  const auto all = [](const GraphOptions& o) {
    return std::tie(o.attention, o.cross_entropy, o.hidden_dropout, o.attention_dropout, o.rotary, o.sequence_length,
                    o.softmax_precision);
  };
  return all(a) == all(b);
}

// One role at one price, within the device where that matters.
void add_role(const Scenario& s, const StateTape& state, const StageTape& stage, const TapeRecord& record,
              const DriverPrices& prices, Figures& figures) {
  Bytes device = record.device(prices), upper = record.device_upper(prices), allocated = record.allocated;
  const Bytes capacity = s.cluster.device.capacity;
  if (device > capacity) {
    // The allocator gives its cache back before it gives up, so a full device need not be the end.
    const TapeRecord limited = run_tape(state, stage, prices, capacity);
    figures.completed &= !limited.out_of_memory;
    if (!limited.out_of_memory)
      std::tie(device, upper, allocated) =
          std::tuple(limited.device(prices), limited.device_upper(prices), limited.allocated);
  }
  figures.allocated = std::max(figures.allocated, allocated);
  figures.device = std::max(figures.device, device);
  figures.device_upper = std::max(figures.device_upper, upper);
}

}  // namespace

std::shared_ptr<const ModelGraph> SharedGraphs::graph_of(const Model& model, const GraphOptions& options) {
  const std::lock_guard lock(mutex_);
  for (const Known& known : known_)
    if (same(known.options, options) && known.model == model) return known.graph;
  known_.push_back({model, options, std::make_shared<const ModelGraph>(build_model(model, options))});
  return known_.back().graph;
}

Figures exact_memory(const Scenario& scenario, SharedGraphs& graphs,
                     const std::function<bool(const Figures&)>& enough) {
  const Runtime runtime = runtime_of(scenario);
  if (runtime.eager) return figures_of(predict(scenario));  // one short program, whose passes and state are not apart
  const auto graph = graphs.graph_of(scenario.model, graph_options_of(scenario));
  const LoweringInput input{*graph, scenario.layout, scenario.train, runtime};
  const std::vector<Role> all = roles(input);
  const Truncation few = truncation(scenario.layout, micro_batches_of(scenario.train, scenario.layout));

  Workload stages;
  stages.communicators = communicators(scenario.layout, scenario.model.tied_embeddings).table;
  stages.program_of_rank.resize(static_cast<std::size_t>(scenario.layout.world_size()));
  std::vector<std::int32_t> stage_of_role;
  for (const Role& role : all) {
    if (stages.programs.empty() || role.first.pipeline != all[stage_of_role.size() - 1].first.pipeline)
      stages.programs.push_back(lower_few(input, role, few));
    stage_of_role.push_back(static_cast<std::int32_t>(stages.programs.size()) - 1);
    for (const Rank rank : role.ranks) stages.program_of_rank[rank.index()] = stage_of_role.back();
  }
  const Prices prices = price(stages, scenario.cluster);

  Figures figures;
  figures.completed = true;
  StageTape stage;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (r == 0 || stage_of_role[r] != stage_of_role[r - 1])
      stage = stage_tape(input, all[r], stages.programs[static_cast<std::size_t>(stage_of_role[r])]);
    const StateTape state = state_tape(input, all[r]);
    const TapeRecord record = run_tape(state, stage);
    std::set<std::int32_t> entries;
    for (const Rank rank : all[r].ranks) entries.insert(prices.entry_of_rank[rank.index()]);
    for (const std::int32_t entry : entries)
      add_role(scenario, state, stage, record, prices.entries[static_cast<std::size_t>(entry)], figures);
    if (enough && enough(figures)) return figures;
  }
  return figures;
}

void add_exact_time(const Scenario& scenario, SharedGraphs& graphs, Figures& figures) {
  const Runtime runtime = runtime_of(scenario);
  const auto graph = graphs.graph_of(scenario.model, graph_options_of(scenario));
  const Workload stages = lower_stages({*graph, scenario.layout, scenario.train, runtime});
  const Prices prices = price(stages, scenario.cluster);
  Router router(stages, scenario.cluster, prices.entry_of_rank);
  const Folding folding = fold(stages, prices.entry_of_rank, router.traffic());
  const TimePrices times = price_time(stages, folding, scenario.cluster, router);
  const Trace trace = simulate(stages, folding, times, {.keep = Keep::Ends});
  ensure(std::holds_alternative<Completed>(trace.outcome), "programs that verify() finds sound do not deadlock");
  figures.step = last_step(trace);
  figures.throughput = tokens_per_s_per_device(scenario, figures.step);
}

}  // namespace tidemark
