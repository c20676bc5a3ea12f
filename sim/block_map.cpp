#include "sim/block_map.hpp"

#include <algorithm>

#include "sim/ensure.hpp"

namespace tidemark {

std::optional<BlockId> BlockMap::take_best_fit(const BlockRequest& request) {
  FreeBlocks& free = free_blocks(request.pool, request.stream);
  const std::optional<FreeBlocks::Position> fit = free.best_fit(request.size);
  if (!fit) return std::nullopt;
  const BlockId id = free.at(*fit).block;
  free.erase(*fit);
  take(id, request, free);
  return id;
}

BlockId BlockMap::take_from_segment(Address address, Bytes size, const BlockRequest& request) {
  ensure(size >= request.size, "a segment is large enough for the block it was got for");
  count_segment(request.pool, size);
  const BlockId id = new_block({.address = address,
                                .size = size,
                                .requested = {},
                                .previous = {},
                                .next = {},
                                .stream = request.stream,
                                .pool = request.pool});
  take(id, request, free_blocks(request.pool, request.stream));
  return id;
}

// The block is free and in no set. It keeps its low part; what is left over becomes a free block behind it.
void BlockMap::take(BlockId id, const BlockRequest& request, FreeBlocks& free) {
  const Bytes remaining = block(id).size - request.size;
  const bool was_split = block(id).split();
  const auto each_group = [&](auto count) {
    count(stats_.all);
    count(stats_.pool(request.pool));
  };
  if (should_split(request.pool, remaining)) {
    const Block& whole = block(id);
    const Address rest_address = whole.address + request.size;
    const BlockId next = whole.next;
    const BlockId rest = new_block({.address = rest_address,
                                    .size = remaining,
                                    .requested = {},
                                    .previous = id,
                                    .next = next,
                                    .stream = request.stream,
                                    .pool = request.pool});
    if (next.valid()) blocks_[next.index()].previous = rest;
    Block& taken = blocks_[id.index()];
    taken.next = rest;
    taken.size = request.size;
    free.insert({remaining, rest_address, rest});
    each_group([&](PoolStats& group) {
      if (was_split) {
        group.inactive_split.decrease(request.size);
      } else {
        group.inactive_split.increase(remaining);
        group.inactive_split_blocks.increase(1);
      }
    });
  } else if (was_split) {
    each_group([&](PoolStats& group) {
      group.inactive_split.decrease(block(id).size);
      group.inactive_split_blocks.decrease(1);
    });
  }
  Block& taken = blocks_[id.index()];
  taken.state = BlockState::Allocated;
  taken.requested = request.requested;
  count_take(taken);
}

void BlockMap::give_back(BlockId id) {
  ensure(id.valid() && id.index() < blocks_.size() && block(id).in_use && block(id).state == BlockState::Allocated,
         "a block is freed once, after it was allocated");
  Block& freed = blocks_[id.index()];
  const Bytes size = freed.size;
  FreeBlocks& free = free_blocks(freed.pool, freed.stream);
  std::int64_t merged = 0;
  Bytes merged_size;
  for (const BlockId neighbour : {freed.previous, freed.next}) {
    if (!neighbour.valid() || block(neighbour).state != BlockState::Free) continue;
    merged_size += absorb(freed, neighbour, free);
    ++merged;
  }
  freed.state = BlockState::Free;
  if (const BlockId previous = freed.previous; previous.valid()) blocks_[previous.index()].next = id;
  if (const BlockId next = freed.next; next.valid()) blocks_[next.index()].previous = id;
  free.insert({freed.size, freed.address, id});

  const bool split = freed.split();
  for (PoolStats* group : {&stats_.all, &stats_.pool(freed.pool)}) {
    group->allocated.decrease(size);
    group->allocations.decrease(1);
    group->active.decrease(size);
    group->active_blocks.decrease(1);
    group->requested.decrease(freed.requested);
    group->inactive_split.decrease(merged_size);
    group->inactive_split_blocks.decrease(merged);
    if (!split) continue;
    group->inactive_split.increase(freed.size);
    group->inactive_split_blocks.increase(1);
  }
}

// Grows `block` over a free neighbour, which leaves its set and the map. The far neighbour is linked by the caller.
Bytes BlockMap::absorb(Block& grown, BlockId neighbour, FreeBlocks& free) {
  const Block& gone = block(neighbour);
  free.erase(gone.size, gone.address);
  if (gone.address < grown.address) {
    grown.address = gone.address;
    grown.previous = gone.previous;
  } else {
    grown.next = gone.next;
  }
  grown.size += gone.size;
  const Bytes size = gone.size;
  recycle(neighbour);
  return size;
}

std::vector<BlockMap::Segment> BlockMap::drop_unused_segments() {
  std::vector<Segment> dropped;
  for (PoolBlocks* pool : {&large_, &small_}) {
    for (StreamBlocks& of_stream : *pool) {
      std::vector<FreeBlock> unused;
      of_stream.free.for_each([&](const FreeBlock& candidate) {
        if (!block(candidate.block).split()) unused.push_back(candidate);
      });
      for (const FreeBlock& segment : unused) {
        for (PoolStats* group : {&stats_.all, &stats_.pool(block(segment.block).pool)}) {
          group->segments.decrease(1);
          group->reserved.decrease(segment.size);
        }
        ++stats_.device_frees;
        of_stream.free.erase(segment.size, segment.address);
        recycle(segment.block);
        dropped.push_back({segment.address, segment.size});
      }
    }
  }
  return dropped;
}

std::vector<BlockId> BlockMap::restore(const std::vector<SegmentLayout>& segments) {
  std::vector<BlockId> allocated;
  for (const SegmentLayout& segment : segments) {
    count_segment(segment.pool, segment.size);
    FreeBlocks& free = free_blocks(segment.pool, segment.stream);
    const bool split = segment.blocks.size() > 1;
    Address end = segment.address;
    BlockId previous;
    for (const BlockLayout& image : segment.blocks) {
      ensure(image.address == end && image.size > Bytes{0}, "restored blocks tile their segment");
      end = end + image.size;
      const BlockId id = new_block({.address = image.address,
                                    .size = image.size,
                                    .requested = image.requested,
                                    .previous = previous,
                                    .next = {},
                                    .stream = segment.stream,
                                    .pool = segment.pool,
                                    .state = image.state});
      if (previous.valid()) blocks_[previous.index()].next = id;
      if (image.state == BlockState::Allocated) {
        allocated.push_back(id);
        count_take(block(id));
      } else {
        ensure(!previous.valid() || block(previous).state != BlockState::Free, "restored free blocks are merged");
        free.insert({image.size, image.address, id});
        if (split) {
          for (PoolStats* group : {&stats_.all, &stats_.pool(segment.pool)}) {
            group->inactive_split.increase(image.size);
            group->inactive_split_blocks.increase(1);
          }
        }
      }
      previous = id;
    }
    ensure(end == segment.address + segment.size, "restored blocks tile their segment");
  }
  return allocated;
}

std::vector<SegmentLayout> BlockMap::layout() const {
  std::vector<SegmentLayout> segments;
  for (const Block& first : blocks_) {
    if (!first.in_use || first.previous.valid()) continue;
    SegmentLayout segment{
        .address = first.address, .size = {}, .stream = first.stream, .pool = first.pool, .blocks = {}};
    for (const Block* b = &first; b != nullptr; b = b->next.valid() ? &block(b->next) : nullptr) {
      segment.size += b->size;
      segment.blocks.push_back({b->address, b->size, b->state == BlockState::Free ? Bytes{} : b->requested, b->state});
    }
    segments.push_back(std::move(segment));
  }
  std::sort(segments.begin(), segments.end(),
            [](const SegmentLayout& a, const SegmentLayout& b) { return a.address < b.address; });
  return segments;
}

FreeBlocks& BlockMap::free_blocks(PoolKind kind, StreamId stream) {
  PoolBlocks& pool = kind == PoolKind::Small ? small_ : large_;
  for (StreamBlocks& candidate : pool) {
    if (candidate.stream == stream) return candidate.free;
  }
  const auto after = std::find_if(pool.begin(), pool.end(), [&](const StreamBlocks& s) { return stream < s.stream; });
  return pool.insert(after, StreamBlocks{stream, {}})->free;
}

BlockId BlockMap::new_block(const Block& block) {
  if (idle_blocks_.empty()) {
    blocks_.push_back(block);
    return BlockId{static_cast<std::int32_t>(blocks_.size() - 1)};
  }
  const BlockId id = idle_blocks_.back();
  idle_blocks_.pop_back();
  blocks_[id.index()] = block;
  return id;
}

void BlockMap::recycle(BlockId block) {
  blocks_[block.index()].in_use = false;
  idle_blocks_.push_back(block);
}

void BlockMap::count_segment(PoolKind pool, Bytes size) {
  for (PoolStats* group : {&stats_.all, &stats_.pool(pool)}) {
    group->segments.increase(1);
    group->reserved.increase(size);
  }
}

void BlockMap::count_take(const Block& block) {
  for (PoolStats* group : {&stats_.all, &stats_.pool(block.pool)}) {
    group->allocated.increase(block.size);
    group->allocations.increase(1);
    group->active.increase(block.size);
    group->active_blocks.increase(1);
    group->requested.increase(block.requested);
  }
}

}  // namespace tidemark
