#include "scenarios/recordings/recorded_ages.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

namespace tidemark::scenarios {
namespace {

using Action = TraceEvent::Action;

class Movement {
 public:
  void add(Address from, Bytes size) {
    segments_[from] = {size, next_};
    next_ = next_ + round_up(size, granularity);
  }
  void remove(Address from) { segments_.erase(from); }
  /// Where an address lies now: where it was, if in no segment that moved.
  [[nodiscard]] Address operator()(Address address) const {
    const auto above = segments_.upper_bound(address);
    if (above == segments_.begin()) return address;
    const auto& [from, segment] = *std::prev(above);
    return address < from + segment.size ? segment.to + (address - from) : address;
  }
  void move(SegmentLayout& segment) const {
    if (segment.expandable) return;
    for (BlockLayout& block : segment.blocks) block.address = (*this)(block.address);
    segment.address = (*this)(segment.address);
  }

 private:
  struct Moved {
    Bytes size;
    Address to;
  };

  static constexpr Bytes granularity{2 << 20};  // of cudaMalloc's addresses

  std::map<Address, Moved> segments_;
  Address next_{1ULL << 60};  // above all recorded addresses
};

}  // namespace

RecordedTrace by_age(RecordedTrace trace, OldestSegment oldest) {
  Movement moved;
  const auto add = [&](const SegmentLayout& segment) {
    if (!segment.expandable) moved.add(segment.address, segment.size);
  };
  if (oldest == OldestSegment::Lowest)
    std::for_each(trace.start.begin(), trace.start.end(), add);
  else
    std::for_each(trace.start.rbegin(), trace.start.rend(), add);
  for (SegmentLayout& segment : trace.start) moved.move(segment);
  for (RecordedEvent& event : trace.events) {
    const Address recorded = event.address;
    if (event.action == Action::SegmentAlloc) moved.add(recorded, event.size);
    const bool has_address = event.action != Action::OutOfMemory && event.action != Action::Snapshot;
    if (has_address) event.address = moved(recorded);
    if (event.action == Action::SegmentFree) moved.remove(recorded);
  }
  for (SegmentLayout& segment : trace.end) moved.move(segment);
  const auto by_address = [](const SegmentLayout& a, const SegmentLayout& b) { return a.address < b.address; };
  std::sort(trace.start.begin(), trace.start.end(), by_address);
  std::sort(trace.end.begin(), trace.end.end(), by_address);
  return trace;
}

}  // namespace tidemark::scenarios
