#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "parallel/model/module_set.hpp"
#include "parallel/model/target.hpp"
#include "parallel/runtime/versions.hpp"
#include "sim/base/dtype.hpp"
#include "sim/base/memory_space.hpp"
#include "sim/base/units.hpp"

namespace tidemark::parallel {

struct Framework;

/// Where a linear layer's weight gradient goes when the GEMM adds it straight into the gradient buffer, but autograd
/// still wants a tensor back.
enum class DummyGradient : std::uint8_t {
  Cached,     ///< one tensor per distinct weight shape, kept for ever
  Temporary,  ///< one per call
  None,       ///< the GEMM makes a tensor of its own, and a hook adds it into the buffer
};

/// How torch.optim calls its kernels: for all parameters at once, one after the other, or in one kernel.
enum class OptimizerKernels : std::uint8_t { Foreach, ForLoop, Fused };

/// What keeps experts equally busy: an auxiliary loss of the router's scores, of all tokens of a micro-batch, of each
/// sequence by itself, or with what all ranks' tokens have chosen since the step began; or a choice by scores whose
/// rows and columns were scaled until they sum alike (Sinkhorn).
enum class LoadBalancing : std::uint8_t { Loss, SequenceLoss, GlobalLoss, Sinkhorn };

/// How a framework's mixture of experts goes about it.
struct ExpertBehavior {
  bool grouped_linears = true;       ///< all of a rank's experts in one autograd function, not one MLP after another
  bool fused_permutation = false;    ///< rows are moved by kernels of their own, not by PyTorch's
  std::optional<DType> router_type;  ///< of logits and probabilities; unset: what is computed in
  std::vector<LoadBalancing> balancing{};   ///< in the order above; of losses there may be several
  std::vector<double> loss_coefficients{};  ///< of each of those that is a loss; it changes neither memory nor time
  std::optional<double> z_loss;             ///< coefficient of a loss of the logits' size, where there is one
  std::int32_t exchange_processors = 20;    ///< multiprocessors that DeepEP's kernels take
  // By version.
  bool sorts_rows = false;           ///< PyTorch's rows come in the order of a sorted map, not of what it selects
  bool adds_rows_by_index = false;   ///< … and are summed by index_add_, not scatter_add_
  bool shared_first = false;         ///< shared experts run before the router
  bool library_router = false;       ///< its products are the library's GEMMs, which take and give types that differ
  bool keeps_router_inputs = false;  ///< … or PyTorch's own linear, which keeps what was converted for backward

  [[nodiscard]] bool balances_by(LoadBalancing kind) const {
    return std::find(balancing.begin(), balancing.end(), kind) != balancing.end();
  }
  bool operator==(const ExpertBehavior&) const = default;
};

/// How Megatron-core's own modules and loop behave: local layers, the LM head, the training step.
struct CoreBehavior {
  DummyGradient dummy_gradient = DummyGradient::Cached;  ///< where its linears add gradients themselves
  bool offsets_gate = false;     ///< an unfused gate's other half is what an offset, 0 too, was added to: a tensor
  bool holds_heads = false;      ///< attention refers to what its projection gave until it returns
  bool holds_projected = false;  ///< Mamba's mixer refers to what its projection gave until it returns
  std::int64_t multiprocessors = 132;  ///< of the device, among which Triton's kernels share out what they add up
  bool batches_by_chunk = false;       ///< a batch goes to the first and the last chunk, not to all of those stages
  bool counts_zeros = false;           ///< the optimizer counts zeros among gradients, whether or not it was asked to
  bool stacks_reports = false;         ///< what micro-batches report is stacked, and summed at once
  bool wraps_aside = false;            ///< DistributedDataParallel is made on a stream of its own
  bool logs_tracked_losses = false;    ///< what is said of each expert loss is kept, whoever writes it down
  bool forgets_first_angles = false;   ///< YaRN's constructor forgets the angles that layers have asked for
  bool drops_losses = false;           ///< a loss is deleted once its backward pass is over
  bool drops_batches = false;          ///< the first tensor-parallel rank too drops what its stage does not need
};

/// How parameters are sharded by torch.distributed.fsdp.fully_shard.
struct FullyShardBehavior {
  bool reshards_after_forward = true;  ///< gathered parameters go after each unit's forward pass, the root's too
  bool keeps_root = false;             ///< … but for the root's: reshard_after_forward is left out
  /// … a part of them stays: so many ranks next to each other have all of them (reshard_after_forward is a number).
  std::int64_t ranks_after_forward = 0;
  /// set_modules_to_forward_prefetch, set_modules_to_backward_prefetch: so many layers are gathered ahead.
  std::int64_t forward_prefetch = 0, backward_prefetch = 0;
  bool reduces_each_backward = false;  ///< gradients are reduced after every micro-batch, not with the last one's
  DType reduce_dtype = DType::FP32;    ///< in which gradients are reduced
  bool sums_gradients = false;         ///< … or summed, not averaged: set_gradient_divide_factor(1)
  /// CPUOffloadPolicy: shards, their gradients and what the optimizer makes are on the host; pin_memory says where
  /// there. None: on the device.
  std::optional<MemorySpace> offload;
  bool operator==(const FullyShardBehavior&) const = default;
};

/// How ZeRO-Infinity swaps with NVMe drives: what of offload_optimizer, offload_param and aio says so. Sizes are in
/// elements. deepspeed/runtime/zero/offload_config.py, swap_tensor/aio_config.py.
struct NvmeBehavior {
  bool optimizer = false, parameters = false;  ///< device is "nvme"
  std::int64_t optimizer_buffers = 4;          ///< buffer_count: each holds the largest sub-group in fp32
  bool pipeline_read = false, pipeline_write = false;
  bool fast_init = false;  ///< what is updated is made of parameters by way of both sections' buffers
  std::int64_t parameter_buffers = 5, parameter_buffer_size = 100'000'000;
  std::int64_t max_in_cpu = 1'000'000'000;  ///< a rank's parts of parameters that stay in the host's memory
  std::int64_t block_size = 1 << 20;        ///< of aio, bytes: what is smaller stays in memory
  std::int64_t threads = 1;                 ///< of aio: intra_op_parallelism, each of which reads whole KiB
  bool operator==(const NvmeBehavior&) const = default;
};

/// What a ds_config.json sets of DeepSpeed's ZeRO; sizes are in elements. deepspeed/runtime/zero/config.py.
struct ZeroBehavior {
  std::int64_t reduce_bucket = 500'000'000;
  bool overlaps = false;  ///< overlap_comm: gradients are reduced on a stream of its own
  bool contiguous_gradients = true;
  bool reduce_scatter = true;
  bool round_robin = false;           ///< round_robin_gradients
  std::optional<DType> accumulation;  ///< data_types.grad_accum_dtype; unset: what is computed in
  double clipping = 0;                ///< gradient_clipping: the largest norm; 0: gradients are not clipped
  double loss_scale = 1;              ///< fp16's first one
  /// offload_optimizer and offload_param with device "cpu" or "nvme": in pinned or pageable memory of the host. None:
  /// on the device.
  std::optional<MemorySpace> offload_optimizer, offload_parameters;
  bool cpu_adam = true;  ///< what the host updates, DeepSpeedCPUAdam does, and not an optimizer of PyTorch's
  // Of stage 3.
  NvmeBehavior nvme;
  /// A section activation_checkpointing is there: DeepSpeed's own function reads it, which transformers does not call.
  bool idle_checkpointing = false;
  double offload_ratio = 1;                      ///< ratio: of sub-groups, as many of the last are on the host
  std::int64_t prefetch_bucket = 50'000'000;     ///< gathered ahead of a module
  std::int64_t persistence_threshold = 100'000;  ///< parameters no larger stay gathered
  std::int64_t model_persistence_threshold = std::numeric_limits<std::int64_t>::max();  ///< … as far as all of them go
  std::int64_t max_live = 1'000'000'000;        ///< nothing is gathered ahead beyond it
  std::int64_t max_reuse = 1'000'000'000;       ///< what is used again before so many stays
  std::int64_t sub_group_size = 1'000'000'000;  ///< parameters that are updated together
  /// zero_hpz_partition_size: so many ranks next to each other hold parameters a second time between them, once these
  /// have been gathered; 1: none do.
  std::int64_t secondary_ranks = 1;
  bool operator==(const ZeroBehavior&) const = default;
};

/// When FullyShardedDataParallel gathers the unit whose backward pass comes next.
enum class BackwardPrefetch : std::uint8_t { None, Pre, Post };

/// How parameters are sharded by torch.distributed.fsdp.FullyShardedDataParallel.
struct FlatParameterBehavior {
  bool whole = false;                  ///< NO_SHARD: every rank holds all of them
  bool reshards_after_forward = true;  ///< FULL_SHARD, but for the root; not SHARD_GRAD_OP
  bool reduces_each_backward = false;  ///< without no_sync around all micro-batches but the last
  bool original_parameters = false;    ///< use_orig_params: the optimizer sees parameters, not flat ones
  BackwardPrefetch backward_prefetch = BackwardPrefetch::Pre;
  bool forward_prefetch = false;
  bool limits_all_gathers = true;
  bool sync_module_states = false;
  bool autocast = false;  ///< besides, in what is computed in
  DType param_dtype = DType::BF16, reduce_dtype = DType::BF16;
  bool mixed = false;                 ///< MixedPrecision is given: whatever their type, parameters are gathered so
  std::optional<DType> buffer_dtype;  ///< unset: as they are
  /// CPUOffload(offload_params=True): shards, their gradients and what the optimizer makes are on the host.
  bool offload = false;
  bool operator==(const FlatParameterBehavior&) const = default;
};

/// torchtitan's fsdp_reshard_after_forward. The default keeps what the backward pass begins with.
enum class ReshardPolicy : std::uint8_t { Default, Always, Never };

/// What a host asks of losses and of norms of gradient buckets: Megatron-LM's --no-check-for-nan-in-loss-and-grad,
/// --check-for-spiky-loss and --check-for-large-grads, and Megatron-Bridge's ddp.check_for_nan_in_grad and
/// rerun_state_machine.check_for_nan_in_loss.
struct ResultChecks {
  bool nan_in_loss = true, nan_in_grad = true;
  bool spiky_loss = false, large_grads = false;
  bool operator==(const ResultChecks&) const = default;
};

/// In which steps the host waits for the answers.
enum class ValidatedSteps : std::uint8_t { None, All, AfterTheFirst };

/// How torch.distributed.pipelining runs stages, by version.
struct PipelineBehavior {
  bool receives_late = true;         ///< room for what comes is made when it comes; else for all micro-batches, to stay
  bool releases_sent = true;         ///< outputs that have been sent are not kept for the backward pass
  bool probes_backward = true;       ///< the first micro-batch goes through with a graph before the first step
  bool reduces_last_first = true;    ///< gradients of the last units of a stage are reduced first
  bool waits_for_reductions = true;  ///< of several stages of a rank, by an action of its own
  bool keeps_outputs = false;        ///< what the last stage makes is kept until the next step begins
  bool operator==(const PipelineBehavior&) const = default;
};

/// What users of torchtitan set.
struct TitanSettings {
  ReshardPolicy reshard = ReshardPolicy::Default;
  /// Of selective checkpointing: every so many layers are checkpointed; 0: all, but for what some operations make.
  std::int32_t checkpointed_layers = 0;
  bool early_stop = false;    ///< a checkpointed layer runs again only until all that was saved is there
  bool loss_parallel = true;  ///< logits stay cut over tensor-parallel ranks
  bool compile_layers = false, compile_loss = false;  ///< torch.compile, of every layer by itself
  bool balances_context = true;  ///< a context-parallel rank's part of a sequence is of its beginning and of its end
  bool pipelined = false;        ///< stages of the model are on ranks of their own
  /// Layers that the first and the last stage have less than others, and how many a stage has; 0: what follows from the
  /// number of stages.
  std::int32_t first_stage_less = 1, last_stage_less = 1, layers_per_stage = 0;
  double memory_budget = 1;  ///< activation_checkpoint.mode = "memory_budget": of what compiled regions would keep
  bool operator==(const TitanSettings&) const = default;
};

/// How torchtitan wraps and runs its models.
struct TitanBehavior {
  TitanSettings requested;
  bool ends_are_units = true;  ///< the embedding is one, and the last norm with the head; else they are the root's
  bool reshards_root = false;  ///< what the root has goes after the forward pass
  bool keeps_cudnn = true;     ///< per-operation checkpointing keeps what cuDNN's attention makes, as FlashAttention's
  bool repeats_keys = false;   ///< each query head gets keys and values of its own before attention
  bool counts_tokens = true;   ///< losses are sums over the tokens of all ranks; gradients are then summed too
  bool holds_batches = true;   ///< inputs of all micro-batches are held until the step is over
  bool fused_norms = true;     ///< PyTorch has a kernel for nn.RMSNorm
  bool holds_norm = true;      ///< a variable holds the norm of all gradients until the step is over
  PipelineBehavior pipeline{};
};

/// What torch.compile is called on: nothing, each layer by itself (accelerate's use_regional_compilation), or the
/// model, where hooks that it runs into leave layers by themselves.
enum class CompiledParts : std::uint8_t { None, Layers, Model };

/// Whose modules make a model, and how their loop computes its loss.
enum class ModuleLibrary : std::uint8_t { Transformers, LitGpt };

/// What users set of the optimizers that keep less than AdamW.
struct SmallOptimizerSettings {
  bool torch_adafactor = false;    ///< torch.optim's Adafactor, not transformers'
  bool first_moment = false;       ///< transformers' Adafactor is given a beta1
  bool narrow_embeddings = false;  ///< 8-bit optimizers keep embeddings' state in 8 bits too
  std::int64_t rank = 0;           ///< of what APOLLO and GaLore project gradients to; 0: what transformers takes
  bool operator==(const SmallOptimizerSettings&) const = default;
};

/// Modules of transformers that fused kernels take the place of.
enum class FusedModule : std::uint8_t { Rope, RmsNorm, SwiGlu, CrossEntropy, LinearCrossEntropy };
using FusedModules = ModuleSet<FusedModule>;

/// What users of plain PyTorch and transformers set.
struct EagerSettings {
  CompiledParts compiled = CompiledParts::None;
  ModuleLibrary modules = ModuleLibrary::Transformers;
  OptimizerKernels optimizer = OptimizerKernels::Foreach;
  bool clips_gradients = true;                ///< torch.nn.utils.clip_grad_norm_ before each step
  bool caches_keys = true;                    ///< use_cache, which transformers leaves on in training
  std::optional<bool> reentrant_checkpoint;   ///< torch.utils.checkpoint's use_reentrant; unset: the version's default
  bool gradients_view_buckets = false;        ///< DistributedDataParallel's gradient_as_bucket_view
  std::optional<std::int64_t> bucket_mib;     ///< its bucket_cap_mb
  double weight_decay = 0;                    ///< torch.optim's
  bool decoupled_weight_decay = true;         ///< AdamW's, by which weights shrink; Adam's is added to gradients
  bool amsgrad = false;                       ///< Adam keeps the largest second moments too
  bool keeps_outputs = false;                 ///< a variable holds the model's outputs until the step ends
  bool fake_tensors = false;                  ///< runs under FakeTensorMode, as memory trackers do
  bool cudnn_attention = true;                ///< torch.backends.cuda.enable_cudnn_sdp
  FullyShardBehavior fully_shard{};           ///< of fsdp2
  ZeroBehavior zero{};                        ///< of deepspeed
  FlatParameterBehavior flat{};               ///< of fsdp
  std::optional<DType> param_dtype;           ///< of its mixed precision; unset: what is computed in
  std::optional<DType> reduce_dtype;          ///< the same; unset: param_dtype
  std::optional<bool> reshard_after_forward;  ///< its argument, which a layout's sharding says too
  TitanSettings titan{};                      ///< of torchtitan
  /// save_on_cpu: what is saved for the backward pass lies there meanwhile; pin_memory says where. None: on the device.
  std::optional<MemorySpace> saved_on_host;
  SmallOptimizerSettings small_optimizer{};
  FusedModules liger, foak;             ///< Liger-Kernel's, and Unsloth's by way of fms-acceleration
  double neftune = 0;                   ///< neftune_noise_alpha
  bool filters_losses = false;          ///< logging_nan_inf_filter of transformers' Trainer
  std::optional<bool> autocast;         ///< torch.autocast around each forward pass; unset: where precisions differ
  std::optional<bool> input_gradients;  ///< enable_input_require_grads; unset: where an adapted model is checkpointed
  /// fsdp_activation_checkpointing, apply_activation_checkpointing: what runs again is within what wraps layers.
  bool checkpoints_within = false;
  bool operator==(const EagerSettings&) const = default;
};

/// Where cuBLASLt works, which multiplies where a bias is added.
enum class BlasLtWorkspace : std::uint8_t {
  Anew,    ///< in memory of its own for each product
  Kept,    ///< in memory of its own that each thread keeps
  Shared,  ///< in cuBLAS's
};

/// Habits of PyTorch itself, and what its kernels ask of the device.
struct TorchBehavior {
  bool sums_in_place = true;         ///< autograd adds to a gradient that nobody else holds
  bool kernel_workspaces = true;     ///< kernels take memory of their own while they run
  bool keeps_blas_workspace = true;  ///< … but for cuBLAS's, which stays for the next product
  BlasLtWorkspace lt_workspace = BlasLtWorkspace::Shared;
  bool cudnn_attention = false;  ///< scaled_dot_product_attention asks cuDNN first
  std::int64_t widest_cudnn_head = 128;
  bool efficient_attention = true;     ///< … and the memory-efficient kernel, before products
  bool efficient_shares_keys = true;   ///< the memory-efficient kernel takes fewer heads of keys than of queries
  bool efficient_random_state = true;  ///< … and gives tensors for what it draws also where it draws nothing
  bool deterministic = false;          ///< torch.use_deterministic_algorithms
  std::int64_t multiprocessors = 0;    ///< of the device
  std::int64_t device_threads = 0;     ///< that it runs at once
  bool large_blocks = true;            ///< a multiprocessor's shared memory holds attention's largest blocks
  bool widens_rms_norm = true;         ///< rms_norm is on autocast's list of what runs in fp32
  bool drops_empty_parts = true;       ///< torch.compile leaves parts without elements out of torch.cat
  bool grouped_kernels = true;         ///< torch._grouped_mm of bf16 is one kernel; else a product for each group
  /// torch._functorch.config's: of what a compiled region would keep for its backward pass, so much may be kept.
  double activation_memory_budget = 1;
};

/// Habits of bitsandbytes, by version.
struct QuantizedBehavior {
  bool input_sets_type = false;  ///< a linear computes in the type of what it is first given (set_compute_type)
  bool converts_once = true;     ///< weights come in the type that is computed in; else in their own, and are converted
};

/// How transformers' mixtures of experts are made and run, by version.
struct HubExperts {
  bool fused = true;            ///< a layer's experts are one module with two parameters; else each has linears
  bool runs_idle = false;       ///< … and runs whether or not tokens chose it
  bool copies_tokens = false;   ///< each token's copies are made before they are sorted
  bool numbers_tokens = false;  ///< which tokens rows are of is a tensor, which is sorted too
  bool masks_rows = false;      ///< rows of experts that are elsewhere are filled, of which one process has none
  bool operator==(const HubExperts&) const = default;
};

/// Habits of modules that run operation by operation, under autograd.
struct EagerBehavior {
  TorchBehavior torch;
  CompiledParts compiled = CompiledParts::None;
  ModuleLibrary modules = ModuleLibrary::Transformers;
  OptimizerKernels optimizer = OptimizerKernels::Foreach;
  bool clips_gradients = true;
  bool reentrant_checkpoint = false;
  bool checkpoints_wrappers = false;    ///< … and around what wraps layers, not within
  bool caches_keys = true;              ///< the last pass's keys and values are kept while it runs
  bool copies_into_cache = true;        ///< … as copies
  bool pairs_keys = false;              ///< GPTBigCode's are one tensor, which is what it caches
  bool caches_checkpointed = false;     ///< … of layers that are checkpointed, too
  double weight_decay = 0;              ///< torch.optim's
  bool decoupled_weight_decay = true;   ///< Adam shrinks weights by it, instead of adding it to gradients
  bool amsgrad = false;                 ///< Adam keeps the largest second moments too
  std::optional<bool> autocast;         ///< unset: where what is computed in is not the parameters' type
  std::optional<bool> input_gradients;  ///< embeddings ask for gradients; unset: where an adapted model is checkpointed
  QuantizedBehavior quantized;
  HubExperts experts;
  bool keeps_outputs = false;           ///< logits, and keys and values, outlive the backward pass
  bool filters_losses = false;          ///< the host reads each micro-batch's loss after its backward pass
  bool repeats_keys = false;            ///< each query head gets keys and values of its own before fused attention
  bool own_flash_classes = false;       ///< models call FlashAttention's functions in classes of their own
  bool litgpt_weights_wide = true;      ///< LitGPT's RMSNorm weights in fp32, before it converts
  bool upcasts_every_loss = true;       ///< also GPT-2's, GPTBigCode's and GPT-NeoX's losses are computed in fp32
  bool shifts_logits = false;           ///< the loss copies all logits but the last token's
  bool widens_logits = false;           ///< logits are made fp32 as they come, but for those whose loss is their own
  bool gradients_view_buckets = false;  ///< a gradient is a view of its bucket, and no tensor of its own
  Bytes first_bucket, bucket;           ///< of DistributedDataParallel
  std::optional<FullyShardBehavior> fully_shard;  ///< in place of DistributedDataParallel
  std::optional<FlatParameterBehavior> flat;      ///< the same
  std::optional<TitanBehavior> titan;             ///< torchtitan's models and loop
  std::optional<ZeroBehavior> zero;               ///< of DeepSpeed
  bool zero_init = false;                         ///< modules are made under deepspeed.zero.Init
  bool stage_3_linear = false;                    ///< DeepSpeed's stage 3 has put its own linear in PyTorch's place
  std::optional<MemorySpace> saved_on_host;       ///< save_on_cpu around the forward pass
  SmallOptimizerSettings small_optimizer;
  std::int64_t quantized_block = 256;  ///< elements of 8-bit state with one scale
  FusedModules liger, foak;
  bool liger_sums_in_place = true;  ///< by version: gradients of the head's weight are added up by the product itself
  double neftune = 0;
};

/// What of data-parallel communication goes beside the passes, bucket by bucket: core/distributed/ of Megatron-LM.
struct DataOverlap {
  bool gradients = false;   ///< reduced when the last backward pass has made them
  bool parameters = false;  ///< gathered when the next step's first forward pass wants them
  /// All stages begin at once: without interleaving those after the first when their passes are over
  /// (align_grad_reduce); with it each whole chunk, as early as the first stage can (align_param_gather).
  bool gradients_aligned = true, parameters_aligned = true;
  std::int64_t bucket_elements = 0;  ///< of which a bucket is full; 0: as many as the framework takes
  bool operator==(const DataOverlap&) const = default;
};

/// What of tensor-parallel communication goes beside products, through TransformerEngine's Userbuffers:
/// tp-comm-overlap of Megatron-LM (core/model_parallel_config.py).
struct TensorOverlap {
  bool gathers = true;        ///< ranks' parts go round, and each is multiplied as it comes (tp_comm_overlap_ag)
  bool scatters = true;       ///< parts of a product are reduced while the next is made (tp_comm_overlap_rs)
  bool bulk_gathers = true;   ///< of a norm's output, beside the product of its gradient (tp_comm_bulk_dgrad)
  bool bulk_scatters = true;  ///< of that gradient, beside the weight gradient's product (tp_comm_bulk_wgrad)
  /// Each rank has a program of its own, to be carried out. Otherwise ranks that differ in whose rows come when share
  /// that of the first, which takes as long and as much memory.
  bool each_place = false;
  bool operator==(const TensorOverlap&) const = default;
};

/// Over tensor-parallel ranks, what Muon makes orthogonal: a gathered matrix, on every rank; or each rank's part.
enum class MuonAcrossRanks : std::uint8_t { Duplicated, Blockwise };

/// Muon's of Megatron-LM: core/optimizer/emerging_optimizers.py.
struct MuonBehavior {
  /// Buffers keep matrices whole within a rank's share (--no-use-layer-wise-param-layout: whole parameters are dealt
  /// out).
  bool layer_wise_layout = true;
  bool nesterov = false;
  bool splits_qkv = true;     ///< queries', keys' and values' parts of one projection are matrices of their own
  bool bf16_products = true;  ///< muon_fp32_matmul_prec = "medium"
  MuonAcrossRanks across_ranks = MuonAcrossRanks::Duplicated;
  std::int64_t steps = 5;  ///< of a Newton-Schulz iteration
  bool operator==(const MuonBehavior&) const = default;
};

/// Where Megatron-LM's optimizer keeps its state, and as what: core/optimizer/optimizer_config.py.
struct OptimizerBehavior {
  /// use_precision_aware_optimizer: TransformerEngine's Adam keeps the fp32 parameters, and reads gradients where they
  /// are; the types of what it keeps.
  bool precision_aware = false;
  DType main_parameters = DType::FP32, mean = DType::FP32, squares = DType::FP32;
  bool remainders = true;  ///< store_param_remainders: of bf16 parameters, what fp32 ones have besides
  /// optimizer_cpu_offload: which part of the elements is updated on the host; none: there is nothing to it.
  std::optional<double> offloaded;
  bool overlaps_copies = false;  ///< overlap_cpu_optimizer_d2h_h2d
  bool pins_gradients = true;    ///< pin_cpu_grads
  bool fuses_scaling = false;    ///< by version: bf16 moments are read and written by Adam's kernel itself
  std::optional<MuonBehavior> muon{};
  bool operator==(const OptimizerBehavior&) const = default;
};

/// A module of Megatron-LM's layers whose saved tensors can go to the host by themselves: --offload-modules.
enum class OffloadedModule : std::uint8_t {
  AttentionNorm,  ///< a norm by itself, and what is added to its branch
  Qkv,            ///< from the layer's input, or its norm, to queries, keys and values
  CoreAttention,
  AttentionProjection,
  MlpNorm,
  ExpertFc1,
  ExpertActivation,
};
using OffloadedModules = ModuleSet<OffloadedModule>;

/// Megatron-LM's fine-grained activation offload.
struct ModuleOffloadBehavior {
  OffloadedModules modules;
  std::int64_t smallest = 1024 * 1024;  ///< min_offloaded_tensor_size: of what goes, in elements
  double fraction = 1;                  ///< activation_offload_fraction: of each chunk's groups, the first ones
  /// fine_grained_offloading_max_inflight_offloads: of one module's groups, those whose copies the compute stream need
  /// not have waited for; none: it waits for none.
  std::optional<std::int32_t> in_flight;
  bool by_name = false;  ///< by version: what is given to the host is the group of that name, not the last one begun
  [[nodiscard]] bool any() const { return modules.bits() != 0; }
  bool operator==(const ModuleOffloadBehavior&) const = default;
};

/// Of `deferred_head_gradients`.
inline constexpr std::int64_t every_micro_batch = std::numeric_limits<std::int64_t>::max();

/// The habits of a training framework at a version, as a value: what it pads, what it keeps, what it forgets to drop.
/// Lowering asks it for habits, never for its name.
struct Runtime {
  const Framework* framework = nullptr;  ///< which ranks do the same, and what they do

  /// Where modules run operation by operation. What follows is then left as it is, but for the cuBLAS workspace.
  std::optional<EagerBehavior> eager;

  std::int64_t vocabulary_multiple = 1;  ///< the vocabulary is padded to this times the tensor-parallel degree

  std::int64_t parameter_alignment = 1;  ///< elements; of a parameter in a sharded contiguous buffer
  std::int64_t bucket_alignment = 1;     ///< elements; a sharded buffer ends at a multiple of lcm(this, data degree)

  /// Buckets of gradients whose reduction overlaps backward close once they hold this many elements, and no fewer than
  /// `bucket_elements_per_rank` for each data-parallel rank; 0: one bucket. Only the first stage has several.
  std::int64_t bucket_elements = 0;
  std::int64_t bucket_elements_per_rank = 0;
  bool tied_embedding_bucket = false;  ///< a sharded buffer keeps a copied embedding in a bucket of its own

  DummyGradient dummy_gradient = DummyGradient::Cached;
  bool persistent_head_gather = false;  ///< the LM head gathers its input into a buffer that is never given back
  /// Of so many micro-batches of a step the head's weight gradients come after its passes.
  std::int64_t deferred_head_gradients = 0;
  DataOverlap overlap;
  std::optional<TensorOverlap> tensor_overlap;
  bool external_user_buffers = false;  ///< it has buffers for products of gradients that come by other means, too
  bool shared_user_workspace = false;  ///< the library's GEMMs beside it work where all of its GEMMs do
  /// Interleaved stages hand over beside their passes while the pipeline fills and empties, too.
  bool overlaps_flush = false;
  bool fused_norm_linear = false;      ///< a norm and the linear after it are one autograd function
  bool fused_bias_dropout = false;     ///< bias, dropout and residual addition are one compiled function
  bool fused_bias_activation = false;  ///< so are the first MLP linear's bias and the activation
  bool framework_linears = false;      ///< the layers' linears are the framework's own GEMMs, not a library's
  bool persistent_scores = false;      ///< attention's raw scores lie in the buffer that is never given back
  bool batch_attention_mask = false;   ///< the data loader hands out a mask of sequence x sequence per sequence
  bool saves_batches = false;          ///< … and what it handed out stays on the device until the next step begins
  bool indexes_embedding = false;      ///< tokens' rows are indexed, not looked up by the embedding's own kernels
  bool deterministic = false;          ///< torch.use_deterministic_algorithms
  bool collectives_alone = false;      ///< collectives are called in groups of one rank too, which NCCL sets up
  ResultChecks checks{.nan_in_loss = false, .nan_in_grad = false};
  ValidatedSteps validated = ValidatedSteps::None;
  bool agrees_after_steps = false;         ///< parts of one model reduce what a step came to: success, norm
  bool deallocates_outputs = false;        ///< a stage's output shrinks to one element once it is sent
  bool waits_before_deallocating = false;  ///< … and what goes beside the passes has gone by then
  bool records_sent = true;                ///< record_stream marks what is sent beside the passes
  bool shares_out_checkpoints = false;  ///< each tensor-parallel rank keeps a part of what recomputed layers begin with
  bool ring_of_two_in_batches = false;  ///< two context-parallel ranks hand each other keys and values in one call

  /// Deterministic FlashAttention sums query gradients in as many copies as it takes for sequences and heads to fill
  /// this many multiprocessors; 0: in one.
  std::int32_t query_gradients_fill = 0;

  Bytes gemm_workspace;        ///< of the library behind the layers' linears; allocated at the first one
  Bytes blas_workspace;        ///< of the framework's own GEMMs (the LM head); one per thread that calls one
  std::vector<Bytes> scalars;  ///< small tensors that live as long as the job
  ExpertBehavior experts;
  CoreBehavior core;
  OptimizerBehavior optimizer;
  std::int32_t offloaded_layers = 0;  ///< of a model, whose saved tensors go to the host
  ModuleOffloadBehavior module_offload;
};

/// What users set that changes what a runtime allocates.
struct RuntimeSettings {
  std::string cublas_workspace_config;  ///< environment variable CUBLAS_WORKSPACE_CONFIG; empty where unset
  bool attention_mask = true;           ///< the data loader makes attention masks
  bool local_layers = false;            ///< the framework's own implementation of layers, not TransformerEngine's
  bool gradient_accumulation_fusion = true;
  bool bias_dropout_fusion = true;
  bool bias_activation_fusion = true;
  bool capped_scores = false;  ///< scores are soft-capped, which the library's attention cannot
  DataOverlap overlap{};
  std::optional<TensorOverlap> tensor_overlap{};
  bool distribute_saved = false;  ///< what recomputed layers begin with is cut over tensor-parallel ranks
  bool deterministic = false;     ///< only deterministic kernels
  ResultChecks checks{};
  std::int64_t deferred_head_gradients = 0;
  bool overlaps_flush = false;  ///< hand-overs of warm-up and cool-down run beside the passes
  EagerSettings eager{};
  ExpertBehavior experts{};
  OptimizerBehavior optimizer{};
  std::int32_t offloaded_layers = 0;
  ModuleOffloadBehavior module_offload{};
};

/// Megatron-LM core with TransformerEngine.
[[nodiscard]] Runtime megatron_runtime(const Versions& versions, const RuntimeSettings& settings, const Target& target);

/// Plain PyTorch with the modules of Hugging Face's transformers.
[[nodiscard]] Runtime pytorch_runtime(const Versions& versions, const RuntimeSettings& settings, const Target& target);

/// The same, with each layer's parameters and the others sharded over ranks: torch.distributed.fsdp.fully_shard.
[[nodiscard]] Runtime fsdp2_runtime(const Versions& versions, const RuntimeSettings& settings, const Target& target);

/// The same by torch.distributed.fsdp.FullyShardedDataParallel.
[[nodiscard]] Runtime fsdp_runtime(const Versions& versions, const RuntimeSettings& settings, const Target& target);
/// torchtitan: its own models and loop over torch.distributed.fsdp.fully_shard.
[[nodiscard]] Runtime torchtitan_runtime(const Versions& versions, const RuntimeSettings& settings,
                                         const Target& target);

/// The same modules under DeepSpeed's ZeRO.
[[nodiscard]] Runtime deepspeed_runtime(const Versions& versions, const RuntimeSettings& settings,
                                        const Target& target);

/// Bytes of PyTorch's cuBLAS workspace for one handle and stream: the sum of SIZE_KIB:COUNT pairs of
/// CUBLAS_WORKSPACE_CONFIG (":4096:8"), or PyTorch's default for the device where `config` is empty.
[[nodiscard]] Bytes cublas_workspace(const std::string& config, const Target& target);

}  // namespace tidemark::parallel
