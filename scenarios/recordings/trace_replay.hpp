#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/recordings/recorded_trace.hpp"
#include "sim/base/units.hpp"

namespace tidemark::scenarios {

/// The first place where our allocator and the recorded one part.
struct Divergence {
  std::size_t event = 0;  ///< index in RecordedTrace::events; their number if only the end state differs
  std::string text;       ///< one sentence, which starts with the event

  friend bool operator==(const Divergence&, const Divergence&) = default;
};

/// How the caching allocator did on the requests of a recording.
struct ReplayReport {
  std::int64_t events = 0;
  std::int64_t allocs = 0;
  std::int64_t frees = 0;  ///< completed ones
  std::int64_t segment_allocs = 0;
  std::int64_t segment_frees = 0;
  std::int64_t segment_maps = 0;  ///< pages of expandable segments
  std::int64_t segment_unmaps = 0;
  std::int64_t snapshots = 0;
  std::int64_t ooms = 0;

  std::int64_t mismatched_addresses = 0;       ///< blocks that were elsewhere, or not had at all
  std::int64_t mismatched_segment_events = 0;  ///< asked for or given back by one of the two only, or not the same size
  std::int64_t mismatched_frees = 0;           ///< of nothing that is live, or of another size than was allocated
  std::int64_t mismatched_snapshots = 0;       ///< marks in the trace that show another number of active bytes
  bool same_end = false;                       ///< every segment and block at the end: address, size, state
  std::optional<Divergence> first_divergence;

  std::int64_t segments = 0;  ///< at the end
  std::int64_t blocks = 0;
  Bytes reserved;
  Bytes peak_reserved;   ///< of the start and the trace
  Bytes peak_allocated;  ///< in block sizes; rests in part on the reconstruction of the start

  /// Events before which the program emptied the cache: torch.cuda.empty_cache(). The allocator does the same for a
  /// request when the device is full: then the device's events have the request's stack. Where stacks do not tell, it
  /// was not full if more was reserved at another time.
  std::vector<std::size_t> emptied_at;
  /// Events before which the one or the other did: nothing in the recording tells.
  std::vector<std::size_t> perhaps_emptied_at;
  /// What the allocator and the device had together when a request ran out: reserved, and free on the device. Absent if
  /// the device had room for it: a limit was in the way that the recording does not state.
  std::optional<Bytes> capacity;

  /// Which of free blocks of equal size went first: the one at the lowest address, up to PyTorch 2.11; or that of the
  /// oldest segment, and of its blocks the lowest, since 2.13 (pull request 183591).
  enum class Ties : std::uint8_t { ByAddress, ByAge } ties = Ties::ByAddress;

  [[nodiscard]] bool exact() const { return !first_divergence && same_end; }
  friend bool operator==(const ReplayReport&, const ReplayReport&) = default;
};

/// Feeds a recording to the caching allocator, which gets its segments at the recorded addresses. Of free blocks of
/// equal size, those of the lowest address go first; or of the oldest segment, if that explains the recording. A block
/// returns when its free was completed, so that the timing of other streams plays no part. The device has nothing left
/// where the recorded one had nothing left.
ReplayReport replay(const RecordedTrace& trace);

}  // namespace tidemark::scenarios
