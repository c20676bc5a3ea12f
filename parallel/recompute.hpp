#pragma once

#include <vector>

#include "parallel/graph.hpp"
#include "parallel/stages.hpp"
#include "parallel/train.hpp"

namespace tidemark::parallel {

/// Operators whose forward pass runs without saving anything but what comes in, and once more when their backward pass
/// is due.
struct Segment {
  std::vector<OperatorId> operators;  ///< in order
  std::vector<ValueId> inputs;        ///< made outside, read inside: what a checkpoint saves
  std::vector<ValueId> outputs;       ///< made inside, read outside
};

/// The operators that every path from the model's beginning reaches after `after`, and from which every path to its end
/// leads through `upto`, which is one of them: what lies between them and nothing else touches. (Dominators of the
/// graph, and of the graph turned round.)
[[nodiscard]] std::vector<OperatorId> operators_between(const ModelGraph& graph, OperatorId after, OperatorId upto);

/// What a stage recomputes, in the order of the model.
[[nodiscard]] std::vector<Segment> recomputed_segments(const ModelGraph& graph, const Stage& stage,
                                                       const Recomputation& asked);

}  // namespace tidemark::parallel
