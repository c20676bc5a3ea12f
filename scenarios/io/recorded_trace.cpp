#include "scenarios/io/recorded_trace.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "scenarios/io/allocator_conf.hpp"
#include "scenarios/io/input_error.hpp"
#include "scenarios/io/recorded_start.hpp"

namespace tidemark {
namespace {

using Action = TraceEvent::Action;

// So that sums over a whole trace fit: 2^62 bytes are a million devices.
constexpr std::int64_t largest_sum = 1LL << 62;

class TraceReader {
 public:
  TraceReader(const MemorySnapshot& snapshot, std::int64_t device, const std::string& file)
      : snapshot_(snapshot), device_(device), file_(file) {}

  RecordedTrace read() {
    if (device_ < 0 || static_cast<std::size_t>(device_) >= snapshot_.device_traces.size()) {
      reject("there is no trace of device " + std::to_string(device_),
             "the file has traces of " + std::to_string(snapshot_.device_traces.size()) + " devices");
    }
    const std::vector<TraceEvent>& events = snapshot_.device_traces[static_cast<std::size_t>(device_)];
    read_settings(events);
    check_sum(events);
    number_streams(events);
    trace_.end = end_layout();

    trace_.events.reserve(events.size());
    const bool pools_recorded =
        std::any_of(events.begin(), events.end(), [](const TraceEvent& e) { return e.mempool != MempoolId{}; });
    for (const TraceEvent& event : events) {
      const MempoolId mempool = pools_recorded ? event.mempool : mempool_at(event.address);
      trace_.events.push_back({event.action, number(mempool), stream(event.stream), event.address, event.size,
                               event.time_us.value_or(0), event.stack});
    }
    reconstruct_start(trace_, file_);
    return std::move(trace_);
  }

 private:
  [[noreturn]] void reject(std::string message, std::string hint = {}) const {
    throw InputError(
        Problem{.file = file_, .line = 0, .column = 0, .message = std::move(message), .hint = std::move(hint)});
  }

  [[nodiscard]] bool here(const SegmentRecord& segment) const { return segment.device == device_; }

  // The text is what was set last; the fields beside it are what holds.
  void read_settings(const std::vector<TraceEvent>& events) {
    AllocatorOptions& options = trace_.options;
    if (const std::optional<AllocatorSettings>& settings = snapshot_.settings) {
      AllocatorConf conf = read_allocator_conf(settings->text, file_ + ": allocator_settings");
      options = conf.options;
      trace_.remarks = std::move(conf.remarks);
      options.max_split_size = settings->max_split_size.value_or(AllocatorOptions::unlimited);
      options.garbage_collection_threshold = settings->garbage_collection_threshold;
      options.expandable_segments = settings->expandable_segments;
      options.roundup_divisions = settings->roundup_divisions;
    }
    // Old files have no settings; only expandable segments map pages.
    options.expandable_segments |= std::any_of(events.begin(), events.end(), [](const TraceEvent& event) {
      return event.action == Action::SegmentMap || event.action == Action::SegmentUnmap;
    });
    if (options.memory_fraction < 1 || options.garbage_collection_threshold > 0) {
      options.memory_fraction = 1;
      trace_.remarks.emplace_back(
          "a memory fraction is a limit that the snapshot does not state: what it made the recorded allocator give "
          "back "
          "early cannot be told");
    }
  }

  void check_sum(const std::vector<TraceEvent>& events) const {
    std::int64_t sum = 0;
    const auto add = [&](Bytes size) {
      if (size.count() > largest_sum - sum) reject("the sizes add up to more than 2^62 bytes");
      sum += size.count();
    };
    for (const TraceEvent& event : events) add(event.size);
    for (const SegmentRecord& segment : snapshot_.segments) add(segment.size);
  }

  // Stream ids in the order of the pointers: that is the order in which the allocator gives segments back.
  void number_streams(const std::vector<TraceEvent>& events) {
    std::set<std::uint64_t> pointers;
    for (const SegmentRecord& segment : snapshot_.segments) {
      if (here(segment)) pointers.insert(static_cast<std::uint64_t>(segment.stream));
    }
    for (const TraceEvent& event : events) pointers.insert(static_cast<std::uint64_t>(event.stream));
    for (const std::uint64_t pointer : pointers) {
      streams_[pointer] = StreamId{static_cast<std::int32_t>(streams_.size())};
    }
  }
  [[nodiscard]] StreamId stream(StreamPointer pointer) const {
    return streams_.at(static_cast<std::uint64_t>(pointer));
  }

  // Events name their pool only since lately. Memory that is in a private pool at the end was there all along.
  [[nodiscard]] MempoolId mempool_at(Address address) const {
    const auto above = private_.upper_bound(address);
    if (above == private_.begin()) return {};
    const SegmentLayout& segment = *std::prev(above)->second;
    return address < segment.address + segment.size ? segment.mempool : MempoolId{};
  }
  std::uint16_t number(MempoolId mempool) {
    if (mempool == MempoolId{}) return 0;
    const auto [known, is_new] = mempools_.try_emplace(mempool, trace_.mempools.size());
    if (is_new) trace_.mempools.push_back(mempool);
    if (known->second > 1000) reject("there are more than 1000 private pools");
    return static_cast<std::uint16_t>(known->second);
  }

  [[nodiscard]] std::vector<SegmentLayout> end_layout() {
    std::vector<SegmentLayout> segments;
    for (const SegmentRecord& segment : snapshot_.segments) {
      if (!here(segment)) continue;
      number(segment.mempool);
      SegmentLayout layout{segment.address,    segment.size,   stream(segment.stream), segment.pool, {},
                           segment.expandable, segment.mempool};
      Address end = segment.address;
      for (const BlockRecord& block : segment.blocks) {
        if (block.address != end) break;
        end = end + block.size;
        layout.blocks.push_back({block.address, block.size,
                                 block.state == BlockRecord::State::Inactive ? Bytes{} : block.requested,
                                 state(block.state)});
      }
      if (end != segment.address + segment.size || layout.blocks.size() != segment.blocks.size()) {
        reject("the blocks of the segment at " + std::to_string(segment.address.value) + " do not tile it");
      }
      segments.push_back(std::move(layout));
    }
    std::sort(segments.begin(), segments.end(),
              [](const SegmentLayout& a, const SegmentLayout& b) { return a.address < b.address; });
    for (std::size_t i = 1; i < segments.size(); ++i) {
      if (segments[i].address < segments[i - 1].address + segments[i - 1].size) {
        reject("the segments at " + std::to_string(segments[i - 1].address.value) + " and " +
               std::to_string(segments[i].address.value) + " overlap");
      }
    }
    for (const SegmentLayout& segment : segments)
      if (segment.mempool != MempoolId{}) private_[segment.address] = &segment;
    return segments;
  }

  static BlockState state(BlockRecord::State recorded) {
    switch (recorded) {
      case BlockRecord::State::Inactive:
        return BlockState::Free;
      case BlockRecord::State::ActiveAllocated:
        return BlockState::Allocated;
      case BlockRecord::State::ActivePendingFree:
        return BlockState::PendingFree;
    }
    return BlockState::Allocated;
  }

  const MemorySnapshot& snapshot_;
  const std::int64_t device_;
  const std::string& file_;
  std::map<std::uint64_t, StreamId> streams_;
  std::map<MempoolId, std::size_t> mempools_;
  std::map<Address, const SegmentLayout*> private_;  // segments of private pools at the end
  RecordedTrace trace_;
};

}  // namespace

RecordedTrace recorded_trace(const MemorySnapshot& snapshot, std::int64_t device, const std::string& file) {
  return TraceReader(snapshot, device, file).read();
}

}  // namespace tidemark
