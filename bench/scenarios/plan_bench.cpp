#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/namespace.hpp"
#include "scenarios/formats/toml_value.hpp"
#include "scenarios/plan/bounds/bounds.hpp"
#include "scenarios/plan/bounds/exact_memory.hpp"
#include "scenarios/plan/space/space.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"

// The planner's tiers, each by itself, on one core. Items are layouts. docs/planner.md quotes them.

namespace tidemark::bench {
namespace {

const std::filesystem::path data_root = std::filesystem::path(TIDEMARK_SOURCE_DIR) / "scenarios";
const ScenarioFolders folders{data_root / "examples", data_root};

constexpr auto flags = R"(cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
)";

/// Llama-3.1-70B on 64 H100s, every axis.
Space default_space() {
  const std::string text = std::string(R"(model = "models/llama-3.1-70b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 64
[train]
sequence_length = 8192
global_batch = 512
)") + flags;
  return space_of(parse_toml(text, "bench.toml"), "bench.toml", folders);
}

/// The same job with tp 8, pp 4, dp 2, 1F1B, 64 micro-batches.
Scenario one_layout() {
  const std::string text = std::string(R"(model = "models/llama-3.1-70b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 64
[layout]
tensor = 8
sequence_parallel = true
pipeline = 4
sharding = "zero1"
[train]
sequence_length = 8192
micro_batch = 1
global_batch = 128
)") + flags;
  return resolved_scenario(parse_scenario(text, "bench.toml", folders));
}

/// Some candidates from all over the space: neighbours differ in little, and would flatter what is shared.
std::vector<Scenario> candidates(const Space& space, std::int64_t stride) {
  std::vector<Scenario> found;
  for (std::int64_t i = 0; i < space.size(); i += stride)
    if (auto made = candidate(space, i); std::holds_alternative<Scenario>(made))
      found.push_back(std::move(std::get<Scenario>(made)));
  return found;
}

void enumerate(benchmark::State& state) {
  const Space space = default_space();
  constexpr std::int64_t stride = 97;
  std::int64_t read = 0;
  for (auto _ : state)
    for (std::int64_t i = 0; i < space.size(); i += stride, ++read) benchmark::DoNotOptimize(candidate(space, i));
  state.SetItemsProcessed(read);
}

/// Bounds of memory, which reject. From scratch: samples and meshes are made as well, of candidates so far apart that
/// they share few of them.
void bounded(benchmark::State& state, bool from_scratch) {
  const std::vector<Scenario> all = candidates(default_space(), 71);
  std::int64_t bounded = 0;
  SharedModels models;
  Bounder shared(models);
  const auto bound = [&](Bounder& bounder) {
    for (const Scenario& scenario : all) {
      benchmark::DoNotOptimize(bounder.memory(scenario));
      ++bounded;
    }
  };
  bound(shared);
  bounded = 0;
  for (auto _ : state) {
    if (!from_scratch) {
      bound(shared);
      continue;
    }
    SharedModels own;
    Bounder fresh(own);
    bound(fresh);
  }
  state.SetItemsProcessed(bounded);
}

void bracketed(benchmark::State& state) {
  const std::vector<Scenario> all = candidates(default_space(), 71);
  SharedModels models;
  Bounder bounder(models);
  for (const Scenario& scenario : all) benchmark::DoNotOptimize(bounder.step(scenario));
  for (auto _ : state)
    for (const Scenario& scenario : all) benchmark::DoNotOptimize(bounder.step(scenario));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(all.size()));
}

void allocator_exact(benchmark::State& state) {
  const Scenario scenario = one_layout();
  SharedModels models;
  for (auto _ : state) benchmark::DoNotOptimize(exact_memory(scenario, models));
  state.SetItemsProcessed(state.iterations());
}

void clock(benchmark::State& state) {
  const Scenario scenario = one_layout();
  for (auto _ : state) {
    Figures figures;
    add_exact_time(scenario, figures);
    benchmark::DoNotOptimize(figures);
  }
  state.SetItemsProcessed(state.iterations());
}

void in_full(benchmark::State& state) {
  const Scenario scenario = one_layout();
  for (auto _ : state) benchmark::DoNotOptimize(whole_figures(scenario));
  state.SetItemsProcessed(state.iterations());
}

BENCHMARK(enumerate)->Name("Plan/enumerate")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bounded, from_scratch, true)->Name("Plan/bounded/from_scratch")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bounded, shared, false)->Name("Plan/bounded/samples_known")->Unit(benchmark::kMillisecond);
BENCHMARK(bracketed)->Name("Plan/bracket")->Unit(benchmark::kMillisecond);
BENCHMARK(allocator_exact)->Name("Plan/allocator_exact/pp4_tp8_dp2_mb64")->Unit(benchmark::kMillisecond);
BENCHMARK(clock)->Name("Plan/clock/pp4_tp8_dp2_mb64")->Unit(benchmark::kMillisecond);
BENCHMARK(in_full)->Name("Plan/in_full/pp4_tp8_dp2_mb64")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tidemark::bench
