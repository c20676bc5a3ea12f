#pragma once

#include <cstdint>
#include <vector>

#include "parallel/lower/chunk_passes.hpp"
#include "parallel/schedule/schedule.hpp"

namespace tidemark::parallel {

/// Runs a schedule's passes of one stage: batches in, stage inputs and gradients handed over, and the variables of
/// Megatron's schedule functions, which hold tensors longer than the arithmetic needs them.
class PipelineLowering {
 public:
  explicit PipelineLowering(Emitter& emit) : emit_(emit), variables_(emit), passes_(emit, variables_, 0) {}

  /// All micro-batches of one step.
  void run(std::int32_t step, const Schedule& schedule);

 private:
  void forward_pass(std::int32_t micro_batch);
  void backward_pass(std::int32_t micro_batch);
  /// Sends what `done` made and receives what `next` needs: as one exchange where the passes differ, else apart.
  void hand_over(const Action* done, const Action* next);
  void receive_into(const Action& next, std::vector<Transfer>& transfers);
  void forget_output(std::int32_t micro_batch);

  [[nodiscard]] bool receives(const Action& action) const {
    return is_forward(action.kind) ? !passes_.first() : !passes_.last();
  }
  [[nodiscard]] bool sends(const Action& action) const {
    return is_forward(action.kind) ? !passes_.last() : !passes_.first();
  }

  Emitter& emit_;
  Variables variables_;
  ChunkPasses passes_;
  std::int32_t step_ = 0;
};

}  // namespace tidemark::parallel
