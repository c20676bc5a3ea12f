#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/frameworks/megatron/stage.hpp"
#include "parallel/schedule/schedule.hpp"

namespace tidemark::parallel::megatron {

/// core/pipeline_parallel/schedules.py forward_backward_pipelining_with_interleaving, core 0.14: during warm-up and
/// cool-down it waits for each hand-over, in between forward and backward ones run beside the passes. The variables of
/// that function hold tensors longer than the arithmetic needs them; they are all here.
class InterleavedPipeline {
 public:
  InterleavedPipeline(Worker& worker, std::int32_t pipeline);

  /// All micro-batches of one step.
  void run(std::int32_t step, std::int32_t micro_batches);

 private:
  // What a rank does with the tensor that comes next from a neighbour: take it, and for which chunk.
  struct Arrival {
    bool comes = false;
    std::int32_t chunk = 0;
  };
  [[nodiscard]] Arrival next_input(std::int32_t k) const;
  [[nodiscard]] Arrival next_output_gradient(std::int32_t k) const;
  [[nodiscard]] Arrival arrival(std::int32_t k, ActionKind kind, bool leads) const;
  [[nodiscard]] std::int32_t chunk_of(std::int32_t k, ActionKind kind) const;

  void warm_up();
  void steady();
  void cool_down();

  void forward_step(std::int32_t k);
  void backward_step(std::int32_t k);
  void deallocate_output();
  /// A hand-over that the compute stream waits for, or one beside it.
  void exchange(std::string_view label, const std::vector<Transfer>& transfers);
  [[nodiscard]] EventId exchange_aside(std::string_view label, StreamId stream,
                                       const std::vector<Transfer>& transfers);
  void join_first(std::deque<EventId>& awaited);
  /// Makes room for what comes and puts it where its pass will look.
  std::shared_ptr<GraphInput> expect_input(const Arrival& arrival);
  Tensor expect_output_gradient(const Arrival& arrival);
  [[nodiscard]] ModelStage& chunk(std::int32_t c) { return *chunks_[static_cast<std::size_t>(c)]; }
  [[nodiscard]] const Action& table(std::int32_t k) const { return table_[static_cast<std::size_t>(k)]; }

  // Lists of receive buffers; the rank that leads a direction has more, when groups are larger than the pipeline.
  [[nodiscard]] std::int32_t input_slots() const { return first_rank() ? slots() : 1; }
  [[nodiscard]] std::int32_t gradient_slots() const { return last_rank() ? slots() : 1; }
  [[nodiscard]] std::int32_t slots() const { return w_.layout.group() - w_.layout.pipeline + 1; }
  [[nodiscard]] bool first_rank() const { return pipeline_ == 0; }
  [[nodiscard]] bool last_rank() const { return pipeline_ == w_.layout.pipeline - 1; }

  // The function's variables. Lists are by chunk and micro-batch.
  template <class T>
  using List = std::map<std::pair<std::int32_t, std::int32_t>, T>;
  struct Variables {
    List<std::shared_ptr<GraphInput>> input_tensors;
    List<Tensor> output_tensors, output_tensor_grads;
    std::shared_ptr<GraphInput> input_tensor;  ///< what came last in the warm-up
    Tensor output_tensor_grad, input_tensor_grad;
    std::vector<Tensor> fwd_recv_buffer, bwd_recv_buffer;
  };

  Worker& w_;
  std::vector<std::unique_ptr<ModelStage>> chunks_;
  std::int32_t pipeline_;
  std::int32_t step_ = 0;
  std::int32_t warmup_ = 0, total_ = 0;
  Schedule table_;               ///< forward passes in order
  std::vector<std::int32_t> inputs_, gradients_;  ///< by chunk: how many have come
  Variables v_;
  BufferId output_, input_gradient_;       ///< what the last passes made, if it is to be sent
  std::optional<Action> output_of_;  ///< the pass whose output is still whole
  std::deque<EventId> awaited_inputs_, awaited_gradients_;
  EventId sent_output_, sent_gradient_;
};

}  // namespace tidemark::parallel::megatron
