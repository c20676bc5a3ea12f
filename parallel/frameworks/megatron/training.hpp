#pragma once

#include <cstdint>
#include <vector>

#include "parallel/job.hpp"
#include "parallel/mesh.hpp"
#include "parallel/torch/record.hpp"
#include "parallel/training_state.hpp"
#include "sim/program/program.hpp"

namespace tidemark::parallel::megatron {

/// The program of the rank at that place, with so many micro-batches in each step. Those that stand elsewhere among its
/// tensor-parallel ranks do the same on other rows of the vocabulary and of the sequence: numbers and offsets differ,
/// and nothing else. So do data-parallel ones that hold like pieces of the optimizer's state. `state`, where there is
/// one, is told where gradients and parameters are.
[[nodiscard]] Program lower_training(const LoweringInput& input, const Coordinates& place,
                                     const std::vector<std::int64_t>& micro_batches, TrainingState* state = nullptr);

// What the modules of a model are and do, on one rank that holds all of it.

/// What they register when they are constructed, in Megatron's order. Nothing is allocated.
[[nodiscard]] std::vector<Parameter> registered_parameters(const Model& model, const ModelOptions& options);
/// The job's construction and its first forward pass.
[[nodiscard]] torch::Recording record_forward(const LoweringInput& input);
[[nodiscard]] Program lower_forward(const LoweringInput& input);

}  // namespace tidemark::parallel::megatron
