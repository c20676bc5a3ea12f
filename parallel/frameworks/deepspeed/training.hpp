#pragma once

#include <vector>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/job/framework.hpp"

namespace tidemark::parallel::deepspeed {

/// Ranks whose parts of what is shared out consist of pieces as large share one.
[[nodiscard]] std::vector<Role> roles(const LoweringInput& input);

/// The program of a training script of transformers under deepspeed.initialize: model, ZeRO's optimizer, and a step for
/// each number of micro-batches.
[[nodiscard]] Program lower_training(const LoweringInput& input, const Coordinates& place,
                                     const StepSizes& micro_batches, TrainingState* state = nullptr);

/// Runs the modules of a job once, on the first micro-batch.
[[nodiscard]] Recording record_forward(const LoweringInput& input);

inline constexpr Framework framework{roles, lower_training, record_forward, false};

}  // namespace tidemark::parallel::deepspeed
