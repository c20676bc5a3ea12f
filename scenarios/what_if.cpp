#include "scenarios/what_if.hpp"

#include <algorithm>
#include <unordered_map>
#include <variant>

#include "sim/caching_allocator.hpp"

namespace tidemark::scenarios {
namespace {

using Action = TraceEvent::Action;

// A device that has everything. Sums of a recording's sizes stay far below.
constexpr Bytes boundless{1LL << 62};

class Rerun {
 public:
  Rerun(const RecordedTrace& trace, const std::vector<std::size_t>& emptied_at, const Conditions& conditions)
      : trace_(trace),
        emptied_at_(emptied_at),
        allocator_(InventedAddresses{{.capacity = conditions.capacity.value_or(boundless), .first = {1ULL << 40}}},
                   conditions.options) {}

  RerunOutcome run() {
    request_start();
    for (now_ = 0; now_ < trace_.events.size() && !outcome_.ran_out; ++now_) {
      if (next_emptied_ < emptied_at_.size() && emptied_at_[next_emptied_] == now_) {
        allocator_.empty_cache();
        ++next_emptied_;
      }
      step(trace_.events[now_]);
    }
    const AllocatorStats& stats = allocator_.stats();
    outcome_.peak_allocated = stats.all.allocated.peak;
    outcome_.final_reserved = allocator_.reserved();
    outcome_.final_allocated = allocator_.allocated();
    outcome_.alloc_retries = stats.alloc_retries;
    outcome_.device_allocs = stats.device_allocs;
    outcome_.device_frees = stats.device_frees;
    return outcome_;
  }

 private:
  void request_start() {
    for (const SegmentLayout& segment : trace_.start) {
      for (const BlockLayout& block : segment.blocks) {
        if (block.state == BlockState::Free || outcome_.ran_out) continue;
        const auto pool = std::find(trace_.mempools.begin(), trace_.mempools.end(), segment.mempool);
        request({.action = Action::Alloc,
                 .mempool = static_cast<std::uint16_t>(pool - trace_.mempools.begin()),
                 .stream = segment.stream,
                 .address = block.address,
                 .size = block.requested,
                 .stack = {}});
      }
    }
  }

  void step(const RecordedEvent& event) {
    switch (event.action) {
      case Action::Alloc:
      case Action::OutOfMemory:
        return request(event);
      case Action::FreeRequested:
        return request_free(event);
      case Action::FreeCompleted:
        return complete_free(event);
      case Action::SegmentAlloc:
      case Action::SegmentFree:
      case Action::SegmentMap:
      case Action::SegmentUnmap:
      case Action::Snapshot:
      case Action::Annotate:
        return;
    }
  }

  void request(const RecordedEvent& event) {
    if (event.size == Bytes{}) return;
    const MempoolId pool = trace_.mempools[event.mempool];
    if (event.mempool != 0) allocator_.begin_allocate_to_pool(pool);
    const auto result = allocator_.malloc(event.size, event.stream);
    if (event.mempool != 0) allocator_.end_allocate_to_pool(pool);
    if (const OutOfMemory* const none = std::get_if<OutOfMemory>(&result)) {
      // The program went on without it: here too.
      if (event.action == Action::Alloc)
        outcome_.ran_out = {now_,
                            none->requested,
                            none->segment,
                            none->available,
                            none->reserved,
                            none->allocated,
                            allocator_.options().memory_limit()};
      return;
    }
    const BlockId block = std::get<BlockId>(result);
    note_peak();
    if (event.action == Action::OutOfMemory) {
      ++outcome_.served_ooms;
      return allocator_.free(block);  // what it would have been used for is not recorded
    }
    live_[event.address.value] = block;
  }

  void note_peak() {
    const PoolStats& all = allocator_.stats().all;
    if (all.reserved.current <= outcome_.reserved_peak.reserved) return;
    outcome_.reserved_peak = {now_, all.reserved.current, all.allocated.current, all.requested.current};
  }

  // A free that did not complete at once waited for a stream that the recording does not name.
  void request_free(const RecordedEvent& event) {
    const auto found = live_.find(event.address.value);
    if (found == live_.end()) return;
    const bool at_once = now_ + 1 < trace_.events.size() && trace_.events[now_ + 1].action == Action::FreeCompleted &&
                         trace_.events[now_ + 1].address == event.address;
    if (at_once) return;
    const StreamId others{-2 - static_cast<std::int32_t>(++waits_ % (1 << 30))};
    allocator_.record_stream(found->second, others);
    allocator_.free(found->second);
    pending_[event.address.value] = others;
    live_.erase(found);
  }

  void complete_free(const RecordedEvent& event) {
    if (const auto waiting = pending_.find(event.address.value); waiting != pending_.end()) {
      allocator_.events().finish(waiting->second);
      allocator_.process_events();
      pending_.erase(waiting);
    } else if (const auto found = live_.find(event.address.value); found != live_.end()) {
      allocator_.free(found->second);
      live_.erase(found);
    }
  }

  const RecordedTrace& trace_;
  const std::vector<std::size_t>& emptied_at_;
  CachingAllocator<InventedAddresses> allocator_;
  std::unordered_map<std::uint64_t, BlockId> live_;  // by recorded address
  std::unordered_map<std::uint64_t, StreamId> pending_;
  std::int64_t waits_ = 0;
  std::size_t now_ = 0;
  std::size_t next_emptied_ = 0;
  RerunOutcome outcome_;
};

}  // namespace

RerunOutcome what_if(const RecordedTrace& trace, const std::vector<std::size_t>& emptied_at,
                     const Conditions& conditions) {
  return Rerun(trace, emptied_at, conditions).run();
}

}  // namespace tidemark::scenarios
