#include <cmath>

#include "parallel/runtime/runtime.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/reader/detail/scenario_parts_json.hpp"
#include "scenarios/scenario/names.hpp"
#include "scenarios/scenario/zero_keys.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

Json as_json(const std::vector<LoadBalancing>& balancing) {
  if (balancing.empty()) return "none";
  if (balancing.size() == 1) return word(load_balancing_names, balancing.front());
  Json all = Json::array();
  for (const LoadBalancing kind : balancing) all.push_back(word(load_balancing_names, kind));
  return all;
}

void add_optimizer_switches(Json& json, const RuntimeChoice& runtime) {
  if (const OptimizerBehavior& optimizer = runtime.optimizer; optimizer.precision_aware) {
    const auto type = [](DType dtype) { return dtype == DType::E4M3 ? "fp8" : name(dtype); };
    json["use-precision-aware-optimizer"] = true;
    json["main-params-dtype"] = type(optimizer.main_parameters);
    json["exp-avg-dtype"] = type(optimizer.mean);
    json["exp-avg-sq-dtype"] = type(optimizer.squares);
    json["store-param-remainders"] = optimizer.remainders;
  }
  if (const std::optional<MuonBehavior>& muon = runtime.optimizer.muon) {
    json["no-use-layer-wise-param-layout"] = !muon->layer_wise_layout;
    json["muon-nesterov"] = muon->nesterov;
    json["muon-no-split-qkv"] = !muon->splits_qkv;
    json["muon-fp32-matmul-prec"] = muon->bf16_products ? "medium" : "highest";
    json["muon-tp-mode"] = muon->across_ranks == MuonAcrossRanks::Duplicated ? "duplicated" : "blockwise";
    json["muon-num-ns-steps"] = muon->steps;
  }
}

void add_module_offload(Json& json, const RuntimeChoice& runtime) {
  if (runtime.offloaded_layers > 0) json["cpu-offloading-num-layers"] = runtime.offloaded_layers;
  if (const ModuleOffloadBehavior& offload = runtime.module_offload; offload.any()) {
    json["fine-grained-activation-offloading"] = true;
    json["offload-modules"] = words(offloaded_module_names, offload.modules);
    json["min-offloaded-tensor-size"] = offload.smallest;
    if (offload.fraction < 1) json["activation-offload-fraction"] = offload.fraction;
    if (offload.in_flight) json["fine-grained-offloading-max-inflight-offloads"] = *offload.in_flight;
  }
}

void add_overlap_switches(Json& json, const RuntimeChoice& runtime) {
  if (const std::optional<TensorOverlap>& overlap = runtime.tensor_overlap) {
    json["tp-comm-overlap"] = true;
    if (!overlap->gathers) json["disable-tp-comm-overlap-ag"] = true;
    if (!overlap->scatters) json["disable-tp-comm-overlap-rs"] = true;
    if (!overlap->bulk_gathers) json["disable-tp-comm-bulk-dgrad"] = true;
    if (!overlap->bulk_scatters) json["disable-tp-comm-bulk-wgrad"] = true;
  }
  if (runtime.overlap.parameters) json["overlap-param-gather"] = true;
  if (!runtime.overlap.gradients_aligned) json["no-align-grad-reduce"] = true;
  if (!runtime.overlap.parameters_aligned) json["no-align-param-gather"] = true;
  if (runtime.overlap.bucket_elements > 0) json["ddp-bucket-size"] = runtime.overlap.bucket_elements;
}

void add_check_switches(Json& json, const ResultChecks& checks) {
  if (!checks.nan_in_loss && !checks.nan_in_grad) {
    json["no-check-for-nan-in-loss-and-grad"] = true;
  } else {
    if (!checks.nan_in_loss) json["check_for_nan_in_loss"] = false;
    if (!checks.nan_in_grad) json["check_for_nan_in_grad"] = false;
  }
  if (checks.spiky_loss) json["check-for-spiky-loss"] = true;
  if (checks.large_grads) json["check-for-large-grads"] = true;
}

void add_expert_switches(Json& json, const ExpertBehavior& experts) {
  if (!experts.grouped_linears) json["moe-grouped-gemm"] = false;
  if (experts.router_type) json["moe-router-dtype"] = name(*experts.router_type);
  if (experts.loss_coefficients.size() == 1)
    json["moe-aux-loss-coeff"] = experts.loss_coefficients.front();
  else if (!experts.loss_coefficients.empty())
    json["moe-aux-loss-coeff"] = experts.loss_coefficients;
  if (experts.z_loss) json["moe-z-loss-coeff"] = *experts.z_loss;
  if (experts.exchange_processors != ExpertBehavior{}.exchange_processors)
    json["moe-deepep-num-sms"] = experts.exchange_processors;
}

Json megatron_switches(const RuntimeChoice& runtime) {
  const ExpertBehavior& experts = runtime.experts;
  Json json = {{"no-create-attention-mask-in-dataloader", !runtime.attention_mask},
               {"no-gradient-accumulation-fusion", !runtime.gradient_accumulation_fusion},
               {"no-bias-dropout-fusion", !runtime.bias_dropout_fusion},
               {"no-bias-gelu-fusion", !runtime.bias_gelu_fusion},
               {"no-bias-swiglu-fusion", !runtime.bias_swiglu_fusion},
               {"no-rope-fusion", !runtime.rope_fusion},
               {"no-masked-softmax-fusion", !runtime.masked_softmax_fusion},
               {"attention-softmax-in-fp32", runtime.softmax_in_fp32},
               {"apply-query-key-layer-scaling", runtime.query_key_scaling},
               {"overlap-grad-reduce", runtime.overlap.gradients},
               {"distribute-saved-activations", runtime.distribute_saved},
               {"deterministic-mode", runtime.deterministic},
               {"moe-permute-fusion", experts.fused_permutation},
               {"moe-router-load-balancing-type", as_json(experts.balancing)}};
  if (const std::int64_t deferred = runtime.deferred_head_gradients; deferred > 0) {
    json["defer-embedding-wgrad-compute"] = true;
    json["wgrad-deferral-limit"] = deferred == every_micro_batch ? 0 : deferred;
  }
  add_optimizer_switches(json, runtime);
  add_module_offload(json, runtime);
  if (runtime.optimizer.offloaded) {
    json["overlap-cpu-optimizer-d2h-h2d"] = runtime.optimizer.overlaps_copies;
    json["no-pin-cpu-grads"] = !runtime.optimizer.pins_gradients;
  }
  add_overlap_switches(json, runtime);
  add_check_switches(json, runtime.checks);
  if (runtime.overlaps_flush) json["overlap-p2p-communication-warmup-flush"] = true;
  add_expert_switches(json, experts);
  return json;
}

Json titan_switches(const EagerSettings& eager) {
  const std::int32_t layers = eager.titan.checkpointed_layers;
  Json json = {{"implementation", word(optimizer_kernel_names, eager.optimizer)},
               {"weight_decay", eager.weight_decay},
               {"mixed_precision_reduce", name(eager.fully_shard.reduce_dtype)},
               {"fsdp_reshard_after_forward", word(reshard_policy_names, eager.titan.reshard)},
               {"early_stop", eager.titan.early_stop},
               {"disable_loss_parallel", !eager.titan.loss_parallel},
               {"selective_ac_option", layers == 0 ? Json("op") : Json(layers)}};
  const TitanSettings& titan = eager.titan;
  if (titan.compile_layers && titan.compile_loss)
    json["compile"] = true;
  else if (titan.compile_layers || titan.compile_loss)
    json["compile"] = titan.compile_layers ? "model" : "loss";
  if (titan.memory_budget < 1) json["memory_budget"] = titan.memory_budget;
  if (!titan.balances_context) json["context_parallel_load_balancer"] = "None";
  return json;
}

// What of DeepSpeed's is on the host, or on its drives.
void add_offload(Json& json, const ZeroBehavior& zero) {
  const NvmeBehavior& nvme = zero.nvme;
  const auto device = [](bool drives) { return drives ? "nvme" : "cpu"; };
  if (zero.offload_optimizer) {
    Json& its = json["offload_optimizer"] = {{"device", device(nvme.optimizer)},
                                             {"pin_memory", *zero.offload_optimizer == MemorySpace::Pinned},
                                             {"ratio", zero.offload_ratio}};
    json["zero_force_ds_cpu_optimizer"] = zero.cpu_adam;
    if (nvme.optimizer)
      its.update({{"buffer_count", nvme.optimizer_buffers},
                  {"pipeline_read", nvme.pipeline_read},
                  {"pipeline_write", nvme.pipeline_write},
                  {"fast_init", nvme.fast_init}});
  }
  if (zero.offload_parameters) {
    Json& its = json["offload_param"] = {{"device", device(nvme.parameters)},
                                         {"pin_memory", *zero.offload_parameters == MemorySpace::Pinned}};
    if (nvme.parameters)
      its.update({{"buffer_count", nvme.parameter_buffers},
                  {"buffer_size", nvme.parameter_buffer_size},
                  {"max_in_cpu", nvme.max_in_cpu}});
  }
  if (zero.idle_checkpointing) json["activation_checkpointing"] = Json::object();
  if (nvme.optimizer || nvme.parameters)
    json["aio"] = {{"block_size", nvme.block_size}, {"intra_op_parallelism", nvme.threads}};
}

void add_small_optimizer(Json& json, const SmallOptimizerSettings& small) {
  if (small.torch_adafactor) json["adafactor"] = word(adafactor_names, true);
  if (small.first_moment) json["beta1"] = 0.9;  // what it is changes nothing
  if (small.rank > 0) json["rank"] = small.rank;
  if (small.narrow_embeddings) json["quantize_embeddings"] = true;
}

void add_fused_modules(Json& json, const EagerSettings& eager) {
  if (eager.liger != FusedModules{}) {
    json["use_liger_kernel"] = true;
    for (const Named<FusedModule>& module : fused_module_names)
      json["liger_kernel_config"][std::string(module.text)] = eager.liger.has(module.value);
  }
  if (eager.foak != FusedModules{}) {
    Json& fast = json["fast_kernels"];
    for (const Named<FusedModule>& loss : fast_loss_names)
      if (eager.foak.has(loss.value)) fast["fast_loss"] = loss.text;
    fast["fast_rms_layernorm"] = eager.foak.has(FusedModule::RmsNorm);
    fast["fast_rope_embeddings"] = eager.foak.has(FusedModule::Rope);
  }
}

void add_zero(Json& json, const EagerSettings& eager) {
  for (const auto& [key, value] : zero_numbers(eager.zero)) json[key] = value;
  json["overlap_comm"] = eager.zero.overlaps;
  json["contiguous_gradients"] = eager.zero.contiguous_gradients;
  json["reduce_scatter"] = eager.zero.reduce_scatter;
  json["round_robin_gradients"] = eager.zero.round_robin;
  json["gradient_clipping"] = eager.zero.clipping;
  if (eager.zero.accumulation) json["grad_accum_dtype"] = name(*eager.zero.accumulation);
  if (eager.zero.loss_scale != 1) json["initial_scale_power"] = std::ilogb(eager.zero.loss_scale);
  if (eager.reentrant_checkpoint) json["use_reentrant"] = *eager.reentrant_checkpoint;
  add_offload(json, eager.zero);
}

void add_flat_sharding(Json& json, const FlatParameterBehavior& flat) {
  json["sync_each_batch"] = flat.reduces_each_backward;
  json["use_orig_params"] = flat.original_parameters;
  json["backward_prefetch"] = word(backward_prefetch_names, flat.backward_prefetch);
  json["forward_prefetch"] = flat.forward_prefetch;
  json["limit_all_gathers"] = flat.limits_all_gathers;
  json["sync_module_states"] = flat.sync_module_states;
  json["autocast"] = flat.autocast;
  json["param_dtype"] = name(flat.param_dtype);
  json["reduce_dtype"] = name(flat.reduce_dtype);
  if (flat.buffer_dtype) json["buffer_dtype"] = name(*flat.buffer_dtype);
}

void add_unit_sharding(Json& json, const FullyShardBehavior& behavior) {
  json["reduce_dtype"] = name(behavior.reduce_dtype);
  json["sync_each_batch"] = behavior.reduces_each_backward;
  if (behavior.ranks_after_forward > 0)
    json["reshard_after_forward"] = behavior.ranks_after_forward;
  else if (behavior.keeps_root)
    json["reshard_after_forward"] = "default";
  json["num_to_forward_prefetch"] = behavior.forward_prefetch;
  json["num_to_backward_prefetch"] = behavior.backward_prefetch;
  if (behavior.offload) json["pin_memory"] = behavior.offload == MemorySpace::Pinned;
}

Json eager_switches(const RuntimeChoice& runtime) {
  const EagerSettings& eager = runtime.eager;
  if (runtime_kind(runtime.name).id == RuntimeId::TorchTitan) return titan_switches(eager);
  Json json = {{"foreach", eager.optimizer == OptimizerKernels::Foreach},
               {"fused", eager.optimizer == OptimizerKernels::Fused},
               {"use_cache", eager.caches_keys},
               {"weight_decay", eager.weight_decay},
               {"decoupled_weight_decay", eager.decoupled_weight_decay},
               {"amsgrad", eager.amsgrad},
               {"keep_outputs", eager.keeps_outputs},
               {"fake_tensor_mode", eager.fake_tensors}};
  if (!eager.cudnn_attention) json["enable_cudnn_sdp"] = false;
  add_small_optimizer(json, eager.small_optimizer);
  if (eager.filters_losses) json["logging_nan_inf_filter"] = true;
  if (eager.neftune > 0) json["neftune_noise_alpha"] = eager.neftune;
  if (eager.checkpoints_within) json["fsdp_activation_checkpointing"] = true;
  add_fused_modules(json, eager);
  if (eager.compiled != CompiledParts::None)
    json["torch_compile"] = eager.compiled == CompiledParts::Model ? Json(true) : Json("regional");
  const RuntimeKind& kind = runtime_kind(runtime.name);
  if (kind.id != RuntimeId::DeepSpeed) json["modules"] = word(module_library_names, eager.modules);
  if (kind.id == RuntimeId::DeepSpeed) {
    add_zero(json, eager);
    return json;
  }
  json["max_grad_norm"] = eager.clips_gradients ? 1.0 : 0.0;
  json["gradient_as_bucket_view"] = eager.gradients_view_buckets;
  if (kind.id == RuntimeId::Fsdp)
    add_flat_sharding(json, eager.flat);
  else if (kind.shards_units())
    add_unit_sharding(json, eager.fully_shard);
  if (eager.saved_on_host) json["pin_memory"] = eager.saved_on_host == MemorySpace::Pinned;
  if (eager.bucket_mib) json["bucket_cap_mb"] = *eager.bucket_mib;
  if (eager.reentrant_checkpoint) json["use_reentrant"] = *eager.reentrant_checkpoint;
  if (eager.autocast) json["autocast"] = *eager.autocast;
  if (eager.input_gradients) json["enable_input_require_grads"] = *eager.input_gradients;
  return json;
}

}  // namespace

nlohmann::ordered_json switches_json(const RuntimeChoice& runtime) {
  return runtime_kind(runtime.name).eager() ? eager_switches(runtime) : megatron_switches(runtime);
}

}  // namespace tidemark::scenarios
