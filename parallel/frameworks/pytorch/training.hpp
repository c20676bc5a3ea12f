#pragma once

#include "parallel/frameworks/namespace.hpp"
#include "parallel/job.hpp"
#include "parallel/torch/record.hpp"
#include "parallel/training_state.hpp"
#include "sim/program/program.hpp"

namespace tidemark::parallel::pytorch {

/// The program of a training script in plain PyTorch: model, optimizer, DistributedDataParallel where there are several
/// ranks, and a step for each number of micro-batches. Ranks differ in nothing. `state`, where there is one, is told
/// where gradients and parameters are.
[[nodiscard]] Program lower_training(const LoweringInput& input, const StepSizes& micro_batches,
                                     TrainingState* state = nullptr);

/// Runs the modules of a job once, on the first micro-batch.
[[nodiscard]] Recording record_forward(const LoweringInput& input);

}  // namespace tidemark::parallel::pytorch
