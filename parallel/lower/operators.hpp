#pragma once

#include <utility>
#include <vector>

#include "parallel/lower/emitter.hpp"

namespace tidemark::parallel {

/// The tensors of one micro-batch on one stage, while it is in flight.
struct MicroBatch {
  explicit MicroBatch(const ModelGraph& graph) : values(graph.values.size()), gradients(graph.values.size()) {}

  std::vector<BufferId> values;     ///< by ValueId
  std::vector<BufferId> gradients;  ///< by ValueId; what backward has summed up so far
  BufferId embedding_mask;          ///< tokens of other ranks' parts of the vocabulary
  BufferId shared_gradient;         ///< of a weight that two operators use, from the first one's backward pass on
  /// Gradients of weights that hooks will add into the buffer once the backward function returns.
  std::vector<std::pair<ParameterId, BufferId>> unhooked;
  bool attention_frame = false;    ///< attention's forward function has not returned yet
  bool turned_in_frame = false;    ///< … which refers to the turned queries and keys as well
  bool value_in_frame = false;     ///< core attention's forward function, which refers to the values, has not either
  bool norm_linear_frame = false;  ///< a fused norm and linear's backward function has not returned yet
};

/// The forward pass of one operator: transients, outputs, kernels and collectives in the order of the host thread.
void forward(Emitter& emit, MicroBatch& batch, OperatorId op);

/// Its backward pass: reads what the operator saved and its outputs' gradients, adds to its inputs' gradients.
void backward(Emitter& emit, MicroBatch& batch, OperatorId op);

}  // namespace tidemark::parallel
