#include "scenarios/io/recorded_memory.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "scenarios/io/input_error.hpp"

namespace tidemark {
namespace {

using Action = TraceEvent::Action;

// Follows the recorded addresses. Contradictions of a recording cost exactness here, nothing else: `replay` names them.
class MemoryWalk {
 public:
  explicit MemoryWalk(const RecordedTrace& trace) {
    for (const SegmentLayout& segment : trace.start) {
      starts_.insert(segment.address);
      reserved_ += segment.size;
      for (const BlockLayout& block : segment.blocks) {
        if (block.state == BlockState::Allocated)
          take(block.address, {block.requested, block.size, RecordedTensor::before, {}});
        else
          free_[block.address] = block.size;
      }
    }
  }

  void step(const RecordedEvent& event, std::size_t index) {
    switch (event.action) {
      case Action::Alloc:
        return take(event.address, {event.size, cut(event.address, event.size), index, {}});
      case Action::FreeCompleted:
        return release(event.address);
      case Action::SegmentAlloc:
        starts_.insert(event.address);
        [[fallthrough]];
      case Action::SegmentMap:
        reserved_ += event.size;
        return add_free(event.address, event.size);
      case Action::SegmentFree:
        starts_.erase(event.address);
        [[fallthrough]];
      case Action::SegmentUnmap:
        reserved_ -= event.size;
        return remove_free(event.address, event.size);
      case Action::FreeRequested:
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

  void release(Address address) {
    const auto found = live_.find(address);
    if (found == live_.end()) return;
    const Bytes block = found->second.block;
    allocated_ -= block;
    live_.erase(found);
    add_free(address, block);
  }

  // The block that a request takes from the free range that it lies in.
  Bytes cut(Address address, Bytes requested) {
    const Bytes size = block_size(requested);
    auto range = free_.upper_bound(address);
    if (range == free_.begin()) return size;
    --range;
    const auto [start, length] = *range;
    const Address end = start + length;
    if (end < address + size) return size;
    free_.erase(range);
    if (start < address) free_[start] = address - start;
    const Bytes rest = end - (address + size);
    if (!should_split(pool_of(size), rest)) return end - address;
    free_[address + size] = rest;
    return size;
  }

  void add_free(Address address, Bytes size) {
    const auto next = free_.find(address + size);
    if (next != free_.end() && !starts_.contains(next->first)) {
      size += next->second;
      free_.erase(next);
    }
    const auto after = free_.lower_bound(address);
    if (after != free_.begin() && !starts_.contains(address)) {
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

  std::map<Address, Bytes> free_;
  std::map<Address, RecordedTensor> live_;
  std::set<Address> starts_;  // of whole segments: free neighbours of two of them do not merge
  Bytes allocated_, reserved_;
};

// The ends of the optimizer's steps, as numbers of events before them.
std::vector<std::size_t> optimizer_ends(const MemorySnapshot& snapshot, const std::vector<TraceEvent>& events) {
  std::vector<std::size_t> ends;
  if (events.empty() || !events.front().time_us) return ends;
  const auto last = std::find_if(snapshot.annotations.rbegin(), snapshot.annotations.rend(), [](const auto& a) {
    return a.stage == ExternalAnnotation::Stage::End && a.name.starts_with("Optimizer.step#");
  });
  if (last == snapshot.annotations.rend()) return ends;
  for (const ExternalAnnotation& a : snapshot.annotations) {
    // Some jobs have several optimizers, which step one after another.
    if (a.stage != ExternalAnnotation::Stage::End || a.name != last->name) continue;
    const auto end = std::partition_point(events.begin(), events.end(), [&](const TraceEvent& e) {
      return e.time_us.value_or(std::numeric_limits<std::int64_t>::max()) <= a.time_us;
    });
    ends.push_back(static_cast<std::size_t>(end - events.begin()));
  }
  std::sort(ends.begin(), ends.end());
  return ends;
}

// How many items of the end of a sequence repeat the ones before them: the least period of at least `least`.
std::optional<std::size_t> period_at_end(std::vector<std::int64_t> items, std::size_t least) {
  std::reverse(items.begin(), items.end());
  // z[i]: how far the sequence from i on equals its beginning (Gusfield's Z algorithm).
  std::vector<std::size_t> z(items.size());
  std::size_t left = 0, right = 0;
  for (std::size_t i = 1; i < items.size(); ++i) {
    if (i < right) z[i] = std::min(right - i, z[i - left]);
    while (i + z[i] < items.size() && items[z[i]] == items[i + z[i]]) ++z[i];
    if (i + z[i] > right) left = i, right = i + z[i];
    if (i >= least && z[i] >= i) return i;
  }
  return std::nullopt;
}

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

  const std::vector<TraceEvent>& recorded = snapshot.device_traces[static_cast<std::size_t>(device)];
  std::vector<RecordedTensor> found;
  for (auto [address, tensor] : walk.live()) {
    if (tensor.event != RecordedTensor::before) {
      tensor.stack = recorded[tensor.event].stack;
    } else if (const auto block = at_the_end.find(address.value); block != at_the_end.end()) {
      tensor.stack = block->second;
    }
    found.push_back(tensor);
  }
  // `before` is the largest number: one more wraps to none.
  std::stable_sort(found.begin(), found.end(),
                   [](const RecordedTensor& a, const RecordedTensor& b) { return a.event + 1 < b.event + 1; });
  return found;
}

RecordedStep last_complete_step(const MemorySnapshot& snapshot, std::int64_t device, std::size_t least_allocs) {
  const std::vector<TraceEvent>& events = snapshot.device_traces[static_cast<std::size_t>(device)];
  std::vector<std::int64_t> sizes;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (events[i].action != Action::Alloc) continue;
    sizes.push_back(events[i].size.count());
    places.push_back(i);
  }
  const auto allocs_between = [&](std::size_t first, std::size_t last) {
    return static_cast<std::size_t>(std::lower_bound(places.begin(), places.end(), last) -
                                    std::lower_bound(places.begin(), places.end(), first));
  };
  const std::vector<std::size_t> ends = optimizer_ends(snapshot, events);
  for (std::size_t i = ends.size(); i-- > 1;)
    if (allocs_between(ends[i - 1], ends[i]) >= std::max<std::size_t>(least_allocs, 1))
      return {{ends[i - 1], ends[i]}, StepEvidence::Annotations};
  if (const auto period = period_at_end(sizes, std::max<std::size_t>(least_allocs, 1)))
    return {{places[places.size() - *period], events.size()}, StepEvidence::Repetition};
  return {{0, events.size()}, StepEvidence::None};
}

std::int64_t recorded_device(const MemorySnapshot& snapshot, std::optional<std::int64_t> asked,
                             const std::string& file) {
  std::vector<std::int64_t> devices;
  for (std::size_t i = 0; i < snapshot.device_traces.size(); ++i)
    if (!snapshot.device_traces[i].empty()) devices.push_back(static_cast<std::int64_t>(i));
  if (!asked && devices.size() == 1) return devices.front();
  if (asked && std::find(devices.begin(), devices.end(), *asked) != devices.end()) return *asked;
  if (devices.empty())
    throw InputError(Problem{.file = file,
                             .message = "the snapshot has no history of the allocator, only its state",
                             .hint = "call torch.cuda.memory._record_memory_history() before the first step"});
  std::string all;
  for (const std::int64_t device : devices) all += (all.empty() ? "" : ", ") + std::to_string(device);
  throw InputError(Problem{.file = file,
                           .message = (asked ? "the snapshot has no history of device " + std::to_string(*asked)
                                             : std::string("the snapshot has histories of several devices")),
                           .hint = "it has those of " + all + ": pick one with --device"});
}

}  // namespace tidemark
