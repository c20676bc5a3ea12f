#include "scenarios/recordings/trace_replay.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <span>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "scenarios/recordings/recorded_ages.hpp"
#include "scenarios/recordings/recorded_segments.hpp"
#include "sim/memory/caching_allocator.hpp"

namespace tidemark::scenarios {
namespace {

using Action = TraceEvent::Action;

bool gives_back(Action action) { return action == Action::SegmentFree || action == Action::SegmentUnmap; }
bool takes(Action action) { return action == Action::SegmentAlloc || action == Action::SegmentMap; }
bool is_of_device(Action action) { return gives_back(action) || takes(action); }

class Replay {
 public:
  explicit Replay(const RecordedTrace& trace)
      : trace_(trace), allocator_(RecordedSegments(trace.events), trace.options) {
    for (const SegmentLayout& segment : trace.start) allocator_.source().add(segment.address, segment.size);
    for (const AddressSpace& space : trace.spaces) {
      const auto pool = std::find(trace.mempools.begin(), trace.mempools.end(), space.mempool);
      allocator_.source().add_space(space, expandable_page(space.pool, trace.options),
                                    static_cast<std::uint16_t>(pool - trace.mempools.begin()));
    }
    for (const BlockId block : allocator_.restore(trace.start, trace.spaces))
      live_[allocator_.address(block).value] = block;
    for (std::size_t pool = 1; pool < trace.mempools.size(); ++pool)
      if (std::any_of(trace.start.begin(), trace.start.end(),
                      [&](const SegmentLayout& s) { return s.mempool == trace.mempools[pool]; }))
        held_pools_.insert(static_cast<std::uint16_t>(pool));
  }

  ReplayReport run() {
    report_.events = static_cast<std::int64_t>(trace_.events.size());
    for (const RecordedEvent& event : trace_.events) count(event.action);
    while (now_ < trace_.events.size()) step();
    compare_end();
    const PoolStats& stats = allocator_.stats().all;
    const Bytes held = std::max(stats.reserved.peak, report_.capacity.value_or(Bytes{}));
    for (const Released& released : released_) {
      const bool room = !collects_garbage() && released.wanted <= held;
      if (released.by == Released::By::Program || (released.by == Released::By::Unknown && room))
        report_.emptied_at.push_back(released.event);
      else if (released.by == Released::By::Unknown)
        report_.perhaps_emptied_at.push_back(released.event);
    }
    report_.reserved = stats.reserved.current;
    report_.peak_reserved = stats.reserved.peak;
    report_.peak_allocated = stats.allocated.peak;
    return report_;
  }

 private:
  using Events = std::span<const RecordedEvent>;

  void count(Action action) {
    if (action == Action::Alloc) ++report_.allocs;
    if (action == Action::FreeCompleted) ++report_.frees;
    if (action == Action::SegmentAlloc) ++report_.segment_allocs;
    if (action == Action::SegmentFree) ++report_.segment_frees;
    if (action == Action::SegmentMap) ++report_.segment_maps;
    if (action == Action::SegmentUnmap) ++report_.segment_unmaps;
    if (action == Action::Snapshot) ++report_.snapshots;
    if (action == Action::OutOfMemory) ++report_.ooms;
  }

  void step() {
    const RecordedEvent& event = trace_.events[now_];
    switch (event.action) {
      case Action::Alloc:
      case Action::OutOfMemory:
        return serve(now_);
      case Action::SegmentAlloc:
      case Action::SegmentMap:
      case Action::SegmentFree:
      case Action::SegmentUnmap:
        return device_events();
      case Action::FreeCompleted:
        if (ends_a_wait(now_)) return device_events();
        complete_free(event);
        break;
      case Action::FreeRequested:
        request_free(event);
        break;
      case Action::Snapshot:
        compare_active(event);
        break;
      case Action::Annotate:
        break;
    }
    ++now_;
  }

  // -- requests, and what they make the allocator ask of the device
  // ----------------------------------------------------

  // Before the whole cache goes back, frees that wait for other streams complete; it may turn out to be empty.
  [[nodiscard]] bool ends_a_wait(std::size_t index) {
    if (index >= judged_to_) {
      std::size_t end = index;
      while (end < trace_.events.size() && trace_.events[end].action == Action::FreeCompleted &&
             pending_.contains(trace_.events[end].address.value))
        ++end;
      if (end == index) return false;
      judged_to_ = end;
      judgement_ = end < trace_.events.size() &&
                   (gives_back(trace_.events[end].action) || trace_.events[end].action == Action::OutOfMemory);
    }
    return judgement_;
  }

  // Events of the device come before the request that caused them. Segments go for one, or all that are unused at
  // once when somebody empties the cache.
  void device_events() {
    std::size_t end = now_;
    while (end < trace_.events.size() && (is_of_device(trace_.events[end].action) || ends_a_wait(end))) ++end;
    const bool request = end < trace_.events.size() && (trace_.events[end].action == Action::Alloc ||
                                                        trace_.events[end].action == Action::OutOfMemory);
    note_release(end, request);
    note_stacks(end);
    if (!request || empties_cache_first(end)) empty_cache(end);
    if (request) return serve(end);
    allocator_.source().expect(now_, end, now_, true);
    finish(end);
    now_ = end;
  }

  /// Segments went back before an event, and why.
  struct Released {
    enum class By : std::uint8_t { Program, Allocator, Unknown };

    std::size_t event = 0;
    By by = By::Unknown;
    Bytes wanted;  // what would have been reserved without that
  };

  // The allocator only gives back for a request that then takes from the device.
  void note_release(std::size_t end, bool request) {
    const std::size_t taking = end_of_releases(end);
    if (taking == now_ || (request && trace_.events[end].action == Action::OutOfMemory)) return;
    // Frees that complete first, because the cache is to go back, are events of their own.
    std::size_t first = now_;
    while (first < taking && !gives_back(trace_.events[first].action)) ++first;
    if (first == taking) return;
    if (!request || taking == end) return released_.push_back({first, Released::By::Program, {}});
    Released::By by = releaser(taking, trace_.events[end]);
    if (by == Released::By::Unknown && collects_garbage() && !all_unused_go(taking)) by = Released::By::Allocator;
    const Bytes segment = segment_size(block_size(trace_.events[end].size, trace_.options), trace_.options);
    released_.push_back({first, by, allocator_.reserved() + segment});
  }

  // What the allocator gives back for a request has the request's stack (malloc hands its context on to
  // release_cached_blocks). What the program gives back has its own, or, if stacks were recorded for allocations only,
  // that of the segment's.
  [[nodiscard]] Released::By releaser(std::size_t taking, const RecordedEvent& request) const {
    bool of_segments = true;
    for (const RecordedEvent& event : events(now_, taking)) {
      if (!gives_back(event.action)) continue;
      if (event.stack != request.stack) return Released::By::Program;
      const auto taken = taken_by_.find(event.address.value);
      of_segments = of_segments && taken != taken_by_.end() && taken->second == event.stack;
    }
    return of_segments || !request.stack.valid() ? Released::By::Unknown : Released::By::Allocator;
  }
  void note_stacks(std::size_t end) {
    for (const RecordedEvent& event : events(now_, end))
      if (takes(event.action) && event.stack.valid()) taken_by_[event.address.value] = event.stack;
  }

  [[nodiscard]] bool collects_garbage() const { return trace_.options.garbage_collection_threshold > 0; }
  // Garbage collection leaves what was used lately.
  [[nodiscard]] bool all_unused_go(std::size_t taking) const {
    CachingAllocator<RecordedSegments> trial = allocator_;
    trial.source().expect(now_, taking, now_, true);
    trial.empty_cache();
    trial.source().finish();
    return trial.source().take_mismatches().empty();
  }

  [[nodiscard]] Events events(std::size_t begin, std::size_t end) const {
    return Events(trace_.events).subspan(begin, end - begin);
  }
  [[nodiscard]] std::size_t end_of_releases(std::size_t end) const {
    std::size_t last = now_;
    while (last < end && !takes(trace_.events[last].action)) ++last;
    return last;
  }

  // A request only gives back when it finds nothing in the cache, and then takes from the device.
  [[nodiscard]] bool empties_cache_first(std::size_t request) {
    const std::size_t taking = end_of_releases(request);
    if (taking == now_) return false;
    const RecordedEvent& event = trace_.events[request];
    if (taking == request && event.action == Action::Alloc) return true;
    const bool cached = in_pool(event, [&] { return allocator_.has_cached(event.size, event.stream); });
    if (cached || event.mempool != 0 || trace_.options.max_split_size == AllocatorOptions::unlimited) return cached;
    // It may give back oversize segments alone: whatever explains the recording.
    CachingAllocator<RecordedSegments> trial = allocator_;
    trial.source().expect(now_, request, request, event.action == Action::Alloc);
    static_cast<void>(trial.malloc(event.size, event.stream));
    trial.source().finish();
    return !trial.source().take_mismatches().empty();
  }

  void empty_cache(std::size_t end) {
    const std::size_t last = end_of_releases(end);
    if (last == now_) return;
    for (const RecordedEvent& event : events(now_, last))
      if (gives_back(event.action)) give_up_pool(event.mempool);
    allocator_.source().expect(now_, last, now_, true);
    allocator_.empty_cache();
    finish(last);
    now_ = last;
  }

  // The events before the request are the device's.
  void serve(std::size_t request) {
    const RecordedEvent& event = trace_.events[request];
    const bool served = event.action == Action::Alloc;
    allocator_.source().expect(now_, request, request, served);
    auto result = in_pool(event, [&] { return allocator_.malloc(event.size, event.stream); });
    finish(request);
    now_ = request;
    const Bytes room{static_cast<std::int64_t>(event.address.value)};
    if (!served && room < segment_size(block_size(event.size, trace_.options), trace_.options))
      report_.capacity = allocator_.reserved() + room;
    if (served && !std::holds_alternative<BlockId>(result)) {
      diverge(report_.mismatched_segment_events, "the allocator finds no memory for it");
      allocator_.source().give_anything();
      result = in_pool(event, [&] { return allocator_.malloc(event.size, event.stream); });
    }
    if (const BlockId* const block = std::get_if<BlockId>(&result)) took(event, *block);
    ++now_;
  }

  void took(const RecordedEvent& event, BlockId block) {
    if (event.action == Action::OutOfMemory) {
      diverge(report_.mismatched_segment_events, "the allocator finds memory for it");
      return allocator_.free(block);
    }
    if (allocator_.address(block) != event.address) {
      diverge(report_.mismatched_addresses,
              "the allocator chose the block at " + address_text(allocator_.address(block)));
    }
    live_[event.address.value] = block;
  }

  // What the events up to `end` say and the allocator did not do, and the frees among them.
  void finish(std::size_t end) {
    allocator_.source().finish();
    for (const RecordedSegments::Mismatch& mismatch : allocator_.source().take_mismatches())
      diverge_at(mismatch.event, report_.mismatched_segment_events, mismatch.text);
    for (const RecordedEvent& event : events(now_, end))
      if (event.action == Action::FreeCompleted) complete_free(event);
    if (std::exchange(syncs_, allocator_.stats().sync_all_streams) != allocator_.stats().sync_all_streams)
      expect_none_pending();
  }

  // The allocator has just waited for all streams: the recorded one would have completed every free.
  void expect_none_pending() {
    if (pending_.empty()) return;
    const auto first = std::min_element(pending_.begin(), pending_.end(),
                                        [](const auto& a, const auto& b) { return a.first < b.first; });
    diverge(report_.mismatched_frees,
            "the allocator has completed the free of the block at " + address_text({first->first}));
    pending_.clear();
  }

  // -- private pools --------------------------------------------------------------------------------------------------

  template <class Act>
  std::invoke_result_t<Act> in_pool(const RecordedEvent& event, Act act) {
    if (event.mempool == 0) return act();
    const MempoolId pool = trace_.mempools[event.mempool];
    allocator_.begin_allocate_to_pool(pool);
    const auto result = act();
    allocator_.end_allocate_to_pool(pool);
    if (!held_pools_.insert(event.mempool).second) allocator_.release_pool(pool);  // one user is enough
    return result;
  }
  // Its memory only goes back after the last graph that used it is gone.
  void give_up_pool(std::uint16_t mempool) {
    if (held_pools_.erase(mempool) > 0) allocator_.release_pool(trace_.mempools[mempool]);
  }

  // -- frees ----------------------------------------------------------------------------------------------------------

  void expect_size(const RecordedEvent& event, BlockId block) {
    if (allocator_.requested(block) == event.size) return;
    diverge(report_.mismatched_frees,
            fmt::format("the block there was requested with {} B", allocator_.requested(block).count()));
  }

  // It completes at once, or once streams are done that the recording does not name: one of its own stands for them.
  void request_free(const RecordedEvent& event) {
    const auto found = live_.find(event.address.value);
    if (found == live_.end()) return diverge(report_.mismatched_frees, "nothing was allocated there");
    expect_size(event, found->second);
    if (completes_at_once(event)) return;
    const StreamId others{-2 - static_cast<std::int32_t>(++waits_ % (1 << 30))};
    allocator_.record_stream(found->second, others);
    allocator_.free(found->second);
    pending_[event.address.value] = others;
    live_.erase(found);
  }

  // Its completion comes next, and not because the next request waited for all streams.
  [[nodiscard]] bool completes_at_once(const RecordedEvent& event) {
    const std::size_t next = now_ + 1;
    if (next >= trace_.events.size() || trace_.events[next].action != Action::FreeCompleted ||
        trace_.events[next].address != event.address)
      return false;
    if (next + 1 >= trace_.events.size() || trace_.options.max_split_size != AllocatorOptions::unlimited) return true;
    const Action then = trace_.events[next + 1].action;
    return !gives_back(then) && then != Action::OutOfMemory && !ends_a_wait(next + 1);
  }

  void complete_free(const RecordedEvent& event) {
    if (const auto waiting = pending_.find(event.address.value); waiting != pending_.end()) {
      allocator_.events().finish(waiting->second);
      allocator_.process_events();
      pending_.erase(waiting);
      return;
    }
    const auto found = live_.find(event.address.value);
    if (found == live_.end()) return diverge(report_.mismatched_frees, "nothing was allocated there");
    expect_size(event, found->second);
    allocator_.free(found->second);
    live_.erase(found);
  }

  // -- marks and the end ----------------------------------------------------------------------------------------------

  void compare_active(const RecordedEvent& event) {
    const Bytes active = allocator_.stats().all.active.current;
    if (active != event.size) {
      diverge(report_.mismatched_snapshots, fmt::format("the allocator has {} B active", active.count()));
    }
  }

  void compare_end() {
    const std::vector<SegmentLayout> ours = allocator_.layout();
    report_.segments = static_cast<std::int64_t>(ours.size());
    for (const SegmentLayout& segment : ours) report_.blocks += static_cast<std::int64_t>(segment.blocks.size());
    report_.same_end = ours == trace_.end;
    if (report_.same_end || report_.first_divergence) return;
    const auto [mine, theirs] = std::mismatch(ours.begin(), ours.end(), trace_.end.begin(), trace_.end.end());
    std::string found = "the recording has no segments beyond those of the allocator";
    if (mine == ours.end() || (theirs != trace_.end.end() && theirs->address < mine->address)) {
      found = "only the recording has the segment of " + block_text(theirs->address, theirs->size);
    } else if (theirs == trace_.end.end() || mine->address < theirs->address) {
      found = "only the allocator has the segment of " + block_text(mine->address, mine->size);
    } else {
      const auto [block, other] =
          std::mismatch(mine->blocks.begin(), mine->blocks.end(), theirs->blocks.begin(), theirs->blocks.end());
      const bool in_blocks = block != mine->blocks.end() && other != theirs->blocks.end();
      const Address where = in_blocks ? block->address : mine->address;
      found =
          "the segment of " + block_text(mine->address, mine->size) + " differs from " + address_text(where) + " on";
    }
    report_.first_divergence = {trace_.events.size(), "after the last event: " + found};
  }

  void diverge(std::int64_t& count, const std::string& what) { diverge_at(now_, count, what); }

  void diverge_at(std::size_t index, std::int64_t& count, const std::string& what) {
    ++count;
    if (report_.first_divergence && report_.first_divergence->event <= index) return;
    const RecordedEvent& event = trace_.events[index];
    report_.first_divergence = {index, "event " + std::to_string(index) + " (" + std::string(name(event.action)) +
                                           " of " + block_text(event.address, event.size) + "): " + what};
  }

  static std::string_view name(Action action) {
    switch (action) {
      case Action::Alloc:
        return "alloc";
      case Action::FreeRequested:
        return "free_requested";
      case Action::FreeCompleted:
        return "free_completed";
      case Action::SegmentAlloc:
        return "segment_alloc";
      case Action::SegmentFree:
        return "segment_free";
      case Action::SegmentMap:
        return "segment_map";
      case Action::SegmentUnmap:
        return "segment_unmap";
      case Action::Snapshot:
        return "snapshot";
      case Action::OutOfMemory:
        return "oom";
      case Action::Annotate:
        return "annotate";
    }
    return "unknown";
  }

  const RecordedTrace& trace_;
  CachingAllocator<RecordedSegments> allocator_;
  std::unordered_map<std::uint64_t, BlockId> live_;      // by recorded address
  std::unordered_map<std::uint64_t, StreamId> pending_;  // freed, and waiting for a stream that stands for others
  std::set<std::uint16_t> held_pools_;                   // private ones that have a user
  std::vector<Released> released_;
  std::unordered_map<std::uint64_t, StackId> taken_by_;  // by address of a segment or its pages
  std::int64_t waits_ = 0;
  std::int64_t syncs_ = 0;
  std::size_t judged_to_ = 0;  // completed frees up to here have been looked at, and
  bool judgement_ = false;     // the cache goes back behind them
  std::size_t now_ = 0;
  ReplayReport report_;
};

}  // namespace

ReplayReport replay(const RecordedTrace& trace) {
  ReplayReport report = Replay(trace).run();
  if (report.exact()) return report;
  for (const OldestSegment oldest : {OldestSegment::Highest, OldestSegment::Lowest}) {
    ReplayReport aged = Replay(by_age(trace, oldest)).run();
    aged.ties = ReplayReport::Ties::ByAge;
    if (aged.exact()) return aged;
    if (trace.start.empty()) break;
  }
  return report;
}

}  // namespace tidemark::scenarios
