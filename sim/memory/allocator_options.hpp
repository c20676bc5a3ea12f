#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "sim/base/units.hpp"

namespace tidemark::sim {

/// The two halves of the caching allocator: requests of at most 1 MiB never share a segment with larger ones.
enum class PoolKind : std::uint8_t { Small, Large };

/// (0, 0) for the default pools; CUDA graphs and torch.cuda.MemPool have others.
using MempoolId = std::pair<std::int64_t, std::int64_t>;

/// Whether a segment lies above or below those that came before.
enum class AddressOrder : std::uint8_t { Rising, Falling };

/// What PYTORCH_CUDA_ALLOC_CONF can change, and the constants it cannot.
/// Names and values: c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h, PyTorch 2.1 to 2.11.
struct AllocatorOptions {
  static constexpr Bytes unlimited{std::numeric_limits<std::int64_t>::max()};

  /// Segment for a request in (small_limit, min_large_alloc), and page of an expandable segment of the large pool:
  /// kLargeBuffer, large_segment_size_mb since 2.10.
  Bytes large_segment{20 << 20};
  /// max_split_size_mb: blocks from here on are "oversize". They are never cut, and only serve oversize requests.
  Bytes max_split_size = unlimited;
  /// max_non_split_rounding_mb: an oversize block serves requests that are smaller by less than this.
  Bytes max_non_split_rounding{20 << 20};
  /// roundup_power2_divisions, for requests of [2^i, 2^(i+1)) MiB; the first entry holds below 1 MiB too, the last
  /// one above. 0 and 1: sizes round to min_block.
  std::array<std::uint64_t, 16> roundup_divisions{};
  /// garbage_collection_threshold: part of the memory limit above which old cached blocks are given back before the
  /// device is asked. 0: never. Has no effect without a limit.
  double garbage_collection_threshold = 0;
  /// expandable_segments: one growing segment per pool and stream instead of many of fixed size.
  bool expandable_segments = false;
  /// per_process_memory_fraction, or torch.cuda.set_per_process_memory_fraction: of `device_memory`. 1 is no limit.
  double memory_fraction = 1;

  /// What cudaMemGetInfo calls total. Matters for a fraction of it, and for the address space that an expandable
  /// segment reserves. The default is more than any device has.
  Bytes device_memory{1LL << 40};

  /// Of segments: where the lowest of free blocks of one size is taken, CUDA's driver decides, which goes down. Rising
  /// addresses stand for a choice by age.
  AddressOrder address_order = AddressOrder::Rising;

  static constexpr Bytes min_block{512};             ///< kMinBlockSize: every block is a multiple of it
  static constexpr Bytes small_limit{1 << 20};       ///< kSmallSize: largest block of the small pool
  static constexpr Bytes small_segment{2 << 20};     ///< kSmallBuffer
  static constexpr Bytes min_large_alloc{10 << 20};  ///< kMinLargeAlloc: from here on, a segment of its own
  static constexpr Bytes round_large{2 << 20};       ///< kRoundLarge: whose size is a multiple of this
  static constexpr Bytes request_limit{1LL << 60};   ///< requests of 1 EiB and more fail without a look

  /// The most that the allocator may reserve (setMemoryFraction).
  [[nodiscard]] std::optional<Bytes> memory_limit() const {
    if (memory_fraction >= 1) return std::nullopt;
    return Bytes{static_cast<std::int64_t>(memory_fraction * static_cast<double>(device_memory.count()))};
  }
  [[nodiscard]] bool collects_garbage() const { return garbage_collection_threshold > 0 && memory_fraction < 1; }
  [[nodiscard]] bool rounds_by_divisions() const {
    return std::any_of(roundup_divisions.begin(), roundup_divisions.end(), [](std::uint64_t d) { return d > 1; });
  }

  friend bool operator==(const AllocatorOptions&, const AllocatorOptions&) = default;
};

/// The block that `requested` bytes need, 0 < requested < request_limit, where sizes are not rounded by divisions.
constexpr Bytes block_size(Bytes requested) { return round_up(requested, AllocatorOptions::min_block); }

/// The same under any options (round_size, roundup_power2_next_division).
constexpr Bytes block_size(Bytes requested, const AllocatorOptions& options) {
  const auto n = static_cast<std::uint64_t>(requested.count());
  const auto log = static_cast<std::size_t>(std::bit_width(n)) - 1;
  const std::uint64_t divisions = options.roundup_divisions[std::clamp<std::size_t>(log, 20, 35) - 20];
  if (divisions <= 1 || n / divisions < 512 || (n / divisions == 512 && n % divisions == 0))
    return block_size(requested);
  const std::uint64_t floor = std::bit_floor(n);
  if (n == floor) return requested;
  const std::uint64_t step = floor / divisions;
  if (step == 0) return Bytes{static_cast<std::int64_t>(2 * floor)};
  return Bytes{static_cast<std::int64_t>((n + step - 1) / step * step)};
}

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

/// Whether a free block that is `remaining` larger than asked is cut, in a segment of fixed size that is not oversize.
/// 1 MiB left over in the large pool is not.
constexpr bool should_split(PoolKind pool, Bytes remaining) {
  return pool == PoolKind::Small ? remaining >= AllocatorOptions::min_block : remaining > AllocatorOptions::small_limit;
}

/// Pages by which an expandable segment of a pool grows and shrinks.
constexpr Bytes expandable_page(PoolKind pool, const AllocatorOptions& options) {
  return pool == PoolKind::Small ? AllocatorOptions::small_segment : options.large_segment;
}

/// The address space that an expandable segment of a pool reserves: 1 1/8 of the device, so that pages can move from
/// one end to the other.
constexpr Bytes expandable_address_space(PoolKind pool, const AllocatorOptions& options) {
  return round_up(options.device_memory + options.device_memory / 8, expandable_page(pool, options));
}

}  // namespace tidemark::sim
