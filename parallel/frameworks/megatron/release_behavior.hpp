#pragma once

#include "parallel/runtime/runtime.hpp"

// What Megatron-LM's releases do and no habit names yet: each is read off another habit that came with the same
// release.

namespace tidemark::parallel::megatron {

/// Core 0.12: core/optimizer/optimizer.py ChainedOptimizer.step counts zeros among gradients, asked or not.
inline bool counts_zeros(const Runtime& runtime) {
  return runtime.validated == ValidatedSteps::All && runtime.experts.keeps_router_inputs;
}
/// From 0.13 on: training.py train_step stacks what micro-batches report, and sums it at once.
inline bool stacks_reports(const Runtime& runtime) { return !runtime.experts.keeps_router_inputs; }
/// From 0.14 on: training.py get_model makes DistributedDataParallel on a stream of its own.
inline bool wraps_aside(const Runtime& runtime) { return runtime.validated == ValidatedSteps::AfterTheFirst; }
/// … and core/transformer/moe/moe_utils.py track_moe_metrics keeps what it says of each loss, whoever writes it down.
inline bool logs_tracked_losses(const Runtime& runtime) { return wraps_aside(runtime); }
/// From 0.16 on: yarn_rotary_pos_embedding.py YarnRotaryEmbedding's constructor forgets all angles that layers have
/// asked for.
inline bool forgets_first_angles(const Runtime& runtime) { return runtime.core.holds_projected; }
/// From 0.18 on: core/pipeline_parallel/schedules.py forward_backward_no_pipelining deletes a loss that has been back
/// (Megatron-LM#4124).
inline bool drops_losses(const Runtime& runtime) { return runtime.waits_before_deallocating; }
/// … and core/utils.py get_batch_on_this_tp_rank drops what its stage does not need on the first tensor-parallel rank,
/// too.
inline bool drops_batches(const Runtime& runtime) { return runtime.waits_before_deallocating; }

}  // namespace tidemark::parallel::megatron
