// The life of a transfer that shares links: it starts, rates are settled, it ends, rates are settled. Items are
// transfers.
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/namespace.hpp"
#include "sim/clock/fair_share.hpp"

namespace tidemark::bench {
namespace {

using namespace literals;

using Loads = std::vector<LinkLoad>;

LinkLoad load(std::size_t link, Bytes bytes) { return {{static_cast<std::int32_t>(link)}, bytes}; }

void alone(benchmark::State& state) {
  const auto links = static_cast<std::size_t>(state.range(0));
  FairShare shares(std::vector<Bandwidth>(links, 450_GBps));
  Loads loads;
  for (std::size_t l = 0; l < links; ++l) loads.push_back(load(l, l % 2 == 0 ? 24_MiB : 21_MiB));
  for (auto _ : state) {
    const FlowId flow = shares.add(loads);
    benchmark::DoNotOptimize(shares.settle().data());
    shares.remove(flow);
    shares.settle();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(alone)->Name("FairShare/alone")->Arg(2)->Arg(8);

struct Network {
  std::vector<Bandwidth> capacities;
  std::vector<Loads> flows;

  std::size_t link(Bandwidth capacity) {
    capacities.push_back(capacity);
    return capacities.size() - 1;
  }
};

/// Components of a spine, a leaf for every eight flows, and two links of each flow's own. Leaves differ in their
/// capacity and flows in their loads, so that a component fills in many rounds.
Network leaves_and_spines(std::size_t flows, std::size_t component) {
  std::mt19937_64 random(1);
  const auto up_to = [&](std::uint64_t n) { return static_cast<std::int64_t>(1 + random() % n); };
  Network network;
  std::size_t spine = 0;
  std::size_t leaf = 0;
  for (std::size_t f = 0; f < flows; ++f) {
    if (f % component == 0) spine = network.link(25_GBps * static_cast<std::int64_t>(component));
    if (f % 8 == 0) leaf = network.link(20_GBps * up_to(20));
    const std::size_t out = network.link(50_GBps);
    const std::size_t in = network.link(50_GBps);
    const Bytes bytes = 1_MiB * up_to(64);
    network.flows.push_back({load(out, bytes), load(leaf, bytes), load(spine, bytes / up_to(8)), load(in, bytes)});
  }
  return network;
}

void contending(benchmark::State& state) {
  const Network network =
      leaves_and_spines(static_cast<std::size_t>(state.range(0)), static_cast<std::size_t>(state.range(1)));
  FairShare shares(network.capacities);
  std::vector<FlowId> ids;
  for (const Loads& flow : network.flows) ids.push_back(shares.add(flow));
  shares.settle();
  std::size_t next = 0;
  for (auto _ : state) {
    FlowId& flow = ids[next];
    shares.remove(flow);
    benchmark::DoNotOptimize(shares.settle().data());
    flow = shares.add(network.flows[next]);
    benchmark::DoNotOptimize(shares.settle().data());
    next = (next + 1) % ids.size();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(contending)
    ->Name("FairShare/contending")
    ->ArgNames({"flows", "component"})
    ->Args({64, 8})
    ->Args({64, 64})
    ->Args({1024, 8})
    ->Args({1024, 64})
    ->Args({1024, 1024});

}  // namespace
}  // namespace tidemark::bench
