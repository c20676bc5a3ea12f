#include "scenarios/recordings/what_if.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "sim/memory/caching_allocator.hpp"

namespace tidemark::scenarios {
namespace {

using Action = TraceEvent::Action;

// A device that has everything. Sums of a recording's sizes stay far below.
constexpr Bytes boundless{1LL << 62};

/// Invented addresses, or their mirror image.
class DirectedAddresses {
 public:
  DirectedAddresses(Bytes capacity, AddressOrder direction)
      : rising_({.capacity = capacity, .first = {lowest}}), falls_(direction == AddressOrder::Falling) {}

  std::optional<Address> allocate(Bytes size, StreamId stream) { return placed(rising_.allocate(size, stream), size); }
  void release(Address address, Bytes size) { rising_.release(address, size); }
  [[nodiscard]] Bytes available() const { return rising_.available(); }
  std::optional<Address> reserve(Bytes size, Bytes page, StreamId stream) {
    return placed(rising_.reserve(size, page, stream), size);
  }
  void unreserve(Address address, Bytes size) { rising_.unreserve(address, size); }
  bool map(Address address, Bytes size) { return rising_.map(address, size); }
  void unmap(Address address, Bytes size) { rising_.unmap(address, size); }

 private:
  static constexpr std::uint64_t lowest = 1ULL << 40;
  static constexpr std::uint64_t highest = 1ULL << 63;  // twice what is boundless above the lowest

  [[nodiscard]] std::optional<Address> placed(std::optional<Address> address, Bytes size) const {
    if (!falls_ || !address) return address;
    return Address{highest - (address->value - lowest) -
                   static_cast<std::uint64_t>(round_up(size, granularity).count())};
  }

  static constexpr Bytes granularity{2 << 20};  // as InventedAddresses

  InventedAddresses rising_;
  bool falls_;
};
static_assert(ExpandableSegmentSource<DirectedAddresses>);

class Rerun {
 public:
  Rerun(const RecordedTrace& trace, const RerunReading& reading, const Conditions& conditions)
      : trace_(trace),
        reading_(reading),
        allocator_(DirectedAddresses(conditions.capacity.value_or(boundless), reading.addresses), conditions.options) {}

  RerunOutcome run() {
    request_start();
    for (now_ = 0; now_ < trace_.events.size() && !outcome_.ran_out; ++now_) {
      if (next_emptied_ < reading_.emptied_at.size() && reading_.emptied_at[next_emptied_] == now_) {
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
    if (now_ < reading_.emptied_unseen.size() && reading_.emptied_unseen[now_] && event.mempool == 0 &&
        !allocator_.has_cached(event.size, event.stream))
      allocator_.empty_cache();
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
      if (reading_.late_service == RerunReading::LateService::FreedAtOnce) allocator_.free(block);
      return;
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
  const RerunReading& reading_;
  CachingAllocator<DirectedAddresses> allocator_;
  std::unordered_map<std::uint64_t, BlockId> live_;  // by recorded address
  std::unordered_map<std::uint64_t, StreamId> pending_;
  std::int64_t waits_ = 0;
  std::size_t now_ = 0;
  std::size_t next_emptied_ = 0;
  RerunOutcome outcome_;
};

// Segments of fixed size, each beside the one before it in time.
AddressOrder prevailing_direction(const RecordedTrace& trace) {
  std::int64_t rises = 0;
  std::optional<Address> last;
  for (const RecordedEvent& event : trace.events) {
    if (event.action != Action::SegmentAlloc) continue;
    if (last) rises += *last < event.address ? 1 : -1;
    last = event.address;
  }
  return rises < 0 ? AddressOrder::Falling : AddressOrder::Rising;
}

std::vector<std::size_t> merged(const std::vector<std::size_t>& a, const std::vector<std::size_t>& b) {
  std::vector<std::size_t> all;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
  return all;
}

// Of each event whether before it every segment had a block in use: empty_cache() gave nothing back there. Nothing for
// expandable segments, whose pages go one by one.
std::vector<bool> nothing_to_give_back(const RecordedTrace& trace) {
  struct Segment {
    Bytes size;
    std::int64_t blocks = 0;
  };
  std::map<Address, Segment> segments;
  std::int64_t unused = 0;
  const auto count_block = [&](Address address, std::int64_t change) {
    const auto above = segments.upper_bound(address);
    if (above == segments.begin()) return;
    auto& [from, segment] = *std::prev(above);
    if (!(address < from + segment.size)) return;
    unused -= segment.blocks == 0 ? 1 : 0;
    segment.blocks += change;
    unused += segment.blocks == 0 ? 1 : 0;
  };
  for (const SegmentLayout& segment : trace.start) {
    if (segment.expandable) return {};
    segments[segment.address] = {segment.size, 0};
    ++unused;
    for (const BlockLayout& block : segment.blocks)
      if (block.state != BlockState::Free) count_block(block.address, 1);
  }
  std::vector<bool> found;
  for (const RecordedEvent& event : trace.events) {
    found.push_back(unused == 0);
    switch (event.action) {
      case Action::SegmentAlloc:
        if (segments.try_emplace(event.address, Segment{event.size, 0}).second) ++unused;
        break;
      case Action::SegmentFree:
        if (const auto gone = segments.find(event.address); gone != segments.end()) {
          unused -= gone->second.blocks == 0 ? 1 : 0;
          segments.erase(gone);
        }
        break;
      case Action::Alloc:
        count_block(event.address, 1);
        break;
      case Action::FreeCompleted:
        count_block(event.address, -1);
        break;
      case Action::SegmentMap:
      case Action::SegmentUnmap:
        return {};
      case Action::FreeRequested:
      case Action::Snapshot:
      case Action::OutOfMemory:
      case Action::Annotate:
        break;
    }
  }
  return found;
}

/// What can be read in two ways, the likelier first.
struct Fork {
  std::function<void(RerunReading&)> otherwise;
  std::string text;
  bool always_told = false;  // the two readings are not all that can be
};

std::string times(std::size_t n) { return n == 1 ? "once" : fmt::format("{} times", n); }

// A program that empties its cache elsewhere will have done so here.
RerunReading likeliest_reading(const RecordedTrace& trace, const ReplayReport& report) {
  RerunReading reading{.emptied_at = report.emptied_at};
  if (!report.emptied_at.empty()) reading.emptied_at = merged(report.emptied_at, report.perhaps_emptied_at);
  if (report.ties == ReplayReport::Ties::ByAddress) reading.addresses = prevailing_direction(trace);
  return reading;
}

std::vector<Fork> forks(const RerunReading& likeliest, const RecordedTrace& trace, const ReplayReport& report,
                        const Conditions& conditions) {
  std::vector<Fork> found;
  if (!report.perhaps_emptied_at.empty())
    found.push_back({[&report](RerunReading& reading) {
                       reading.emptied_at = report.emptied_at.empty() ? report.perhaps_emptied_at : report.emptied_at;
                     },
                     fmt::format("{} the cache was returned, and the recording does not say whether the program "
                                 "emptied it or the device was full: {}",
                                 times(report.perhaps_emptied_at.size()),
                                 report.emptied_at.empty() ? "taken for the device" : "taken for the program")});
  // Within an expandable segment, which is one for each pool and stream, blocks lie as they did.
  if (report.ties == ReplayReport::Ties::ByAddress && !conditions.options.expandable_segments)
    found.push_back({[&likeliest](RerunReading& reading) {
                       reading.addresses =
                           likeliest.addresses == AddressOrder::Rising ? AddressOrder::Falling : AddressOrder::Rising;
                     },
                     fmt::format("where the device puts new segments, which decides between free blocks of equal size: "
                                 "assumed to {}, as most did",
                                 likeliest.addresses == AddressOrder::Rising ? "rise" : "fall")});
  if (!report.emptied_at.empty())
    found.push_back({[&trace](RerunReading& reading) { reading.emptied_unseen = nothing_to_give_back(trace); },
                     "calls of empty_cache() that had nothing to return, and left no trace: assumed to be none", true});
  const auto ooms = std::count_if(trace.events.begin(), trace.events.end(),
                                  [](const RecordedEvent& event) { return event.action == Action::OutOfMemory; });
  if (ooms > 0)
    found.push_back({[](RerunReading& reading) { reading.late_service = RerunReading::LateService::KeptToTheEnd; },
                     fmt::format("how the program would have used the memory that ran out {}, of sizes that are "
                                 "recorded rounded up: assumed to be freed at once",
                                 times(static_cast<std::size_t>(ooms))),
                     true});
  return found;
}

bool alike(const RerunOutcome& a, const RerunOutcome& b) {
  return a.reserved_peak.reserved == b.reserved_peak.reserved && a.ran_out.has_value() == b.ran_out.has_value();
}

}  // namespace

RerunOutcome what_if(const RecordedTrace& trace, const RerunReading& reading, const Conditions& conditions) {
  return Rerun(trace, reading, conditions).run();
}

RerunRange what_if(const RecordedTrace& trace, const ReplayReport& report, const Conditions& conditions) {
  const RerunReading likeliest = likeliest_reading(trace, report);
  const std::vector<Fork> open = forks(likeliest, trace, report, conditions);
  std::vector<RerunOutcome> outcomes;  // by the forks that go the other way, as bits
  for (std::size_t ways = 0; ways < std::size_t{1} << open.size(); ++ways) {
    RerunReading reading = likeliest;
    for (std::size_t fork = 0; fork < open.size(); ++fork)
      if ((ways >> fork & 1U) != 0) open[fork].otherwise(reading);
    outcomes.push_back(what_if(trace, reading, conditions));
  }
  RerunRange range{.likeliest = outcomes.front(), .lowest_peak = {}, .highest_peak = {}, .open = {}};
  for (const RerunOutcome& outcome : outcomes) (outcome.ran_out ? range.may_run_out : range.may_fit) = true;
  std::optional<Bytes> lowest;
  for (const RerunOutcome& outcome : outcomes) {
    if (outcome.ran_out && range.may_fit) continue;
    const Bytes peak = outcome.reserved_peak.reserved;
    lowest = std::min(lowest.value_or(peak), peak);
    range.highest_peak = std::max(range.highest_peak, peak);
  }
  range.lowest_peak = lowest.value_or(Bytes{});
  for (std::size_t fork = 0; fork < open.size(); ++fork) {
    bool matters = false;
    for (std::size_t ways = 0; ways < outcomes.size(); ++ways)
      matters = matters || !alike(outcomes[ways], outcomes[ways ^ (std::size_t{1} << fork)]);
    if (matters || open[fork].always_told) range.open.push_back(open[fork].text);
  }
  return range;
}

}  // namespace tidemark::scenarios
