#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "scenarios/recordings/memory_snapshot.hpp"
#include "scenarios/recordings/recorded_trace.hpp"
#include "sim/base/units.hpp"

// What a recording of the allocator held when. Block sizes come from the recorded addresses, not from an emulation:
// what is left of a free block is cut off, or not, by PyTorch's rule.

namespace tidemark::scenarios {

/// A tensor of a recording that is live at some event.
struct RecordedTensor {
  static constexpr std::size_t before = std::numeric_limits<std::size_t>::max();

  Bytes requested;
  Bytes block;                 ///< what it counts as allocated
  std::size_t event = before;  ///< that allocated it; `before` the recording began
  StackId stack;               ///< of that event; without one, as the snapshot shows the block at its end

  friend bool operator==(const RecordedTensor&, const RecordedTensor&) = default;
};

/// One device's memory over a recording. Index 0 is the start, i + 1 is after event i.
struct RecordedMemory {
  std::vector<Bytes> allocated;  ///< in blocks, as torch.cuda.memory_allocated: until a free is requested
  std::vector<Bytes> reserved;
};
[[nodiscard]] RecordedMemory recorded_memory(const RecordedTrace& trace);

/// What is live after the first `events` events, in order of allocation; what the recording found comes first, by
/// address. The trace is that of a device of the snapshot, whose own traces are not looked at.
[[nodiscard]] std::vector<RecordedTensor> live_tensors(const MemorySnapshot& snapshot, std::int64_t device,
                                                       const RecordedTrace& trace, std::size_t events);

}  // namespace tidemark::scenarios
