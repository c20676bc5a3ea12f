#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/frameworks/megatron/layers.hpp"
#include "parallel/job/batch.hpp"

namespace tidemark::parallel::megatron {

/// Makes what stays of losses until a step ends, when it begins. The schedules' forward_data_store grows by one report,
/// a block, with each micro-batch. Here each micro-batch finds the list as the last one does, and has its own
/// report until its backward pass is over: passes are alike however many come, free nothing that they have not made,
/// and leave nothing behind for what comes after them to free. Recordings hold just that (tests/golden/megatron_core);
/// Megatron-LM's CI on GPUs holds a block of 512 bytes more at its peaks, for a cause that is not known.
void make_step_losses(Worker& worker);
/// The last micro-batch's report again, once all passes are over.
void keep_last_report(Worker& worker);

/// One stage of the model on a rank: its only one, or one of its chunks. What Megatron's schedules call forward_step
/// and backward_step on.
class ModelStage {
 public:
  ModelStage(Worker& worker, std::int32_t chunk);

  /// Needs the input, if the stage receives one. Gives the output, which leads to the graph; of the last stage the
  /// loss, of which nothing but its graph is kept.
  [[nodiscard]] Tensor forward(std::int32_t step, std::int32_t micro_batch,
                               const std::shared_ptr<AutogradInput>& input);
  /// Leaves the gradient of the stage's input in that.
  void backward(std::int32_t step, std::int32_t micro_batch, const Tensor& output, const Tensor& output_gradient);

  void finish_head_gradient() { model_.finish_head_gradient(); }

  [[nodiscard]] bool first() const { return stage_.embedding; }
  [[nodiscard]] bool last() const { return stage_.head; }

  /// A tensor for what comes from the stage before, or for a gradient from the stage after.
  [[nodiscard]] std::shared_ptr<AutogradInput> receive_input() const;
  [[nodiscard]] Tensor receive_output_gradient() const;
  /// core/pipeline_parallel/schedules.py deallocate_output_tensor: only the graph of an output is needed once it is
  /// sent. Its data becomes one element.
  void deallocate_output(Tensor& output) const;

 private:
  // get_batch's variables.
  struct Loaded {
    GPTModel::Batch batch;
    Tensor attention_mask;
    std::vector<Tensor> all;
  };
  [[nodiscard]] Loaded load_batch() const;
  [[nodiscard]] Tensor own_part(const BatchTensor& item, Tensor whole) const;
  void sum_losses() const;

  Worker& w_;
  std::int32_t chunk_;
  Stage stage_;
  Parameters parameters_;
  GPTModel model_;
  std::shared_ptr<AutogradInput> input_tensor_;  ///< what the decoder was last given (set_input_tensor)
};

}  // namespace tidemark::parallel::megatron
