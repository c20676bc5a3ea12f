#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/address.hpp"
#include "sim/base/ensure.hpp"
#include "sim/base/units.hpp"

namespace tidemark::sim {

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
/// Bins of sizes within a sixteenth of each other, and a bit for each bin that holds any. A bin is a short sorted
/// array, the first in order last, where blocks come and go: at the few hundred to few thousand free blocks of a
/// training process, a search looks at one block or two. Nothing is allocated once bins have been at their largest; and
/// it is a value.
class FreeBlocks {
 public:
  // Pointers hold until the next insert or erase.

  /// The smallest block of at least `size`; of equal ones, the one at the lowest address. Null: there is none.
  [[nodiscard]] const FreeBlock* best_fit(Bytes size) const { return place_of_fit(size).block; }
  /// Erases it. Invalid: there is none.
  BlockId take_best_fit(Bytes size) {
    const Place fit = place_of_fit(size);
    if (fit.block == nullptr) return {};
    const BlockId block = fit.block->block;
    erase(fit);
    return block;
  }
  /// The neighbours of a block in the order.
  [[nodiscard]] const FreeBlock* next(const FreeBlock* block) const;
  [[nodiscard]] const FreeBlock* previous(const FreeBlock* block) const;
  /// The block that comes last.
  [[nodiscard]] const FreeBlock* last() const { return last_before(bin_count); }

  void insert(Bytes size, Address address, BlockId block) {
    const std::uint32_t its = bin_of(size);
    Bin& bin = bins_[its];
    if (bin.empty() || !precedes(bin.back(), size, address)) {
      bin.push_back({size, address, block});
    } else {
      insert_within(bin, size, address, block);
    }
    holds_[its / 64] |= std::uint64_t{1} << (its % 64);
    words_ |= std::uint32_t{1} << (its / 64);
  }
  void erase(const FreeBlock* block) { erase({block, bin_of(block->size)}); }
  /// Erases the block at `address`, which is there with this size.
  void erase(Bytes size, Address address) {
    const std::uint32_t its = bin_of(size);
    const Bin& bin = bins_[its];
    ensure(!bin.empty(), "a free block is in the set of its stream and pool");
    const FreeBlock& last = bin.back();
    erase({last.address == address && last.size == size ? &last : find(bin, size, address), its});
  }

  [[nodiscard]] std::size_t size() const;

  /// Calls visit(const FreeBlock&) for each, in order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Bin& bin : bins_) std::for_each(bin.rbegin(), bin.rend(), visit);
  }

 private:
  using Bin = std::vector<FreeBlock>;  // in descending order
  struct Place {
    const FreeBlock* block = nullptr;
    std::uint32_t bin = 0;
  };

  static constexpr std::uint32_t per_octave = 16;                            // so few units of 512 B have a bin each
  static constexpr std::uint32_t bin_count = (64 - 9 - 4 + 1) * per_octave;  // the last is always empty
  static constexpr std::uint32_t words = (bin_count + 63) / 64;
  static_assert(words <= 32);

  // Of larger sizes, none is lower. A size of n octaves above the lowest has its leading bit and four more behind it.
  [[nodiscard]] static std::uint32_t bin_of(Bytes size) {
    const std::uint64_t units = static_cast<std::uint64_t>(size.count()) >> 9U;
    const auto above =
        static_cast<std::uint32_t>(std::countl_zero(std::uint64_t{per_octave}) - std::countl_zero(units | per_octave));
    return above * per_octave + static_cast<std::uint32_t>(units >> above);
  }

  [[nodiscard]] Place place_of_fit(Bytes size) const {
    const std::uint32_t its = bin_of(size);
    std::uint32_t bin = bin_from(its);
    if (bin == its && bins_[its].back().size < size) {
      const FreeBlock* const end = end_from(bins_[its], size, Address{0});
      if (end != bins_[its].data()) return {end - 1, its};
      bin = bin_from(its + 1);
    }
    if (bin == bin_count) return {};
    return {&bins_[bin].back(), bin};
  }

  // The first bin that is not empty, at or after.
  [[nodiscard]] std::uint32_t bin_from(std::uint32_t bin) const {
    std::uint32_t word = bin / 64;
    std::uint64_t left = holds_[word] & (~std::uint64_t{0} << (bin % 64));
    if (left == 0) {
      const std::uint32_t later = words_ & (~std::uint32_t{1} << word);
      if (later == 0) return bin_count;
      word = static_cast<std::uint32_t>(std::countr_zero(later));
      left = holds_[word];
    }
    return word * 64 + static_cast<std::uint32_t>(std::countr_zero(left));
  }
  [[nodiscard]] const FreeBlock* last_before(std::uint32_t bin) const;

  [[nodiscard]] static bool precedes(const FreeBlock& block, Bytes size, Address address) {
    return block.size != size ? block.size < size : block.address < address;
  }
  // The end of those in a bin that are at or after one of that size and address.
  [[nodiscard]] static const FreeBlock* end_from(const Bin& bin, Bytes size, Address address);
  [[nodiscard]] static const FreeBlock* find(const Bin& bin, Bytes size, Address address);
  static void insert_within(Bin& bin, Bytes size, Address address, BlockId block);

  void erase(Place place) {
    Bin& bin = bins_[place.bin];
    if (place.block == &bin.back()) {
      bin.pop_back();
    } else {
      bin.erase(bin.begin() + (place.block - bin.data()));
    }
    // Without branches: nothing in a history of requests says which erase empties a bin.
    std::uint64_t& word = holds_[place.bin / 64];
    word &= ~(std::uint64_t{bin.empty()} << (place.bin % 64));
    words_ &= ~(std::uint32_t{word == 0} << (place.bin / 64));
  }

  std::array<Bin, bin_count> bins_;
  std::array<std::uint64_t, words> holds_{};  // by bin, a bit
  std::uint32_t words_ = 0;                   // by word of those, whether it has any
};

}  // namespace tidemark::sim
