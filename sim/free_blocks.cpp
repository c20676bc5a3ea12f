#include "sim/free_blocks.hpp"

#include <algorithm>
#include <limits>

#include "sim/ensure.hpp"

namespace tidemark {
namespace {

__extension__ using Wide = unsigned __int128;

// (size, address) as one number: comparing two takes no branch. Which way a comparison goes is as good as random, so
// that a branch on it costs more than the rest of the search.
Wide wide(Bytes size, Address address) { return Wide{static_cast<std::uint64_t>(size.count())} << 64 | address.value; }

// How many of `count` > 0 sorted keys are below `key`.
template <class Key>
std::uint32_t count_below(const Key* keys, std::uint32_t count, Wide key) {
  std::uint32_t first = 0;
  while (count > 1) {
    const std::uint32_t half = count / 2;
    const Key& middle = keys[first + half - 1];
    const std::uint32_t below = wide(middle.size, middle.address) < key ? 1 : 0;
    first += half & (0 - below);  // half or nothing; compilers make a branch of ?:
    count -= half;
  }
  return first + (wide(keys[first].size, keys[first].address) < key ? 1 : 0);
}

}  // namespace

FreeBlocks::FreeBlocks()
    : fences_{{Bytes{std::numeric_limits<std::int64_t>::max()}, {std::numeric_limits<std::uint64_t>::max()}, 0}},
      chunks_(1) {}

FreeBlocks::Position FreeBlocks::lower_bound(Bytes size, Address address) const {
  const Wide key = wide(size, address);
  const std::uint32_t rank = count_below(fences_.data(), static_cast<std::uint32_t>(fences_.size()), key);
  const Chunk& home = chunk(rank);
  return {rank, home.count == 0 ? 0 : count_below(home.blocks.data(), home.count, key)};
}

std::optional<FreeBlocks::Position> FreeBlocks::best_fit(Bytes size) const {
  const Position position = lower_bound(size, Address{0});
  if (position.slot < chunk(position.rank).count) return position;
  // Only a lone chunk is ever empty, so the next one, if any, starts with the answer.
  if (position.rank + 1 < fences_.size()) return Position{position.rank + 1, 0};
  return std::nullopt;
}

void FreeBlocks::insert(const FreeBlock& block) {
  Position position = lower_bound(block.size, block.address);
  if (chunk(position.rank).count == capacity) {
    split(position.rank);
    position = lower_bound(block.size, block.address);
  }
  Chunk& home = chunk(position.rank);
  FreeBlock* const slot = home.blocks.data() + position.slot;
  std::move_backward(slot, home.blocks.data() + home.count, home.blocks.data() + home.count + 1);
  *slot = block;
  ++home.count;
  ++size_;
}

void FreeBlocks::erase(Position position) {
  Chunk& home = chunk(position.rank);
  FreeBlock* const slot = home.blocks.data() + position.slot;
  std::move(slot + 1, home.blocks.data() + home.count, slot);
  --home.count;
  --size_;
  // Empty chunks go; others join a neighbour if half a chunk then holds both, so that the next split is not near.
  const auto joins = [&](const Chunk& neighbour) {
    return home.count == 0 || home.count + neighbour.count <= capacity / 2;
  };
  const std::uint32_t rank = position.rank;
  if (rank + 1 < fences_.size() && joins(chunk(rank + 1))) {
    merge_with_next(rank);
  } else if (rank > 0 && joins(chunk(rank - 1))) {
    merge_with_next(rank - 1);
  }
}

void FreeBlocks::erase(Bytes size, Address address) {
  const Position position = lower_bound(size, address);
  ensure(position.slot < chunk(position.rank).count && at(position).address == address && at(position).size == size,
         "a free block is in the set of its stream and pool");
  erase(position);
}

void FreeBlocks::split(std::uint32_t rank) {
  std::uint32_t lower_chunk = 0;
  if (idle_chunks_.empty()) {
    lower_chunk = static_cast<std::uint32_t>(chunks_.size());
    chunks_.emplace_back();
  } else {
    lower_chunk = idle_chunks_.back();
    idle_chunks_.pop_back();
  }
  Chunk& upper = chunk(rank);
  Chunk& lower = chunks_[lower_chunk];
  lower.count = capacity / 2;
  upper.count = capacity - capacity / 2;
  std::copy_n(upper.blocks.begin(), lower.count, lower.blocks.begin());
  std::copy_n(upper.blocks.begin() + lower.count, upper.count, upper.blocks.begin());
  const FreeBlock& last = lower.blocks[lower.count - 1];
  fences_.insert(fences_.begin() + rank, {last.size, last.address, lower_chunk});
}

void FreeBlocks::merge_with_next(std::uint32_t rank) {
  Chunk& lower = chunk(rank);
  Chunk& upper = chunk(rank + 1);
  std::move_backward(upper.blocks.begin(), upper.blocks.begin() + upper.count,
                     upper.blocks.begin() + upper.count + lower.count);
  std::copy_n(lower.blocks.begin(), lower.count, upper.blocks.begin());
  upper.count += lower.count;
  lower.count = 0;
  idle_chunks_.push_back(fences_[rank].chunk);
  fences_.erase(fences_.begin() + rank);
}

}  // namespace tidemark
