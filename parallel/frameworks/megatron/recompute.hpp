#pragma once

#include <functional>

#include "parallel/frameworks/megatron/worker.hpp"

namespace tidemark::parallel::megatron {

/// core/tensor_parallel/random.py CheckpointFunction: runs without saving anything but what comes in, and once more
/// when the backward pass is due.
[[nodiscard]] Tensor checkpoint(Worker& w, std::function<Tensor(Tensors)> run, Tensors inputs);

}  // namespace tidemark::parallel::megatron
