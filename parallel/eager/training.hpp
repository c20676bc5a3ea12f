#pragma once

#include "parallel/lower.hpp"

namespace tidemark::parallel::eager {

/// The program of a training script in plain PyTorch: model, optimizer, DistributedDataParallel where there are several
/// ranks, and `train.steps` steps. Ranks differ in nothing.
[[nodiscard]] Program lower_training(const LoweringInput& input);

}  // namespace tidemark::parallel::eager
