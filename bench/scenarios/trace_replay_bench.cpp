// The caching allocator on the requests of real training steps. They are not part of the repository:
// TIDEMARK_SHARED_DATA names the folder that has allocator-traces/. bench/sim/memory/caching_allocator_bench.cpp needs
// none.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/namespace.hpp"
#include "scenarios/recordings/memory_snapshot.hpp"
#include "scenarios/recordings/recorded_trace.hpp"
#include "scenarios/recordings/trace_replay.hpp"
#include "sim/memory/caching_allocator.hpp"

namespace tidemark::bench {
namespace {

using Allocator = CachingAllocator<InventedAddresses>;

std::filesystem::path trace_path(const std::string& name) {
  const char* shared = std::getenv("TIDEMARK_SHARED_DATA");
  const std::filesystem::path data =
      shared != nullptr ? shared : std::filesystem::path(TIDEMARK_SOURCE_DIR) / ".." / "shared" / "data";
  return data / "allocator-traces" / (name + ".pickle.gz");
}

/// A request, or, of size zero, the return of what is in the slot.
struct Request {
  std::size_t slot = 0;
  Bytes size;
  StreamId stream;
};

struct Requests {
  std::vector<Request> list;
  std::size_t slots = 0;  // the first ones are those of the blocks of the start
};

Requests requests(const RecordedTrace& trace) {
  Requests flat;
  std::unordered_map<std::uint64_t, std::size_t> slot_at;
  for (const SegmentLayout& segment : trace.start) {
    for (const BlockLayout& block : segment.blocks) {
      if (block.state == BlockState::Allocated) slot_at[block.address.value] = flat.slots++;
    }
  }
  for (const RecordedEvent& event : trace.events) {
    if (event.action == TraceEvent::Action::Alloc) {
      slot_at[event.address.value] = flat.slots;
      flat.list.push_back({flat.slots++, event.size, event.stream});
    } else if (event.action == TraceEvent::Action::FreeCompleted) {
      flat.list.push_back({slot_at.at(event.address.value), Bytes{}, event.stream});
    }
  }
  return flat;
}

// Every round begins with a copy of the allocator at the start of the recording; the copy is timed too.
void replay_recorded(benchmark::State& state, const std::string& name) {
  const std::filesystem::path path = trace_path(name);
  if (!std::filesystem::exists(path)) {
    state.SkipWithError("no recorded traces here: TIDEMARK_SHARED_DATA names the folder with allocator-traces/");
    return;
  }
  const RecordedTrace trace = recorded_trace(read_memory_snapshot(path.string()));
  const Requests flat = requests(trace);
  Allocator start{InventedAddresses{{.first = {1ULL << 62}}}};
  std::vector<BlockId> blocks = start.restore(trace.start);
  blocks.resize(flat.slots);
  Bytes peak;
  Allocator allocator = start;
  for (auto _ : state) {
    allocator = start;
    for (const Request& request : flat.list) {
      if (request.size > Bytes{}) {
        blocks[request.slot] = std::get<BlockId>(allocator.malloc(request.size, request.stream));
      } else {
        allocator.free(blocks[request.slot]);
      }
    }
    peak = allocator.stats().all.reserved.peak;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(flat.list.size()));
  state.counters["events"] = static_cast<double>(flat.list.size());
  state.counters["peak_reserved"] = static_cast<double>(peak.count());
}
BENCHMARK_CAPTURE(replay_recorded, midrun, "native-train-midrun")->Name("Allocator/replay/native-train-midrun");
BENCHMARK_CAPTURE(replay_recorded, growing, "native-train-growing")->Name("Allocator/replay/native-train-growing");

// The checked replay, as the tests run it: recorded addresses, comparison of every event.
void replay_checked(benchmark::State& state, const std::string& name) {
  const std::filesystem::path path = trace_path(name);
  if (!std::filesystem::exists(path)) {
    state.SkipWithError("no recorded traces here: TIDEMARK_SHARED_DATA names the folder with allocator-traces/");
    return;
  }
  const RecordedTrace trace = recorded_trace(read_memory_snapshot(path.string()));
  for (auto _ : state) benchmark::DoNotOptimize(replay(trace));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(trace.events.size()));
}
BENCHMARK_CAPTURE(replay_checked, midrun, "native-train-midrun")->Name("TraceReplay/checked/native-train-midrun");

void read_snapshot(benchmark::State& state, const std::string& name) {
  const std::filesystem::path path = trace_path(name);
  if (!std::filesystem::exists(path)) {
    state.SkipWithError("no recorded traces here: TIDEMARK_SHARED_DATA names the folder with allocator-traces/");
    return;
  }
  const std::string bytes = read_plain_or_gzip(path.string());
  for (auto _ : state) benchmark::DoNotOptimize(memory_snapshot(read_pickle(bytes)));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}
BENCHMARK_CAPTURE(read_snapshot, midrun, "native-train-midrun")->Name("MemorySnapshot/read/native-train-midrun");

}  // namespace
}  // namespace tidemark::bench
