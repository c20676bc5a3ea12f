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

namespace {

void set_modules(EagerBehavior& behavior, const Versions& versions, const EagerSettings& requested) {
  behavior.caches_keys = requested.caches_keys;
  behavior.copies_into_cache = versions.transformers >= Version{4, 54};  // cache_utils.py DynamicLayer.update
  behavior.pairs_keys = versions.transformers < Version{4, 54};  // gpt_bigcode/modeling_gpt_bigcode.py: key_value
  behavior.caches_checkpointed = versions.transformers < Version{4, 53};  // … its loop asked for presents all the same
  behavior.repeats_keys = versions.transformers < Version{4, 54};         // integrations/sdpa_attention.py: enable_gqa
  behavior.litgpt_weights_wide = versions.litgpt >= Version{0, 4, 6};     // litgpt/model.py RMSNorm
  behavior.own_flash_classes = versions.transformers < Version{4, 48};    // models/*/modeling_*.py …FlashAttention2
  behavior.upcasts_every_loss = versions.transformers >= Version{4, 49};  // these models had a loss of their own
  behavior.shifts_logits = versions.transformers < Version{4, 49};        // loss/loss_utils.py ForCausalLMLoss
  behavior.widens_logits = versions.transformers < Version{4, 46};        // self.lm_head(hidden_states).float()
  // models/*/modeling_*.py …SparseMoeBlock, …Experts; integrations/moe.py grouped_mm_experts_forward.
  const auto before = [&](std::int32_t major, std::int32_t minor) {
    return versions.transformers < Version{major, minor};
  };
  behavior.experts = {.fused = !before(5, 0),
                      .runs_idle = before(4, 52),
                      .copies_tokens = before(5, 5),
                      .numbers_tokens = before(5, 8),
                      .masks_rows = before(5, 18) && !before(5, 6)};
}

void set_torch(TorchBehavior& torch, const Versions& versions, const EagerSettings& requested, const Target& target) {
  // A fake tensor is a subclass, to whose gradients autograd adds out of place (torch/csrc/autograd/input_buffer.cpp
  // can_accumulate_inplace), and its kernels only make their outputs.
  torch.sums_in_place = torch.kernel_workspaces = !requested.fake_tensors;
  torch.keeps_blas_workspace = versions.torch < Version{2, 15};  // CublasHandlePool.cpp, pytorch#194311
  // pytorch#156495 kept it, #173002 joined the two (merged after 2.11 was branched); not so in 2.15.
  const bool joined = versions.torch >= Version{2, 12} && versions.torch < Version{2, 15};
  const bool kept = versions.torch >= Version{2, 9} && versions.torch < Version{2, 12};
  torch.lt_workspace = joined ? BlasLtWorkspace::Shared : kept ? BlasLtWorkspace::Kept : BlasLtWorkspace::Anew;
  // sdp_utils.cpp check_prefer_cudnn_attention (up to 2.9 for those who set TORCH_CUDNN_SDPA_PREFERRED),
  // check_cudnn_tensor_shapes; pytorch#170800 for compute capability 10.3, #191085 for shared keys.
  const std::int32_t capability = target.compute_capability;
  const bool preferred =
      capability == 90 || capability == 100 || (capability == 103 && versions.torch >= Version{2, 11});
  torch.cudnn_attention = requested.cudnn_attention && preferred && versions.torch >= Version{2, 10};
  torch.widest_cudnn_head = capability == 90 && versions.torch >= Version{2, 8} ? 256 : 128;
  torch.efficient_shares_keys = versions.torch >= Version{2, 14};
  torch.efficient_random_state = versions.torch >= Version{2, 15};  // recorded so; not in 2.11
  torch.widens_rms_norm = versions.torch >= Version{2, 12};         // autocast_mode.h, pytorch#174824
  torch.drops_empty_parts = versions.torch >= Version{2, 5};        // _inductor/decomposition.py cat
  // cuda/GroupedBlas.cpp _grouped_mm_cuda: of compute capabilities 9.0 and 10.x.
  torch.grouped_kernels = capability == 90 || capability == 100 || capability == 103;
  torch.multiprocessors = target.multiprocessors;
  torch.device_threads = target.multiprocessors * threads_of_multiprocessor(target.compute_capability);
  torch.large_blocks = has_large_shared_memory(target.compute_capability);
}

}  // namespace

Runtime pytorch_runtime(const Versions& versions, const RuntimeSettings& settings, const Target& target) {
  const EagerSettings& requested = settings.eager;
  EagerBehavior behavior;
  behavior.compiled = requested.compiled;
  behavior.modules = requested.modules;
  behavior.optimizer = requested.optimizer;
  behavior.clips_gradients = requested.clips_gradients;
  // modeling_utils.py gradient_checkpointing_enable: the default of use_reentrant. accelerate asks for none of it.
  behavior.reentrant_checkpoint =
      requested.reentrant_checkpoint.value_or(!requested.checkpoints_within && versions.transformers < Version{5, 0});
  // modeling_layers.py GradientCheckpointingLayer: a layer checkpoints its own forward function, whatever wraps it;
  // before, the decoder's loop did it around the layer that it found.
  behavior.checkpoints_wrappers = !requested.checkpoints_within && versions.transformers < Version{4, 53};
  behavior.keeps_outputs = requested.keeps_outputs;
  behavior.filters_losses = requested.filters_losses;
  behavior.saved_on_host = requested.saved_on_host;
  behavior.weight_decay = requested.weight_decay;
  behavior.decoupled_weight_decay = requested.decoupled_weight_decay;
  behavior.amsgrad = requested.amsgrad;
  behavior.small_optimizer = requested.small_optimizer;
  behavior.quantized_block = versions.bitsandbytes < Version{0, 44} ? 2048 : 256;  // its CHANGELOG.md, 0.44.0
  behavior.liger = requested.liger;
  behavior.foak = requested.foak;
  behavior.neftune = requested.neftune;
  behavior.autocast = requested.autocast;
  behavior.input_gradients = requested.input_gradients;
  behavior.quantized.input_sets_type = versions.bitsandbytes < Version{0, 47};
  behavior.quantized.converts_once = versions.bitsandbytes >= Version{0, 50};
  set_modules(behavior, versions, requested);
  behavior.gradients_view_buckets = requested.gradients_view_buckets;
  set_torch(behavior.torch, versions, requested, target);
  // torch/nn/parallel/distributed.py: where bucket_cap_mb is left out, a bucket has 25 MiB, but the first
  // dist._DEFAULT_FIRST_BUCKET_BYTES; where it is given, all are of that size.
  behavior.bucket = requested.bucket_mib.value_or(25) * 1_MiB;
  behavior.first_bucket = requested.bucket_mib ? behavior.bucket : 1_MiB;

  Runtime runtime;
  runtime.framework = &pytorch::framework;
  runtime.eager = behavior;
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
