#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "sim/base/ensure.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/free_blocks.hpp"
#include "sim/memory/state_words.hpp"
#include "sim/memory/stream_events.hpp"

namespace tidemark::sim {

/// pinned_max_round_threshold_mb and pinned_max_cached_size_mb of PYTORCH_CUDA_ALLOC_CONF.
struct HostAllocatorOptions {
  static constexpr Bytes unlimited{std::numeric_limits<std::int64_t>::max()};

  Bytes max_rounded = unlimited;  ///< larger requests take what they ask for
  Bytes max_cached = unlimited;   ///< larger blocks go back to the system when they are free
  friend bool operator==(const HostAllocatorOptions&, const HostAllocatorOptions&) = default;
};

/// PyTorch's caching allocator of pinned host memory: the same blocks, and the same calls of cudaHostAlloc, for the
/// same requests.
///
/// Requests round up to a power of two and take a free block of that size, the latest to come back; otherwise the
/// system is asked. Blocks are neither cut nor merged, and stay cached for ever. A block that streams copied from or to
/// comes back once events behind these copies are done, in the order of the frees: one that is not done holds up those
/// after it.
///
/// The rules are those of CachingHostAllocatorImpl in ATen/core/CachingHostAllocator.h, PyTorch 2.15; earlier releases
/// have no options and do the same as without any. One thread calls; what a background thread would do, malloc does.
template <StreamEvents Events = StreamProgress>
class CachingHostAllocator {
 public:
  explicit CachingHostAllocator(HostAllocatorOptions options = {}, Events events = {})
      : options_(options), events_(std::move(events)) {}

  /// A block of at least `requested` > 0 bytes. The id holds until free; ids are reused.
  [[nodiscard]] BlockId malloc(Bytes requested) {
    ensure(requested > Bytes{}, "requests for nothing never reach the allocator");
    process_events();
    const Bytes size = block_size(requested);
    std::vector<BlockId>& free = free_of(size);
    const auto fits = [&](BlockId block) { return of(block).size >= size; };
    if (const auto latest = std::find_if(free.rbegin(), free.rend(), fits); latest != free.rend()) {
      const BlockId found = *latest;
      free.erase(std::next(latest).base());
      in_use_ += of(found).size;
      return found;
    }
    const BlockId fresh = new_id();
    of(fresh) = {.size = size};
    held_ += size;
    in_use_ += size;
    return fresh;
  }

  /// A stream copies from or to an allocated block: copy_ with non_blocking = True.
  void record_event(BlockId block, StreamId stream) {
    std::vector<StreamId>& streams = of(block).streams;
    if (std::ranges::find(streams, stream) == streams.end()) streams.push_back(stream);
  }

  /// Returns a block to the cache: at once, or if streams copied, once they are done.
  void free(BlockId block) {
    Block& its = of(block);
    if (its.streams.empty()) return give_back(block);
    its.open_events = its.streams.size();
    for (const StreamId stream : std::exchange(its.streams, {})) pending_.emplace_back(events_.record(stream), block);
  }

  /// Completes the frees whose streams are done. Every malloc does so first.
  void process_events() {
    while (!pending_.empty() && events_.done(pending_.front().first)) {
      const BlockId block = pending_.front().second;
      pending_.pop_front();
      if (--of(block).open_events == 0) give_back(block);
    }
  }
  [[nodiscard]] Events& events() { return events_; }

  /// Gives every free block back to the system. Returns their bytes.
  Bytes empty_cache() {
    process_events();
    const Bytes before = held_;
    for (std::vector<BlockId>& blocks : free_)
      for (const BlockId block : std::exchange(blocks, {})) release(block);
    return before - held_;
  }

  [[nodiscard]] Bytes size(BlockId block) const { return blocks_[block.index()].size; }
  /// What the system has locked for it.
  [[nodiscard]] Bytes held() const { return held_; }
  /// Of which blocks that are allocated, or wait for streams.
  [[nodiscard]] Bytes in_use() const { return in_use_; }
  /// Which blocks are free, the latest last; where none waits for streams, that is all.
  void write(StateWords& state) const {
    for (const std::vector<BlockId>& free : free_) {
      for (const BlockId block : free) state.add(block.value, size(block));
      state.add(-1);
    }
  }

 private:
  struct Block {
    Bytes size;
    std::vector<StreamId> streams = {};  ///< that copied since it was allocated
    std::size_t open_events = 0;         ///< since it was freed
  };

  [[nodiscard]] Bytes block_size(Bytes requested) const {
    if (requested > options_.max_rounded || requested > options_.max_cached) return requested;
    return Bytes{static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(requested.count())))};
  }
  // Sizes up to a power of two are together.
  [[nodiscard]] std::vector<BlockId>& free_of(Bytes size) {
    return free_[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(size.count()) - 1))];
  }
  [[nodiscard]] Block& of(BlockId block) { return blocks_[block.index()]; }

  [[nodiscard]] BlockId new_id() {
    if (vacant_.empty()) {
      blocks_.emplace_back();
      return {static_cast<std::int32_t>(blocks_.size()) - 1};
    }
    const BlockId id = vacant_.back();
    vacant_.pop_back();
    return id;
  }
  void give_back(BlockId block) {
    const Bytes size = of(block).size;
    in_use_ -= size;
    if (size > options_.max_cached)
      release(block);
    else
      free_of(size).push_back(block);
  }
  void release(BlockId block) {
    held_ -= of(block).size;
    vacant_.push_back(block);
  }

  HostAllocatorOptions options_;
  Events events_;
  std::vector<Block> blocks_;                                       // by id
  std::vector<BlockId> vacant_;                                     // ids of blocks that are gone
  std::array<std::vector<BlockId>, 64> free_;                       // the latest last
  std::deque<std::pair<typename Events::Event, BlockId>> pending_;  // the earliest free first
  Bytes held_, in_use_;
};

}  // namespace tidemark::sim
