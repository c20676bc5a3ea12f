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
#include "sim/memory/segment_source.hpp"
#include "sim/program/costs.hpp"
#include "sim/program/launch_queue.hpp"
#include "sim/program/left_out.hpp"
#include "sim/program/program.hpp"
#include "sim/program/program_times.hpp"

// Host order decides what is allocated when, so one pass over the ops through the emulated allocator gives every peak
// exactly, and needs no clock; but for blocks that other streams borrow, which come back when these are done.

namespace tidemark::sim {

struct RepeatingProgram;
struct MemoryOutline;

/// A place in a program: an op, and the last mark before it.
struct Moment {
  std::size_t op = 0;
  Mark mark;
  bool operator==(const Moment&) const = default;
};

/// The highest value of a quantity, when it was first reached, and what was there then.
struct Peak {
  Bytes bytes;
  Moment at;
  Composition composition;  ///< sums to `bytes`
  bool operator==(const Peak&) const = default;
};

/// Where memory ran out.
struct OutOfDeviceMemory {
  Moment at;
  Bytes requested;  ///< of the device: a segment, or what a driver resource takes
  Bytes free;       ///< left on the device
  bool operator==(const OutOfDeviceMemory&) const = default;
};

/// Something that a driver or library allocated for itself.
struct DriverRow {
  std::variant<DriverResource, CommSlot> what;
  Moment at;
  bool operator==(const DriverRow&) const = default;
};

/// Host memory of one kind that a rank holds. Pageable: what its program asks for. Pinned: what PyTorch's allocator of
/// it holds, powers of two that it keeps; blocks come back when they are freed, or once the host has waited for copies
/// (CrossStreamFrees). Nothing runs out of it here: ranks of a node share it.
struct HostRecord {
  Bytes peak;
  Moment at;    ///< when it was first reached
  Bytes final;  ///< after the last op
  bool operator==(const HostRecord&) const = default;
};

/// Of memory that devices map of each other: what cuMulticastGetGranularity calls the least on Hopper and Blackwell.
inline constexpr Bytes registered_unit{2 << 20};

inline constexpr std::size_t phase_count = static_cast<std::size_t>(Phase::Rollout) + 1;

/// The memory of one rank over a whole program.
struct MemoryRecord {
  std::optional<OutOfDeviceMemory> failure;   ///< the record ends there
  Peak allocated;                             ///< torch.cuda.max_memory_allocated: block sizes
  Peak device;                                ///< reserved and driver memory, at their central values
  Bytes peak_reserved;                        ///< torch.cuda.max_memory_reserved
  Bytes peak_device_upper;                    ///< as `device`, estimates at their upper ends
  Bytes live_device, live_device_upper;       ///< as those two, of what is in use alone: no smaller device would do
  Bytes driver_bytes, driver_upper;           ///< of `driver`: all together, and at their upper ends
  std::int64_t retries_of_last_step = 0;      ///< num_alloc_retries: the device was full, and the cache was given back
  std::optional<std::size_t> first_retry;     ///< op
  Bytes final_allocated;                      ///< after the last op
  std::vector<Bytes> peak_allocated_by_step;  ///< construction first
  std::array<Peak, phase_count> allocated_by_phase{};  ///< as `allocated`, of every phase by itself
  std::vector<DriverRow> driver;                       ///< in order of creation
  HostRecord pinned, pageable;
  Peak host;      ///< of both together; what the pinned allocator holds besides tensors is fragmentation
  Bytes nvme;     ///< of its files, at most
  Bytes managed;  ///< that the driver moves between device and host as it is asked for, at most
  bool operator==(const MemoryRecord&) const = default;
};

/// When a block that another stream borrowed comes back after its free, and a pinned one that streams copied, without
/// asking a clock: the ends of what can be. An allocator that is refused a segment waits for all of them first.
enum class CrossStreamFrees : std::uint8_t {
  AtOnce,  ///< the other stream had finished
  /// It finished just when the host thread had to wait for what comes after its work, by whatever stream: for an event,
  /// or for room in the launch queue.
  AtNextSync,
};

/// It comes back as PyTorch's allocator learns of it: at the first request after the other stream has done what it had
/// been given before the free (insert_events, process_events in c10/cuda/CUDACachingAllocator.cpp). At each request as
/// many blocks have come back as would at the latest (AtNextSync, of the same launch queue), or more.
/// Pinned blocks come back at once.
struct ByClock {
  const ProgramTimes* times = nullptr;  ///< of the program that is replayed, op by op
  StreamId prompt = {};                 ///< what it alone uses comes back at once all the same
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

/// The same of its ops of memory alone, whose moments are op numbers of the whole program. Its
/// `options` must not ask for AtNextSync: launches and waits are not among these ops.
[[nodiscard]] MemoryRecord replay(const MemoryOutline& outline, const DriverCosts& costs, const ReplayOptions& options);

/// The same of a program that leaves bodies of loops out: the record is that of the whole one, whose ops and
/// micro-batches its moments count. Nothing where memory does not come to repeat itself in the bodies that are there.
[[nodiscard]] std::optional<MemoryRecord> replay(const Program& program, std::span<const LeftOut> left_out,
                                                 const DriverCosts& costs, const ReplayOptions& options);

/// A tensor comes or goes on the device; a block that was freed comes back later where other streams had borrowed it.
struct TensorEvent {
  enum class Kind : std::uint8_t { Alloc, Free, FreeLater, ComeBack };
  Kind kind = Kind::Alloc;
  BufferId buffer;
  LabelId label;
  Category category = Category::Temporaries;
  Bytes requested;
  Bytes block;  ///< what it counts as allocated
  StreamId stream;
  Address address;
  bool operator==(const TensorEvent&) const = default;
};

/// A driver or library takes memory for itself; it keeps it.
struct DriverEvent {
  std::variant<DriverResource, CommSlot> what;
  Category category = Category::Context;
  Bytes bytes;
  bool operator==(const DriverEvent&) const = default;
};

/// A tensor comes to the host, or goes.
struct HostEvent {
  TensorEvent::Kind kind = TensorEvent::Kind::Alloc;
  BufferId buffer;
  LabelId label;
  Category category = Category::Temporaries;
  Bytes requested;
  MemorySpace space = MemorySpace::Pageable;
  bool operator==(const HostEvent&) const = default;
};

/// One change of a rank's memory, and what it holds right after it.
struct MemoryEvent {
  Moment at;
  std::variant<TensorEvent, DriverEvent, HostEvent> what;
  Bytes allocated, reserved, driver;
  std::vector<SegmentEvent> segments;  ///< that the allocator took and gave back for it, just before
  Bytes pinned = {}, pageable = {};    ///< of the host
  bool operator==(const MemoryEvent&) const = default;
};

using MemoryObserver = std::function<void(const MemoryEvent&)>;

struct ObservedMemory {
  MemoryRecord record;
  std::vector<SegmentLayout> segments;  ///< at the end, by address
};

/// The same, and tells the observer of every change, in order.
[[nodiscard]] ObservedMemory replay(const Program& program, const DriverCosts& costs, const ReplayOptions& options,
                                    const MemoryObserver& observer);

/// A buffer that is live at some moment.
struct LiveBuffer {
  BufferId buffer;
  LabelId label;
  Category category = Category::Temporaries;
  Bytes requested;
  Bytes block;                   ///< what it counts as allocated
  std::size_t allocated_at = 0;  ///< op
  MemorySpace space = MemorySpace::Device;
};

/// What is live on the device right after the op of that index, largest first, then in order of allocation.
[[nodiscard]] std::vector<LiveBuffer> live_buffers(const Program& program, const DriverCosts& costs, std::size_t op,
                                                   const AllocatorOptions& allocator = {});

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
