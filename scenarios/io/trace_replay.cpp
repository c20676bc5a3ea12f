#include "scenarios/io/trace_replay.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "sim/caching_allocator.hpp"
#include "sim/ensure.hpp"

namespace tidemark {
namespace {

using Action = TraceEvent::Action;

std::string hex(Address address) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (std::uint64_t rest = address.value; rest != 0 || text.empty(); rest /= 16) text += digits[rest % 16];
  return "0x" + std::string(text.rbegin(), text.rend());
}
std::string text(Bytes size) { return std::to_string(size.count()) + " B"; }
std::string text(Address address, Bytes size) { return text(size) + " at " + hex(address); }

/// Gives segments where the recording had them. One that the recording does not have there comes from far above all
/// recorded addresses, so that the allocator's own segments never overlap.
class RecordedSegments {
 public:
  std::optional<Address> allocate(Bytes size, StreamId stream) {
    if (recorded_ && recorded_->size == size && is_unused(*recorded_)) {
      const Address address = std::exchange(recorded_, std::nullopt)->address;
      add(address, size);
      return address;
    }
    ++invented_;
    return elsewhere_.allocate(size, stream);
  }
  void release(Address address, Bytes size) {
    if (in_use_.erase(address) == 0) elsewhere_.release(address, size);
    released_.push_back({address, size});
  }
  [[nodiscard]] Bytes available() const { return elsewhere_.available(); }

  using Segment = BlockMap::Range;

  void add(Address address, Bytes size) { in_use_[address] = size; }
  void offer(Segment segment) { recorded_ = segment; }
  /// The segment offered, if it was not taken.
  [[nodiscard]] std::optional<Segment> withdraw() { return std::exchange(recorded_, std::nullopt); }
  /// Segments asked for that the recording did not have.
  [[nodiscard]] std::int64_t invented() const { return invented_; }
  [[nodiscard]] std::vector<Segment> take_released() { return std::exchange(released_, {}); }

 private:
  [[nodiscard]] bool is_unused(const Segment& segment) const {
    const auto next = in_use_.lower_bound(segment.address);
    if (next != in_use_.end() && next->first < segment.address + segment.size) return false;
    return next == in_use_.begin() || std::prev(next)->first + std::prev(next)->second <= segment.address;
  }

  std::optional<Segment> recorded_;
  std::map<Address, Bytes> in_use_;
  InventedAddresses elsewhere_{{.first = {1ULL << 62}}};  // recorded addresses are below 2^61
  std::vector<Segment> released_;
  std::int64_t invented_ = 0;
};
static_assert(SegmentSource<RecordedSegments>);

class Replay {
 public:
  explicit Replay(const RecordedTrace& trace) : trace_(trace) {
    for (const SegmentLayout& segment : trace.start) allocator_.source().add(segment.address, segment.size);
    for (const BlockId block : allocator_.restore(trace.start)) live_[allocator_.address(block).value] = block;
  }

  ReplayReport run() {
    report_.events = static_cast<std::int64_t>(trace_.events.size());
    for (now_ = 0; now_ < trace_.events.size(); ++now_) step(trace_.events[now_]);
    expect_taken();
    compare_end();
    const PoolStats& stats = allocator_.stats().all;
    report_.reserved = stats.reserved.current;
    report_.peak_reserved = stats.reserved.peak;
    report_.peak_allocated = stats.allocated.peak;
    return report_;
  }

 private:
  void step(const RecordedEvent& event) {
    switch (event.action) {
      case Action::Alloc:
        return allocate(event);
      case Action::FreeRequested:
        return expect_live(event);
      case Action::FreeCompleted:
        return release(event);
      case Action::SegmentAlloc:
        return offer(event);
      case Action::SegmentFree:
        return release_segment(event);
      case Action::Snapshot:
        return compare_active(event);
      case Action::OutOfMemory:
        ++report_.ooms;
        return;
      case Action::Annotate:
        return;
      case Action::SegmentMap:
      case Action::SegmentUnmap:
        break;
    }
    ensure(false, "a recorded trace has no expandable segments");
  }

  void allocate(const RecordedEvent& event) {
    ++report_.allocs;
    const std::int64_t invented = allocator_.source().invented();
    const auto result = allocator_.malloc(event.size, event.stream);
    const std::optional<BlockMap::Range> offered = allocator_.source().withdraw();
    if (allocator_.source().invented() != invented) {
      const Bytes asked = segment_size(block_size(event.size), allocator_.options());
      diverge_at(offered ? offered_at_ : now_, report_.mismatched_segment_events,
                 "the allocator asks for a segment of " + text(asked) + (offered ? "" : ", the recording has none"));
    } else if (offered) {
      diverge_at(offered_at_, report_.mismatched_segment_events, "the allocator did not ask for it");
    }
    if (!std::holds_alternative<BlockId>(result)) return;  // elsewhere_ is all there is of address space
    const BlockId block = std::get<BlockId>(result);
    if (allocator_.address(block) != event.address) {
      diverge(report_.mismatched_addresses, "the allocator chose the block at " + hex(allocator_.address(block)));
    }
    live_[event.address.value] = block;
  }

  void expect_live(const RecordedEvent& event) {
    const auto found = live_.find(event.address.value);
    if (found == live_.end()) {
      diverge(report_.mismatched_frees, "nothing was allocated there");
    } else if (allocator_.requested(found->second) != event.size) {
      diverge(report_.mismatched_frees,
              "the block there was requested with " + text(allocator_.requested(found->second)));
    }
  }

  void release(const RecordedEvent& event) {
    ++report_.frees;
    expect_live(event);
    const auto found = live_.find(event.address.value);
    if (found == live_.end()) return;
    allocator_.free(found->second);
    live_.erase(found);
  }

  void offer(const RecordedEvent& event) {
    ++report_.segment_allocs;
    expect_taken();
    offered_at_ = now_;
    allocator_.source().offer({event.address, event.size});
  }

  // A segment is for the allocation right behind it.
  void expect_taken() {
    const std::optional<BlockMap::Range> left = allocator_.source().withdraw();
    if (left) diverge_at(offered_at_, report_.mismatched_segment_events, "the allocator did not ask for it");
  }

  // Segments go in batches, from empty_cache() or before a retry: all that are unused at that moment. The batch begins
  // with the first event after anything else, and is compared event by event.
  void release_segment(const RecordedEvent& event) {
    ++report_.segment_frees;
    if (now_ == 0 || trace_.events[now_ - 1].action != Action::SegmentFree) {
      allocator_.empty_cache();
      batch_ = allocator_.source().take_released();
      next_in_batch_ = 0;
    }
    if (next_in_batch_ == batch_.size()) {
      diverge(report_.mismatched_segment_events, "the allocator has no more unused segments");
    } else {
      const BlockMap::Range& ours = batch_[next_in_batch_++];
      if (ours.address != event.address || ours.size != event.size) {
        diverge(report_.mismatched_segment_events,
                "the next one that the allocator gives back has " + text(ours.address, ours.size));
      }
    }
    const bool last = now_ + 1 == trace_.events.size() || trace_.events[now_ + 1].action != Action::SegmentFree;
    if (last && next_in_batch_ < batch_.size()) {
      const BlockMap::Range& ours = batch_[next_in_batch_];
      diverge(report_.mismatched_segment_events,
              "after it the allocator gives back another one, of " + text(ours.address, ours.size));
      report_.mismatched_segment_events += static_cast<std::int64_t>(batch_.size() - next_in_batch_) - 1;
    }
  }

  void compare_active(const RecordedEvent& event) {
    ++report_.snapshots;
    const Bytes active = allocator_.stats().all.active.current;
    if (active != event.size) {
      diverge(report_.mismatched_snapshots, "the allocator has " + text(active) + " active");
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
      found = "only the recording has the segment of " + text(theirs->address, theirs->size);
    } else if (theirs == trace_.end.end() || mine->address < theirs->address) {
      found = "only the allocator has the segment of " + text(mine->address, mine->size);
    } else {
      const auto [block, other] =
          std::mismatch(mine->blocks.begin(), mine->blocks.end(), theirs->blocks.begin(), theirs->blocks.end());
      const bool in_blocks = block != mine->blocks.end() && other != theirs->blocks.end();
      const Address where = in_blocks ? block->address : mine->address;
      found = "the segment of " + text(mine->address, mine->size) + " differs from " + hex(where) + " on";
    }
    report_.first_divergence = {trace_.events.size(), "after the last event: " + found};
  }

  void diverge(std::int64_t& count, const std::string& what) { diverge_at(now_, count, what); }

  void diverge_at(std::size_t index, std::int64_t& count, const std::string& what) {
    ++count;
    if (report_.first_divergence && report_.first_divergence->event <= index) return;
    const RecordedEvent& event = trace_.events[index];
    report_.first_divergence = {index, "event " + std::to_string(index) + " (" + std::string(name(event.action)) +
                                           " of " + text(event.address, event.size) + "): " + what};
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
  std::unordered_map<std::uint64_t, BlockId> live_;  // by recorded address
  std::vector<BlockMap::Range> batch_;
  std::size_t next_in_batch_ = 0;
  std::size_t now_ = 0;
  std::size_t offered_at_ = 0;
  ReplayReport report_;
};

}  // namespace

ReplayReport replay(const RecordedTrace& trace) { return Replay(trace).run(); }

}  // namespace tidemark
