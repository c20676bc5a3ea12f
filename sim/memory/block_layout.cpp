// Pictures of a block map, and maps from pictures.
#include <algorithm>
#include <iterator>

#include "sim/base/ensure.hpp"
#include "sim/memory/block_map.hpp"

namespace tidemark::sim {

std::vector<BlockId> BlockMap::restore(const std::vector<SegmentLayout>& segments) {
  std::vector<BlockId> allocated;
  for (const SegmentLayout& segment : segments) {
    const PoolId home = pool(mempool(segment.mempool), segment.pool);
    Surroundings around;
    if (segment.expandable) {
      around = cut_out({segment.address, segment.size}, blocks_of(home, segment.stream));
      stats_.each_group(segment.pool, [&](PoolStats& group) { group.reserved.increase(segment.size); });
    } else {
      count_segment(home, segment.size);
    }
    Address end = segment.address;
    BlockId previous = around.before;
    for (const BlockLayout& image : segment.blocks) {
      ensure(image.address == end && image.size > Bytes{0}, "restored blocks tile their segment");
      end = end + image.size;
      const BlockId id = new_block({.address = image.address,
                                    .size = image.size,
                                    .requested = image.requested,
                                    .previous = {},
                                    .next = {},
                                    .stream = segment.stream,
                                    .pool = home,
                                    .state = image.state,
                                    .expansion = around.expansion});
      link(previous, id);
      previous = id;
      restore_state(id, segment.blocks.size() > 1 && !segment.expandable);
      if (image.state == BlockState::Allocated) allocated.push_back(id);
    }
    ensure(end == segment.address + segment.size, "restored blocks tile their segment");
    link(previous, around.after);
  }
  return allocated;
}

void BlockMap::restore_state(BlockId id, bool counts_as_split) {
  const Block& restored = block(id);
  if (restored.state == BlockState::Allocated) return count_take(restored);
  ensure(restored.state == BlockState::Free, "restored blocks do not wait for other streams");
  ensure(!restored.previous.valid() || block(restored.previous).state != BlockState::Free,
         "restored free blocks are merged");
  insert_free(blocks_of(restored.pool, restored.stream), id);
  if (!counts_as_split) return;
  stats_.each_group(restored.pool.kind(), [&](PoolStats& group) {
    group.inactive_split.increase(restored.size);
    group.inactive_split_blocks.increase(1);
  });
}

// What is left of an unmapped block on either side stays one.
BlockMap::Surroundings BlockMap::cut_out(Range range, StreamBlocks& home) {
  const auto above = home.unmapped.upper_bound(range.address);
  ensure(above != home.unmapped.begin(), "restored pages lie in address space that was added");
  const BlockId gap = std::prev(above)->second;
  const Block whole = block(gap);
  const Address end = range.address + range.size;
  ensure(end <= whole.address + whole.size, "restored pages lie in address space that was added");
  home.unmapped.erase(whole.address);
  recycle(gap);
  const auto keep = [&](Address address, Bytes size) {
    if (size == Bytes{}) return BlockId{};
    Block part = whole;
    part.address = address;
    part.size = size;
    const BlockId kept = new_block(part);
    home.unmapped[address] = kept;
    return kept;
  };
  const BlockId low = keep(whole.address, range.address - whole.address);
  const BlockId high = keep(end, whole.address + whole.size - end);
  if (low.valid()) link(whole.previous, low);
  if (high.valid()) link(high, whole.next);
  return {low.valid() ? low : whole.previous, high.valid() ? high : whole.next, whole.expansion};
}

// Of an expandable segment, each range that is mapped without a gap.
std::vector<SegmentLayout> BlockMap::layout() const {
  const auto mapped = [&](BlockId id) { return id.valid() && block(id).state != BlockState::Unmapped; };
  std::vector<SegmentLayout> segments;
  for (const Block& first : blocks_) {
    if (!first.in_use || first.state == BlockState::Unmapped || mapped(first.previous)) continue;
    SegmentLayout segment{.address = first.address,
                          .size = {},
                          .stream = first.stream,
                          .pool = first.pool.kind(),
                          .blocks = {},
                          .expandable = first.expandable(),
                          .mempool = mempools_[first.pool.mempool()].id};
    for (const Block* b = &first; b != nullptr; b = mapped(b->next) ? &block(b->next) : nullptr) {
      segment.size += b->size;
      segment.blocks.push_back({b->address, b->size, b->state == BlockState::Free ? Bytes{} : b->requested, b->state});
    }
    segments.push_back(std::move(segment));
  }
  std::sort(segments.begin(), segments.end(),
            [](const SegmentLayout& a, const SegmentLayout& b) { return a.address < b.address; });
  return segments;
}

}  // namespace tidemark::sim
