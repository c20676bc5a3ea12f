#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/frameworks/pytorch/fsdp/fully_shard.hpp"
#include "parallel/frameworks/pytorch/pipeline/pipeline_backward.hpp"
#include "parallel/runtime/runtime.hpp"

// torch.distributed.pipelining's PipelineStage (stage.py, PyTorch 2.6 to 2.15): what functions are called there,
// functions here are called. What a stage refers to, and for how long, is theirs.

namespace tidemark::parallel::pytorch {

/// A part of a model, as a pipeline calls it.
struct StageModule {
  /// The first stage takes its tokens, and the others what they are handed.
  std::function<Tensor(std::int32_t micro_batch, const Tensor& handed)> forward;
  /// Of the last stage, of what its forward pass made.
  std::function<Tensor(std::int32_t micro_batch, const Tensor& output)> loss;
  double loss_gradient = 1;      ///< more where what is called a loss is its mean, and goes backward as a sum
  FullyShard* shards = nullptr;  ///< none where a rank holds all of the stage
  /// In the order in which the module registers them; they outlive the stage.
  const Parameters* weights = nullptr;
};

/// What stages hand over: a hidden state of a micro-batch.
struct HandedOver {
  Shape sizes;
  DType dtype = DType::BF16;
};

/// A message on its way, and what is kept until it is there.
struct PendingSend {
  EventId sent;
  Tensor tensor;
  std::int32_t micro_batch = -1;  ///< whose output it is; none of a gradient
};

class PipelineStage {
 public:
  PipelineStage(Session& session, const PipelineBehavior& behavior, HandedOver handed, StageModule module,
                bool is_first, bool is_last)
      : s_(session),
        behavior_(behavior),
        handed_(std::move(handed)),
        module_(std::move(module)),
        is_first_(is_first),
        is_last_(is_last) {}

  /// Before the first step: a micro-batch goes through, to see what is handed over, and room is made for what comes
  /// where that is not made when it comes.
  void prepare_forward(std::int32_t micro_batches);
  void prepare_backward(std::int32_t micro_batches);
  void clean_up_probe();

  /// What is received into.
  [[nodiscard]] Tensor input_buffer(std::int32_t micro_batch);
  [[nodiscard]] Tensor gradient_buffer(std::int32_t micro_batch);

  void forward_one_chunk(std::int32_t micro_batch);
  /// Of the last stage; kept until the step is over.
  void compute_loss(std::int32_t micro_batch);
  void backward_one_chunk(std::int32_t micro_batch);
  /// The same in two parts. Of the first stage, whose input has no gradient, the second does all of it.
  void backward_input_one_chunk(std::int32_t micro_batch);
  void backward_weight_one_chunk(std::int32_t micro_batch);

  /// What a stage on the same rank hands over.
  void set_local_forward_input(std::int32_t micro_batch, Tensor output) { inputs_[micro_batch] = std::move(output); }
  void set_local_backward_input(std::int32_t micro_batch, Tensor gradient) {
    gradients_[micro_batch] = std::move(gradient);
  }

  /// What is sent: undefined where nothing is.
  [[nodiscard]] Tensor sent_forward(std::int32_t micro_batch) const;
  [[nodiscard]] Tensor sent_backward(std::int32_t micro_batch);
  /// The output has been sent, and is not needed any more.
  void release_sent_output(std::int32_t micro_batch);

  void start_gradient_reduction();
  void wait_for_gradient_reduction() {
    if (module_.shards != nullptr) module_.shards->wait_for_gradient_reduction();
  }
  /// Losses of the step, and what their graphs hold: nodes of leaves refer to what was received.
  struct Losses {
    std::vector<Tensor> all;
    std::vector<std::shared_ptr<Leaf>> leaves;
  };
  /// … which the stage no longer refers to.
  [[nodiscard]] Losses take_losses() { return std::exchange(losses_, {}); }
  /// Outputs of the step are put together, where they are asked for; nobody looks at them.
  void merge_outputs();
  /// Outputs of the step before are given up.
  void clear_runtime_states() { outputs_.clear(); }

  [[nodiscard]] FullyShard* shards() const { return module_.shards; }

 private:
  /// _ForwardChunkState
  struct Chunk {
    std::shared_ptr<Leaf> input;  ///< of all stages but the first
    Tensor output;
    Edge of_output;
  };
  /// What a micro-batch's backward pass begins with; and backward_state, between its two parts.
  struct BackwardState {
    Chunk chunk;
    Tensor gradient;  ///< of the output; none of the last stage
    std::vector<ParameterGroup> groups;
  };
  [[nodiscard]] BackwardState begin_backward(std::int32_t micro_batch);
  [[nodiscard]] WaitingGradient root_of(std::int32_t micro_batch, const BackwardState& state);
  void backward_whole(std::int32_t micro_batch, BackwardState state);
  void leave_gradients_unreduced();
  [[nodiscard]] Tensor buffer(std::string_view what);
  [[nodiscard]] Chunk run(std::int32_t micro_batch, const Tensor& handed);

  Session& s_;
  const PipelineBehavior& behavior_;
  HandedOver handed_;
  StageModule module_;
  bool is_first_, is_last_;
  std::map<std::int32_t, Tensor> inputs_, gradients_;  ///< buffers of micro-batches, to be received into or received
  std::map<std::int32_t, Chunk> chunks_;               ///< of micro-batches between forward and backward pass
  std::map<std::int32_t, Tensor> input_gradients_;     ///< bwd_cache
  std::map<std::int32_t, BackwardState> parted_;       ///< whose weights still wait for their gradients
  Losses losses_;
  std::vector<Tensor> outputs_;
  std::optional<Chunk> probe_;
};

}  // namespace tidemark::parallel::pytorch
