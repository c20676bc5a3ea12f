#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "sim/base/address.hpp"
#include "sim/base/category.hpp"
#include "sim/memory/allocator_options.hpp"
#include "sim/memory/block_map.hpp"
#include "sim/memory/device_memory.hpp"
#include "sim/memory/segment_source.hpp"
#include "sim/program/costs.hpp"
#include "sim/program/launch_queue.hpp"
#include "sim/program/left_out.hpp"
#include "sim/program/program.hpp"
#include "sim/program/program_times.hpp"

// Host order decides what is allocated when, so one pass over the ops through the emulated allocator gives every peak
// exactly, without a clock. The exception are blocks that other streams use, which are reused when these are done.

namespace tidemark::sim {

struct RepeatingProgram;
struct MemoryOutline;

/// A place in a program: an op, and the last mark before it.
struct Moment {
  std::size_t op = 0;
  Mark mark;
  bool operator==(const Moment&) const = default;
};

/// The highest value of a quantity, when it was first reached, and its composition then.
struct Peak {
  Bytes bytes;
  Moment at;
  Composition composition;  ///< sums to `bytes`
  bool operator==(const Peak&) const = default;
};

/// Where memory ran out.
struct OutOfDeviceMemory {
  Moment at;
  Bytes requested;  ///< of the device: a segment, or a driver resource's memory
  Bytes free;       ///< left on the device
  bool operator==(const OutOfDeviceMemory&) const = default;
};

/// Something that a driver or library allocated for itself.
struct DriverRow {
  std::variant<DriverResource, CommSlot> what;
  Moment at;
  bool operator==(const DriverRow&) const = default;
};

/// Host memory of one kind that a rank holds. Pageable: as its program requests it. Pinned: blocks that PyTorch's
/// allocator of it keeps, of powers of two; they are reused when they are freed, or once the host has waited for copies
/// (CrossStreamFrees). Nothing runs out of it here: ranks of a node share it.
struct HostRecord {
  Bytes peak;
  Moment at;    ///< when it was first reached
  Bytes final;  ///< after the last op
  bool operator==(const HostRecord&) const = default;
};

/// Granularity of memory that devices map of each other: cuMulticastGetGranularity's minimum on Hopper and Blackwell.
inline constexpr Bytes registered_unit{2 << 20};

inline constexpr std::size_t phase_count = static_cast<std::size_t>(Phase::Rollout) + 1;

/// The memory of one rank over a whole program.
struct MemoryRecord {
  std::optional<OutOfDeviceMemory> failure;  ///< the record ends there
  Peak allocated;                            ///< torch.cuda.max_memory_allocated: block sizes
  Peak device;                               ///< reserved and driver memory, at their central values
  Bytes peak_reserved;                       ///< torch.cuda.max_memory_reserved
  Bytes peak_device_upper;                   ///< as `device`, estimates at their upper ends
  Bytes live_device, live_device_upper;      ///< as those two, of memory in use alone: no smaller device is enough
  Bytes driver_bytes, driver_upper;          ///< of `driver`: all together, and at their upper ends
  std::int64_t retries_of_last_step =
      0;  ///< num_alloc_retries: the device was full, and the allocator returned its cache
  std::optional<std::size_t> first_retry;              ///< op
  CapacityRange same_on;                               ///< devices on which all this is the same
  Bytes final_allocated;                               ///< after the last op
  std::vector<Bytes> peak_allocated_by_step;           ///< construction first
  std::array<Peak, phase_count> allocated_by_phase{};  ///< as `allocated`, of every phase by itself
  std::vector<DriverRow> driver;                       ///< in order of creation
  HostRecord pinned, pageable;
  Peak host;      ///< of both together; fragmentation is what the pinned allocator holds and no tensor uses
  Bytes nvme;     ///< of its files, at most
  Bytes managed;  ///< that the driver moves between device and host on demand, at most
  bool operator==(const MemoryRecord&) const = default;
};

/// When a block that another stream used can be reused after its free, and a pinned one that streams copied, without
/// a clock: the earliest and the latest. An allocator that is refused a segment waits for all of them first.
enum class CrossStreamFrees : std::uint8_t {
  AtOnce,  ///< the other stream had finished
  /// It finished only when the host thread had to wait for work behind its own, on any stream: for an event,
  /// or for room in the launch queue.
  AtNextSync,
};

/// It is reused as PyTorch's allocator learns of it: at the first request after the other stream has finished the work
/// it had been given before the free (insert_events, process_events in c10/cuda/CUDACachingAllocator.cpp). At each
/// request as many blocks have come back as would at the latest (AtNextSync, of the same launch queue), or more. Pinned
/// blocks are reused at once.
struct ByClock {
  const ProgramTimes* times = nullptr;  ///< of the program that is replayed, op by op
  StreamId prompt = {};                 ///< blocks that only this stream uses are reused at once all the same
  bool operator==(const ByClock&) const = default;
};

using CrossStreamReturn = std::variant<CrossStreamFrees, ByClock>;

struct ReplayOptions {
  Bytes capacity = Bytes{std::numeric_limits<std::int64_t>::max() / 2};  ///< of the device
  AllocatorOptions allocator = {};
  CrossStreamReturn cross_stream = CrossStreamFrees::AtOnce;
  LaunchQueue queue = {};  ///< of the host thread, which AtNextSync asks for
};

/// Runs the program's memory through the allocator.
[[nodiscard]] MemoryRecord replay(const Program& program, const DriverCosts& costs, const ReplayOptions& options);

/// The same, without unrolling the program.
[[nodiscard]] MemoryRecord replay(const RepeatingProgram& program, const DriverCosts& costs,
                                  const ReplayOptions& options);

/// The same of its memory ops alone, whose moments are op numbers of the whole program. Its
/// `options` must not ask for AtNextSync: launches and waits are not among these ops.
[[nodiscard]] MemoryRecord replay(const MemoryOutline& outline, const DriverCosts& costs, const ReplayOptions& options);

/// The same of a program that leaves out loop bodies: the record is that of the whole program, whose ops and
/// micro-batches its moments count. Nothing where memory does not come to repeat itself in the bodies that are there.
[[nodiscard]] std::optional<MemoryRecord> replay(const Program& program, std::span<const LeftOut> left_out,
                                                 const DriverCosts& costs, const ReplayOptions& options);

/// A tensor is allocated or freed on the device; a freed block that other streams used is reused later.
struct TensorEvent {
  enum class Kind : std::uint8_t { Alloc, Free, FreeLater, ComeBack };
  Kind kind = Kind::Alloc;
  BufferId buffer;
  LabelId label;
  Category category = Category::Temporaries;
  Bytes requested;
  Bytes block;  ///< its size in allocated memory
  StreamId stream;
  Address address;
  bool operator==(const TensorEvent&) const = default;
};

/// A driver or library allocates memory for itself, and keeps it.
struct DriverEvent {
  std::variant<DriverResource, CommSlot> what;
  Category category = Category::Context;
  Bytes bytes;
  bool operator==(const DriverEvent&) const = default;
};

/// A tensor is allocated or freed on the host.
struct HostEvent {
  TensorEvent::Kind kind = TensorEvent::Kind::Alloc;
  BufferId buffer;
  LabelId label;
  Category category = Category::Temporaries;
  Bytes requested;
  MemorySpace space = MemorySpace::Pageable;
  bool operator==(const HostEvent&) const = default;
};

/// One change of a rank's memory, and its memory right after it.
struct MemoryEvent {
  Moment at;
  std::variant<TensorEvent, DriverEvent, HostEvent> what;
  Bytes allocated, reserved, driver;
  std::vector<SegmentEvent> segments;  ///< that the allocator took or returned for it, just before
  Bytes pinned = {}, pageable = {};    ///< of the host
  bool operator==(const MemoryEvent&) const = default;
};

using MemoryObserver = std::function<void(const MemoryEvent&)>;

struct ObservedMemory {
  MemoryRecord record;
  std::vector<SegmentLayout> segments;  ///< at the end, by address
};

/// The same, calling the observer with every change, in order.
[[nodiscard]] ObservedMemory replay(const Program& program, const DriverCosts& costs, const ReplayOptions& options,
                                    const MemoryObserver& observer);

/// A buffer that is live at some moment.
struct LiveBuffer {
  BufferId buffer;
  LabelId label;
  Category category = Category::Temporaries;
  Bytes requested;
  Bytes block;                   ///< its size in allocated memory
  std::size_t allocated_at = 0;  ///< op
  MemorySpace space = MemorySpace::Device;
};

/// Tensors that are live on the device right after the op of that index, largest first, then in order of allocation.
[[nodiscard]] std::vector<LiveBuffer> live_buffers(const Program& program, const DriverCosts& costs, std::size_t op,
                                                   const ReplayOptions& options = {});

/// The same of its host. A pinned block is as large as PyTorch's allocator makes it.
[[nodiscard]] std::vector<LiveBuffer> live_on_host(const Program& program, const DriverCosts& costs, std::size_t op);

/// One point of a memory timeline.
struct MemorySample {
  Moment at;
  Bytes allocated;
  Bytes reserved;
  Bytes driver;
};

/// Allocated, reserved and driver memory after every op that changes one of them.
[[nodiscard]] std::vector<MemorySample> memory_timeline(const Program& program, const DriverCosts& costs,
                                                        const AllocatorOptions& allocator = {});

}  // namespace tidemark::sim
