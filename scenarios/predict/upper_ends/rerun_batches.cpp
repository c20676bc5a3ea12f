#include "scenarios/predict/upper_ends/rerun_batches.hpp"

#include <limits>
#include <variant>

#include "parallel/job/batch.hpp"
#include "sim/base/ensure.hpp"
#include "sim/memory/caching_allocator.hpp"
#include "sim/memory/device_memory.hpp"

namespace tidemark::scenarios {

Bytes rerun_batches_bytes(const Scenario& scenario, const Runtime& runtime, std::int32_t pipeline) {
  constexpr Bytes unlimited{std::numeric_limits<std::int64_t>::max() / 2};
  CachingAllocator<DeviceMemory> allocator{DeviceMemory(unlimited)};
  for (const Bytes size : rerun_batches(scenario.model, scenario.layout, scenario.train, runtime, pipeline))
    ensure(std::holds_alternative<BlockId>(allocator.malloc(size, StreamId{0})), "the device has no limit");
  return allocator.reserved();
}

}  // namespace tidemark::scenarios
