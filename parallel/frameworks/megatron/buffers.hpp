#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/frameworks/megatron/worker.hpp"

namespace tidemark::parallel::megatron {

/// core/distributed/param_and_grad_buffer.py: the parameters of one chunk of the model, and the contiguous buffers that
/// they and their gradients lie in.
class ParamAndGradBuffer {
 public:
  /// `suffix` is part of labels, where a rank has several chunks.
  ParamAndGradBuffer(Worker& worker, const Stage& stage, std::string suffix);

  /// Makes the parameters, each in memory of its own.
  void build_model();
  /// Makes the buffers; parameters move into theirs one by one, and each gives up its own memory.
  void build();
  void zero_gradients();
  /// Sums gradients over the data-parallel ranks.
  void reduce();
  /// Hands updated parameters round.
  void gather_parameters();

  [[nodiscard]] const std::vector<ParameterId>& parameters() const { return parameters_; }
  [[nodiscard]] const BufferLayout& layout() const { return layout_; }
  [[nodiscard]] const Tensor& gradients() const { return gradients_; }

 private:
  Worker& w_;
  Stage stage_;
  std::string suffix_;
  std::vector<ParameterId> parameters_;
  BufferLayout layout_;
  Tensor values_, gradients_;
};

/// Gradients are summed over ranks once all micro-batches are done (core/distributed/finalize_model_grads.py).
void finalize_model_gradients(Worker& w, std::vector<ParamAndGradBuffer>& buffers);

}  // namespace tidemark::parallel::megatron
