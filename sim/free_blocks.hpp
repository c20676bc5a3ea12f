#pragma once

#include <array>
#include <bit>
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
/// Bins of sizes within an eighth of each other, each a short sorted array, and a bit for each bin that holds any: at
/// the few hundred to few thousand free blocks of a training process, a search looks at a handful of blocks. Nothing is
/// allocated once bins have been at their largest; and it is a value.
class FreeBlocks {
 public:
  /// A place in the order. Any insert or erase invalidates it.
  struct Position {
    std::uint32_t bin = 0;
    std::uint32_t slot = 0;  // within the bin

    friend bool operator==(Position, Position) = default;
  };

  /// The smallest block of at least `size`; of equal ones, the one at the lowest address.
  [[nodiscard]] std::optional<Position> best_fit(Bytes size) const;
  /// The neighbours of a place in the order.
  [[nodiscard]] std::optional<Position> next(Position position) const;
  [[nodiscard]] std::optional<Position> previous(Position position) const;
  /// The block that comes last.
  [[nodiscard]] std::optional<Position> last() const;
  [[nodiscard]] const FreeBlock& at(Position position) const { return bins_[position.bin][position.slot]; }

  void insert(const FreeBlock& block);
  void erase(Position position);
  /// Erases the block at `address`, which is there with this size.
  void erase(Bytes size, Address address);

  [[nodiscard]] std::size_t size() const { return size_; }

  /// Calls visit(const FreeBlock&) for each, in order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Bin& bin : bins_)
      for (const FreeBlock& block : bin) visit(block);
  }

 private:
  using Bin = std::vector<FreeBlock>;

  static constexpr std::uint32_t exact = 16;  // sizes of so few units of 512 B have a bin each
  static constexpr std::uint32_t per_octave = 8;
  static constexpr std::uint32_t bin_count = exact + (64 - 9 - 4) * per_octave;
  static constexpr std::uint32_t words = (bin_count + 63) / 64;

  // Of larger sizes, none is lower.
  [[nodiscard]] static std::uint32_t bin_of(Bytes size) {
    const std::uint64_t units = static_cast<std::uint64_t>(size.count()) >> 9U;
    if (units < exact) return static_cast<std::uint32_t>(units);
    const auto octave = static_cast<std::uint32_t>(std::bit_width(units)) - 1;  // at least 4
    return exact + (octave - 4) * per_octave + static_cast<std::uint32_t>((units >> (octave - 3)) & (per_octave - 1));
  }
  [[nodiscard]] std::optional<std::uint32_t> bin_from(std::uint32_t bin) const;    // not empty, at or after
  [[nodiscard]] std::optional<std::uint32_t> bin_before(std::uint32_t bin) const;  // not empty

  std::array<Bin, bin_count> bins_;
  std::array<std::uint64_t, words> holds_{};  // by bin, a bit
  std::size_t size_ = 0;
};

}  // namespace tidemark
