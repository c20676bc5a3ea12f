// Recordings rarely begin with an empty process. Walking the events back from the end gives the segments at the
// beginning; the frees of blocks that were never allocated give the blocks.
#include "scenarios/recordings/recorded_start.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {
namespace {

using Action = TraceEvent::Action;

class StartFinder {
 public:
  StartFinder(RecordedTrace& trace, const std::string& file) : trace_(trace), file_(file) {}

  void find() {
    for (const SegmentLayout& segment : trace_.end) {
      for (const BlockLayout& block : segment.blocks)
        if (block.state != BlockState::Free) live_[block.address] = {block.requested, block.size};
      SegmentLayout& known = segments_[segment.address] = segment;
      known.blocks.clear();
    }
    for (auto event = trace_.events.rbegin(); event != trace_.events.rend(); ++event) step_back(*event);

    for (auto range = segments_.begin(); range != segments_.end();)
      if (const auto next = std::next(range); next == segments_.end() || !join(range, next)) range = next;

    Address free_from;
    for (auto& [address, segment] : segments_) {
      if (address < free_from) continue;
      free_from = address + segment.size;
      place_blocks(segment);
      trace_.start.push_back(std::move(segment));
    }
    trace_.ambiguous_gaps = static_cast<std::int64_t>(gaps_.size());
    decide_gaps();
    for (SegmentLayout& segment : trace_.start) fill_with_free_blocks(segment);
    find_spaces();
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

  void step_back(const RecordedEvent& event) {
    if (event.action == Action::Alloc) live_.erase(event.address);
    if (event.action == Action::FreeCompleted) live_[event.address] = {event.size, std::nullopt};
    if (event.action == Action::SegmentAlloc) segments_.erase(event.address);
    if (event.action == Action::SegmentMap) remove_pages(event.address, event.address + event.size);
    if (event.action != Action::SegmentFree && event.action != Action::SegmentUnmap) return;
    const bool pages = event.action == Action::SegmentUnmap;
    segments_[event.address] = {event.address,
                                event.size,
                                event.stream,
                                pages ? pool_of_pages(event) : pool_of_segment(event.size),
                                {},
                                pages,
                                trace_.mempools[event.mempool]};
    if (pages) join_pages(event.address);
  }

  // Only the small pool has segments as small as 2 MiB.
  static PoolKind pool_of_segment(Bytes size) {
    return size <= AllocatorOptions::small_segment ? PoolKind::Small : PoolKind::Large;
  }

  // Pages that were unmapped belong to no segment at the end: their size tells, or a block that is there later, or
  // their neighbour.
  [[nodiscard]] PoolKind pool_of_pages(const RecordedEvent& pages) const {
    if (pages.size % trace_.options.large_segment != Bytes{}) return PoolKind::Small;
    const auto above = live_.lower_bound(pages.address);
    if (above != live_.end() && above->first < pages.address + pages.size)
      return pool_of(block_size(above->second.requested, trace_.options));
    for (const auto& [address, segment] : segments_)
      if (segment.expandable && segment.stream == pages.stream &&
          (address + segment.size == pages.address || address == pages.address + pages.size))
        return segment.pool;
    return PoolKind::Large;
  }

  // One entry is one range that is mapped without a gap.
  void remove_pages(Address begin, Address end) {
    const auto above = segments_.upper_bound(begin);
    if (above == segments_.begin()) return;
    const auto range = std::prev(above);
    const SegmentLayout whole = range->second;
    if (!whole.expandable || whole.address + whole.size < end) return;
    segments_.erase(range);
    const auto keep = [&](Address from, Address to) {
      if (from == to) return;
      SegmentLayout& part = segments_[from] = whole;
      part.address = from;
      part.size = to - from;
    };
    keep(whole.address, begin);
    keep(end, whole.address + whole.size);
  }

  void join_pages(Address address) {
    auto range = segments_.find(address);
    if (range != segments_.begin() && join(std::prev(range), range)) range = std::prev(segments_.upper_bound(address));
    if (const auto next = std::next(range); next != segments_.end()) join(range, next);
  }

  using Segments = std::map<Address, SegmentLayout>;

  bool join(Segments::iterator low, Segments::iterator high) {
    const SegmentLayout &a = low->second, &b = high->second;
    const bool one = a.expandable && b.expandable && a.address + a.size == b.address && a.stream == b.stream &&
                     a.pool == b.pool && a.mempool == b.mempool;
    if (!one) return false;
    low->second.size += b.size;
    segments_.erase(high);
    return true;
  }

  // -- blocks ---------------------------------------------------------------------------------------------------------

  void place_blocks(SegmentLayout& segment) {
    const Address end = segment.address + segment.size;
    Address next_free = segment.address;
    for (auto block = live_.lower_bound(segment.address); block != live_.end() && block->first < end; ++block) {
      const auto& [address, known] = *block;
      const auto next = std::next(block);
      const Address limit = next != live_.end() && next->first < end ? next->first : end;
      Bytes size = known.size.value_or(block_size(known.requested, trace_.options));
      if (address < next_free || limit - address < size) continue;
      const Bytes gap = limit - (address + size);
      if (!known.size && gap > Bytes{0}) {
        if (!cuts(segment, size, gap)) {
          size += gap;  // too little to have been split off
        } else if (may_have_slack(segment)) {
          gaps_[address + size] = {limit, address};
        }
      }
      segment.blocks.push_back({address, size, known.requested, BlockState::Allocated});
      next_free = address + size;
    }
  }

  [[nodiscard]] bool cuts(const SegmentLayout& segment, Bytes size, Bytes rest) const {
    if (segment.expandable) return rest >= AllocatorOptions::min_block;
    if (segment.pool == PoolKind::Large && size >= trace_.options.max_split_size) return false;
    return should_split(segment.pool, rest);
  }
  static bool may_have_slack(const SegmentLayout& segment) {
    return segment.pool == PoolKind::Large && !segment.expandable;
  }

  // The first allocation that lands in a gap while the block before it is live lands where the free part begins: the
  // allocator hands out the low end of a free block.
  void decide_gaps() {
    std::map<Address, Address> gap_of_block;
    for (const auto& [start, gap] : gaps_) gap_of_block[gap.block] = start;
    std::map<Address, Bytes> slack;
    for (const RecordedEvent& event : trace_.events) {
      if (gaps_.empty()) break;
      if (event.action == Action::FreeCompleted) {
        const auto freed = gap_of_block.find(event.address);
        if (freed != gap_of_block.end()) gaps_.erase(freed->second);
      }
      if (event.action != Action::Alloc) continue;
      auto gap = gaps_.upper_bound(event.address);
      if (gap == gaps_.begin() || event.address >= (--gap)->second.end) continue;
      const Bytes owned = event.address - gap->first;
      if (!should_split(PoolKind::Large, owned)) slack[gap->second.block] = owned;
      gaps_.erase(gap);
    }
    trace_.decided_gaps = static_cast<std::int64_t>(slack.size());
    for (SegmentLayout& segment : trace_.start) {
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

  // -- address spaces -------------------------------------------------------------------------------------------------

  // A pool has one expandable segment per stream, and a second one only once that is full. Where it begins is not
  // recorded: at the lowest page that is ever mapped, for all one can see.
  void find_spaces() {
    using Owner = std::tuple<StreamId, PoolKind, MempoolId>;
    std::map<Owner, AddressSpace> spaces;
    for (const SegmentLayout& range : trace_.start) {
      if (!range.expandable) continue;
      const auto [space, is_new] = spaces.try_emplace({range.stream, range.pool, range.mempool});
      if (is_new) {
        const Bytes size = expandable_address_space(range.pool, trace_.options);
        space->second = {range.address, size, range.stream, range.pool, range.mempool};
        if (const Bytes lower = lowest_page(range); lower > Bytes{}) space->second.address = range.address + -lower;
      }
      const Bytes page = expandable_page(range.pool, trace_.options);
      const Bytes from_start = range.address - space->second.address;
      if (from_start % page != Bytes{} || range.size % page != Bytes{} || from_start + range.size > space->second.size)
        throw InputError(Problem{.file = file_,
                                 .message = "the pages at " + std::to_string(range.address.value) +
                                            " cannot be those of one expandable segment",
                                 .hint = {}});
    }
    for (const auto& [owner, space] : spaces) trace_.spaces.push_back(space);
  }

  // How far below a range that is there from the start pages of its stream are mapped later.
  [[nodiscard]] Bytes lowest_page(const SegmentLayout& range) const {
    const Bytes page = expandable_page(range.pool, trace_.options);
    const Bytes reach = trace_.options.device_memory;
    Bytes lowest;
    for (const RecordedEvent& event : trace_.events) {
      if (event.action != Action::SegmentMap || event.stream != range.stream || !(event.address < range.address))
        continue;
      const Bytes below = range.address - event.address;
      if (event.size % page == Bytes{} && below % page == Bytes{} && below < reach) lowest = std::max(lowest, below);
    }
    return lowest;
  }

  RecordedTrace& trace_;
  const std::string& file_;
  std::map<Address, LiveBlock> live_;
  Segments segments_;            // without blocks
  std::map<Address, Gap> gaps_;  // by where they begin at the earliest
};

}  // namespace

void reconstruct_start(RecordedTrace& trace, const std::string& file) { StartFinder(trace, file).find(); }

}  // namespace tidemark::scenarios
