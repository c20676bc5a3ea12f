#include "parallel/frameworks/torchtitan/training.hpp"
#include "parallel/runtime/releases.hpp"
#include "parallel/runtime/runtime.hpp"

// torchtitan, read in its tags v0.1.0 to v0.2.2 and in the commits between them.

namespace tidemark::parallel {

using namespace literals;

std::span<const KnownReleases> torchtitan_releases() {
  static constexpr std::array<KnownReleases, 3> known{{
      {"torch", {2, 6}, {2, 15}},
      {"torchtitan", {0, 1}, {0, 2, 2}},
      {"nccl", {2, 17}, {2, 28}},
  }};
  return known;
}

Runtime torchtitan_runtime(const Versions& versions, const RuntimeSettings& settings, const Target& target) {
  Runtime runtime = pytorch_runtime(versions, settings, target);
  runtime.framework = &torchtitan::framework;
  TitanBehavior titan{settings.eager.titan};
  titan.ends_are_units = versions.torchtitan >= Version{0, 2};        // parallelize.py apply_fsdp, torchtitan#1094
  titan.requested.early_stop |= versions.torchtitan < Version{0, 2};  // torchtitan#1580 made it an option
  titan.keeps_cudnn = versions.torchtitan >= Version{0, 2, 1};    // parallelize.py _op_sac_save_list, torchtitan#2095
  titan.repeats_keys = versions.torchtitan < Version{0, 2, 2};    // model.py Attention.forward, torchtitan#2259
  titan.counts_tokens = versions.torchtitan >= Version{0, 2, 2};  // train.py train_step, torchtitan#2206
  titan.holds_batches = titan.counts_tokens;
  titan.holds_norm = versions.torchtitan >= Version{0, 2};  // train.py train_step logs grad_norm
  titan.fused_norms = versions.torch >= Version{2, 9};      // layer_norm.cpp _fused_rms_norm
  // _fsdp_state.py _lazy_init: since 2.8 a root's reshard_after_forward, which was asked for up to 0.1.0, counts.
  titan.reshards_root = !titan.ends_are_units && versions.torch >= Version{2, 8};
  // torch/distributed/pipelining/stage.py and schedules.py of each release.
  titan.pipeline.receives_late = versions.torch >= Version{2, 15};
  titan.pipeline.releases_sent = versions.torch >= Version{2, 15};
  titan.pipeline.probes_backward = versions.torch >= Version{2, 12};
  titan.pipeline.waits_for_reductions = versions.torch >= Version{2, 15};
  titan.pipeline.reduces_last_first = versions.torch >= Version{2, 15};
  titan.pipeline.keeps_outputs = versions.torchtitan < Version{0, 2, 1};  // train.py hands return_outputs=False
  FullyShardBehavior shards = settings.eager.fully_shard;
  shards.sums_gradients = titan.counts_tokens;
  runtime.eager->fully_shard = shards;
  runtime.eager->titan = titan;
  runtime.eager->first_bucket = runtime.eager->bucket = 100_MiB;  // parallelize.py apply_ddp
  // models/attention.py: an order of its own, which begins with cuDNN's on any device, and in 0.2.2 ends with products.
  runtime.eager->torch.grouped_kernels = true;  // others are not modelled here
  runtime.eager->torch.cudnn_attention = settings.eager.cudnn_attention;
  runtime.eager->torch.efficient_attention = versions.torchtitan < Version{0, 2, 2};
  runtime.eager->torch.activation_memory_budget = titan.requested.memory_budget;
  return runtime;
}

}  // namespace tidemark::parallel
