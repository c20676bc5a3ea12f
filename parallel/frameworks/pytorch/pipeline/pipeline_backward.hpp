#pragma once

#include <memory>
#include <vector>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/torch/autograd.hpp"
#include "parallel/torch/session.hpp"

// A stage's backward pass in two parts, as torch/distributed/pipelining/_backward.py of PyTorch 2.15 does it: what
// functions are called there, functions here are called.

namespace tidemark::parallel::pytorch {

using transformers::Parameters;

/// Weights whose gradients one operation makes, and what came to it: until these are made, its node and all that it
/// leads to stay.
struct ParameterGroup {
  Parameters weights;
  WatchedNode intermediate;
};

/// Leaves the gradient in `input`. Each weight is used once.
[[nodiscard]] std::vector<ParameterGroup> stage_backward_input(Session& session, WaitingGradient root,
                                                               const std::shared_ptr<Leaf>& input,
                                                               const Parameters& weights);

/// Adds up the gradients of weights.
void stage_backward_weight(Session& session, std::vector<ParameterGroup> groups);

}  // namespace tidemark::parallel::pytorch
