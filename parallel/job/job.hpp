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

/// Input of the lowering. `train.attention` is resolved, and `layout` is valid for the model: readers check both.
struct LoweringInput {
  const BuiltModel& built;
  const Layout& layout;
  const Train& train;
  const Runtime& runtime;
};

/// The communicators of the job's workload, by slot.
[[nodiscard]] Communicators communicators_of(const LoweringInput& input);

/// Micro-batches of each step that a program is written for, the first first.
using StepSizes = std::vector<std::int64_t>;

/// Micro-batches of a data-parallel rank in one step.
[[nodiscard]] std::int64_t micro_batches_of(const Train& train, const Layout& layout);
/// The actions of a pipeline rank in the order in which it runs them.
[[nodiscard]] Schedule schedule_of(const Layout& layout, std::int32_t pipeline, std::int32_t micro_batches);
/// Those of all pipeline ranks.
[[nodiscard]] std::vector<Schedule> schedules_of(const Layout& layout, std::int32_t micro_batches);
/// Micro-batches of the shortest step in which ranks exchange messages with all their peers, and every pass meets
/// its steady state: tensors that are created once are created there.
[[nodiscard]] std::int64_t shortest_step(const Layout& layout);

}  // namespace tidemark::parallel
