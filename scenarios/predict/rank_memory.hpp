#pragma once

#include "scenarios/namespace.hpp"
#include "scenarios/predict/memory_program.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/predict/required_memory.hpp"
#include "scenarios/predict/upper_ends/deferred_frees.hpp"
#include "sim/base/units.hpp"
#include "sim/program/costs.hpp"
#include "sim/program/program_times.hpp"

namespace tidemark::scenarios {

/// What the memory of ranks is held against.
struct RankRoom {
  JudgedDevice device;
  Bytes room;  ///< but for headroom, and for batches that outlive their passes
  Require required = Require::Least;
  ReportedFrees reported = ReportedFrees::ByClock;
  StreamId prompt = {};                   ///< as ByClock::prompt
  std::optional<Bytes> beyond_live = {};  ///< as required_memory takes it: of a rank that runs the same passes
};

/// The memory of ranks that run one program at the same prices, where blocks that other streams use come back at once.
[[nodiscard]] RankGroup at_once(const MemoryProgram& done, bool has_cross_stream_frees, const DriverCosts& costs,
                                const RankRoom& by);

/// Puts into `group`, which is of `at_once`, what those ranks hold where such blocks come back by the clock.
void return_by_clock(const ProgramTimes& times, const MemoryProgram& done, const RankRoom& by, RankGroup& group);

/// Puts tokens beyond those that are stated into the upper ends. `worst_case` is the memory with them.
void add_routing(const RankGroup& worst_case, RankGroup& group);

}  // namespace tidemark::scenarios
