#pragma once

#include <initializer_list>
#include <random>

#include "tests/parallel/test_job.hpp"

namespace tidemark::tests {

/// A random job of the runtimes that shard parameters: FSDP2 and FSDP1, over all ranks or in groups of them, and
/// DeepSpeed's ZeRO.
inline TestJob random_sharded_job(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::initializer_list<std::int64_t> values) {
    return *(values.begin() + random() % values.size());
  };
  const auto one_in = [&](std::int64_t n) { return random() % static_cast<std::uint32_t>(n) == 0; };
  TestJob job;
  job.model.layers.resize(pick({2, 3, 4}));
  Layout& layout = job.layout;
  layout.data = static_cast<std::int32_t>(pick({2, 3, 4, 8}));
  layout.sharding = one_in(2) ? Sharding::Zero2 : Sharding::Zero3;
  Train& train = job.train;
  train.precision = DType::BF16;
  if (one_in(3)) train.recompute.kind = Recompute::Full;
  train.steps = static_cast<std::int32_t>(pick({2, 3}));
  train.global_batch = pick({1, 2, 5, 17}) * layout.data;
  EagerSettings& eager = job.settings.eager;
  eager.reentrant_checkpoint = one_in(2);
  eager.caches_keys = false;
  eager.clips_gradients = one_in(2);
  if (one_in(2)) job.versions.torch = {2, 15};
  const bool in_groups = layout.data % 4 == 0 && one_in(3), keeps = layout.sharding == Sharding::Zero2;
  switch (pick({0, 1, 2})) {
    case 0: {
      job.framework = "fsdp2";
      FullyShardBehavior& behavior = eager.fully_shard;
      behavior.reshards_after_forward = !keeps;
      behavior.reduces_each_backward = one_in(3);
      if (one_in(3)) behavior.reduce_dtype = DType::BF16;
      if (layout.data % 4 == 0 && !keeps && one_in(3)) behavior.ranks_after_forward = 2;
      behavior.keeps_root = one_in(3);
      behavior.forward_prefetch = pick({0, 0, 1, 2});
      behavior.backward_prefetch = pick({0, 0, 1, 2});
      if (in_groups) layout.shard_group = 4;
      break;
    }
    case 1: {
      job.framework = "fsdp";
      FlatParameterBehavior& behavior = eager.flat;
      behavior.reshards_after_forward = !keeps;
      behavior.original_parameters = one_in(2);
      behavior.forward_prefetch = one_in(3);
      behavior.backward_prefetch = static_cast<BackwardPrefetch>(pick({0, 1, 1, 2}));
      behavior.limits_all_gathers = !one_in(4);
      behavior.mixed = true;
      if (in_groups) layout.shard_group = 4;
      break;
    }
    default: {
      job.framework = "deepspeed";
      if (one_in(3)) layout.sharding = Sharding::Zero1;
      ZeroBehavior& behavior = eager.zero;
      behavior.overlaps = one_in(2);
      behavior.reduce_bucket = pick({200'000, 5'000'000});
      behavior.contiguous_gradients = !one_in(4);
      if (one_in(2)) behavior.max_reuse = behavior.max_live = behavior.prefetch_bucket = 1'000'000;
      if (one_in(2)) behavior.persistence_threshold = 0;
      behavior.clipping = eager.clips_gradients ? 1 : 0;
    }
  }
  return job;
}

}  // namespace tidemark::tests
