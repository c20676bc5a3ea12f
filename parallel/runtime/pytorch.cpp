#include "parallel/frameworks/pytorch/training.hpp"
#include "parallel/runtime/releases.hpp"
#include "parallel/runtime/runtime.hpp"

// Plain PyTorch and Hugging Face's transformers, read in their sources (torch 2.10; transformers 4.48 to 5.23).

namespace tidemark::parallel {

using namespace literals;

namespace {

// CUDA C++ Programming Guide, technical specifications per compute capability.
std::int64_t threads_of_multiprocessor(std::int32_t compute_capability) {
  switch (compute_capability) {
    case 75:
      return 1024;
    case 86:
    case 87:
    case 89:
    case 120:
    case 121:
      return 1536;
    default:
      return 2048;
  }
}

// The same: shared memory of a block of threads, 163 KB or more, or 99 KB and less.
bool has_large_shared_memory(std::int32_t compute_capability) {
  switch (compute_capability) {
    case 75:
    case 86:
    case 89:
    case 120:
    case 121:
      return false;
    default:
      return true;
  }
}

}  // namespace

std::span<const KnownReleases> pytorch_releases() {
  // Both ends were measured: torch 2.4 with transformers 4.45 (tests/golden/fms_full/), 2.15 with 5.23
  // (tests/golden/fake_tensor/).
  static constexpr std::array<KnownReleases, 6> known{{
      {"torch", {2, 4}, {2, 15}},
      {"transformers", {4, 45}, {5, 23}},
      {"bitsandbytes", {0, 43}, {0, 50}},
      {"liger_kernel", {0, 8}, {0, 8}},
      {"litgpt", {0, 3, 1}, {0, 4, 11}},
      {"nccl", {2, 17}, {2, 28}},
  }};
  return known;
}

Runtime pytorch_runtime(const Versions& versions, const RuntimeSettings& settings, const Target& target) {
  const EagerSettings& asked = settings.eager;
  EagerHabits habits;
  habits.compiled = asked.compiled;
  habits.modules = asked.modules;
  habits.optimizer = asked.optimizer;
  habits.clips_gradients = asked.clips_gradients;
  // modeling_utils.py gradient_checkpointing_enable: the default of use_reentrant. accelerate asks for none of it.
  habits.reentrant_checkpoint =
      asked.reentrant_checkpoint.value_or(!asked.checkpoints_within && versions.transformers < Version{5, 0});
  // modeling_layers.py GradientCheckpointingLayer: a layer checkpoints its own forward function, whatever wraps it;
  // before, the decoder's loop did it around the layer that it found.
  habits.checkpoints_wrappers = !asked.checkpoints_within && versions.transformers < Version{4, 53};
  habits.keeps_outputs = asked.keeps_outputs;
  habits.filters_losses = asked.filters_losses;
  habits.saved_on_host = asked.saved_on_host;
  habits.weight_decay = asked.weight_decay;
  habits.decoupled_weight_decay = asked.decoupled_weight_decay;
  habits.amsgrad = asked.amsgrad;
  habits.small_optimizer = asked.small_optimizer;
  habits.quantized_block = versions.bitsandbytes < Version{0, 44} ? 2048 : 256;  // its CHANGELOG.md, 0.44.0
  habits.liger = asked.liger;
  habits.foak = asked.foak;
  habits.neftune = asked.neftune;
  habits.autocast = asked.autocast;
  habits.input_gradients = asked.input_gradients;
  habits.quantized.input_sets_type = versions.bitsandbytes < Version{0, 47};
  habits.quantized.converts_once = versions.bitsandbytes >= Version{0, 50};
  habits.caches_keys = asked.caches_keys;
  habits.copies_into_cache = versions.transformers >= Version{4, 54};  // cache_utils.py DynamicLayer.update
  habits.pairs_keys = versions.transformers < Version{4, 54};          // gpt_bigcode/modeling_gpt_bigcode.py: key_value
  habits.caches_checkpointed = versions.transformers < Version{4, 53};  // … its loop asked for presents all the same
  habits.repeats_keys = versions.transformers < Version{4, 54};         // integrations/sdpa_attention.py: enable_gqa
  habits.litgpt_weights_wide = versions.litgpt >= Version{0, 4, 6};     // litgpt/model.py RMSNorm
  habits.own_flash_classes = versions.transformers < Version{4, 48};    // models/*/modeling_*.py …FlashAttention2
  habits.upcasts_every_loss = versions.transformers >= Version{4, 49};  // these models had a loss of their own
  habits.shifts_logits = versions.transformers < Version{4, 49};        // loss/loss_utils.py ForCausalLMLoss
  habits.widens_logits = versions.transformers < Version{4, 46};        // self.lm_head(hidden_states).float()
  habits.gradients_view_buckets = asked.gradients_view_buckets;
  // A fake tensor is a subclass, to whose gradients autograd adds out of place (torch/csrc/autograd/input_buffer.cpp
  // can_accumulate_inplace), and its kernels only make their outputs.
  habits.torch.sums_in_place = habits.torch.kernel_workspaces = !asked.fake_tensors;
  habits.torch.keeps_blas_workspace = versions.torch < Version{2, 15};  // CublasHandlePool.cpp, pytorch#194311
  // pytorch#156495 kept it, #173002 joined the two (merged after 2.11 was branched); not so in 2.15.
  const bool joined = versions.torch >= Version{2, 12} && versions.torch < Version{2, 15};
  const bool kept = versions.torch >= Version{2, 9} && versions.torch < Version{2, 12};
  habits.torch.lt_workspace = joined ? BlasLtWorkspace::Shared : kept ? BlasLtWorkspace::Kept : BlasLtWorkspace::Anew;
  // sdp_utils.cpp check_prefer_cudnn_attention (up to 2.9 for those who set TORCH_CUDNN_SDPA_PREFERRED),
  // check_cudnn_tensor_shapes; pytorch#170800 for compute capability 10.3, #191085 for shared keys.
  const std::int32_t capability = target.compute_capability;
  const bool preferred =
      capability == 90 || capability == 100 || (capability == 103 && versions.torch >= Version{2, 11});
  habits.torch.cudnn_attention = asked.cudnn_attention && preferred && versions.torch >= Version{2, 10};
  habits.torch.widest_cudnn_head = capability == 90 && versions.torch >= Version{2, 8} ? 256 : 128;
  habits.torch.efficient_shares_keys = versions.torch >= Version{2, 14};
  habits.torch.efficient_random_state = versions.torch >= Version{2, 15};  // recorded so; not in 2.11
  habits.torch.widens_rms_norm = versions.torch >= Version{2, 12};         // autocast_mode.h, pytorch#174824
  habits.torch.drops_empty_parts = versions.torch >= Version{2, 5};        // _inductor/decomposition.py cat
  habits.torch.multiprocessors = target.multiprocessors;
  habits.torch.device_threads = target.multiprocessors * threads_of_multiprocessor(target.compute_capability);
  habits.torch.large_blocks = has_large_shared_memory(target.compute_capability);
  // torch/nn/parallel/distributed.py: where bucket_cap_mb is left out, a bucket has 25 MiB, but the first
  // dist._DEFAULT_FIRST_BUCKET_BYTES; where it is given, all are of that size.
  habits.bucket = asked.bucket_mib.value_or(25) * 1_MiB;
  habits.first_bucket = asked.bucket_mib ? habits.bucket : 1_MiB;

  Runtime runtime;
  runtime.framework = &pytorch::framework;
  runtime.eager = habits;
  runtime.blas_workspace = settings.cublas_workspace_config.empty()
                               ? default_blas_workspace(target, versions.torch)
                               : cublas_workspace(settings.cublas_workspace_config, target);
  return runtime;
}

// torch.distributed.fsdp.fully_shard of the same modules, read in torch 2.15.
Runtime fsdp2_runtime(const Versions& versions, const RuntimeSettings& settings, const Target& target) {
  Runtime runtime = pytorch_runtime(versions, settings, target);
  runtime.eager->fully_shard = settings.eager.fully_shard;
  // _fsdp_state.py _lazy_init: before, the root's stayed whatever was asked for.
  if (versions.torch < Version{2, 8}) runtime.eager->fully_shard->keeps_root = true;
  return runtime;
}

// torch.distributed.fsdp.FullyShardedDataParallel of the same modules, read in torch 2.15.
Runtime fsdp_runtime(const Versions& versions, const RuntimeSettings& settings, const Target& target) {
  Runtime runtime = pytorch_runtime(versions, settings, target);
  runtime.eager->flat = settings.eager.flat;
  return runtime;
}

}  // namespace tidemark::parallel
