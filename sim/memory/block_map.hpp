#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "sim/base/address.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/allocator_options.hpp"
#include "sim/memory/allocator_stats.hpp"
#include "sim/memory/free_blocks.hpp"

namespace tidemark::sim {

/// PendingFree: given back by the program, but other streams may still use it.
enum class BlockState : std::uint8_t { Free, Allocated, PendingFree, Unmapped };

/// A block in a picture of an allocator. `requested` is zero for a free one.
struct BlockLayout {
  Address address;
  Bytes size;
  Bytes requested;
  BlockState state = BlockState::Free;

  friend bool operator==(const BlockLayout&, const BlockLayout&) = default;
};

/// A segment, or a mapped range of an expandable one, and the blocks that tile it, in order of address.
struct SegmentLayout {
  Address address;
  Bytes size;
  StreamId stream;
  PoolKind pool = PoolKind::Small;
  std::vector<BlockLayout> blocks;
  bool expandable = false;
  MempoolId mempool = {};

  friend bool operator==(const SegmentLayout&, const SegmentLayout&) = default;
};

/// The small or the large half of the default pools or of a private pool, in order of creation.
struct PoolId {
  std::uint16_t index = 0;

  [[nodiscard]] PoolKind kind() const { return index % 2 == 0 ? PoolKind::Small : PoolKind::Large; }
  [[nodiscard]] std::size_t mempool() const { return index / 2; }
  friend bool operator==(PoolId, PoolId) = default;
};

/// A request as the caching allocator sees it: what was asked, and the block that takes.
struct BlockRequest {
  Bytes requested;
  Bytes size;
  PoolId pool;
  StreamId stream;
  bool expandable = false;  ///< what it takes from the device is pages of an expandable segment
};

/// What the device gets back.
struct Release {
  enum class Kind : std::uint8_t { Segment, Pages, AddressSpace };

  Kind kind = Kind::Segment;
  Address address;
  Bytes size;

  friend bool operator==(const Release&, const Release&) = default;
};

/// All segments of a caching allocator, the blocks they are cut into, and which of those are free. Everything the
/// allocator does apart from asking the device: best fit, splitting, merging, what to give back, statistics.
class BlockMap {
 public:
  struct Block {
    Address address;
    Bytes size;
    Bytes requested;   // meaningless unless allocated
    BlockId previous;  // neighbours in the segment
    BlockId next;
    StreamId stream;
    PoolId pool;
    BlockState state = BlockState::Free;
    bool in_use = true;           // false: a slot waiting for its next block
    std::int32_t expansion = -1;  // the expandable segment it belongs to, if it does

    [[nodiscard]] bool expandable() const { return expansion >= 0; }
    [[nodiscard]] bool split() const { return previous.valid() || next.valid(); }
    /// Whether it may become part of an allocation.
    [[nodiscard]] bool idle() const { return state == BlockState::Free || state == BlockState::Unmapped; }
  };

  explicit BlockMap(const AllocatorOptions& options = {}, Counted counted = Counted::Everything);

  // -- requests: block_map.cpp ----------------------------------------------------------------------------------------

  /// Hands out the best fit among the free blocks. Invalid: there is none.
  BlockId take_best_fit(const BlockRequest& request);
  /// Whether there is one.
  [[nodiscard]] bool has_fit(const BlockRequest& request) const;
  /// Adds a segment that the device just gave for `request`, and hands out the block at its start.
  BlockId take_from_segment(Address address, Bytes size, const BlockRequest& request);
  /// Frees an allocated block and merges it with its free neighbours.
  void give_back(BlockId block);
  /// The same in two parts, for a block that other streams may still use: it counts as active in between.
  void begin_free(BlockId block);
  void finish_free(BlockId block);

  // -- expandable segments: block_expansion.cpp -----------------------------------------------------------------------

  struct Range {
    Address address;
    Bytes size;
  };
  /// The lowest block from which on a block for `request` could be made by mapping pages. Invalid: the address space
  /// that is reserved has no room.
  [[nodiscard]] BlockId find_expandable(const BlockRequest& request) const;
  /// Adds address space without memory.
  BlockId add_address_space(Address address, Bytes size, const BlockRequest& request);
  /// The pages that are to be mapped next, so that the block becomes as large as the request; none once it is.
  [[nodiscard]] std::optional<Range> next_pages(BlockId candidate, const BlockRequest& request) const;
  /// They are mapped. Returns the block that now begins where the candidate did.
  BlockId map_next_pages(BlockId candidate, Bytes size);
  /// Hands out a free block that has grown to at least the size of the request.
  BlockId take_expanded(BlockId block, const BlockRequest& request);

  // -- giving back to the device: block_release.cpp -------------------------------------------------------------------

  /// Every segment of the default pools that is one free block, and every free page: the large pool first, then by
  /// stream, size and address (release_cached_blocks).
  std::vector<Release> release_unused();
  /// The same for private pools that nothing uses any more.
  std::vector<Release> release_unused_private();
  /// Oversize segments of the request's pool and stream: one that is large enough, or the largest ones until their
  /// sum is. `enough` says whether it is (release_available_cached_blocks).
  std::vector<Release> release_oversize(const BlockRequest& request, bool& enough);
  /// Segments of the large default pool that have been free for longer than the average, until `target` bytes are
  /// found (garbage_collect_cached_blocks).
  std::vector<Release> release_old(Bytes target);

  // -- pools ----------------------------------------------------------------------------------------------------------

  struct Mempool {
    MempoolId id;
    std::int64_t users = 0;  // captures and graphs; memory of a pool without any may be given back
    bool use_on_oom = false;
    bool no_split = false;
  };
  /// The pool's place among `mempools`. It is there from now on.
  std::size_t mempool(MempoolId id);
  [[nodiscard]] const std::vector<Mempool>& mempools() const { return mempools_; }
  [[nodiscard]] Mempool& mempool_at(std::size_t index) { return mempools_[index]; }
  [[nodiscard]] static PoolId pool(std::size_t mempool, PoolKind kind) {
    return {static_cast<std::uint16_t>(2 * mempool + (kind == PoolKind::Large ? 1 : 0))};
  }

  // -- pictures: block_layout.cpp -------------------------------------------------------------------------------------

  /// Adds segments as they were in some other process; returns their allocated blocks, in the order given.
  /// Blocks tile their segment, no two neighbours are free, and none awaits other streams. Mapped ranges of an
  /// expandable segment lie in the address space that was added before for their pool and stream.
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
    std::map<Address, BlockId> unmapped;  // of expandable segments
  };
  struct Pool {
    std::vector<StreamBlocks> streams;  // in order; a process has a handful
    std::int64_t searches = 0;          // the clock of garbage collection
  };

  [[nodiscard]] StreamBlocks& blocks_of(PoolId pool, StreamId stream) {
    for (StreamBlocks& candidate : pools_[pool.index].streams)
      if (candidate.stream == stream) return candidate;
    return add_stream(pool, stream);
  }
  StreamBlocks& add_stream(PoolId pool, StreamId stream);
  [[nodiscard]] const StreamBlocks* find_blocks_of(PoolId pool, StreamId stream) const;
  BlockId take_other_fit(FreeBlocks& free, const BlockRequest& request) const;
  [[nodiscard]] const FreeBlock* other_fit(const FreeBlocks& free, const FreeBlock* fit,
                                           const BlockRequest& request) const;
  [[nodiscard]] bool cuts(const Block& block, const BlockRequest& request) const;
  void cut(BlockId block, Bytes size, StreamBlocks& home);
  [[nodiscard]] BlockId new_block();
  [[nodiscard]] BlockId new_block(const Block& block);
  void recycle(BlockId block);
  void link(BlockId before, BlockId after);
  void insert_free(StreamBlocks& home, BlockId block);
  void note_free_since(BlockId block);
  void take(BlockId block, const BlockRequest& request, StreamBlocks& home);
  void make_free(BlockId block);
  [[nodiscard]] bool is_free(BlockId block) const;
  Bytes absorb(Block& block, BlockId neighbour, FreeBlocks& free);
  void merge_unmapped(BlockId block, StreamBlocks& home);
  void count_segment(PoolId pool, Bytes size);
  void count_take(const Block& block);
  void count_part_taken(const Block& block, Bytes rest, bool was_split);
  void count_begin_free(const Block& block);
  struct Merged {
    std::int64_t blocks = 0;
    Bytes size;
  };
  void count_free(const Block& block, Bytes size, const Merged& merged);

  std::vector<Release> release_unused(PoolId pool);
  Release release_segment(BlockId block);
  void unmap_whole_pages(BlockId block, std::vector<Release>& released);
  [[nodiscard]] std::int64_t age(BlockId block) const;
  struct Surroundings {
    BlockId before, after;
    std::int32_t expansion = -1;
  };
  Surroundings cut_out(Range range, StreamBlocks& home);
  void restore_state(BlockId block, bool counts_as_split);

  /// Address space of an expandable segment. Its blocks tile it.
  struct Expansion {
    Address address;
    Bytes size;
    Bytes page;
    bool in_use = true;
  };

  AllocatorOptions options_;
  Counted counted_;
  bool plain_ = true;      // the first fit is the best one
  bool collects_ = false;  // garbage
  std::vector<Pool> pools_;
  std::vector<Mempool> mempools_;
  std::vector<Expansion> expansions_;
  std::vector<Block> blocks_;
  std::vector<BlockId> idle_blocks_;
  std::vector<std::int64_t> free_since_;  // by block, in searches of its pool; only where garbage is collected
  AllocatorStats stats_;
};

}  // namespace tidemark::sim
