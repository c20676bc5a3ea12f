#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "parallel/frameworks/megatron/stage.hpp"
#include "parallel/schedule/schedule.hpp"

namespace tidemark::parallel::megatron {

/// core/pipeline_parallel/schedules.py forward_backward_pipelining_without_interleaving, on any list of passes of one
/// stage: each hand-over is waited for. Its variables hold tensors longer than the arithmetic needs them.
class Pipeline {
 public:
  explicit Pipeline(Worker& worker) : w_(worker), stage_(worker, 0) {}

  /// All micro-batches of one step.
  void run(std::int32_t step, const Schedule& schedule);

 private:
  void forward_step(std::int32_t micro_batch);
  void backward_step(std::int32_t micro_batch);
  /// Sends what `done` made and receives what `next` needs: as one exchange where the passes differ, else apart.
  void hand_over(const Action* done, const Action* next);
  [[nodiscard]] bool receives(const Action& step) const {
    return is_forward(step.kind) ? !stage_.first() : !stage_.last();
  }
  [[nodiscard]] bool sends(const Action& step) const {
    return is_forward(step.kind) ? !stage_.last() : !stage_.first();
  }

  // The function's variables.
  struct Variables {
    std::shared_ptr<GraphInput> input_tensor;
    Tensor output_tensor, output_tensor_grad, input_tensor_grad;
    std::shared_ptr<GraphInput> graph_of_output;  ///< where the graph that `output_tensor` leads to ends
    std::map<std::int32_t, std::shared_ptr<GraphInput>> input_tensors;  ///< of micro-batches in flight
    std::map<std::int32_t, Tensor> output_tensors;
  };

  Worker& w_;
  ModelStage stage_;
  std::int32_t step_ = 0;
  Variables v_;
};

}  // namespace tidemark::parallel::megatron
