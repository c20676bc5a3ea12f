#pragma once

#include <vector>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/job/framework.hpp"

namespace tidemark::parallel::torchtitan {

/// Ranks whose shards are as large share one.
[[nodiscard]] std::vector<Role> roles(const LoweringInput& input);

/// The program of torchtitan's trainer: model, optimizer, and a step for each number of micro-batches.
[[nodiscard]] Program lower_training(const LoweringInput& input, const Coordinates& place,
                                     const StepSizes& micro_batches, TrainingState* state = nullptr);

/// Runs the modules of a job once, on the first micro-batch.
[[nodiscard]] torch::Recording record_forward(const LoweringInput& input);

// What operations make of gradients and optimizer state, they make within passes.
inline constexpr Framework framework{roles, lower_training, record_forward, false};

}  // namespace tidemark::parallel::torchtitan
