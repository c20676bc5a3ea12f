#pragma once

#include "parallel/job/layout.hpp"
#include "parallel/job/train.hpp"
#include "parallel/runtime/runtime.hpp"

namespace tidemark::parallel::deepspeed {

/// Whether BF16_Optimizer takes the place of stage 1's own (engine.py _do_optimizer_sanity_check).
[[nodiscard]] inline bool takes_bf16_optimizer(const Layout& layout, const Train& train, const ZeroBehavior& behavior) {
  return layout.sharding == Sharding::Zero1 && train.precision == DType::BF16 && behavior.accumulation == DType::FP32 &&
         !behavior.offload_optimizer;
}

}  // namespace tidemark::parallel::deepspeed
