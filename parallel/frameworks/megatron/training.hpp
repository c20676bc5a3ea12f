#pragma once

#include <vector>

#include "parallel/job/framework.hpp"

namespace tidemark::parallel::megatron {

/// Ranks of a pipeline stage run the same passes. Tensor-parallel ones do the same on other rows of the vocabulary and
/// of the sequence: numbers and offsets differ, and nothing else. So do data-parallel ones, unless the distributed
/// optimizer gives them other pieces of parameters: blocks round by the piece.
[[nodiscard]] std::vector<Role> roles(const LoweringInput& input);

[[nodiscard]] Program lower_training(const LoweringInput& input, const Coordinates& place,
                                     const StepSizes& micro_batches, TrainingState* state = nullptr);

// What the modules of a model are and do, on one rank that holds all of it.

/// What they register when they are constructed, in Megatron's order. Nothing is allocated.
[[nodiscard]] std::vector<Parameter> registered_parameters(const Model& model, const ModelOptions& options);
/// The job's construction and its first forward pass.
[[nodiscard]] torch::Recording record_forward(const LoweringInput& input);
[[nodiscard]] Program lower_forward(const LoweringInput& input);

inline constexpr Framework framework{roles, lower_training, record_forward};

}  // namespace tidemark::parallel::megatron
