#include <filesystem>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include "bench/namespace.hpp"
#include "kernels/cost/cost_time.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "sim/base/ensure.hpp"
#include "sim/clock/class_timeline.hpp"
#include "sim/clock/engine.hpp"
#include "sim/program/verify.hpp"
#include "topology/route/cost.hpp"
#include "topology/route/traffic.hpp"

// How long it takes to find out how long a step takes. Two steps, unrolled over all micro-batches. Items are events:
// queue entries handled and kernels completed.

namespace tidemark::bench {
namespace {

const std::filesystem::path data_root = std::filesystem::path(TIDEMARK_SOURCE_DIR) / "scenarios";

Scenario scenario_of(const std::string& text) {
  Scenario scenario = parse_scenario(text, "bench.toml", {data_root / "examples", data_root});
  scenario.train.attention = resolved_attention(scenario.train.attention, scenario.model, target_of(scenario.cluster));
  return scenario;
}

/// Llama-3.1-70B, tp 8, pp 4, dp 8, 64 micro-batches.
Scenario llama3_70b() {
  return scenario_of(R"(
model = "models/llama-3.1-70b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 256
[layout]
tensor = 8
sequence_parallel = true
pipeline = 4
sharding = "zero1"
[train]
sequence_length = 8192
micro_batch = 1
global_batch = 512
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
[runtime]
name = "megatron"
)");
}

/// Llama-3.1-405B, tp 8, pp 16, 16 sequences per data-parallel rank; embedding and loss each take a layer's place.
Scenario llama3_405b(std::int64_t data) {
  return scenario_of(fmt::format(R"(
model = "models/llama-3.1-405b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = {}
[layout]
tensor = 8
sequence_parallel = true
pipeline = 16
sharding = "zero1"
count_embedding = true
count_loss = true
[train]
sequence_length = 8192
micro_batch = 1
global_batch = {}
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
[runtime]
name = "megatron"
)",
                                 128 * data, 16 * data));
}

/// DeepSeek-V3, pp 16, ep 64, 24 sequences per data-parallel rank: scenarios/examples/deepseek-v3-2048xh800.toml with
/// more or fewer of these.
Scenario deepseek_v3(std::int64_t data) {
  const std::filesystem::path file = data_root / "examples/deepseek-v3-2048xh800.toml";
  Scenario scenario = read_scenario(file, data_root);
  scenario.gpus = static_cast<std::int32_t>(16 * data);
  scenario.layout.data = static_cast<std::int32_t>(data);
  scenario.train.global_batch = 24 * data;
  return resolved_scenario(std::move(scenario));
}

/// The same with other loads of each layer's experts, drawn by a seed, on so many ranks of an expert group: as many
/// programs as ranks of one, in each of 16 stages.
Scenario drawn_deepseek_v3(std::int32_t expert) {
  Scenario scenario = deepseek_v3(2 * expert);
  scenario.layout.expert = expert;
  scenario.train.routing.loads = DirichletLoads{.concentration = 20, .seed = 1};
  return resolved_scenario(std::move(scenario));
}

/// From a scenario to programs.
struct Programs {
  explicit Programs(const Scenario& scenario)
      : runtime(runtime_of(scenario)),
        built(build_model(scenario.model, model_options_of(scenario))),
        workload(lower_passes({built, scenario.layout, scenario.train, runtime})) {}

  Runtime runtime;
  BuiltModel built;
  Workload workload;
};

/// Ranks as classes: those of one program at one price, or those that share links alike as well.
enum class Fold : std::uint8_t { Stages, Links };

struct Timed {
  Timed(const Workload& workload, const Cluster& cluster, Fold how) {
    const std::vector<std::int32_t> entries = cost(workload, cluster).entry_of_rank;
    Router router(workload, cluster, entries);
    flows = router.traffic().flows.size();
    folding = how == Fold::Stages ? fold(workload, entries) : fold(workload, entries, router.traffic());
    costs = how == Fold::Stages ? cost_time(workload, folding, cluster) : cost_time(workload, folding, cluster, router);
  }

  std::size_t flows = 0;
  Folding folding;
  TimeCosts costs;
};

/// What is told: how long it took, or what every rank did, op by op, too.
enum class Of : std::uint8_t { Ends, Timelines };

void simulate_folded(benchmark::State& state, Fold how, Of what) {
  const Scenario scenario = llama3_70b();
  const Programs job(scenario);
  const Timed timed(job.workload, scenario.cluster, how);
  RepeatingWorkload repeating{{}, job.workload.program_of_rank, job.workload.communicators};
  for (const Program& program : job.workload.programs) repeating.programs.emplace_back(RepeatingProgram{program, {}});
  std::int64_t events = 0, spans = 0;
  for (auto _ : state) {
    const Trace trace = simulate(repeating, timed.folding, timed.costs);
    ensure(std::holds_alternative<Completed>(trace.outcome), "the job runs to its end");
    events = trace.events;
    spans = 0;
    if (what == Of::Timelines)
      for (const ClassTimeline& its : timelines(job.workload, timed.folding, timed.costs, trace))
        spans += static_cast<std::int64_t>(its.spans.size());
  }
  state.SetItemsProcessed(events * state.iterations());
  state.counters["events"] = static_cast<double>(events);
  state.counters["spans"] = static_cast<double>(spans);
  state.counters["classes"] = static_cast<double>(timed.folding.classes.size());
}

double peak_mebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// The whole way of a step's time: programs, what is wrong with them, prices, classes, and the clock. Classes stop at
/// 80 from 16,384 devices on, and so should the time.
void predict_time(benchmark::State& state, const Scenario& scenario) {
  std::size_t classes = 0, links = 0, flows = 0;
  for (auto _ : state) {
    const Programs job(scenario);
    ensure(verify(job.workload).empty(), "programs are sound");
    const Timed timed(job.workload, scenario.cluster, Fold::Links);
    const Trace trace = simulate(job.workload, timed.folding, timed.costs);
    ensure(std::holds_alternative<Completed>(trace.outcome), "the job runs to its end");
    classes = timed.folding.classes.size();
    links = timed.costs.links.size();
    flows = timed.flows;
  }
  state.counters["classes"] = static_cast<double>(classes);
  state.counters["links"] = static_cast<double>(links);
  state.counters["flows"] = static_cast<double>(flows);
  state.counters["peak_MiB"] = peak_mebibytes();
}

/// All that `predict` says: every rank's memory, too.
void predict_whole(benchmark::State& state, const Scenario& scenario) {
  std::size_t groups = 0;
  for (auto _ : state) {
    const Prediction found = predict(scenario);
    ensure(!found.deadlock, "the job runs to its end, whether or not a device holds it");
    groups = found.groups.size();
  }
  state.counters["groups"] = static_cast<double>(groups);
  state.counters["peak_MiB"] = peak_mebibytes();
}

BENCHMARK_CAPTURE(simulate_folded, ends, Fold::Stages, Of::Ends)
    ->Name("Simulate/llama3_70b/pp4_tp8_dp8_mb64/ends")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_folded, timeline, Fold::Stages, Of::Timelines)
    ->Name("Simulate/llama3_70b/pp4_tp8_dp8_mb64/timeline")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_folded, links, Fold::Links, Of::Timelines)
    ->Name("Simulate/llama3_70b/pp4_tp8_dp8_mb64/timeline_links")
    ->Unit(benchmark::kMillisecond);
void predict_llama3_405b(benchmark::State& state) { predict_time(state, llama3_405b(state.range(0) / 128)); }
void predict_deepseek_v3(benchmark::State& state) { predict_time(state, deepseek_v3(state.range(0) / 16)); }

void predict_whole_deepseek_v3(benchmark::State& state) { predict_whole(state, deepseek_v3(state.range(0) / 16)); }
void predict_drawn_deepseek_v3(benchmark::State& state) {
  predict_whole(state, drawn_deepseek_v3(static_cast<std::int32_t>(state.range(0))));
}

// 128 … 131,072 devices are data-parallel degrees 1 … 1024. The peak is the process's so far: ask for one size at a
// time.
BENCHMARK(predict_llama3_405b)
    ->Name("Predict/llama3_405b/time")
    ->ArgName("gpus")
    ->RangeMultiplier(8)
    ->Range(128, 131'072)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(predict_llama3_405b)->Name("Predict/llama3_405b/16384_gpus/time")->Arg(16'384)->Unit(benchmark::kMillisecond);
// Data-parallel degrees 64 … 1024: one to 16 replicas of each expert.
BENCHMARK(predict_deepseek_v3)
    ->Name("Predict/deepseek_v3/time")
    ->ArgName("gpus")
    ->RangeMultiplier(2)
    ->Range(1024, 16'384)
    ->Unit(benchmark::kMillisecond);
// The whole answer, `taskset -c 0` for one core; CPU time of all threads.
BENCHMARK(predict_whole_deepseek_v3)
    ->Name("Predict/deepseek_v3/whole")
    ->ArgName("gpus")
    ->RangeMultiplier(2)
    ->Range(2048, 16'384)
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);
// 64 … 256 devices.
BENCHMARK(predict_drawn_deepseek_v3)
    ->Name("Predict/deepseek_v3/drawn")
    ->ArgName("expert")
    ->RangeMultiplier(2)
    ->Range(2, 8)
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tidemark::bench
