#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "scenarios/namespace.hpp"
#include "sim/base/units.hpp"
#include "sim/program/structure/repeats.hpp"

// What happens to a rank's memory, cut out of its program so that candidates and ranks can share parts of it:
//
//   program   | construction | zero_grad | F F F B F B ... B B | reduce, update | zero_grad | F F F B ...
//   state     |##############|###########|                     |################|###########|
//   passes    |              |           |before|body|   after |                |           |before|...
//                                               |body|  as often as the step repeats it
//
// Only allocations, frees and what drivers take matter to memory; and where other streams borrow blocks, what the
// streams and the host wait for, launches included, of which a queue holds so many.
//
// State and passes can be cut apart where neither frees, or waits for, what the other made. Then ranks that run the
// same passes around another state share them, and a body is replayed without its program. Whether a program is so is
// found in the program itself: `events_of` gives nothing where it is not, and whoever asked runs the whole program.

namespace tidemark::scenarios {

/// Something that happens to a rank's memory. Buffers and events of passes are named by the latest micro-batch that had
/// begun when they were made, counted back from the latest now, and by how many were made before them since: names that
/// repeat where bodies do.
struct AllocatorEvent {
  enum class Kind : std::uint8_t {
    Begin,  ///< a micro-batch
    Alloc,
    Keep,  ///< a buffer of a pass that nothing frees
    Free,
    CrossStreamUse,
    Record,
    Wait,
    Sync,
    Launches,  ///< of its stream, `bytes` of them
    AllocState,
    FreeState,
    RecordState,
    WaitState,
    SyncState,
    Driver,
    Communicator,
    Registered,  ///< past the allocator, for good
    EmptyCache   ///< of the state
  };
  std::int64_t bytes = 0;   ///< asked for, or a count
  std::int32_t ref = 0;     ///< how many came before it, of the state's or since that micro-batch; else what is created
  std::int32_t behind = 0;  ///< micro-batches
  StreamId stream;
  Kind kind = Kind::Begin;
  bool early = false;  ///< `behind` counts on from the step's first micro-batch
  bool operator==(const AllocatorEvent&) const = default;
};
using EventSequence = std::vector<AllocatorEvent>;

/// The passes of one step: `before`, `body` again and again, `after`.
struct PassEvents {
  EventSequence before, body, after;
  std::int64_t repeats = 0;
  bool operator==(const PassEvents&) const = default;
};

/// What a stage's ranks have in common: the passes of each step.
struct StageEvents {
  std::vector<PassEvents> steps;
  bool has_cross_stream_uses = false;  ///< other streams borrow blocks of passes
  std::set<std::int32_t> used_by;      ///< which, by StreamId
  bool operator==(const StageEvents&) const = default;
};

/// What a role does besides: construction, and each step before and after its passes.
struct StateEvents {
  EventSequence construction;
  struct Step {
    EventSequence before, after;
    bool operator==(const Step&) const = default;
  };
  std::vector<Step> steps;
  bool operator==(const StateEvents&) const = default;
};

struct RankEvents {
  StateEvents state;
  StageEvents passes;
};

/// Nothing where state and passes of the program are not apart. What repeats stays said once.
[[nodiscard]] std::optional<RankEvents> events_of(const RepeatingProgram& program);

/// Whether the state of a whole program with those passes is the one that a program without passes shows. Communicators
/// that passes created are not created again.
[[nodiscard]] bool same_state(const StateEvents& whole, const StageEvents& passes, const StateEvents& alone);

}  // namespace tidemark::scenarios
