#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/frameworks/megatron/optimizer/overlapped_buckets.hpp"
#include "parallel/frameworks/megatron/stage.hpp"
#include "parallel/schedule/messages.hpp"

namespace tidemark::parallel::megatron {

/// core/pipeline_parallel/schedules.py, core 0.14: runs a rank's steps, whichever schedule they are of. Variables of
/// its functions hold tensors longer than the arithmetic needs them; they are all here.
/// forward_backward_pipelining_without_interleaving waits for each hand-over;
/// forward_backward_pipelining_with_interleaving during warm-up and cool-down only: in between forward and backward
/// hand-overs run beside the passes; with overlap_p2p_comm_warmup_flush they always do.
class Pipeline {
 public:
  /// `buckets` go beside the passes, where there are any; they outlive this.
  Pipeline(Worker& worker, std::int32_t rank, OverlappedBuckets* buckets = nullptr);
  ~Pipeline();

  /// All micro-batches of one step.
  void run(std::int32_t step, std::int32_t micro_batches);
  /// The same by these steps.
  void run(std::int32_t step, const Steps& steps);

 private:
  using InFlight = std::pair<std::int32_t, std::int32_t>;  // chunk and micro-batch
  /// Passes and hand-overs of one direction.
  struct Direction {
    StreamId stream{}, ahead{};          ///< of hand-overs beside the passes, and of what is received before them
    std::vector<Tensor> recv_buffers{};  ///< which hold what came
    std::int32_t passes = 0;             ///< so far
    std::deque<EventId> awaited{};       ///< what comes beside the passes
    EventId sent{};                      ///< … and the last that goes
  };
  struct Received {
    std::shared_ptr<AutogradInput> input;
    Tensor gradient;
    [[nodiscard]] const Tensor& tensor() const { return input ? input->value : gradient; }
  };

  void forward_step(const Action& action);
  void backward_step(const Action& action);
  void weight_gradient_step(const Action& action);
  void deallocate_output();
  // What goes beside the passes, as each of them begins and ends.
  void gather_beside_forward();
  void reduce_beside_backward(const Action& action);
  void reduce_after_backward();
  void p2p(const P2pExchange& its);
  void wait_for_sent(Direction& direction);
  /// With a pass between warm-up and cool-down, which may send and receive nothing.
  void overlapped_p2p(Direction& direction, const P2pExchange& its, std::string_view label);
  void receive_first_gradient(const P2pExchange& its);
  /// What the pass after the next one needs.
  void receive_ahead(Direction& direction, const P2pExchange& its);
  /// Makes room for what comes and puts it where its pass will look.
  [[nodiscard]] Received expect(const Message& message);
  [[nodiscard]] std::vector<Transfer> sends(const P2pExchange& its) const;
  void wait_for_first(Direction& direction);
  void mark(const P2pExchange& its);

  [[nodiscard]] bool interleaved() const { return mode_ != P2pMode::Batched; }
  [[nodiscard]] bool ahead() const { return mode_ == P2pMode::OverlappedWithFlush; }
  [[nodiscard]] Direction& direction_of(const Action& action) { return is_forward(action.kind) ? forward_ : backward_; }
  /// Whether what the pass hands over goes beside the passes.
  [[nodiscard]] bool beside(const Action& action) const { return ahead() || steady(action); }
  /// Whether a pass of an interleaved schedule that comes next in its direction is between warm-up and cool-down.
  [[nodiscard]] bool steady(const Action& action) const;
  /// Of a chunk's micro-batches in the step.
  [[nodiscard]] bool is_last(const Action& pass) const { return pass.micro_batch == backwards_.back().micro_batch; }
  [[nodiscard]] Steps steps_of(std::int32_t micro_batches);
  [[nodiscard]] ModelStage& stage(std::int32_t chunk) { return *stages_[static_cast<std::size_t>(chunk)]; }

  Worker& w_;
  const std::int32_t rank_;
  const P2pMode mode_;
  std::vector<std::unique_ptr<ModelStage>> stages_;  ///< by chunk
  std::int32_t step_ = 0;
  std::int32_t warmup_ = 0, total_ = 0;  ///< forward passes before the first that alternates, and all
  Direction forward_, backward_;
  std::vector<Action> forwards_, backwards_;  ///< the step's passes, in order
  OverlappedBuckets* const buckets_;

  std::unique_ptr<ModuleOffload> module_offload_;

  // Variables. Lists are of what is in flight.
  struct Variables {
    std::map<InFlight, std::shared_ptr<AutogradInput>> input_tensors;
    std::map<InFlight, Tensor> output_tensors, output_tensor_grads;
    std::shared_ptr<AutogradInput> input_tensor;     ///< the last that was waited for
    std::shared_ptr<AutogradInput> graph_of_output;  ///< where the graph that `output_tensor` leads to ends
    Tensor output_tensor, output_tensor_grad, input_tensor_grad;
    std::map<InFlight, std::vector<std::function<void()>>> weight_gradients;  ///< left to do
  };
  Variables v_;
  std::optional<InFlight> whole_output_;  ///< that has not been deallocated yet
};

}  // namespace tidemark::parallel::megatron
