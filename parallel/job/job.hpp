#pragma once

#include <cstdint>
#include <vector>

#include "parallel/job/built_model.hpp"
#include "parallel/job/layout.hpp"
#include "parallel/job/mesh.hpp"
#include "parallel/job/train.hpp"
#include "parallel/runtime/runtime.hpp"
#include "parallel/schedule/schedule.hpp"

namespace tidemark::parallel {

/// What the lowering is asked for. `train.attention` is settled, and `layout` is possible for the model: readers check.
struct LoweringInput {
  const BuiltModel& built;
  const Layout& layout;
  const Train& train;
  const Runtime& runtime;
};

/// The communicators that the job's workload has, by slot.
[[nodiscard]] Communicators communicators_of(const LoweringInput& input);

/// Micro-batches of each step that a program is written for, the first first.
using StepSizes = std::vector<std::int64_t>;

/// Micro-batches of a data-parallel rank in one step.
[[nodiscard]] std::int64_t micro_batches_of(const Train& train, const Layout& layout);
/// The actions of a pipeline rank in the order in which it runs them.
[[nodiscard]] Schedule schedule_of(const Layout& layout, std::int32_t pipeline, std::int32_t micro_batches);
/// Those of all pipeline ranks.
[[nodiscard]] std::vector<Schedule> schedules_of(const Layout& layout, std::int32_t micro_batches);
/// Micro-batches of a step as short as there can be in which ranks talk to all that they talk to, and every pass meets
/// what it meets again and again: whatever is made once is made then.
[[nodiscard]] std::int64_t shortest_step(const Layout& layout);

}  // namespace tidemark::parallel
