#pragma once

#include <cstdint>

#include "sim/units.hpp"

namespace tidemark {

/// The two halves of the caching allocator: requests of at most 1 MiB never share a segment with larger ones.
enum class PoolKind : std::uint8_t { Small, Large };

/// What PYTORCH_CUDA_ALLOC_CONF could change, and the constants it cannot.
/// Names and values: c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h, PyTorch 2.1 to 2.11.
struct AllocatorOptions {
  /// Segment for a request in (small_limit, min_large_alloc): kLargeBuffer, large_segment_size_mb since 2.10.
  Bytes large_segment{20 << 20};

  static constexpr Bytes min_block{512};             ///< kMinBlockSize: every block is a multiple of it
  static constexpr Bytes small_limit{1 << 20};       ///< kSmallSize: largest block of the small pool
  static constexpr Bytes small_segment{2 << 20};     ///< kSmallBuffer
  static constexpr Bytes min_large_alloc{10 << 20};  ///< kMinLargeAlloc: from here on, a segment of its own
  static constexpr Bytes round_large{2 << 20};       ///< kRoundLarge: whose size is a multiple of this
  static constexpr Bytes request_limit{1LL << 60};   ///< requests of 1 EiB and more fail without a look

  friend bool operator==(const AllocatorOptions&, const AllocatorOptions&) = default;
};

/// The block that `requested` bytes need, 0 < requested < request_limit.
constexpr Bytes block_size(Bytes requested) { return round_up(requested, AllocatorOptions::min_block); }

/// The pool of a block size. 1 MiB is small; the rounded size decides.
constexpr PoolKind pool_of(Bytes size) {
  return size <= AllocatorOptions::small_limit ? PoolKind::Small : PoolKind::Large;
}

/// The segment that a block of `size` asks the device for when no cached block fits.
constexpr Bytes segment_size(Bytes size, const AllocatorOptions& options) {
  if (size <= AllocatorOptions::small_limit) return AllocatorOptions::small_segment;
  if (size < AllocatorOptions::min_large_alloc) return options.large_segment;
  return round_up(size, AllocatorOptions::round_large);
}

/// Whether a free block that is `remaining` larger than asked is cut. 1 MiB left over in the large pool is not.
constexpr bool should_split(PoolKind pool, Bytes remaining) {
  return pool == PoolKind::Small ? remaining >= AllocatorOptions::min_block : remaining > AllocatorOptions::small_limit;
}

}  // namespace tidemark
