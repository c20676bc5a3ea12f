#include <charconv>

#include "parallel/frameworks/megatron/training.hpp"
#include "parallel/runtime/releases.hpp"
#include "parallel/runtime/runtime.hpp"

// What Megatron-LM core 0.14 (commit 23e00ed0) and TransformerEngine 2.11 (commit c188b533) do, read in their sources.
// The places named here were looked up in the other releases of megatron_releases(), too: docs/versions.md.

namespace tidemark::parallel {

using namespace literals;

// PyTorch aten/src/ATen/cuda/CublasHandlePool.cpp: :4096:2:16:8, and 32 MiB on Hopper; on Blackwell since
// pytorch#175344 (merged after 2.11 was branched), on its integrated devices since #189312 (after 2.13).
Bytes default_blas_workspace(const Target& target, Version torch) {
  const std::int32_t generation = target.compute_capability / 10;
  const bool large = generation == 9 || ((generation == 10 || generation == 12) && torch >= Version{2, 12}) ||
                     (generation == 11 && torch >= Version{2, 14});
  return large ? 32_MiB : 2 * 4096_KiB + 8 * 16_KiB;
}

Bytes cublas_workspace(const std::string& config, const Target& target) {
  if (config.empty()) return default_blas_workspace(target, Versions{}.torch);
  Bytes sum;
  const char* at = config.data();
  const char* const end = at + config.size();
  const auto number = [&]() {
    std::int64_t value = 0;
    if (at < end && *at == ':') ++at;
    at = std::from_chars(at, end, value).ptr;
    return value;
  };
  while (at < end && *at == ':') {
    const std::int64_t size = number();
    sum += size * number() * 1_KiB;
  }
  return sum;
}

std::span<const KnownReleases> megatron_releases() {
  // TransformerEngine 2.0 gave no gradient back where weights' are fused. PyTorch 2.15 takes cuBLAS's workspace for
  // each product anew (pytorch#194311), which the head's programs here do not.
  static constexpr std::array<KnownReleases, 4> known{{
      {"megatron", {0, 10}, {0, 19}},
      {"transformer_engine", {2, 1}, {2, 18}},
      {"torch", {2, 4}, {2, 14}},
      {"nccl", {2, 17}, {2, 28}},
  }};
  return known;
}

namespace {

// core/rerun_state_machine.py validate_result by the default of --rerun-mode (training/arguments.py): "disabled" before
// 0.14, where it returns at once before 0.12 and looks from there on; then "validate_results", which goes through the
// first step without a look.
ValidatedSteps validated_steps(Version megatron) {
  if (megatron < Version{0, 12}) return ValidatedSteps::None;
  return megatron < Version{0, 14} ? ValidatedSteps::All : ValidatedSteps::AfterTheFirst;
}

void set_buffers(Runtime& runtime, const Versions& versions, const RuntimeSettings& settings) {
  runtime.vocabulary_multiple = 128;  // --make-vocab-size-divisible-by
  // core/distributed/param_and_grad_buffer.py: parameters start at multiples of 64 elements (128 bytes of bf16), and a
  // bucket ends at a multiple of 128 elements for each data-parallel rank.
  runtime.parameter_alignment = 64;
  runtime.bucket_alignment = 128;
  // core/distributed/distributed_data_parallel.py: the buckets of overlap-grad-reduce.
  runtime.overlap = settings.overlap;
  runtime.tensor_overlap = settings.tensor_overlap;
  runtime.external_user_buffers = versions.transformer_engine >= Version{2, 7};  // module/base.py initialize_ub
  runtime.shared_user_workspace = versions.transformer_engine < Version{2, 10};  // … and get_workspace
  if (settings.overlap.gradients && settings.overlap.bucket_elements > 0) {
    runtime.bucket_elements = settings.overlap.bucket_elements;
  } else if (settings.overlap.gradients) {
    runtime.bucket_elements = 40'000'000;
    runtime.bucket_elements_per_rank = 1'000'000;
  }
  runtime.tied_embedding_bucket = true;
  // TransformerEngine module/base.py get_dummy_wgrad, from 2.3 on.
  runtime.dummy_gradient =
      versions.transformer_engine >= Version{2, 3} ? DummyGradient::Cached : DummyGradient::Temporary;
  if (!settings.gradient_accumulation_fusion) runtime.dummy_gradient = DummyGradient::None;
}

void set_passes(Runtime& runtime, const Versions& versions, const RuntimeSettings& settings, const Target& target) {
  runtime.persistent_head_gather = true;  // core/tensor_parallel/layers.py: GlobalMemoryBuffer "mpu"
  runtime.deferred_head_gradients = settings.deferred_head_gradients;  // … and core/utils.py
  runtime.overlaps_flush = settings.overlaps_flush;                    // core/pipeline_parallel/schedules.py
  runtime.batch_attention_mask = settings.attention_mask;              // core/datasets/gpt_dataset.py: on by default
  // core/rerun_state_machine.py RerunDataIterator keeps a step's batches on the host, to run it again. In core 0.18
  // (5e4fc931 to bf32f441, 21 May to 6 July 2026) pretrain_gpt.py get_batch puts the device's tensors into what it
  // keeps.
  runtime.saves_batches = versions.megatron == Version{0, 18};
  runtime.fused_norm_linear = true;                                 // TransformerEngine module/layernorm_linear.py
  runtime.fused_bias_dropout = settings.bias_dropout_fusion;        // core/fusions/fused_bias_dropout.py
  runtime.fused_bias_activation = settings.bias_activation_fusion;  // core/fusions/fused_bias_gelu.py, _swiglu.py
  runtime.deterministic = settings.deterministic;
  runtime.indexes_embedding = settings.deterministic;  // core/tensor_parallel/layers.py VocabParallelEmbedding
  runtime.collectives_alone = true;  // training/utils.py get_batch_on_this_tp_rank, training.py: no look at sizes
  runtime.agrees_after_steps = versions.megatron >= Version{0, 11};  // training.py train_step
  runtime.checks = settings.checks;
  runtime.validated = validated_steps(versions.megatron);
  runtime.shares_out_checkpoints = settings.distribute_saved;  // core/tensor_parallel/random.py CheckpointFunction
  runtime.deallocates_outputs = true;  // core/pipeline_parallel/schedules.py deallocate_output_tensor
  runtime.waits_before_deallocating = versions.megatron >= Version{0, 18};  // Megatron-LM#4047
  // ProcessGroupNCCL.cpp pointToPoint (pytorch#148590): a TensorShelf refers to tensors until wait().
  runtime.records_sent = versions.torch < Version{2, 8};
  // TransformerEngine attention/dot_product_attention/context_parallel.py: batch_p2p_comm.
  runtime.ring_of_two_in_batches = target.compute_capability < 100;
  // flash-attention csrc/flash_attn/flash_api.cpp mha_bwd: nsplits.
  if (settings.deterministic) runtime.query_gradients_fill = target.multiprocessors;
}

void set_workspaces(Runtime& runtime, const Versions& versions, const RuntimeSettings& settings, const Target& target) {
  // TransformerEngine cpp_extensions/gemm.py get_cublas_workspace_size_bytes.
  const Bytes scales = versions.transformer_engine >= Version{2, 8} ? 1_KiB : Bytes{};  // of NVFP4
  runtime.gemm_workspace = target.compute_capability >= 90 ? 32_MiB + scales : 4_MiB;
  runtime.blas_workspace = settings.cublas_workspace_config.empty()
                               ? default_blas_workspace(target, versions.torch)
                               : cublas_workspace(settings.cublas_workspace_config, target);
  // Megatron-Bridge models/gemma/gemma2_provider.py Gemma2DotProductAttention: scores in the GlobalMemoryBuffer "mpu".
  runtime.persistent_scores = settings.capped_scores;
}

void set_experts(ExpertBehavior& experts, const Versions& versions, const RuntimeSettings& settings) {
  experts = settings.experts;
  // core/transformer/moe/moe_utils.py permute, unpermute; moe_layer.py MoELayer.forward.
  experts.sorts_rows = versions.megatron >= Version{0, 17};
  experts.adds_rows_by_index = settings.deterministic && versions.megatron >= Version{0, 15};
  // RouterGatingLinearFunction: core/extensions/transformer_engine.py te_general_gemm asks for a name that
  // TransformerEngine lost with 2.10, and does without it from 0.17 on.
  experts.library_router = versions.megatron >= Version{0, 17} || versions.transformer_engine < Version{2, 10};
  experts.keeps_router_inputs = versions.megatron < Version{0, 13};  // moe/router.py Router.gating
  experts.shared_first = versions.megatron >= Version{0, 15};
}

void set_core(Runtime& runtime, const Versions& versions, const Target& target) {
  // core/tensor_parallel/layers.py, core/transformer/mlp.py glu, attention.py qkv_output, pretrain_gpt.py loss_func.
  runtime.core.dummy_gradient = runtime.dummy_gradient == DummyGradient::Cached && versions.megatron < Version{0, 14}
                                    ? DummyGradient::Temporary
                                    : runtime.dummy_gradient;
  runtime.core.offsets_gate = versions.megatron >= Version{0, 15};
  runtime.core.holds_heads = versions.megatron >= Version{0, 15};
  runtime.core.holds_projected = versions.megatron >= Version{0, 16};  // ssm/mamba_mixer.py _ssm_training
  runtime.core.multiprocessors = target.multiprocessors;
  // pretrain_gpt.py get_batch: is_pipeline_first_stage and _last_stage looked at the chunk unless told before 0.13.
  runtime.core.batches_by_chunk = versions.megatron < Version{0, 13} || versions.megatron >= Version{0, 15};
  // core/optimizer/optimizer.py ChainedOptimizer.step
  runtime.core.counts_zeros = versions.megatron >= Version{0, 12} && versions.megatron < Version{0, 13};
  runtime.core.stacks_reports = versions.megatron >= Version{0, 13};       // training.py train_step
  runtime.core.wraps_aside = versions.megatron >= Version{0, 14};          // training.py get_model
  runtime.core.logs_tracked_losses = versions.megatron >= Version{0, 14};  // moe/moe_utils.py track_moe_metrics
  // core/models/common/embeddings/yarn_rotary_pos_embedding.py YarnRotaryEmbedding.__init__
  runtime.core.forgets_first_angles = versions.megatron >= Version{0, 16};
  // core/pipeline_parallel/schedules.py forward_backward_no_pipelining (Megatron-LM#4124)
  runtime.core.drops_losses = versions.megatron >= Version{0, 18};
  runtime.core.drops_batches = versions.megatron >= Version{0, 18};  // core/utils.py get_batch_on_this_tp_rank
}

}  // namespace

Runtime megatron_runtime(const Versions& versions, const RuntimeSettings& settings, const Target& target) {
  Runtime runtime;
  runtime.framework = &megatron::framework;
  set_buffers(runtime, versions, settings);
  set_passes(runtime, versions, settings, target);
  set_workspaces(runtime, versions, settings, target);
  runtime.offloaded_layers = settings.offloaded_layers;
  runtime.module_offload = settings.module_offload;
  // core/pipeline_parallel/fine_grained_activation_offload.py bulk_offload.
  runtime.module_offload.by_name = versions.megatron >= Version{0, 19};
  runtime.optimizer = settings.optimizer;
  runtime.optimizer.fuses_scaling = versions.transformer_engine >= Version{2, 14};  // optimizers/fused_adam.py
  set_experts(runtime.experts, versions, settings);
  set_core(runtime, versions, target);
  if (settings.local_layers) {
    // core/models/gpt/gpt_layer_specs.py get_gpt_layer_local_spec: norms of their own, linears of
    // core/tensor_parallel/layers.py, attention of core/transformer/dot_product_attention.py.
    runtime.fused_norm_linear = false;
    runtime.framework_linears = true;
    runtime.persistent_scores = true;
  }
  // FusedAdam's flag of overflows and the loss scale that is 1; the rest belongs to passes, their losses and the log.
  // Of public runs of one rotary table the last stage keeps 3,584 bytes, which is seven blocks: these two, two of
  // losses, and what build_model and make_scalars make.
  runtime.scalars = {4_B, 4_B};
  return runtime;
}

}  // namespace tidemark::parallel
