#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/base/units.hpp"
#include "sim/memory/allocator_options.hpp"

namespace tidemark::sim {

/// A quantity over time, as one entry of torch.cuda.memory_stats.
template <class T>
struct Stat {
  T current{};
  T peak{};
  T total{};  ///< the sum of all increases; torch calls it "allocated"

  constexpr void increase(T n) {
    current += n;
    peak = std::max(peak, current);
    total += n;
  }
  constexpr void decrease(T n) { current -= n; }
  [[nodiscard]] constexpr T decreases() const { return total - current; }  ///< torch calls it "freed"

  friend constexpr bool operator==(const Stat&, const Stat&) = default;
};

/// One group of torch.cuda.memory_stats. A block counts with its own size in all but `requested`.
struct PoolStats {
  Stat<Bytes> allocated;       ///< allocated_bytes: handed out and not yet freed
  Stat<Bytes> active;          ///< active_bytes: the same, and blocks whose free has not completed
  Stat<Bytes> requested;       ///< requested_bytes: what the callers of the active blocks asked for
  Stat<Bytes> reserved;        ///< reserved_bytes: held from the device
  Stat<Bytes> inactive_split;  ///< inactive_split_bytes: free, and no segment of its own

  Stat<std::int64_t> allocations;            ///< allocation
  Stat<std::int64_t> active_blocks;          ///< active
  Stat<std::int64_t> segments;               ///< segment
  Stat<std::int64_t> inactive_split_blocks;  ///< inactive_split

  void reset_peaks();
  friend bool operator==(const PoolStats&, const PoolStats&) = default;
};

/// What is counted while an allocator runs.
enum class Counted : std::uint8_t {
  Everything,
  Memory  ///< of what changes with each block, only `all.allocated`; what changes with segments all the same
};

/// torch.cuda.memory_stats of one device.
struct AllocatorStats {
  PoolStats all;
  PoolStats small;
  PoolStats large;

  Stat<std::int64_t> oversize_allocations;  ///< blocks of max_split_size and more
  Stat<std::int64_t> oversize_segments;

  std::int64_t alloc_retries = 0;     ///< num_alloc_retries: the device was full, the cache was given back
  std::int64_t ooms = 0;              ///< num_ooms: and it was still full
  std::int64_t sync_all_streams = 0;  ///< num_sync_all_streams: to give the cache back, all streams were waited for
  std::int64_t device_allocs = 0;     ///< num_device_alloc: cudaMalloc, or pages mapped
  std::int64_t device_frees = 0;      ///< num_device_free: cudaFree, or pages unmapped

  /// Calls change(PoolStats&) for the groups in which a pool of this kind counts: all, and its own.
  template <class Change>
  void each_group(PoolKind kind, Change change) {
    change(all);
    change(pool(kind));
  }
  [[nodiscard]] PoolStats& pool(PoolKind kind) { return kind == PoolKind::Small ? small : large; }
  [[nodiscard]] const PoolStats& pool(PoolKind kind) const { return kind == PoolKind::Small ? small : large; }

  /// As torch.cuda.reset_peak_memory_stats: every peak becomes its current value.
  void reset_peaks();
  friend bool operator==(const AllocatorStats&, const AllocatorStats&) = default;
};

}  // namespace tidemark::sim
