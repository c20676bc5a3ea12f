#include "scenarios/io/recorded_trace.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "scenarios/io/input_error.hpp"

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
    check_settings(events);
    check_sum(events);
    number_streams(events);

    RecordedTrace trace;
    trace.events.reserve(events.size());
    for (const TraceEvent& event : events) {
      trace.events.push_back({event.action, event.address, event.size, stream(event.stream)});
    }
    trace.end = end_layout();
    reconstruct_start(trace);
    return trace;
  }

 private:
  /// A block that was live before the first event.
  struct LiveBlock {
    Bytes requested;
    std::optional<Bytes> size;  // known if it was still live at the end
  };
  /// A gap behind `block`, part of which may belong to it.
  struct Gap {
    Address end;
    Address block;
  };

  [[noreturn]] void reject(std::string message, std::string hint = {}) const {
    throw InputError(
        Problem{.file = file_, .line = 0, .column = 0, .message = std::move(message), .hint = std::move(hint)});
  }

  [[nodiscard]] bool here(const SegmentRecord& segment) const { return segment.device == device_; }

  void check_settings(const std::vector<TraceEvent>& events) const {
    const auto unsupported = [&](const std::string& what) {
      reject("the trace was recorded with " + what + ", which the allocator does not model yet",
             "record it with the default settings of PYTORCH_CUDA_ALLOC_CONF");
    };
    if (const std::optional<AllocatorSettings>& settings = snapshot_.settings) {
      if (settings->expandable_segments) unsupported("expandable_segments");
      if (settings->max_split_size) unsupported("max_split_size_mb");
      if (settings->roundup_power2_divisions) unsupported("roundup_power2_divisions");
      if (settings->garbage_collection_threshold > 0) unsupported("garbage_collection_threshold");
    }
    for (const SegmentRecord& segment : snapshot_.segments) {
      if (!here(segment)) continue;
      if (segment.expandable) unsupported("expandable_segments");
      if (segment.mempool != MempoolId{}) unsupported("private memory pools (CUDA graphs or torch.cuda.MemPool)");
    }
    for (const TraceEvent& event : events) {
      const bool maps = event.action == Action::SegmentMap || event.action == Action::SegmentUnmap;
      if (maps) unsupported("expandable_segments");
      if (event.mempool != MempoolId{}) unsupported("private memory pools (CUDA graphs or torch.cuda.MemPool)");
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

  [[nodiscard]] std::vector<SegmentLayout> end_layout() const {
    std::vector<SegmentLayout> segments;
    for (const SegmentRecord& segment : snapshot_.segments) {
      if (!here(segment)) continue;
      SegmentLayout layout{segment.address, segment.size, stream(segment.stream), segment.pool, {}};
      Address end = segment.address;
      for (const BlockRecord& block : segment.blocks) {
        if (block.address != end) break;
        end = end + block.size;
        const bool free = block.state == BlockRecord::State::Inactive;
        const BlockState state = free ? BlockState::Free : BlockState::Allocated;
        layout.blocks.push_back({block.address, block.size, free ? Bytes{} : block.requested, state});
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
    return segments;
  }

  // Walks back from the end. What contradicts itself is left out here: the replay then finds the event that does not
  // fit.
  void reconstruct_start(RecordedTrace& trace) {
    std::map<Address, LiveBlock> live;
    std::map<Address, SegmentLayout> segments;
    for (const SegmentLayout& segment : trace.end) {
      for (const BlockLayout& block : segment.blocks) {
        if (block.state == BlockState::Allocated) live[block.address] = {block.requested, block.size};
      }
      segments[segment.address] = {segment.address, segment.size, segment.stream, segment.pool, {}};
    }
    for (auto event = trace.events.rbegin(); event != trace.events.rend(); ++event) {
      if (event->action == Action::Alloc) live.erase(event->address);
      if (event->action == Action::FreeCompleted) live[event->address] = {event->size, std::nullopt};
      if (event->action == Action::SegmentAlloc) segments.erase(event->address);
      if (event->action != Action::SegmentFree) continue;
      // Only the small pool has segments as small as 2 MiB.
      const PoolKind pool = event->size <= AllocatorOptions::small_segment ? PoolKind::Small : PoolKind::Large;
      segments[event->address] = {event->address, event->size, event->stream, pool, {}};
    }

    Address free_from;
    for (auto& [address, segment] : segments) {
      if (address < free_from) continue;
      free_from = address + segment.size;
      place_blocks(segment, live);
      trace.start.push_back(std::move(segment));
    }
    trace.ambiguous_gaps = static_cast<std::int64_t>(gaps_.size());
    decide_gaps(trace);
    for (SegmentLayout& segment : trace.start) fill_with_free_blocks(segment);
  }

  void place_blocks(SegmentLayout& segment, const std::map<Address, LiveBlock>& live) {
    const Address end = segment.address + segment.size;
    Address next_free = segment.address;
    for (auto block = live.lower_bound(segment.address); block != live.end() && block->first < end; ++block) {
      const auto& [address, known] = *block;
      const auto next = std::next(block);
      const Address limit = next != live.end() && next->first < end ? next->first : end;
      Bytes size = known.size.value_or(block_size(known.requested));
      if (address < next_free || limit - address < size) continue;
      const Bytes gap = limit - (address + size);
      if (!known.size && segment.pool == PoolKind::Large && gap > Bytes{0}) {
        if (!should_split(PoolKind::Large, gap)) {
          size += gap;  // too little to have been split off
        } else {
          gaps_[address + size] = {limit, address};
        }
      }
      segment.blocks.push_back({address, size, known.requested, BlockState::Allocated});
      next_free = address + size;
    }
  }

  // The first allocation that lands in a gap while the block before it is live lands where the free part begins: the
  // allocator hands out the low end of a free block.
  void decide_gaps(RecordedTrace& trace) {
    std::map<Address, Address> gap_of_block;
    for (const auto& [start, gap] : gaps_) gap_of_block[gap.block] = start;
    std::map<Address, Bytes> slack;
    for (const RecordedEvent& event : trace.events) {
      if (event.action == Action::FreeCompleted) {
        const auto freed = gap_of_block.find(event.address);
        if (freed != gap_of_block.end()) gaps_.erase(freed->second);
      }
      if (event.action != Action::Alloc || gaps_.empty()) continue;
      auto gap = gaps_.upper_bound(event.address);
      if (gap == gaps_.begin() || event.address >= (--gap)->second.end) continue;
      const Bytes owned = event.address - gap->first;
      if (!should_split(PoolKind::Large, owned)) slack[gap->second.block] = owned;
      gaps_.erase(gap);
    }
    trace.decided_gaps = static_cast<std::int64_t>(slack.size());
    for (SegmentLayout& segment : trace.start) {
      for (BlockLayout& block : segment.blocks) {
        const auto owned = slack.find(block.address);
        if (owned != slack.end()) block.size += owned->second;
      }
    }
  }

  static void fill_with_free_blocks(SegmentLayout& segment) {
    std::vector<BlockLayout> blocks;
    Address next = segment.address;
    const auto fill_to = [&](Address end) {
      if (end != next) blocks.push_back({next, end - next, {}, BlockState::Free});
    };
    for (const BlockLayout& block : segment.blocks) {
      fill_to(block.address);
      blocks.push_back(block);
      next = block.address + block.size;
    }
    fill_to(segment.address + segment.size);
    segment.blocks = std::move(blocks);
  }

  const MemorySnapshot& snapshot_;
  const std::int64_t device_;
  const std::string& file_;
  std::map<std::uint64_t, StreamId> streams_;
  std::map<Address, Gap> gaps_;  // by where they begin at the earliest
};

}  // namespace

RecordedTrace recorded_trace(const MemorySnapshot& snapshot, std::int64_t device, const std::string& file) {
  return TraceReader(snapshot, device, file).read();
}

}  // namespace tidemark
