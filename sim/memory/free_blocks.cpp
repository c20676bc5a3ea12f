#include "sim/memory/free_blocks.hpp"

namespace tidemark::sim {

const FreeBlock* FreeBlocks::next(const FreeBlock* block) const {
  const std::uint32_t its = bin_of(block->size);
  if (block != bins_[its].data()) return block - 1;
  const std::uint32_t after = bin_from(its + 1);
  return after == bin_count ? nullptr : &bins_[after].back();
}

const FreeBlock* FreeBlocks::previous(const FreeBlock* block) const {
  const std::uint32_t its = bin_of(block->size);
  return block == &bins_[its].back() ? last_before(its) : block + 1;
}

// Nearly always it is one of the last: what was taken last tends to come back first.
const FreeBlock* FreeBlocks::end_from(const Bin& bin, Bytes size, Address address) {
  constexpr std::ptrdiff_t few = 8;
  const FreeBlock* const begin = bin.data();
  const FreeBlock* end = begin + bin.size();
  const FreeBlock* const few_before = end - begin > few ? end - few : begin;
  while (end != few_before && precedes(end[-1], size, address)) --end;
  if (end != few_before || end == begin) return end;
  return std::partition_point(begin, end, [&](const FreeBlock& b) { return !precedes(b, size, address); });
}

const FreeBlock* FreeBlocks::find(const Bin& bin, Bytes size, Address address) {
  const FreeBlock* const end = end_from(bin, size, address);
  ensure(end != bin.data() && end[-1].size == size && end[-1].address == address,
         "a free block is in the set of its stream and pool");
  return end - 1;
}

void FreeBlocks::insert_within(Bin& bin, Bytes size, Address address, BlockId block) {
  const auto slot = end_from(bin, size, address) - bin.data();
  bin.emplace_back();
  std::move_backward(bin.begin() + slot, bin.end() - 1, bin.end());
  FreeBlock& inserted = bin[static_cast<std::size_t>(slot)];
  inserted.size = size;
  inserted.address = address;
  inserted.block = block;
}

const FreeBlock* FreeBlocks::last_before(std::uint32_t bin) const {
  while (bin-- > 0)
    if (!bins_[bin].empty()) return &bins_[bin].front();
  return nullptr;
}

std::size_t FreeBlocks::size() const {
  std::size_t sum = 0;
  for (const Bin& bin : bins_) sum += bin.size();
  return sum;
}

}  // namespace tidemark::sim
