// Requests and returns: the fast path. The rest of BlockMap is in block_expansion.cpp, block_release.cpp and
// block_layout.cpp.
#include "sim/block_map.hpp"

#include <algorithm>

#include "sim/ensure.hpp"

namespace tidemark {

BlockMap::BlockMap(const AllocatorOptions& options)
    : options_(options),
      plain_(!options.expandable_segments && options.max_split_size == AllocatorOptions::unlimited),
      collects_(options.collects_garbage()) {
  mempool({});
}

std::optional<BlockId> BlockMap::take_best_fit(const BlockRequest& request) {
  StreamBlocks& home = blocks_of(request.pool, request.stream);
  if (collects_) ++pools_[request.pool.index].searches;
  std::optional<FreeBlocks::Position> fit = home.free.best_fit(request.size);
  if (fit && !plain_) fit = other_fit(home.free, *fit, request);
  if (!fit) return std::nullopt;
  const BlockId id = home.free.at(*fit).block;
  home.free.erase(*fit);
  take(id, request, home);
  return id;
}

bool BlockMap::has_fit(const BlockRequest& request) const {
  const StreamBlocks* const home = find_blocks_of(request.pool, request.stream);
  if (home == nullptr) return false;
  const std::optional<FreeBlocks::Position> fit = home->free.best_fit(request.size);
  return fit && (plain_ || other_fit(home->free, *fit, request));
}

// What get_free_block makes of the smallest block that fits. Only the one candidate that remains is looked at.
std::optional<FreeBlocks::Position> BlockMap::other_fit(const FreeBlocks& free, FreeBlocks::Position fit,
                                                        const BlockRequest& request) const {
  const auto at = [&](FreeBlocks::Position position) -> const Block& { return block(free.at(position).block); };
  if (at(fit).expandable() && request.expandable) {
    // A block before unmapped pages counts with what it can grow to: real holes come first.
    const auto can_become = [&](const Block& b) {
      const bool grows = b.next.valid() && block(b.next).state == BlockState::Unmapped;
      return grows ? b.size + block(b.next).size : b.size;
    };
    for (auto next = free.next(fit); next && at(fit).expandable() && can_become(at(*next)) < can_become(at(fit));
         next = free.next(fit))
      fit = *next;
  }
  // Expandable segments are off, for now or for this pool: theirs are passed over.
  while (at(fit).expandable() && !request.expandable) {
    const std::optional<FreeBlocks::Position> next = free.next(fit);
    if (!next) return std::nullopt;
    fit = *next;
  }
  const Bytes size = at(fit).size;
  const bool oversize_request = request.size >= options_.max_split_size;
  if (!oversize_request && size >= options_.max_split_size) return std::nullopt;
  if (oversize_request && size - request.size >= options_.max_non_split_rounding) return std::nullopt;
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

// The block is free and in no set. It keeps its low part; what is left over becomes a free block behind it.
void BlockMap::take(BlockId id, const BlockRequest& request, StreamBlocks& home) {
  const Bytes remaining = block(id).size - request.size;
  const bool was_split = block(id).split();
  const bool counts_as_split = !block(id).expandable();  // whole pages of others can be given back any time
  if (cuts(block(id), request)) {
    const Block& whole = block(id);
    const BlockId next = whole.next;
    const BlockId rest = new_block({.address = whole.address + request.size,
                                    .size = remaining,
                                    .requested = {},
                                    .previous = id,
                                    .next = next,
                                    .stream = request.stream,
                                    .pool = request.pool,
                                    .expansion = whole.expansion});
    if (next.valid()) blocks_[next.index()].previous = rest;
    Block& taken = blocks_[id.index()];
    taken.next = rest;
    taken.size = request.size;
    insert_free(home, rest);
    if (counts_as_split) {
      stats_.each_group(request.pool.kind(), [&](PoolStats& group) {
        if (was_split) {
          group.inactive_split.decrease(request.size);
        } else {
          group.inactive_split.increase(remaining);
          group.inactive_split_blocks.increase(1);
        }
      });
    }
  } else if (was_split && counts_as_split) {
    stats_.each_group(request.pool.kind(), [&](PoolStats& group) {
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
  count_begin_free(block(id));
  make_free(id);
}

void BlockMap::begin_free(BlockId id) {
  ensure(id.valid() && id.index() < blocks_.size() && block(id).in_use && block(id).state == BlockState::Allocated,
         "a block is freed once, after it was allocated");
  count_begin_free(block(id));
  blocks_[id.index()].state = BlockState::PendingFree;
}

void BlockMap::finish_free(BlockId id) {
  ensure(block(id).state == BlockState::PendingFree, "a free is finished once, after it began");
  make_free(id);
}

void BlockMap::make_free(BlockId id) {
  Block& freed = blocks_[id.index()];
  const Bytes size = freed.size;
  StreamBlocks& home = blocks_of(freed.pool, freed.stream);
  std::int64_t merged = 0;
  Bytes merged_size;
  for (const BlockId neighbour : {freed.previous, freed.next}) {
    if (!neighbour.valid() || block(neighbour).state != BlockState::Free) continue;
    merged_size += absorb(freed, neighbour, home.free);
    ++merged;
  }
  freed.state = BlockState::Free;
  if (const BlockId previous = freed.previous; previous.valid()) blocks_[previous.index()].next = id;
  if (const BlockId next = freed.next; next.valid()) blocks_[next.index()].previous = id;
  insert_free(home, id);

  const bool split = freed.split();
  for (PoolStats* group : {&stats_.all, &stats_.pool(freed.pool.kind())}) {
    group->active.decrease(size);
    group->active_blocks.decrease(1);
    group->requested.decrease(freed.requested);
    if (freed.expandable()) continue;
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

void BlockMap::insert_free(StreamBlocks& home, BlockId id) {
  const Block& freed = block(id);
  home.free.insert({freed.size, freed.address, id});
  if (!collects_) return;
  if (free_since_.size() <= id.index()) free_since_.resize(blocks_.capacity());
  free_since_[id.index()] = pools_[freed.pool.index].searches;
}

BlockMap::StreamBlocks& BlockMap::blocks_of(PoolId id, StreamId stream) {
  std::vector<StreamBlocks>& streams = pools_[id.index].streams;
  for (StreamBlocks& candidate : streams) {
    if (candidate.stream == stream) return candidate;
  }
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
  stats_.each_group(block.pool.kind(), [&](PoolStats& group) {
    group.allocated.increase(block.size);
    group.allocations.increase(1);
    group.active.increase(block.size);
    group.active_blocks.increase(1);
    group.requested.increase(block.requested);
  });
  if (block.size >= options_.max_split_size) stats_.oversize_allocations.increase(1);
}

void BlockMap::count_begin_free(const Block& block) {
  stats_.each_group(block.pool.kind(), [&](PoolStats& group) {
    group.allocated.decrease(block.size);
    group.allocations.decrease(1);
  });
  if (block.size >= options_.max_split_size) stats_.oversize_allocations.decrease(1);
}

}  // namespace tidemark
