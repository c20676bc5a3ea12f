#pragma once

#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "sim/address.hpp"
#include "sim/allocator_options.hpp"
#include "sim/allocator_stats.hpp"
#include "sim/block_map.hpp"
#include "sim/ensure.hpp"
#include "sim/segment_source.hpp"
#include "sim/units.hpp"

namespace tidemark {

/// Why an allocation failed even after every cached segment was given back.
struct OutOfMemory {
  Bytes requested;  ///< by the caller
  Bytes segment;    ///< asked of the device: what PyTorch's message calls "tried to allocate"
  Bytes available;  ///< what the device still had
  Bytes reserved;   ///< held by the allocator
  Bytes allocated;  ///< of which in use; the rest is in pieces that did not fit

  friend bool operator==(const OutOfMemory&, const OutOfMemory&) = default;
};

/// PyTorch's native CUDA caching allocator: the same blocks, splits and cudaMallocs for the same requests.
///
/// Requests round up to 512 B, take the best fit among the free blocks of their stream and pool, and otherwise a new
/// segment from `Source`. Freed blocks merge with free neighbours and stay cached. Only empty_cache, or a source that
/// has nothing left, gives segments back. Copies are independent of each other if copies of the source are.
template <SegmentSource Source>
class CachingAllocator {
 public:
  explicit CachingAllocator(Source source = {}, AllocatorOptions options = {})
      : source_(std::move(source)), options_(options) {}

  /// A block of at least `requested` > 0 bytes for `stream`. The id holds until free; ids are reused.
  [[nodiscard]] std::variant<BlockId, OutOfMemory> malloc(Bytes requested, StreamId stream) {
    ensure(requested > Bytes{0}, "requests for nothing never reach the allocator");
    if (requested >= AllocatorOptions::request_limit) return out_of_memory(requested, requested);
    const Bytes size = block_size(requested);
    const BlockRequest request{requested, size, pool_of(size), stream};
    if (const std::optional<BlockId> cached = map_.take_best_fit(request)) return *cached;

    const Bytes segment = segment_size(size, options_);
    std::optional<Address> address = source_.allocate(segment, stream);
    if (!address) {
      empty_cache();
      ++map_.stats().alloc_retries;  // counted whether or not the second attempt succeeds
      address = source_.allocate(segment, stream);
    }
    if (!address) {
      ++map_.stats().ooms;
      return out_of_memory(requested, segment);
    }
    ++map_.stats().device_allocs;
    return map_.take_from_segment(*address, segment, request);
  }

  /// Returns an allocated block to the cache.
  void free(BlockId block) { map_.give_back(block); }

  /// torch.cuda.empty_cache(): gives every segment without an allocated block back to the source, the large pool
  /// first, then by stream, size and address. Returns their bytes.
  Bytes empty_cache() {
    Bytes released;
    for (const BlockMap::Segment& segment : map_.drop_unused_segments()) {
      source_.release(segment.address, segment.size);
      released += segment.size;
    }
    return released;
  }

  /// Continues from segments that another process, or another allocator, had. Returns the allocated blocks in the order
  /// of the segments and blocks given. The source is not asked for these segments, but gets them when they are
  /// released.
  std::vector<BlockId> restore(const std::vector<SegmentLayout>& segments) { return map_.restore(segments); }
  /// Every segment, by address, with its blocks.
  [[nodiscard]] std::vector<SegmentLayout> layout() const { return map_.layout(); }

  [[nodiscard]] Address address(BlockId block) const { return map_.block(block).address; }
  [[nodiscard]] Bytes size(BlockId block) const { return map_.block(block).size; }
  [[nodiscard]] Bytes requested(BlockId block) const { return map_.block(block).requested; }
  [[nodiscard]] StreamId stream(BlockId block) const { return map_.block(block).stream; }

  [[nodiscard]] Bytes reserved() const { return stats().all.reserved.current; }
  [[nodiscard]] Bytes allocated() const { return stats().all.allocated.current; }
  [[nodiscard]] const AllocatorStats& stats() const { return map_.stats(); }
  /// As torch.cuda.reset_peak_memory_stats.
  void reset_peaks() { map_.stats().reset_peaks(); }

  [[nodiscard]] const Source& source() const { return source_; }
  [[nodiscard]] Source& source() { return source_; }
  [[nodiscard]] const AllocatorOptions& options() const { return options_; }

 private:
  [[nodiscard]] OutOfMemory out_of_memory(Bytes requested, Bytes segment) const {
    return {requested, segment, source_.available(), reserved(), allocated()};
  }

  Source source_;
  AllocatorOptions options_;
  BlockMap map_;
};

}  // namespace tidemark
