#pragma once

#include <vector>

#include "parallel/lower/emitter.hpp"

namespace tidemark {

/// The tensors of one micro-batch on one stage, while it is in flight.
struct MicroBatch {
  explicit MicroBatch(const ModelGraph& graph) : values(graph.values.size()), gradients(graph.values.size()) {}

  std::vector<BufferId> values;     ///< by ValueId
  std::vector<BufferId> gradients;  ///< by ValueId; what backward has summed up so far
  BufferId embedding_mask;          ///< tokens of other ranks' parts of the vocabulary
  bool attention_frame = false;     ///< attention's forward function has not returned yet
  bool norm_linear_frame = false;   ///< a fused norm and linear's backward function has not returned yet
};

/// The forward pass of one operator: transients, outputs, kernels and collectives in the order of the host thread.
void forward(Emitter& emit, MicroBatch& batch, OperatorId op);

/// Its backward pass: reads what the operator saved and its outputs' gradients, adds to its inputs' gradients.
void backward(Emitter& emit, MicroBatch& batch, OperatorId op);

}  // namespace tidemark
