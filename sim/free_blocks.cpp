#include "sim/free_blocks.hpp"

#include <algorithm>

#include "sim/ensure.hpp"

namespace tidemark {
namespace {

// The first of the sorted blocks that is not before one of that size and address.
std::uint32_t place_of(const std::vector<FreeBlock>& bin, Bytes size, Address address) {
  const auto precedes = [&](const FreeBlock& b) { return b.size != size ? b.size < size : b.address < address; };
  // Most bins hold a few.
  constexpr std::size_t few = 8;
  if (bin.size() <= few) {
    std::uint32_t place = 0;
    while (place < bin.size() && precedes(bin[place])) ++place;
    return place;
  }
  return static_cast<std::uint32_t>(std::partition_point(bin.begin(), bin.end(), precedes) - bin.begin());
}

}  // namespace

std::optional<std::uint32_t> FreeBlocks::bin_from(std::uint32_t bin) const {
  if (bin >= bin_count) return std::nullopt;
  std::uint32_t word = bin / 64;
  std::uint64_t left = holds_[word] & (~std::uint64_t{0} << (bin % 64));
  while (left == 0) {
    if (++word == words) return std::nullopt;
    left = holds_[word];
  }
  return word * 64 + static_cast<std::uint32_t>(std::countr_zero(left));
}

std::optional<std::uint32_t> FreeBlocks::bin_before(std::uint32_t bin) const {
  for (std::uint32_t b = bin; b-- > 0;)
    if (!bins_[b].empty()) return b;
  return std::nullopt;
}

std::optional<FreeBlocks::Position> FreeBlocks::best_fit(Bytes size) const {
  const std::uint32_t its = bin_of(size);
  if (!bins_[its].empty()) {
    const std::uint32_t slot = place_of(bins_[its], size, Address{0});
    if (slot < bins_[its].size()) return Position{its, slot};
  }
  if (const auto larger = bin_from(its + 1)) return Position{*larger, 0};
  return std::nullopt;
}

std::optional<FreeBlocks::Position> FreeBlocks::next(Position position) const {
  if (position.slot + 1 < bins_[position.bin].size()) return Position{position.bin, position.slot + 1};
  if (const auto after = bin_from(position.bin + 1)) return Position{*after, 0};
  return std::nullopt;
}

std::optional<FreeBlocks::Position> FreeBlocks::previous(Position position) const {
  if (position.slot > 0) return Position{position.bin, position.slot - 1};
  if (const auto before = bin_before(position.bin))
    return Position{*before, static_cast<std::uint32_t>(bins_[*before].size()) - 1};
  return std::nullopt;
}

std::optional<FreeBlocks::Position> FreeBlocks::last() const {
  if (const auto bin = bin_before(bin_count)) return Position{*bin, static_cast<std::uint32_t>(bins_[*bin].size()) - 1};
  return std::nullopt;
}

void FreeBlocks::insert(const FreeBlock& block) {
  const std::uint32_t its = bin_of(block.size);
  Bin& bin = bins_[its];
  bin.insert(bin.begin() + place_of(bin, block.size, block.address), block);
  holds_[its / 64] |= std::uint64_t{1} << (its % 64);
  ++size_;
}

void FreeBlocks::erase(Position position) {
  Bin& bin = bins_[position.bin];
  bin.erase(bin.begin() + position.slot);
  if (bin.empty()) holds_[position.bin / 64] &= ~(std::uint64_t{1} << (position.bin % 64));
  --size_;
}

void FreeBlocks::erase(Bytes size, Address address) {
  const std::uint32_t its = bin_of(size);
  const Position position{its, place_of(bins_[its], size, address)};
  ensure(position.slot < bins_[its].size() && at(position).address == address && at(position).size == size,
         "a free block is in the set of its stream and pool");
  erase(position);
}

}  // namespace tidemark
