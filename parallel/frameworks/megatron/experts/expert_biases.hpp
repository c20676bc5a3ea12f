#pragma once

#include <vector>

#include "parallel/frameworks/megatron/worker.hpp"

// What gpt-oss's experts have besides (Megatron-LM core 0.15, core/transformer/moe/experts.py TEGroupedMLP).

namespace tidemark::parallel::megatron {

/// fused_bias_geglu.py weighted_bias_quick_geglu_impl with a clamp_value: of the first linear's output both halves
/// within limits, joined.
[[nodiscard]] Tensor clamped_halves(Worker& w, const Name& name, const Tensor& x);

/// _apply_bias: to the rows of each expert its bias, times each row's probability.
[[nodiscard]] Tensor with_biases(Worker& w, const Name& name, const Tensor& x, const Tensor& probabilities,
                                 const std::vector<const Weight*>& biases,
                                 const std::vector<std::int64_t>& rows_of_experts);

}  // namespace tidemark::parallel::megatron
