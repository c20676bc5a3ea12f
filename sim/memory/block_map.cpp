// Requests and returns: the fast path. The rest of BlockMap is in block_expansion.cpp, block_release.cpp and
// block_layout.cpp.
#include "sim/memory/block_map.hpp"

#include <algorithm>

#include "sim/base/ensure.hpp"

namespace tidemark::sim {

BlockMap::BlockMap(const AllocatorOptions& options, Counted counted)
    : options_(options),
      counted_(counted),
      plain_(!options.expandable_segments && options.max_split_size == AllocatorOptions::unlimited),
      collects_(options.collects_garbage()) {
  mempool({});
}

BlockId BlockMap::take_best_fit(const BlockRequest& request) {
  StreamBlocks& home = blocks_of(request.pool, request.stream);
  if (collects_) ++pools_[request.pool.index].searches;
  const BlockId id = plain_ ? home.free.take_best_fit(request.size) : take_other_fit(home.free, request);
  if (id.valid()) take(id, request, home);
  return id;
}

BlockId BlockMap::take_other_fit(FreeBlocks& free, const BlockRequest& request) const {
  const FreeBlock* fit = free.best_fit(request.size);
  if (fit != nullptr) fit = other_fit(free, fit, request);
  if (fit == nullptr) return {};
  const BlockId id = fit->block;
  free.erase(fit);
  return id;
}

bool BlockMap::has_fit(const BlockRequest& request) const {
  const StreamBlocks* const home = find_blocks_of(request.pool, request.stream);
  if (home == nullptr) return false;
  const FreeBlock* const fit = home->free.best_fit(request.size);
  return fit != nullptr && (plain_ || other_fit(home->free, fit, request) != nullptr);
}

// What get_free_block makes of the smallest block that fits. Only the one candidate that remains is looked at.
const FreeBlock* BlockMap::other_fit(const FreeBlocks& free, const FreeBlock* fit, const BlockRequest& request) const {
  const auto expandable = [&](const FreeBlock* b) { return block(b->block).expandable(); };
  if (expandable(fit) && request.expandable) {
    // A block before unmapped pages counts with what it can grow to: real holes come first.
    const auto can_become = [&](const FreeBlock* b) {
      const BlockId after = block(b->block).next;
      const bool grows = after.valid() && block(after).state == BlockState::Unmapped;
      return grows ? b->size + block(after).size : b->size;
    };
    for (const FreeBlock* next = free.next(fit);
         next != nullptr && expandable(fit) && can_become(next) < can_become(fit); next = free.next(fit))
      fit = next;
  }
  // Expandable segments are off, for now or for this pool: theirs are passed over.
  while (expandable(fit) && !request.expandable) {
    fit = free.next(fit);
    if (fit == nullptr) return nullptr;
  }
  const bool oversize_request = request.size >= options_.max_split_size;
  if (!oversize_request && fit->size >= options_.max_split_size) return nullptr;
  if (oversize_request && fit->size - request.size >= options_.max_non_split_rounding) return nullptr;
  return fit;
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
  take(id, request, blocks_of(request.pool, request.stream));
  return id;
}

bool BlockMap::cuts(const Block& block, const BlockRequest& request) const {
  if (mempools_[request.pool.mempool()].no_split) return false;
  const Bytes remaining = block.size - request.size;
  if (request.expandable) return remaining >= AllocatorOptions::min_block;
  if (request.pool.kind() == PoolKind::Large && request.size >= options_.max_split_size) return false;
  return should_split(request.pool.kind(), remaining);
}

// The block is free and in no set.
void BlockMap::take(BlockId id, const BlockRequest& request, StreamBlocks& home) {
  const Bytes size = block(id).size;
  const bool was_split = block(id).split();
  if (cuts(block(id), request)) cut(id, request.size, home);
  Block& taken = blocks_[id.index()];
  taken.state = BlockState::Allocated;
  taken.requested = request.requested;
  count_take(taken);
  if (counted_ == Counted::Everything) count_part_taken(taken, size - taken.size, was_split);
}

// A block keeps its low part; what is left over becomes a free block behind it.
void BlockMap::cut(BlockId id, Bytes size, StreamBlocks& home) {
  const BlockId rest = new_block();
  Block& low = blocks_[id.index()];
  Block& high = blocks_[rest.index()];
  high.address = low.address + size;
  high.size = low.size - size;
  high.requested = {};
  high.stream = low.stream;
  high.pool = low.pool;
  high.state = BlockState::Free;
  high.in_use = true;
  high.expansion = low.expansion;
  low.size = size;
  link(rest, low.next);
  link(id, rest);
  insert_free(home, rest);
}

void BlockMap::give_back(BlockId id) {
  begin_free(id);
  make_free(id);
}

void BlockMap::begin_free(BlockId id) {
  ensure(id.valid() && id.index() < blocks_.size() && block(id).state == BlockState::Allocated,
         "a block is freed once, after it was allocated");
  Block& freed = blocks_[id.index()];
  freed.state = BlockState::PendingFree;
  count_begin_free(freed);
}

void BlockMap::finish_free(BlockId id) {
  ensure(block(id).state == BlockState::PendingFree, "a free is finished once, after it began");
  make_free(id);
}

void BlockMap::make_free(BlockId id) {
  Block& freed = blocks_[id.index()];
  StreamBlocks& home = blocks_of(freed.pool, freed.stream);
  const Bytes size = freed.size;
  Merged merged;
  if (is_free(freed.previous)) {
    merged.size += absorb(freed, freed.previous, home.free);
    ++merged.blocks;
    if (freed.previous.valid()) blocks_[freed.previous.index()].next = id;
  }
  if (is_free(freed.next)) {
    merged.size += absorb(freed, freed.next, home.free);
    ++merged.blocks;
    if (freed.next.valid()) blocks_[freed.next.index()].previous = id;
  }
  freed.state = BlockState::Free;
  insert_free(home, id);
  if (counted_ == Counted::Everything) count_free(freed, size, merged);
}

bool BlockMap::is_free(BlockId id) const { return id.valid() && block(id).state == BlockState::Free; }

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

void BlockMap::insert_free(StreamBlocks& home, BlockId id) {
  const Block& freed = block(id);
  home.free.insert(freed.size, freed.address, id);
  if (collects_) note_free_since(id);
}

void BlockMap::note_free_since(BlockId id) {
  if (free_since_.size() <= id.index()) free_since_.resize(blocks_.capacity());
  free_since_[id.index()] = pools_[block(id).pool.index].searches;
}

BlockMap::StreamBlocks& BlockMap::add_stream(PoolId id, StreamId stream) {
  std::vector<StreamBlocks>& streams = pools_[id.index].streams;
  const auto after =
      std::find_if(streams.begin(), streams.end(), [&](const StreamBlocks& s) { return stream < s.stream; });
  return *streams.insert(after, StreamBlocks{stream, {}, {}});
}

std::size_t BlockMap::mempool(MempoolId id) {
  const auto known = std::find_if(mempools_.begin(), mempools_.end(), [&](const Mempool& m) { return m.id == id; });
  if (known != mempools_.end()) return static_cast<std::size_t>(known - mempools_.begin());
  ensure(mempools_.size() < 32'768, "a process has fewer than 32,768 private pools");
  mempools_.push_back({.id = id});
  pools_.resize(2 * mempools_.size());
  return mempools_.size() - 1;
}

BlockId BlockMap::new_block() {
  if (idle_blocks_.empty()) {
    blocks_.emplace_back();
    return BlockId{static_cast<std::int32_t>(blocks_.size() - 1)};
  }
  const BlockId id = idle_blocks_.back();
  idle_blocks_.pop_back();
  return id;
}

BlockId BlockMap::new_block(const Block& block) {
  const BlockId id = new_block();
  blocks_[id.index()] = block;
  return id;
}

void BlockMap::recycle(BlockId block) {
  blocks_[block.index()].in_use = false;
  idle_blocks_.push_back(block);
}

void BlockMap::link(BlockId before, BlockId after) {
  if (before.valid()) blocks_[before.index()].next = after;
  if (after.valid()) blocks_[after.index()].previous = before;
}

void BlockMap::count_segment(PoolId pool, Bytes size) {
  stats_.each_group(pool.kind(), [&](PoolStats& group) {
    group.segments.increase(1);
    group.reserved.increase(size);
  });
  if (size >= options_.max_split_size) stats_.oversize_segments.increase(1);
}

void BlockMap::count_take(const Block& block) {
  stats_.all.allocated.increase(block.size);
  if (counted_ == Counted::Memory) return;
  stats_.pool(block.pool.kind()).allocated.increase(block.size);
  stats_.each_group(block.pool.kind(), [&](PoolStats& group) {
    group.allocations.increase(1);
    group.active.increase(block.size);
    group.active_blocks.increase(1);
    group.requested.increase(block.requested);
  });
  if (block.size >= options_.max_split_size) stats_.oversize_allocations.increase(1);
}

// Whole pages of expandable segments can be given back any time, and never count as split.
void BlockMap::count_part_taken(const Block& block, Bytes rest, bool was_split) {
  if (block.expandable()) return;
  stats_.each_group(block.pool.kind(), [&](PoolStats& group) {
    if (was_split) {
      group.inactive_split.decrease(block.size);
      if (rest == Bytes{}) group.inactive_split_blocks.decrease(1);
    } else if (rest > Bytes{}) {
      group.inactive_split.increase(rest);
      group.inactive_split_blocks.increase(1);
    }
  });
}

void BlockMap::count_begin_free(const Block& block) {
  stats_.all.allocated.decrease(block.size);
  if (counted_ == Counted::Memory) return;
  stats_.pool(block.pool.kind()).allocated.decrease(block.size);
  stats_.each_group(block.pool.kind(), [](PoolStats& group) { group.allocations.decrease(1); });
  if (block.size >= options_.max_split_size) stats_.oversize_allocations.decrease(1);
}

void BlockMap::count_free(const Block& block, Bytes size, const Merged& merged) {
  stats_.each_group(block.pool.kind(), [&](PoolStats& group) {
    group.active.decrease(size);
    group.active_blocks.decrease(1);
    group.requested.decrease(block.requested);
    if (block.expandable()) return;
    group.inactive_split.decrease(merged.size);
    group.inactive_split_blocks.decrease(merged.blocks);
    if (!block.split()) return;
    group.inactive_split.increase(block.size);
    group.inactive_split_blocks.increase(1);
  });
}

}  // namespace tidemark::sim
