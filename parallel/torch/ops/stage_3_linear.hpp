#pragma once

#include "parallel/torch/session.hpp"

namespace tidemark::parallel::torch {

/// LinearFunctionForZeroStage3 (deepspeed/runtime/zero/linear.py), which zero.Init puts in place of linear: x W^T,
/// and x is saved whether the weight is trained or not.
[[nodiscard]] Tensor linear_of_stage_3(Session& s, const Tensor& x, const Tensor& weight);

}  // namespace tidemark::parallel::torch
