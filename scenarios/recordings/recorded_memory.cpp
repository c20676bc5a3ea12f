#include "scenarios/recordings/recorded_memory.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>

namespace tidemark::scenarios {
namespace {

using Action = TraceEvent::Action;

// Follows the recorded addresses. Contradictions of a recording cost exactness here, nothing else: `replay` names them.
class MemoryWalk {
 public:
  explicit MemoryWalk(const RecordedTrace& trace) : options_(trace.options) {
    for (const SegmentLayout& segment : trace.start) {
      if (!segment.expandable) segments_[segment.address] = segment.size;
      reserved_ += segment.size;
      for (const BlockLayout& block : segment.blocks) {
        const RecordedTensor tensor{block.requested, block.size, RecordedTensor::before, {}};
        if (block.state == BlockState::Allocated)
          take(block.address, tensor);
        else if (block.state == BlockState::PendingFree)
          pending_[block.address] = block.size;
        else
          free_[block.address] = block.size;
      }
    }
  }

  void step(const RecordedEvent& event, std::size_t index) {
    switch (event.action) {
      case Action::Alloc:
        return take(event.address, {event.size, cut(event.address, event.size), index, event.stack});
      case Action::FreeRequested:
        return give_up(event.address);
      case Action::FreeCompleted:
        return release(event.address);
      case Action::SegmentAlloc:
        segments_[event.address] = event.size;
        [[fallthrough]];
      case Action::SegmentMap:
        reserved_ += event.size;
        return add_free(event.address, event.size);
      case Action::SegmentFree:
        segments_.erase(event.address);
        [[fallthrough]];
      case Action::SegmentUnmap:
        reserved_ -= event.size;
        return remove_free(event.address, event.size);
      case Action::Snapshot:
      case Action::OutOfMemory:
      case Action::Annotate:
        return;
    }
  }

  [[nodiscard]] Bytes allocated() const { return allocated_; }
  [[nodiscard]] Bytes reserved() const { return reserved_; }
  [[nodiscard]] const std::map<Address, RecordedTensor>& live() const { return live_; }

 private:
  void take(Address address, const RecordedTensor& tensor) {
    release(address);  // a recording may have lost its free
    allocated_ += tensor.block;
    live_[address] = tensor;
  }

  // It counts as allocated no more, but nobody else may have it yet.
  void give_up(Address address) {
    const auto found = live_.find(address);
    if (found == live_.end()) return;
    allocated_ -= found->second.block;
    pending_[address] = found->second.block;
    live_.erase(found);
  }

  void release(Address address) {
    give_up(address);
    const auto found = pending_.find(address);
    if (found == pending_.end()) return;
    const Bytes block = found->second;
    pending_.erase(found);
    add_free(address, block);
  }

  // Whether a free block that is `rest` larger than the request's is cut, as BlockMap does.
  [[nodiscard]] bool cuts(Address address, Bytes size, Bytes rest) const {
    const auto after = segments_.upper_bound(address);
    const bool fixed = after != segments_.begin() && address < std::prev(after)->first + std::prev(after)->second;
    if (!fixed) return rest >= AllocatorOptions::min_block;
    if (pool_of(size) == PoolKind::Large && size >= options_.max_split_size) return false;
    return should_split(pool_of(size), rest);
  }

  // The block that a request takes from the free range that it lies in.
  Bytes cut(Address address, Bytes requested) {
    const Bytes size = block_size(requested, options_);
    auto range = free_.upper_bound(address);
    if (range == free_.begin()) return size;
    --range;
    const auto [start, length] = *range;
    const Address end = start + length;
    if (end < address + size) return size;
    free_.erase(range);
    if (start < address) free_[start] = address - start;
    const Bytes rest = end - (address + size);
    if (!cuts(address, size, rest)) return end - address;
    free_[address + size] = rest;
    return size;
  }

  // Free neighbours merge, but not across segments of fixed size.
  void add_free(Address address, Bytes size) {
    const auto next = free_.find(address + size);
    if (next != free_.end() && !segments_.contains(next->first)) {
      size += next->second;
      free_.erase(next);
    }
    const auto after = free_.lower_bound(address);
    if (after != free_.begin() && !segments_.contains(address)) {
      const auto before = std::prev(after);
      if (before->first + before->second == address) {
        before->second += size;
        return;
      }
    }
    free_[address] = size;
  }

  void remove_free(Address address, Bytes size) {
    auto range = free_.upper_bound(address);
    if (range == free_.begin()) return;
    --range;
    const auto [start, length] = *range;
    const Address end = start + length;
    if (end < address + size) return;
    free_.erase(range);
    if (start < address) free_[start] = address - start;
    if (address + size < end) free_[address + size] = end - (address + size);
  }

  const AllocatorOptions& options_;
  std::map<Address, Bytes> free_, pending_;
  std::map<Address, RecordedTensor> live_;
  std::map<Address, Bytes> segments_;  // of fixed size
  Bytes allocated_, reserved_;
};

}  // namespace

RecordedMemory recorded_memory(const RecordedTrace& trace) {
  MemoryWalk walk(trace);
  RecordedMemory memory;
  const auto note = [&] {
    memory.allocated.push_back(walk.allocated());
    memory.reserved.push_back(walk.reserved());
  };
  note();
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    walk.step(trace.events[i], i);
    note();
  }
  return memory;
}

std::vector<RecordedTensor> live_tensors(const MemorySnapshot& snapshot, std::int64_t device,
                                         const RecordedTrace& trace, std::size_t events) {
  MemoryWalk walk(trace);
  for (std::size_t i = 0; i < events && i < trace.events.size(); ++i) walk.step(trace.events[i], i);
  std::unordered_map<std::uint64_t, StackId> at_the_end;
  for (const SegmentRecord& segment : snapshot.segments)
    if (segment.device == device)
      for (const BlockRecord& block : segment.blocks) at_the_end[block.address.value] = block.stack;

  std::vector<RecordedTensor> found;
  for (auto [address, tensor] : walk.live()) {
    const auto block = at_the_end.find(address.value);
    if (tensor.event == RecordedTensor::before && block != at_the_end.end()) tensor.stack = block->second;
    found.push_back(tensor);
  }
  // `before` is the largest number: one more wraps to none.
  std::stable_sort(found.begin(), found.end(),
                   [](const RecordedTensor& a, const RecordedTensor& b) { return a.event + 1 < b.event + 1; });
  return found;
}

}  // namespace tidemark::scenarios
