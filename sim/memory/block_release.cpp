// What goes back to the device, and in what order: release_blocks, release_available_cached_blocks and
// garbage_collect_cached_blocks of c10/cuda/CUDACachingAllocator.cpp.
#include <algorithm>

#include "sim/memory/block_map.hpp"

namespace tidemark::sim {

std::vector<Release> BlockMap::release_unused() {
  std::vector<Release> released = release_unused(pool(0, PoolKind::Large));
  const std::vector<Release> small = release_unused(pool(0, PoolKind::Small));
  released.insert(released.end(), small.begin(), small.end());
  return released;
}

std::vector<Release> BlockMap::release_unused_private() {
  std::vector<Release> released;
  std::vector<std::size_t> unused;
  for (std::size_t i = 1; i < mempools_.size(); ++i)
    if (mempools_[i].users == 0) unused.push_back(i);
  std::sort(unused.begin(), unused.end(),
            [&](std::size_t a, std::size_t b) { return mempools_[a].id < mempools_[b].id; });
  for (const std::size_t mempool : unused) {
    for (const PoolKind kind : {PoolKind::Small, PoolKind::Large}) {
      const std::vector<Release> of_pool = release_unused(pool(mempool, kind));
      released.insert(released.end(), of_pool.begin(), of_pool.end());
    }
  }
  return released;
}

// Unmapping changes the set of free blocks, so it comes after the walk.
std::vector<Release> BlockMap::release_unused(PoolId pool) {
  std::vector<BlockId> whole_segments, with_pages;
  for (const StreamBlocks& of_stream : pools_[pool.index].streams) {
    of_stream.free.for_each([&](const FreeBlock& candidate) {
      const Block& found = block(candidate.block);
      if (found.expandable()) {
        with_pages.push_back(candidate.block);
      } else if (!found.split()) {
        whole_segments.push_back(candidate.block);
      }
    });
  }
  std::vector<Release> released;
  for (const BlockId id : whole_segments) released.push_back(release_segment(id));
  for (const BlockId id : with_pages) unmap_whole_pages(id, released);
  return released;
}

Release BlockMap::release_segment(BlockId id) {
  const Block& segment = block(id);
  const Release released{Release::Kind::Segment, segment.address, segment.size};
  stats_.each_group(segment.pool.kind(), [&](PoolStats& group) {
    group.segments.decrease(1);
    group.reserved.decrease(segment.size);
  });
  if (segment.size >= options_.max_split_size) stats_.oversize_segments.decrease(1);
  ++stats_.device_frees;
  blocks_of(segment.pool, segment.stream).free.erase(segment.size, segment.address);
  recycle(id);
  return released;
}

std::vector<Release> BlockMap::release_oversize(const BlockRequest& request, bool& enough) {
  std::vector<Release> released;
  enough = false;
  if (options_.max_split_size == AllocatorOptions::unlimited) return released;
  const FreeBlocks& free = blocks_of(request.pool, request.stream).free;
  const Bytes target = std::max(request.size, options_.max_split_size);
  // A part of a segment can be this large where a picture was restored that other options had made.
  const auto can_go = [&](const FreeBlock* b) { return !block(b->block).expandable() && !block(b->block).split(); };

  const FreeBlock* const fit = free.best_fit(target);
  if (fit != nullptr && !block(fit->block).expandable()) {
    enough = can_go(fit);
    if (enough) released.push_back(release_segment(fit->block));
    return released;
  }
  std::vector<BlockId> largest_first;
  Bytes found;
  for (const FreeBlock* place = fit != nullptr ? free.previous(fit) : free.last();
       place != nullptr && found < target && place->size >= options_.max_split_size; place = free.previous(place)) {
    if (!can_go(place)) continue;
    found += place->size;
    largest_first.push_back(place->block);
  }
  for (const BlockId id : largest_first) released.push_back(release_segment(id));
  enough = found >= target;
  return released;
}

std::vector<Release> BlockMap::release_old(Bytes target) {
  struct Candidate {
    BlockId block;
    std::int64_t age = 0;
    bool released = false;
  };
  // Free parts of expandable segments are never alone in them, so that all candidates can be released.
  std::vector<Candidate> candidates;
  std::int64_t total_age = 0;
  for (const StreamBlocks& of_stream : pools_[pool(0, PoolKind::Large).index].streams) {
    of_stream.free.for_each([&](const FreeBlock& free) {
      if (block(free.block).split() || block(free.block).expandable()) return;
      candidates.push_back({free.block, age(free.block)});
      total_age += candidates.back().age;
    });
  }

  std::vector<Release> released;
  auto left = static_cast<std::int64_t>(candidates.size());
  bool progress = true;
  while (target > Bytes{} && progress && left > 0) {
    const double mean = static_cast<double>(total_age) / static_cast<double>(left);
    progress = false;
    for (Candidate& candidate : candidates) {  // all that are old enough, even beyond the target
      if (candidate.released || static_cast<double>(candidate.age) < mean) continue;
      candidate.released = progress = true;
      total_age -= candidate.age;
      --left;
      target -= block(candidate.block).size;
      released.push_back(release_segment(candidate.block));
    }
  }
  return released;
}

std::int64_t BlockMap::age(BlockId id) const { return pools_[block(id).pool.index].searches - free_since_[id.index()]; }

}  // namespace tidemark::sim
