#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/address.hpp"
#include "sim/units.hpp"

namespace tidemark {

using BlockId = Id<struct BlockKind>;  ///< a block of one allocator, from malloc to free

/// A free block as the search for the best fit sees it.
struct FreeBlock {
  Bytes size;
  Address address;
  BlockId block;

  friend bool operator==(const FreeBlock&, const FreeBlock&) = default;
};

/// The free blocks of one stream in one pool, ordered by size, then address.
///
/// A list of short sorted chunks. At the few hundred to few thousand free blocks of a training process, a search
/// touches a handful of cache lines; nothing is allocated once the set has been at its largest; and it is a value.
class FreeBlocks {
 public:
  /// A place in the order. Any insert or erase invalidates it.
  struct Position {
    std::uint32_t rank = 0;  // of the chunk
    std::uint32_t slot = 0;  // within the chunk

    friend bool operator==(Position, Position) = default;
  };

  FreeBlocks();

  /// The smallest block of at least `size`; of equal ones, the one at the lowest address.
  [[nodiscard]] std::optional<Position> best_fit(Bytes size) const;
  /// The neighbours of a place in the order.
  [[nodiscard]] std::optional<Position> next(Position position) const;
  [[nodiscard]] std::optional<Position> previous(Position position) const;
  /// The block that comes last.
  [[nodiscard]] std::optional<Position> last() const;
  [[nodiscard]] const FreeBlock& at(Position position) const { return chunk(position.rank).blocks[position.slot]; }

  void insert(const FreeBlock& block);
  void erase(Position position);
  /// Erases the block at `address`, which is there with this size.
  void erase(Bytes size, Address address);

  [[nodiscard]] std::size_t size() const { return size_; }

  /// Calls visit(const FreeBlock&) for each, in order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::uint32_t rank = 0; rank < fences_.size(); ++rank) {
      for (std::uint32_t slot = 0; slot < chunk(rank).count; ++slot) visit(chunk(rank).blocks[slot]);
    }
  }

 private:
  static constexpr std::uint32_t capacity = 32;

  struct Chunk {
    std::uint32_t count = 0;
    std::array<FreeBlock, capacity> blocks;
  };

  // The chunk of rank r holds what is above the fence of r - 1 and not above its own. The last fence is above all.
  struct Fence {
    Bytes size;
    Address address;
    std::uint32_t chunk = 0;
  };

  [[nodiscard]] const Chunk& chunk(std::uint32_t rank) const { return chunks_[fences_[rank].chunk]; }
  [[nodiscard]] Chunk& chunk(std::uint32_t rank) { return chunks_[fences_[rank].chunk]; }
  [[nodiscard]] Position lower_bound(Bytes size, Address address) const;
  void split(std::uint32_t rank);
  void merge_with_next(std::uint32_t rank);

  std::vector<Fence> fences_;
  std::vector<Chunk> chunks_;
  std::vector<std::uint32_t> idle_chunks_;
  std::size_t size_ = 0;
};

}  // namespace tidemark
