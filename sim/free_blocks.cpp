#include "sim/free_blocks.hpp"

#include <algorithm>
#include <limits>

#include "sim/ensure.hpp"

namespace tidemark {
namespace {

struct Key {
  Bytes size;
  Address address;
};

// How many of the `count` sorted entries precede `key`.
template <class Entry>
std::uint32_t count_preceding(const Entry* entries, std::size_t count, const Key& key) {
  const auto precedes = [](const Entry& entry, const Key& k) {
    return entry.size != k.size ? entry.size < k.size : entry.address < k.address;
  };
  return static_cast<std::uint32_t>(std::lower_bound(entries, entries + count, key, precedes) - entries);
}

}  // namespace

FreeBlocks::FreeBlocks()
    : fences_{{Bytes{std::numeric_limits<std::int64_t>::max()}, {std::numeric_limits<std::uint64_t>::max()}, 0}},
      chunks_(1) {}

FreeBlocks::Position FreeBlocks::lower_bound(Bytes size, Address address) const {
  const Key key{size, address};
  const std::uint32_t rank = count_preceding(fences_.data(), fences_.size(), key);
  return {rank, count_preceding(chunk(rank).blocks.data(), chunk(rank).count, key)};
}

std::optional<FreeBlocks::Position> FreeBlocks::best_fit(Bytes size) const {
  const Position position = lower_bound(size, Address{0});
  if (position.slot < chunk(position.rank).count) return position;
  // Only a lone chunk is ever empty, so the next one, if any, starts with the answer.
  if (position.rank + 1 < fences_.size()) return Position{position.rank + 1, 0};
  return std::nullopt;
}

std::optional<FreeBlocks::Position> FreeBlocks::next(Position position) const {
  if (position.slot + 1 < chunk(position.rank).count) return Position{position.rank, position.slot + 1};
  if (position.rank + 1 < fences_.size()) return Position{position.rank + 1, 0};
  return std::nullopt;
}

std::optional<FreeBlocks::Position> FreeBlocks::previous(Position position) const {
  if (position.slot > 0) return Position{position.rank, position.slot - 1};
  if (position.rank > 0) return Position{position.rank - 1, chunk(position.rank - 1).count - 1};
  return std::nullopt;
}

std::optional<FreeBlocks::Position> FreeBlocks::last() const {
  if (size_ == 0) return std::nullopt;
  const auto rank = static_cast<std::uint32_t>(fences_.size() - 1);
  return Position{rank, chunk(rank).count - 1};
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
