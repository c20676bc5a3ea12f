#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/recordings/recorded_trace.hpp"
#include "scenarios/recordings/trace_replay.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/allocator_options.hpp"

namespace tidemark::scenarios {

/// The device and the allocator's options under which a recording's requests are made again.
struct Conditions {
  AllocatorOptions options;
  std::optional<Bytes> capacity;  ///< what the device has for segments; absent: as much as is asked for
};

/// Where memory ran out.
struct RanOut {
  std::size_t event = 0;  ///< the request
  Bytes requested;
  Bytes segment;    ///< asked of the device
  Bytes available;  ///< what the device still had
  Bytes reserved;
  Bytes allocated;
  std::optional<Bytes> limit;  ///< of the allocator, by a memory fraction

  friend bool operator==(const RanOut&, const RanOut&) = default;
};

/// What the allocator holds at one moment.
struct HeldAtPeak {
  std::size_t event = 0;
  Bytes reserved;
  Bytes allocated;  ///< in block sizes
  Bytes requested;  ///< by the program, of what is allocated or waits for other streams

  /// Reserved and in no block: free pieces that did not fit.
  [[nodiscard]] Bytes fragmentation() const { return reserved - allocated; }
  friend bool operator==(const HeldAtPeak&, const HeldAtPeak&) = default;
};

/// How a recording's requests fare under some conditions.
struct RerunOutcome {
  std::optional<RanOut> ran_out;  ///< the first time: what follows is not simulated
  HeldAtPeak reserved_peak;       ///< when it was first reached
  Bytes peak_allocated;
  Bytes final_reserved;
  Bytes final_allocated;
  std::int64_t alloc_retries = 0;  ///< num_alloc_retries: the whole cache was given back to go on
  std::int64_t device_allocs = 0;  ///< cudaMalloc, or pages mapped
  std::int64_t device_frees = 0;
  std::int64_t served_ooms = 0;  ///< requests that ran out in the recording and are served here

  friend bool operator==(const RerunOutcome&, const RerunOutcome&) = default;
};

/// One way to read what a recording leaves open.
struct RerunReading {
  /// Events before which the program emptied the cache.
  std::vector<std::size_t> emptied_at = {};
  /// By event: whether it also did before that request, if that finds nothing cached. A call that had nothing to give
  /// back left no trace in the recording. Empty: nowhere.
  std::vector<bool> emptied_unseen = {};
  /// Where new segments lie. Of free blocks of equal size the lowest goes first, up to PyTorch 2.11.
  AddressOrder addresses = AddressOrder::Rising;
  /// What becomes of a request that ran out in the recording and is served now.
  enum class LateService : std::uint8_t { FreedAtOnce, KeptToTheEnd } late_service = LateService::FreedAtOnce;

  friend bool operator==(const RerunReading&, const RerunReading&) = default;
};

/// Makes the requests of a recording again. Blocks that were live at its beginning are requested first, in order of
/// address; frees complete when they did; the cache is emptied where the program did that, not where the recorded
/// allocator had to. Addresses are invented.
RerunOutcome what_if(const RecordedTrace& trace, const RerunReading& reading, const Conditions& conditions);

/// How the requests fare in the likeliest reading of the recording, and in all others that it allows.
struct RerunRange {
  RerunOutcome likeliest;
  Bytes lowest_peak, highest_peak;  ///< reserved, of the readings in which memory suffices; or of all, if in none
  bool may_fit = false;             ///< memory suffices in some reading
  bool may_run_out = false;         ///< it does not in some
  std::vector<std::string> open;    ///< what the recording leaves open and readings differ in

  [[nodiscard]] bool certain() const { return lowest_peak == highest_peak && may_fit != may_run_out; }
};
RerunRange what_if(const RecordedTrace& trace, const ReplayReport& report, const Conditions& conditions);

}  // namespace tidemark::scenarios
