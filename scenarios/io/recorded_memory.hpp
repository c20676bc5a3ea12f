#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/io/memory_snapshot.hpp"
#include "scenarios/io/recorded_trace.hpp"
#include "sim/units.hpp"

// What a recording of the allocator held when. Block sizes come from the recorded addresses, not from an emulation:
// what is left of a free block is cut off, or not, by PyTorch's rule.

namespace tidemark {

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
  std::vector<Bytes> allocated;  ///< in blocks, as torch.cuda.memory_allocated; those with pending frees count
  std::vector<Bytes> reserved;
};
[[nodiscard]] RecordedMemory recorded_memory(const RecordedTrace& trace);

/// What is live after the first `events` events, in order of allocation; what the recording found comes first, by
/// address.
[[nodiscard]] std::vector<RecordedTensor> live_tensors(const MemorySnapshot& snapshot, std::int64_t device,
                                                       const RecordedTrace& trace, std::size_t events);

/// Part of a recording: events [first, last).
struct EventRange {
  std::size_t first = 0;
  std::size_t last = 0;

  friend bool operator==(const EventRange&, const EventRange&) = default;
};

enum class StepEvidence : std::uint8_t {
  Annotations,  ///< between ends of the optimizer's steps, as torch.profiler marks them
  Repetition,   ///< its end, which repeats what came before it, request by request
  None,         ///< no step was found: all of it
};

struct RecordedStep {
  EventRange events;
  StepEvidence evidence = StepEvidence::None;

  friend bool operator==(const RecordedStep&, const RecordedStep&) = default;
};

/// The last complete step of a recording. `least_allocs`: how many allocations a step has at least, so that what
/// repeats within a step is not taken for one.
[[nodiscard]] RecordedStep last_complete_step(const MemorySnapshot& snapshot, std::int64_t device,
                                              std::size_t least_allocs);

/// The device whose allocator was recorded: the one that is asked for, or the only one. Throws InputError, which names
/// `file`, where it is not there or there are several.
[[nodiscard]] std::int64_t recorded_device(const MemorySnapshot& snapshot, std::optional<std::int64_t> asked = {},
                                           const std::string& file = {});

}  // namespace tidemark
