#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "parallel/lower.hpp"
#include "scenarios/namespace.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/allocator_options.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/prices.hpp"
#include "sim/program/repeats.hpp"

// The memory of one role of a candidate, through the emulated allocator, without its whole program. Three facts make
// that exact, and tests hold each of them against `replay` of the whole program:
//
//  - Only allocations, frees and what drivers take matter to memory; and where other streams borrow blocks, what the
//    streams and the host wait for.
//  - In the middle of a step micro-batches do the same again and again, which programs say once
//  (sim/program/repeats.hpp).
//    Once the allocator is after a body as it was after an earlier one (the same live blocks at the same addresses),
//    what follows repeats too, and is skipped.
//  - What data-parallel ranks of a stage do differently happens outside the passes: passes are lowered once per stage.

namespace tidemark::scenarios {

/// Something that happens to a rank's memory. Buffers and events of passes are named by the latest micro-batch that had
/// begun when they were made, counted back from the latest now, and by how many were made before them since: names that
/// repeat where bodies do.
struct TapeEvent {
  enum class Kind : std::uint8_t {
    Begin,  ///< a micro-batch
    Alloc,
    Keep,  ///< a buffer of a pass that nothing frees
    Free,
    Borrow,
    Record,
    Wait,
    Sync,
    AllocState,
    FreeState,
    RecordState,
    WaitState,
    SyncState,
    Driver,
    Communicator
  };
  std::int64_t bytes = 0;   ///< asked for
  std::int32_t ref = 0;     ///< how many came before it, of the state's or since that micro-batch; else what is created
  std::int32_t behind = 0;  ///< micro-batches
  StreamId stream;
  Kind kind = Kind::Begin;
  bool early = false;  ///< `behind` counts on from the step's first micro-batch
  bool operator==(const TapeEvent&) const = default;
};
using Tape = std::vector<TapeEvent>;

/// The passes of one step: `before`, `body` again and again, `after`.
struct PassesTape {
  Tape before, body, after;
  std::int64_t repeats = 0;
  bool operator==(const PassesTape&) const = default;
};

/// What a stage's ranks have in common: the passes of each step.
struct StageTape {
  std::vector<PassesTape> steps;
  bool borrows = false;  ///< other streams borrow blocks of passes
};

/// What a role does besides: construction, and each step before and after its passes.
struct StateTape {
  Tape construction;
  struct Step {
    Tape before, after;
    bool operator==(const Step&) const = default;
  };
  std::vector<Step> steps;
  bool operator==(const StateTape&) const = default;
};

/// What repeats stays said once.
[[nodiscard]] StageTape stage_tape(const RepeatingProgram& program);
[[nodiscard]] StateTape state_tape(const LoweringInput& input, const Role& role);

/// What one run through the allocator shows. Drivers take memory at few moments, so one run serves every price list.
struct TapeRecord {
  Bytes allocated;  ///< highest
  struct Epoch {
    std::optional<DriverResource> resource;  ///< what was created at its beginning; of the first, nothing
    CommSlot comm;
    Bytes reserved;  ///< highest within
  };
  std::vector<Epoch> epochs;
  bool out_of_memory = false;
  bool complete = false;                 ///< to the end of the last step; ended early otherwise
  std::int64_t bodies = 0, skipped = 0;  ///< run, and known without running

  [[nodiscard]] Bytes device(const DriverPrices& prices) const;
  [[nodiscard]] Bytes device_upper(const DriverPrices& prices) const;
};

/// Asked whenever a run's epochs have changed: whether what the record shows so far will do.
using EnoughSeen = std::function<bool(const TapeRecord&)>;

/// Through the allocator, on a device of unlimited memory.
[[nodiscard]] TapeRecord run_tape(const StateTape& state, const StageTape& stage, const AllocatorOptions& options = {},
                                  const EnoughSeen& enough = {}, BorrowedFrees borrowed = BorrowedFrees::AtOnce);
/// The same on a device of `capacity`, where drivers take what `prices` say at their central values.
[[nodiscard]] TapeRecord run_tape(const StateTape& state, const StageTape& stage, const AllocatorOptions& options,
                                  const DriverPrices& prices, Bytes capacity,
                                  BorrowedFrees borrowed = BorrowedFrees::AtOnce);

}  // namespace tidemark::scenarios
