#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "parallel/lower/emitter.hpp"
#include "parallel/lower/operators.hpp"
#include "parallel/schedule/schedule.hpp"

namespace tidemark {

/// Runs a schedule's passes of one stage: batches in, stage inputs and gradients handed over, and the variables of
/// Megatron's schedule functions, which hold tensors longer than the arithmetic needs them.
class PipelineLowering {
 public:
  PipelineLowering(Emitter& emit, std::int32_t stage_index);

  /// All micro-batches of one step.
  void run(std::int32_t step, const Schedule& schedule);

 private:
  struct InFlight {
    explicit InFlight(const ModelGraph& graph) : tensors(graph) {}
    MicroBatch tensors;
    BufferId input;            ///< received from the stage before
    BufferId input_gradient;   ///< to be sent back to it
    BufferId output;           ///< to be sent to the stage after
    BufferId output_gradient;  ///< received from it
  };

  void load_batch(InFlight& batch);
  /// All operators of the stage; where segments run again later, names hold what comes into them.
  void run_forward(std::int32_t micro_batch, InFlight& batch);
  void run_backward(std::int32_t micro_batch, InFlight& batch);
  void run_again(const Segment& segment, InFlight& batch);
  void forward_pass(std::int32_t micro_batch);
  void backward_pass(std::int32_t micro_batch);
  /// Sends what `done` made and receives what `next` needs: as one exchange where the passes differ, else apart.
  void hand_over(const ScheduleStep* done, const ScheduleStep* next);
  void receive_into(const ScheduleStep& next, std::vector<Transfer>& transfers);
  void forget_output(std::int32_t micro_batch);
  void retire(std::int32_t micro_batch);

  [[nodiscard]] bool first_stage() const { return stage_index_ == 0; }
  [[nodiscard]] bool last_stage() const { return stage_index_ == emit_.layout.pipeline - 1; }
  [[nodiscard]] bool receives(const ScheduleStep& step) const {
    return step.pass == Pass::Forward ? !first_stage() : !last_stage();
  }
  [[nodiscard]] bool sends(const ScheduleStep& step) const {
    return step.pass == Pass::Forward ? !last_stage() : !first_stage();
  }
  InFlight& in_flight(std::int32_t micro_batch);
  void bind(std::string_view name, BufferId buffer);
  void unbind(std::string_view name);

  Emitter& emit_;
  std::int32_t stage_index_;
  std::int32_t step_ = 0;
  std::vector<OperatorId> operators_;     ///< of this stage, in order
  std::vector<std::int32_t> segment_of_;  ///< by place in `operators_`: index of what it runs again with, or -1
  ValueId tokens_, labels_;
  ValueId boundary_in_, boundary_out_;  ///< values that cross to and from the neighbouring stages
  BufferId decoder_input_;              ///< what the decoder was last given
  std::map<std::int32_t, InFlight> in_flight_;
  std::vector<InFlight> spare_;  ///< finished ones, to be used again
  std::map<std::string, bool, std::less<>> bound_;
};

}  // namespace tidemark
