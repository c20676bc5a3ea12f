#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/recordings/memory_snapshot.hpp"
#include "sim/base/address.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/allocator_options.hpp"
#include "sim/memory/block_map.hpp"
#include "sim/memory/caching_allocator.hpp"

namespace tidemark::scenarios {

struct RecordedEvent {
  TraceEvent::Action action = TraceEvent::Action::Alloc;
  std::uint16_t mempool = 0;  ///< into RecordedTrace::mempools
  StreamId stream;
  Address address;
  Bytes size;
  std::int64_t time_us = 0;  ///< since 1970; 0 where the recording has no times
  StackId stack = {};

  friend bool operator==(const RecordedEvent&, const RecordedEvent&) = default;
};

/// What one device's allocator did, in the allocator's terms: where it started, what happened, where it ended.
struct RecordedTrace {
  std::vector<SegmentLayout> start;  ///< reconstructed: recordings rarely begin with an empty process
  std::vector<AddressSpace> spaces;  ///< in which the expandable segments of the start lie
  std::vector<RecordedEvent> events;
  std::vector<SegmentLayout> end;       ///< as the snapshot has it
  AllocatorOptions options;             ///< as recorded
  std::vector<MempoolId> mempools{{}};  ///< the default one first
  std::vector<std::string> remarks;     ///< about the settings, and what they leave open

  /// Gaps behind blocks of the start which may or may not be in part the block's own, the recording does not say.
  std::int64_t ambiguous_gaps = 0;
  /// Those which a later allocation in the gap decided. The others count as free.
  std::int64_t decided_gaps = 0;
};

/// Puts a trace together from its events, so that a snapshot need not hold them.
class TraceBuilder {
 public:
  /// Room for as many events, at most. What is not used takes address space only.
  void reserve(std::size_t events) { trace_.events.reserve(events); }
  void add(const TraceEvent& event);
  [[nodiscard]] bool empty() const { return trace_.events.empty(); }
  /// The trace of that device of the snapshot the events are from. Throws InputError, which names `file`, if the
  /// snapshot contradicts itself, or was recorded with settings that are not modelled.
  RecordedTrace build(const MemorySnapshot& snapshot, std::int64_t device, const std::string& file) &&;

 private:
  [[nodiscard]] StreamId stream(StreamPointer pointer);
  [[nodiscard]] std::uint16_t mempool(MempoolId id);

  RecordedTrace trace_;
  std::vector<StreamPointer> streams_;  // by the ids of the events, as they came
  std::int64_t sum_ = 0;                // of the sizes, as long as they are sane
  bool maps_pages_ = false;
};

/// The trace of one device. Throws InputError, which names `file`, if the snapshot contradicts itself, or was recorded
/// with settings that are not modelled.
RecordedTrace recorded_trace(const MemorySnapshot& snapshot, std::int64_t device = 0, const std::string& file = {});

}  // namespace tidemark::scenarios
