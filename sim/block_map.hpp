#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/address.hpp"
#include "sim/allocator_options.hpp"
#include "sim/allocator_stats.hpp"
#include "sim/free_blocks.hpp"
#include "sim/units.hpp"

namespace tidemark {

enum class BlockState : std::uint8_t { Free, Allocated };

/// A block in a picture of an allocator. `requested` is zero for a free one.
struct BlockLayout {
  Address address;
  Bytes size;
  Bytes requested;
  BlockState state = BlockState::Free;

  friend bool operator==(const BlockLayout&, const BlockLayout&) = default;
};

/// A segment and the blocks that tile it, in order of address.
struct SegmentLayout {
  Address address;
  Bytes size;
  StreamId stream;
  PoolKind pool = PoolKind::Small;
  std::vector<BlockLayout> blocks;

  friend bool operator==(const SegmentLayout&, const SegmentLayout&) = default;
};

/// A request as the caching allocator sees it: what was asked, and the block that takes.
struct BlockRequest {
  Bytes requested;
  Bytes size;
  PoolKind pool = PoolKind::Small;
  StreamId stream;
};

/// All segments of a caching allocator, the blocks they are cut into, and which of those are free. Everything the
/// allocator does apart from asking the device: best fit, splitting, merging, statistics.
class BlockMap {
 public:
  struct Block {
    Address address;
    Bytes size;
    Bytes requested;   // meaningless unless allocated
    BlockId previous;  // neighbours in the segment
    BlockId next;
    StreamId stream;
    PoolKind pool = PoolKind::Small;
    BlockState state = BlockState::Free;
    bool in_use = true;  // false: a slot waiting for its next block

    [[nodiscard]] bool split() const { return previous.valid() || next.valid(); }
  };

  /// Hands out the best fit among the free blocks, if there is one.
  std::optional<BlockId> take_best_fit(const BlockRequest& request);
  /// Adds a segment that the device just gave for `request`, and hands out the block at its start.
  BlockId take_from_segment(Address address, Bytes size, const BlockRequest& request);
  /// Frees an allocated block and merges it with its free neighbours.
  void give_back(BlockId block);

  struct Segment {
    Address address;
    Bytes size;
  };
  /// Drops every segment that is one free block: the large pool first, then by stream, size and address.
  std::vector<Segment> drop_unused_segments();

  /// Adds segments as they were in some other process; returns their allocated blocks, in the order given.
  /// Blocks tile their segment, and no two neighbours are free.
  std::vector<BlockId> restore(const std::vector<SegmentLayout>& segments);
  /// All segments by address.
  [[nodiscard]] std::vector<SegmentLayout> layout() const;

  [[nodiscard]] const Block& block(BlockId id) const { return blocks_[id.index()]; }
  [[nodiscard]] const AllocatorStats& stats() const { return stats_; }
  [[nodiscard]] AllocatorStats& stats() { return stats_; }

 private:
  struct StreamBlocks {
    StreamId stream;
    FreeBlocks free;
  };
  using PoolBlocks = std::vector<StreamBlocks>;  // by stream; a process has a handful

  [[nodiscard]] FreeBlocks& free_blocks(PoolKind pool, StreamId stream);
  [[nodiscard]] BlockId new_block(const Block& block);
  void recycle(BlockId block);
  void take(BlockId block, const BlockRequest& request, FreeBlocks& free);
  Bytes absorb(Block& block, BlockId neighbour, FreeBlocks& free);
  void count_segment(PoolKind pool, Bytes size);
  void count_take(const Block& block);

  PoolBlocks small_;
  PoolBlocks large_;
  std::vector<Block> blocks_;
  std::vector<BlockId> idle_blocks_;
  AllocatorStats stats_;
};

}  // namespace tidemark
