#include "scenarios/recordings/recorded_trace.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "scenarios/environment/allocator_conf.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/recordings/recorded_start.hpp"

namespace tidemark::scenarios {
namespace {

using Action = TraceEvent::Action;

// So that sums over a whole trace fit: 2^62 bytes are a million devices.
constexpr std::int64_t largest_sum = 1LL << 62;
constexpr std::size_t most_streams = 4096;
constexpr std::size_t most_mempools = 1000;

[[noreturn]] void reject(const std::string& file, std::string message, std::string hint = {}) {
  throw InputError(
      Problem{.file = file, .line = 0, .column = 0, .message = std::move(message), .hint = std::move(hint)});
}

std::int64_t sum_with(std::int64_t sum, Bytes size) {
  return size.count() > largest_sum - sum ? largest_sum : sum + size.count();
}

template <class T>
std::size_t place_of(std::vector<T>& known, const T& value, std::size_t most) {
  const auto found = std::find(known.begin(), known.end(), value);
  if (found == known.end() && known.size() < most) {
    known.push_back(value);
    return known.size() - 1;
  }
  return static_cast<std::size_t>(found - known.begin());  // `most`: one too many, which build() reports
}

BlockState state_of(BlockRecord::State recorded) {
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

SegmentLayout layout_of(const SegmentRecord& segment, StreamId stream, const std::string& file) {
  SegmentLayout layout{segment.address, segment.size, stream, segment.pool, {}, segment.expandable, segment.mempool};
  Address end = segment.address;
  for (const BlockRecord& block : segment.blocks) {
    if (block.address != end) break;
    end = end + block.size;
    const BlockState state = state_of(block.state);
    layout.blocks.push_back({block.address, block.size, state == BlockState::Free ? Bytes{} : block.requested, state});
  }
  if (end != segment.address + segment.size || layout.blocks.size() != segment.blocks.size()) {
    reject(file, "the blocks of the segment at " + std::to_string(segment.address.value) + " do not tile it");
  }
  return layout;
}

// The text is what was set last; the fields beside it are what holds.
void read_settings(const std::optional<AllocatorSettings>& settings, const std::string& file, RecordedTrace& trace) {
  AllocatorOptions& options = trace.options;
  if (settings) {
    AllocatorConf conf = read_allocator_conf(settings->text, file + ": allocator_settings");
    options = conf.options;
    trace.remarks = std::move(conf.remarks);
    options.max_split_size = settings->max_split_size.value_or(AllocatorOptions::unlimited);
    options.garbage_collection_threshold = settings->garbage_collection_threshold;
    options.expandable_segments = settings->expandable_segments;
    options.roundup_divisions = settings->roundup_divisions;
  }
  if (options.memory_fraction < 1 || options.garbage_collection_threshold > 0) {
    options.memory_fraction = 1;
    trace.remarks.emplace_back(
        "a memory fraction is a limit that the snapshot does not state: what it made the recorded allocator return "
        "early is unknown");
  }
}

// Events name their pool only since lately. Memory that is in a private pool at the end was there all along.
void find_mempools(RecordedTrace& trace) {
  if (std::any_of(trace.events.begin(), trace.events.end(), [](const RecordedEvent& e) { return e.mempool != 0; }))
    return;
  std::map<Address, std::pair<Address, std::uint16_t>> in_pool;  // to where, and in which
  for (const SegmentLayout& segment : trace.end) {
    const auto pool = std::find(trace.mempools.begin(), trace.mempools.end(), segment.mempool);
    if (segment.mempool != MempoolId{})
      in_pool[segment.address] = {segment.address + segment.size,
                                  static_cast<std::uint16_t>(pool - trace.mempools.begin())};
  }
  if (in_pool.empty()) return;
  for (RecordedEvent& event : trace.events) {
    const auto above = in_pool.upper_bound(event.address);
    if (above == in_pool.begin()) continue;
    const auto& [end, pool] = std::prev(above)->second;
    if (event.address < end) event.mempool = pool;
  }
}

}  // namespace

StreamId TraceBuilder::stream(StreamPointer pointer) {
  if (!streams_.empty() && streams_.front() == pointer) return StreamId{0};
  return StreamId{static_cast<std::int32_t>(place_of(streams_, pointer, most_streams))};
}

std::uint16_t TraceBuilder::mempool(MempoolId id) {
  if (id == MempoolId{}) return 0;
  return static_cast<std::uint16_t>(place_of(trace_.mempools, id, most_mempools));
}

void TraceBuilder::add(const TraceEvent& event) {
  trace_.events.push_back({event.action, mempool(event.mempool), stream(event.stream), event.address, event.size,
                           event.time_us.value_or(0), event.stack});
  sum_ = sum_with(sum_, event.size);
  maps_pages_ |= event.action == Action::SegmentMap || event.action == Action::SegmentUnmap;
}

RecordedTrace TraceBuilder::build(const MemorySnapshot& snapshot, std::int64_t device, const std::string& file) && {
  read_settings(snapshot.settings, file, trace_);
  trace_.options.expandable_segments |= maps_pages_;  // old files have no settings
  std::vector<const SegmentRecord*> segments;
  for (const SegmentRecord& segment : snapshot.segments) {
    sum_ = sum_with(sum_, segment.size);
    if (segment.device == device) segments.push_back(&segment);
  }
  if (sum_ >= largest_sum) reject(file, "the sizes add up to more than 2^62 bytes");

  // Stream ids in the order of the pointers: that is the order in which the allocator gives segments back.
  for (const SegmentRecord* segment : segments) {
    static_cast<void>(stream(segment->stream));
    static_cast<void>(mempool(segment->mempool));
  }
  if (streams_.size() >= most_streams) reject(file, "there are more than " + std::to_string(most_streams) + " streams");
  if (trace_.mempools.size() >= most_mempools)
    reject(file, "there are more than " + std::to_string(most_mempools) + " private pools");
  std::vector<StreamPointer> sorted = streams_;
  std::sort(sorted.begin(), sorted.end(), [](StreamPointer a, StreamPointer b) {
    return static_cast<std::uint64_t>(a) < static_cast<std::uint64_t>(b);
  });
  std::vector<StreamId> in_order;
  std::map<StreamPointer, StreamId> id_of;
  for (const StreamPointer pointer : sorted) id_of[pointer] = StreamId{static_cast<std::int32_t>(id_of.size())};
  for (const StreamPointer pointer : streams_) in_order.push_back(id_of.at(pointer));
  for (RecordedEvent& event : trace_.events) event.stream = in_order[event.stream.index()];

  for (const SegmentRecord* segment : segments)
    trace_.end.push_back(layout_of(*segment, id_of.at(segment->stream), file));
  std::sort(trace_.end.begin(), trace_.end.end(),
            [](const SegmentLayout& a, const SegmentLayout& b) { return a.address < b.address; });
  for (std::size_t i = 1; i < trace_.end.size(); ++i) {
    if (trace_.end[i].address < trace_.end[i - 1].address + trace_.end[i - 1].size) {
      reject(file, "the segments at " + std::to_string(trace_.end[i - 1].address.value) + " and " +
                       std::to_string(trace_.end[i].address.value) + " overlap");
    }
  }
  find_mempools(trace_);
  reconstruct_start(trace_, file);
  return std::move(trace_);
}

RecordedTrace recorded_trace(const MemorySnapshot& snapshot, std::int64_t device, const std::string& file) {
  if (device < 0 || static_cast<std::size_t>(device) >= snapshot.device_traces.size()) {
    reject(file, "there is no trace of device " + std::to_string(device),
           "the file has traces of " + std::to_string(snapshot.device_traces.size()) + " devices");
  }
  TraceBuilder builder;
  for (const TraceEvent& event : snapshot.device_traces[static_cast<std::size_t>(device)]) builder.add(event);
  return std::move(builder).build(snapshot, device, file);
}

}  // namespace tidemark::scenarios
