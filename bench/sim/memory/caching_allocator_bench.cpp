// The caching allocator on made-up requests. bench/scenarios/trace_replay_bench.cpp has the recorded ones.
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/namespace.hpp"
#include "sim/memory/caching_allocator.hpp"

namespace tidemark::bench {
namespace {

using namespace literals;

constexpr StreamId compute{0};

using Allocator = CachingAllocator<InventedAddresses>;

BlockId take(Allocator& allocator, Bytes size) { return std::get<BlockId>(allocator.malloc(size, compute)); }

/// A request, or, of size zero, the return of what is in the slot.
struct Request {
  std::size_t slot = 0;
  Bytes size;
};

// One step of a transformer of 24 layers, micro-batch 8 x 512 tokens, hidden size 1024, in the sizes of fp32: what the
// recorded trace native-train-midrun holds too. Activations live from forward to backward, gradients until the step
// ends, temporaries for an operator or two; a quarter of the requests are small.
std::vector<Request> training_step(std::size_t& slots) {
  constexpr Bytes hidden = 16_MiB;
  constexpr Bytes wide = 64_MiB;
  std::vector<Request> step;
  std::vector<std::vector<std::size_t>> activations;
  std::vector<std::size_t> gradients;
  const auto allocate = [&](Bytes size) {
    step.push_back({slots, size});
    return slots++;
  };
  const auto free = [&](std::size_t slot) { step.push_back({slot, 0_B}); };

  for (int layer = 0; layer < 24; ++layer) {
    std::vector<std::size_t>& kept = activations.emplace_back();
    for (int op = 0; op < 24; ++op) {
      const std::size_t temporary = allocate(op % 3 == 0 ? wide : hidden);
      kept.push_back(allocate(op % 4 == 0 ? wide : hidden));
      kept.push_back(allocate(Bytes{16'384}));  // statistics of a norm, a scalar, a mask
      const std::size_t scalar = allocate(4_B);
      free(temporary);
      free(scalar);
    }
  }
  while (!activations.empty()) {
    std::vector<std::size_t>& kept = activations.back();
    std::size_t incoming = allocate(hidden);
    while (!kept.empty()) {
      const std::size_t outgoing = allocate(kept.size() % 4 == 0 ? wide : hidden);
      const std::size_t temporary = allocate(4_MiB + 512_B * static_cast<std::int64_t>(kept.size()));
      free(kept.back());
      free(std::exchange(incoming, outgoing));
      if (kept.size() % 4 == 0) gradients.push_back(allocate(4_MiB));
      free(temporary);
      kept.pop_back();
    }
    free(incoming);
    activations.pop_back();
  }
  for (const std::size_t gradient : gradients) {
    const std::size_t temporary = allocate(4_MiB);
    free(gradient);
    free(temporary);
  }
  return step;
}

void replay_synthetic_training_step(benchmark::State& state, const AllocatorOptions& options) {
  std::size_t slots = 0;
  const std::vector<Request> step = training_step(slots);
  std::vector<BlockId> blocks(slots);
  Allocator allocator{{}, options};
  for (auto _ : state) {
    for (const Request& request : step) {
      if (request.size > 0_B) {
        blocks[request.slot] = take(allocator, request.size);
      } else {
        allocator.free(blocks[request.slot]);
      }
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(step.size()));
  state.counters["events"] = static_cast<double>(step.size());
}
AllocatorOptions all_options() {
  AllocatorOptions options{
      .max_split_size = 128_MiB, .garbage_collection_threshold = 0.8, .memory_fraction = 0.9, .device_memory = 80_GiB};
  options.roundup_divisions.fill(8);
  return options;
}
BENCHMARK_CAPTURE(replay_synthetic_training_step, plain, AllocatorOptions{})->Name("Allocator/replay/synthetic-step");
BENCHMARK_CAPTURE(replay_synthetic_training_step, expandable,
                  AllocatorOptions{.expandable_segments = true, .device_memory = 80_GiB})
    ->Name("Allocator/replay/synthetic-step/expandable");
BENCHMARK_CAPTURE(replay_synthetic_training_step, options, all_options())
    ->Name("Allocator/replay/synthetic-step/all-options");

// Random sizes and lifetimes, so that about half as many free fragments lie between the live blocks: the search for
// the best fit at its worst. The slope over the live blocks is that of the ordered set.
void best_fit_among_fragments(benchmark::State& state) {
  const auto live = static_cast<std::size_t>(state.range(0));
  std::mt19937_64 random(1);
  std::uniform_int_distribution<std::int64_t> sizes(1, 1 << 20);
  constexpr std::size_t mask = (1 << 16) - 1;
  struct Exchange {
    std::size_t slot;
    Bytes size;
  };
  std::vector<Exchange> exchanges(mask + 1);
  for (Exchange& exchange : exchanges) exchange = {random() % live, Bytes{sizes(random)}};

  Allocator allocator;
  std::vector<BlockId> blocks(live);
  for (BlockId& block : blocks) block = take(allocator, Bytes{sizes(random)});
  std::size_t next = 0;
  const auto exchange = [&] {
    const Exchange& now = exchanges[next++ & mask];
    allocator.free(blocks[now.slot]);
    blocks[now.slot] = take(allocator, now.size);
  };
  for (std::size_t i = 0; i < 4 * live; ++i) exchange();  // until it is as fragmented as it gets
  for (auto _ : state) exchange();
  state.SetItemsProcessed(2 * state.iterations());
  state.counters["fragments"] = static_cast<double>(allocator.stats().all.inactive_split_blocks.current);
}
BENCHMARK(best_fit_among_fragments)->Name("Allocator/fragmented")->RangeMultiplier(8)->Range(64, 1 << 18);

}  // namespace
}  // namespace tidemark::bench
