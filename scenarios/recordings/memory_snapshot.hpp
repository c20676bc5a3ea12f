// What torch.cuda.memory._dump_snapshot writes: the state of the caching allocator, and how it came about.
// The format: torch/csrc/cuda/Module.cpp (THCPModule_memorySnapshot), PyTorch 2.0 to 2.11.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scenarios/recordings/pickle/gzip.hpp"
#include "scenarios/recordings/pickle/pickle.hpp"
#include "sim/base/address.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/allocator_options.hpp"

namespace tidemark::scenarios {

using FrameId = Id<struct FrameKind>;                  ///< into MemorySnapshot::frames
using StackId = Id<struct StackKind>;                  ///< into MemorySnapshot::stacks
using TraceCategoryId = Id<struct TraceCategoryKind>;  ///< into MemorySnapshot::categories

/// A cudaStream_t as a number. 0 is the default stream.
using StreamPointer = std::int64_t;

struct StackFrame {
  std::string name;
  std::string file;
  std::int64_t line = 0;

  friend bool operator==(const StackFrame&, const StackFrame&) = default;
};

struct BlockRecord {
  enum class State : std::uint8_t { Inactive, ActiveAllocated, ActivePendingFree };

  Address address;
  Bytes size;
  Bytes requested;  ///< meaningless for an inactive block
  State state = State::Inactive;
  StackId stack;

  friend bool operator==(const BlockRecord&, const BlockRecord&) = default;
};

struct SegmentRecord {
  std::int64_t device = 0;
  Address address;
  Bytes size;
  StreamPointer stream = 0;
  PoolKind pool = PoolKind::Small;
  MempoolId mempool = {};
  bool expandable = false;
  StackId stack = {};
  std::vector<BlockRecord> blocks = {};  ///< tile the segment, in order of address

  friend bool operator==(const SegmentRecord&, const SegmentRecord&) = default;
};

struct TraceEvent {
  enum class Action : std::uint8_t {
    Alloc,
    FreeRequested,
    FreeCompleted,
    SegmentAlloc,
    SegmentFree,
    SegmentMap,
    SegmentUnmap,
    Snapshot,
    OutOfMemory,
    Annotate,
  };

  Action action = Action::Alloc;
  Address address;  ///< of an OutOfMemory: the bytes that were free on the device
  Bytes size;       ///< of blocks as requested, of segments as they are
  StreamPointer stream = 0;
  MempoolId mempool = {};
  std::optional<std::int64_t> time_us = {};  ///< since 1970; absent up to PyTorch 2.2
  StackId stack = {};
  TraceCategoryId category = {};  ///< PyTorch writes none; its viewer colours by it

  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

struct AllocatorSettings {
  std::string text;                     ///< PYTORCH_CUDA_ALLOC_CONF
  std::optional<Bytes> max_split_size;  ///< absent: unlimited
  double garbage_collection_threshold = 0;
  bool expandable_segments = false;
  std::array<std::uint64_t, 16> roundup_divisions{};  ///< roundup_power2_divisions, by powers of two from 1 MiB on
  bool trace_overflowed = false;                      ///< the ring buffer lost the oldest events

  friend bool operator==(const AllocatorSettings&, const AllocatorSettings&) = default;
};

/// A mark of the profiler, as "Optimizer.step#AdamW.step": the beginning or end of a part of the step.
struct ExternalAnnotation {
  enum class Stage : std::uint8_t { Start, End };

  Stage stage = Stage::Start;
  std::string name;
  std::int64_t device = 0;
  std::int64_t time_us = 0;

  friend bool operator==(const ExternalAnnotation&, const ExternalAnnotation&) = default;
};

struct MemorySnapshot {
  std::vector<SegmentRecord> segments;                 ///< of all devices, when the snapshot was taken
  std::vector<std::vector<TraceEvent>> device_traces;  ///< by device; empty without recording
  std::optional<AllocatorSettings> settings;           ///< absent in old files
  std::vector<ExternalAnnotation> annotations;
  std::vector<StackFrame> frames;            ///< those that stacks share are here once
  std::vector<std::vector<FrameId>> stacks;  ///< innermost frame first
  std::vector<std::string> categories;

  friend bool operator==(const MemorySnapshot&, const MemorySnapshot&) = default;
};

/// As the file has it: "alloc", "free_requested", ...
[[nodiscard]] std::string_view name(TraceEvent::Action action);
[[nodiscard]] std::string_view name(BlockRecord::State state);

/// What a pickle of a snapshot says. Accepts all versions since 2.0, and a bare list of segments; unknown keys are
/// ignored. Throws InputError, which names `file` and every place that does not fit, if it is something else.
MemorySnapshot memory_snapshot(const Pickle& pickle, const std::string& file = {});

/// Reads a snapshot file, plain or gzip.
MemorySnapshot read_memory_snapshot(const std::string& path, const FileLimits& limits = {});

/// Takes the events of a trace, in order, one device after the other.
using TraceSink = std::function<void(std::size_t device, const TraceEvent& event)>;

/// The same for files of any size: the events go to `sink` as they are read, and the traces of the snapshot are empty.
/// Its stacks have the numbers that the events name. What is wrong with the snapshot is thrown at the end.
MemorySnapshot read_memory_snapshot(const std::string& path, const TraceSink& sink, const FileLimits& limits = {});
MemorySnapshot read_memory_snapshot(const ByteSource& source, const std::string& file, const TraceSink& sink,
                                    const PickleLimits& limits = {});

}  // namespace tidemark::scenarios
