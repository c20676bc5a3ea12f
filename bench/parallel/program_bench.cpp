#include <benchmark/benchmark.h>

#include "bench/namespace.hpp"
#include "parallel/lowering/lower.hpp"
#include "sim/memory/flat.hpp"
#include "sim/memory/replay.hpp"

// Under Megatron the first stage of Llama-3.1-70B, tp 8, pp 4, dp 2, sequence 8192: 20 layers. In plain PyTorch
// Llama-3.1-8B, dp 8, mixed precision. Both unrolled over all micro-batches of two steps. Items are ops.

namespace tidemark::bench {
namespace {

// Of Llama 3.1's sizes.
Model llama(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t ffn) {
  Model model;
  model.name = model.architecture = "llama";
  model.layers.resize(layers);
  model.hidden = hidden;
  model.heads = heads;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.ffn = ffn;
  model.vocabulary = 128256;
  return model;
}

struct Case {
  explicit Case(std::int64_t micro_batches) : micro_batches_(micro_batches) {}

  [[nodiscard]] Program program() const {
    const Runtime runtime = megatron_runtime({}, {}, Target{});
    const BuiltModel built = build_model(llama(80, 8192, 64, 28672), {});
    Layout layout;
    layout.tensor = 8;
    layout.sequence_parallel = true;
    layout.pipeline = 4;
    layout.data = 2;
    layout.sharding = Sharding::Zero1;
    Train train;
    train.sequence_length = 8192;
    train.global_batch = 2 * micro_batches_;
    train.attention = AttentionKernel::Fused;
    train.cross_entropy = CrossEntropy::TransformerEngine;
    const LoweringInput input{built, layout, train, runtime};
    return lower_role(input, roles(input).front());
  }

 private:
  std::int64_t micro_batches_;
};

// Every pass by itself.
Program plain_pytorch(std::int64_t micro_batches, Recompute recompute) {
  Layout layout;
  layout.data = 8;
  Train train;
  train.sequence_length = 8192;
  train.global_batch = 8 * micro_batches;
  train.attention = AttentionKernel::Fused;
  train.master_dtype = DType::FP32;
  train.recompute.kind = recompute;
  const Runtime runtime = pytorch_runtime({}, {}, Target{});
  const BuiltModel built = build_model(llama(32, 4096, 32, 14336), {});
  const LoweringInput input{built, layout, train, runtime};
  return lower_every_pass(input, roles(input).front());
}

DriverCosts free_of_charge() {
  DriverCosts costs;
  costs.communicators.resize(8);
  return costs;
}

void lower_unrolled(benchmark::State& state) {
  const Case job(state.range(0));
  std::size_t ops = 0;
  for (auto _ : state) ops = job.program().ops.size();
  state.SetItemsProcessed(static_cast<std::int64_t>(ops) * state.iterations());
}

void lower_plain_pytorch(benchmark::State& state) {
  const Recompute recompute = state.range(1) == 0 ? Recompute::None : Recompute::Full;
  std::size_t ops = 0;
  for (auto _ : state) ops = plain_pytorch(state.range(0), recompute).ops.size();
  state.SetItemsProcessed(static_cast<std::int64_t>(ops) * state.iterations());
}

void replay_through_allocator(benchmark::State& state) {
  const Program program = Case(state.range(0)).program();
  const DriverCosts costs = free_of_charge();
  for (auto _ : state) benchmark::DoNotOptimize(replay(program, costs, {}).allocated.bytes);
  state.SetItemsProcessed(static_cast<std::int64_t>(program.ops.size()) * state.iterations());
}

void flat_peak(benchmark::State& state) {
  const std::vector<std::int64_t> changes = flat_changes(Case(state.range(0)).program());
  for (auto _ : state) benchmark::DoNotOptimize(effect_of(changes).highest);
  state.SetItemsProcessed(static_cast<std::int64_t>(changes.size()) * state.iterations());
}

void flatten(benchmark::State& state) {
  const Program program = Case(state.range(0)).program();
  for (auto _ : state) benchmark::DoNotOptimize(flat_changes(program).data());
  state.SetItemsProcessed(static_cast<std::int64_t>(program.ops.size()) * state.iterations());
}

BENCHMARK(lower_unrolled)->Name("Program/lower/llama3_70b_stage0")->Arg(8)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK(lower_plain_pytorch)
    ->Name("Program/lower/llama3_8b_pytorch")
    ->ArgNames({"micro_batches", "checkpointed"})
    ->ArgsProduct({{4, 32}, {0, 1}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(replay_through_allocator)
    ->Name("Program/replay/llama3_70b_stage0")
    ->Arg(8)
    ->Arg(64)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(flat_peak)->Name("Program/flat_peak/llama3_70b_stage0")->Arg(8)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK(flatten)->Name("Program/flatten/llama3_70b_stage0")->Arg(8)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tidemark::bench
