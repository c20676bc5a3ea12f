#pragma once

#include <cstdint>
#include <vector>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/job/layout.hpp"
#include "parallel/runtime/runtime.hpp"
#include "parallel/schedule/schedule.hpp"

// What torch.distributed.pipelining's _PipelineScheduleRuntime does for a schedule of several stages on each rank
// (schedules.py, PyTorch 2.10 to 2.15), in the order in which it does it.

namespace tidemark::parallel::pytorch {

enum class PipelineActionKind : std::uint8_t {
  Forward,
  Backward,
  BackwardInput,   ///< the part of it that makes the input's gradient
  BackwardWeight,  ///< the rest of it
  Unshard,         ///< parameters of a stage begin to be gathered
  Reshard,
  ReduceGrad,
  WaitReduceGrad,
  SendForward,  ///< the output goes to the next stage
  SendBackward,
  ReceiveForward,  ///< the input begins to be received
  ReceiveBackward,
  WaitSendForward,
  WaitSendBackward,
};

struct PipelineAction {
  PipelineActionKind kind = PipelineActionKind::Forward;
  std::int32_t chunk = 0;
  std::int32_t micro_batch = -1;  ///< none: of the whole stage
  bool joined = false;            ///< OVERLAP_F_B, with the action after it: one begins when both can
  bool operator==(const PipelineAction&) const = default;
};
using PipelineActions = std::vector<PipelineAction>;

/// Those of all ranks of a pipeline, by their schedules.
[[nodiscard]] std::vector<PipelineActions> pipeline_actions(const std::vector<Schedule>& schedules,
                                                            const StagePlacement& placement,
                                                            const PipelineBehavior& behavior);

}  // namespace tidemark::parallel::pytorch
