#pragma once

#include <cstdint>

#include "parallel/frameworks/megatron/worker.hpp"

namespace tidemark::parallel::megatron {

/// pretrain_gpt.py loss_func: the last stage's host asks whether a micro-batch's loss is a number, and whether it is
/// unexpectedly large, and waits for the answers.
void check_loss(const Worker& w, std::int32_t step);

/// core/distributed/param_and_grad_buffer.py check_grads: the norm of a bucket's gradients before they are reduced, and
/// the same of that.
void check_gradients(const Worker& w, const Tensor& bucket);

}  // namespace tidemark::parallel::megatron
