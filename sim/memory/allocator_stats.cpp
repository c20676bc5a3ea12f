#include "sim/memory/allocator_stats.hpp"

namespace tidemark::sim {

void PoolStats::reset_peaks() {
  for (Stat<Bytes>* stat : {&allocated, &active, &requested, &reserved, &inactive_split}) stat->peak = stat->current;
  for (Stat<std::int64_t>* stat : {&allocations, &active_blocks, &segments, &inactive_split_blocks}) {
    stat->peak = stat->current;
  }
}

void AllocatorStats::reset_peaks() {
  all.reset_peaks();
  small.reset_peaks();
  large.reset_peaks();
  oversize_allocations.peak = oversize_allocations.current;
  oversize_segments.peak = oversize_segments.current;
}

}  // namespace tidemark::sim
