#include "scenarios/reader/scenario_json.hpp"

#include <cmath>

#include <nlohmann/json.hpp>

#include "parallel/runtime/runtime.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/quantity.hpp"
#include "scenarios/formats/version_text.hpp"
#include "scenarios/model_config/hybrid_layers.hpp"
#include "scenarios/reader/adapter_reader.hpp"
#include "scenarios/scenario/axis_order.hpp"
#include "scenarios/scenario/cpu_offload.hpp"
#include "scenarios/scenario/named_files.hpp"
#include "scenarios/scenario/names.hpp"
#include "scenarios/scenario/zero_keys.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

std::vector<bool> layers_where(const Model& model, bool (*is)(const Layer&)) {
  std::vector<bool> found;
  for (std::int64_t i = 0; i < model.layers.size(); ++i) found.push_back(is(model.layers[i]));
  if (std::ranges::find(found, true) == found.end()) found.clear();
  return found;
}

Json as_json(const Experts& experts, const Model& model) {
  return {{"num_experts", experts.count},
          {"num_experts_per_tok", experts.chosen},
          {"moe_intermediate_size", experts.ffn},
          {"shared_expert_intermediate_size", experts.shared_ffn},
          {"shared_expert_gate", experts.shared_gate},
          {"biases", experts.biases},
          {"clamped_gate", experts.clamped_gate},
          {"scoring_func", word(router_score_names, experts.score)},
          {"n_group", experts.groups},
          {"topk_group", experts.topk_group},
          {"correction_bias", experts.correction_bias},
          {"routed_scaling_factor", experts.scale},
          {"dense_layers", layers_where(model, [](const Layer& layer) { return layer.experts() == nullptr; })}};
}

Json as_json(const MultiLatentAttention& latent) {
  return {{"q_lora_rank", latent.query_rank},
          {"kv_lora_rank", latent.kv_rank},
          {"qk_nope_head_dim", latent.qk_nope_head_dim},
          {"qk_rope_head_dim", latent.qk_rope_head_dim},
          {"v_head_dim", latent.value_head},
          {"normalized", latent.normalized}};
}

// What a model's mixers have beside its heads. They are alike where several layers have them.
void add_mixers(Json& json, const Model& model) {
  for (const Layer& layer : model.layers.kinds())
    std::visit(Overloaded{
                   [](const parallel::Attention&) {},  // sliding_window and whole_layers say it
                   [&](const MultiLatentAttention& its) { json["latent_attention"] = as_json(its); },
                   [&](const Mamba2& its) {
                     json["mamba"] = {{"mamba_num_heads", its.heads},
                                      {"mamba_head_dim", its.head_dim},
                                      {"n_groups", its.groups},
                                      {"ssm_state_size", its.state}};
                   },
                   [](const parallel::NoMixer&) {},
               },
               layer.mixer);
}

/// Under the names of a config.json.
Json as_json(const Model& model) {
  Json json = {
      {"name", model.name},
      {"model_type", model.architecture},
      {"hidden_size", model.hidden},
      {"num_hidden_layers", model.layers.size()},
      {"num_attention_heads", model.heads},
      {"num_key_value_heads", model.kv_heads},
      {"head_dim", model.head_dim},
      {"intermediate_size", model.ffn},
      {"vocab_size", model.vocabulary},
      {"max_position_embeddings", model.max_positions},
      {"tie_word_embeddings", model.tied_embeddings},
      {"qkv_bias", model.qkv_bias},
      {"output_bias", model.output_bias},
      {"mlp_bias", model.mlp_bias},
      {"qk_norm", word(qk_norm_names, model.qk_norm)},
      {"normalization", word(normalization_names, model.normalization)},
      {"norms", word(norm_placement_names, model.norms)},
      {"use_parallel_residual", model.parallel_residual},
      {"activation", word(activation_names, model.activation)},
      {"position_embedding_type", word(positions_names, model.positions)},
      {"rotary_pct", model.rotary_fraction},
      {"sliding_window", model.window()},
      {"whole_layers", model.window() > 0 ? layers_where(model, [](const Layer& layer) { return layer.window() == 0; })
                                          : std::vector<bool>{}},
      {"attn_logit_softcapping", model.attention_softcap},
      {"final_logit_softcapping", model.logit_softcap},
      {"vocabulary_extra", model.vocabulary_extra},
      {"vocabulary_multiple", model.vocabulary_multiple}};
  add_mixers(json, model);
  if (model.hybrid()) json["hybrid_override_pattern"] = hybrid_pattern(model);
  if (model.heterogeneous()) json["layers"] = runs_of(model.layers);
  if (model.experts()) json["experts"] = as_json(*model.experts(), model);
  if (model.attention_sinks) json["attention_sinks"] = true;
  if (!model.further.empty()) json["num_nextn_predict_layers"] = model.further.size();
  return json;
}

Json as_json(const Estimate& estimate) {
  return {{"bytes", text(estimate.bytes)},
          {"low", text(estimate.low)},
          {"high", text(estimate.high)},
          {"source", estimate.source}};
}

Json as_json(const PeakRates& peak) {
  Json json{{"bf16", text(peak.bf16)}, {"fp16", text(peak.fp16)}, {"tf32", text(peak.tf32)}, {"fp32", text(peak.fp32)}};
  if (peak.fp64 > OperationRate{}) json["fp64"] = text(peak.fp64);
  return json;
}

Json as_json(const Device& device) {
  const Version capability{device.compute_capability / 10, device.compute_capability % 10};
  Json json = {{"name", device.name},
               {"compute_capability", text(capability)},
               {"capacity", text(device.capacity)},
               {"multiprocessors", device.multiprocessors},
               {"memory_bandwidth", text(device.memory_bandwidth)},
               {"kernel_latency", text(device.kernel_latency)},
               {"peak", as_json(device.peak)},
               {"efficiency",
                {{"gemm", as_double(device.efficiency.gemm)},
                 {"attention", as_double(device.efficiency.attention)},
                 {"attention_backward", as_double(device.efficiency.attention_backward)},
                 {"sustained", as_double(device.efficiency.sustained)},
                 {"epilogue", as_double(device.efficiency.epilogue)},
                 {"memory", as_double(device.efficiency.memory)},
                 {"communication", as_double(device.efficiency.communication)},
                 {"kernel_error", as_double(device.efficiency.kernel_error)},
                 {"communication_error", as_double(device.efficiency.communication_error)},
                 {"source", device.efficiency.source}}},
               {"context", as_json(device.context)},
               {"modules", as_json(device.modules)},
               {"blas_handle", as_json(device.blas_handle)}};
  if (device.power)
    json["power"] = {{"limit", text(device.power->limit)},
                     {"sustained_at", text(device.power->sustained_at)},
                     {"exponent", as_double(device.power->exponent)},
                     {"source", device.power->source}};
  return json;
}

/// Without the keys that have no meaning for its link, as the cluster file leaves them out.
Json as_json(const Node& node) {
  Json json = {{"devices", node.devices}, {"link", word(node_link_names, node.link)}};
  if (node.job_devices > 0) json["job_devices"] = node.job_devices;
  if (node.link != NodeLink::Pcie) {
    json["bandwidth"] = text(node.bandwidth);
    json["latency"] = text(node.latency);
    json["collective_step"] = text(node.collective_step);
  }
  if (node.link == NodeLink::NvLink) json["nvlink_group"] = node.nvlink_group;
  json["nics"] = node.nics;
  json["nic_bandwidth"] = text(node.nic_bandwidth);
  json["collective_start"] = text(node.collective_start);
  return json;
}

Json fabric_json(const Cluster& cluster) {
  const FabricShape& shape = cluster.fabric;
  Json json = {{"kind", word(fabric_kind_names, shape.kind)}};
  if (shape.kind == FabricKind::LeafSpine) {
    json["rail_optimised"] = shape.rail_optimised;
    json["nodes_per_leaf"] = shape.nodes_per_leaf;
    json["oversubscription"] = as_double(shape.oversubscription);
  }
  json["latency"] = text(shape.latency);
  json["gpu_direct_rdma"] = cluster.node.gpu_direct_rdma;
  return json;
}

Json as_json(const NcclChannels& channels) {
  return {{"collective", channels.collective},
          {"nvls", channels.nvls},
          {"p2p", channels.p2p},
          {"per_peer", channels.per_peer}};
}

// What was measured of NCCL; an empty object where nothing was.
Json as_json(const NcclProfile& nccl) {
  Json json = Json::object();
  if (nccl.peer_access != PeerAccess::Everywhere) json["peer_access"] = word(peer_access_names, nccl.peer_access);
  if (!nccl.channels_source.empty()) {
    Json& channels = json["channels"] = {{"source", nccl.channels_source}};
    if (nccl.one_node) channels["one_node"] = as_json(*nccl.one_node);
    if (nccl.several_nodes) channels["several_nodes"] = as_json(*nccl.several_nodes);
    if (nccl.one_rank_a_node) channels["one_rank_a_node"] = as_json(*nccl.one_rank_a_node);
  }
  if (nccl.kernels) json["kernels"] = as_json(*nccl.kernels);
  for (const NcclProfile::Communicator& c : nccl.communicators) {
    Json its = as_json(c.memory);
    its["ranks"] = c.use.ranks;
    its["nodes"] = c.use.nodes;
    its["local"] = c.use.local;
    its["reduces"] = c.use.reduces;
    its["shards"] = c.use.shards;
    its["local_peers"] = c.use.local_peers;
    its["remote_peers"] = c.use.remote_peers;
    json["communicators"].push_back(std::move(its));
  }
  return json;
}

Json as_json(const Host& host) {
  Json json = {{"bandwidth", text(host.bandwidth)},
               {"latency", text(host.latency)},
               {"bridge_bandwidth", text(host.bridge_bandwidth)},
               {"launch", text(host.launch)},
               {"code_factor", as_double(host.code_factor)},
               {"memory_bandwidth", text(host.memory_bandwidth)},
               {"memory", host.memory > Bytes{} ? Json(text(host.memory)) : Json(nullptr)}};
  if (host.nvme_read_bandwidth) json["nvme_read_bandwidth"] = text(*host.nvme_read_bandwidth);
  if (host.nvme_write_bandwidth) json["nvme_write_bandwidth"] = text(*host.nvme_write_bandwidth);
  return json;
}

Json as_json(const Cluster& cluster) {
  Json json = {{"name", cluster.name},          {"device", as_json(cluster.device)}, {"host", as_json(cluster.host)},
               {"node", as_json(cluster.node)}, {"fabric", fabric_json(cluster)},    {"nccl", as_json(cluster.nccl)}};
  if (const Calibration* its = cluster.calibration.get())
    json["calibration"] = {{"name", its->name},
                           {"source", its->source},
                           {"kernels", its->kernels.size()},
                           {"collectives", its->collectives.size()},
                           {"messages", its->messages.size()},
                           {"copies", its->copies.size()}};
  if (cluster.dollars_per_gpu_hour) json["price_per_gpu_hour"] = as_double(*cluster.dollars_per_gpu_hour);
  return json;
}

Json as_json(const Layout& layout) {
  Json json = {{"tensor", layout.tensor},
               {"sequence_parallel", layout.sequence_parallel},
               {"pipeline", layout.pipeline},
               {"data", layout.data},
               {"sharding", word(sharding_names, layout.sharding)},
               {"shard_group", layout.shard_group},
               {"count_embedding", layout.count_embedding},
               {"count_loss", layout.count_loss},
               {"schedule", word(schedule_names, layout.schedule)},
               {"chunks", layout.chunks},
               {"order", text(layout.order)}};
  if (layout.context > 1) {
    json["context"] = layout.context;
    json["context_kind"] = word(context_kind_names, layout.context_kind);
    if (layout.context_kind == ContextKind::AllToAllAndRing) json["context_inner"] = layout.context_inner;
  }
  if (layout.expert > 1) json["expert"] = layout.expert;
  if (layout.expert_tensor > 0) json["expert_tensor"] = layout.expert_tensor;
  if (!layout.stage_layers.empty()) json["stage_layers"] = layout.stage_layers;
  if (layout.first_layers > 0) json["first_stage_layers"] = layout.first_layers;
  if (layout.last_layers > 0) json["last_stage_layers"] = layout.last_layers;
  return json;
}

// The keys that the kind of recomputation takes.
void add_recomputation(Json& json, const Recomputation& requested) {
  if (requested.kind == Recompute::Full) {
    json["recompute_method"] = word(recompute_method_names, requested.method);
    json["recompute_layers"] = requested.layers;
  }
  if (requested.kind == Recompute::Selective)
    json["recompute_modules"] = words(recomputed_module_names, requested.modules);
}

Json as_json(const Train& train) {
  Json json = {{"sequence_length", train.sequence_length},
               {"micro_batch", train.micro_batch},
               {"global_batch", train.global_batch},
               {"precision", name(train.precision)},
               {"gradient_dtype", name(train.gradient_dtype)},
               {"master_dtype", name(train.master_dtype)},
               {"optimizer", word(optimizer_names, train.optimizer)},
               {"recompute", word(recompute_names, train.recompute.kind)},
               {"attention", word(attention_names, train.attention)},
               {"cross_entropy", word(cross_entropy_names, train.cross_entropy)},
               {"hidden_dropout", train.hidden_dropout},
               {"attention_dropout", train.attention_dropout},
               {"steps", train.steps}};
  if (train.packed > 0) json["packed_sequences"] = train.packed;
  add_recomputation(json, train.recompute);
  return json;
}

Json as_json(const Rollout& rollout, const FrozenModels& frozen) {
  Json json = {{"batch", rollout.batch},
               {"samples", rollout.samples},
               {"prompt_length", rollout.prompt_length},
               {"response_length", rollout.response_length},
               {"block_size", rollout.block_size},
               {"kv_dtype", word(kv_dtype_names, rollout.kv_dtype)},
               {"tensor", rollout.tensor},
               {"sleep", static_cast<int>(rollout.sleep)},
               {"weights", word(engine_weights_names, rollout.weights)}};
  for (const auto& [key, role] : frozen_model_keys) json[std::string(key)] = holds(frozen, role);
  if (rollout.memory_fraction > 0) json["memory_fraction"] = rollout.memory_fraction;
  return json;
}

Json as_json(const ExpertLoads& loads) {
  return std::visit(Overloaded{
                        [](const EqualLoads&) { return Json(equal_loads); },
                        [](const LoadOfOneRank& its) { return Json(its.factor); },
                        [](const ListedLoads& its) { return its.file.empty() ? Json(its.of_layers) : Json(its.file); },
                        [](const ZipfLoads& its) {
                          return Json{{"zipf", its.exponent}, {"seed", its.seed}};
                        },
                        [](const DirichletLoads& its) {
                          return Json{{"dirichlet", its.concentration}, {"seed", its.seed}};
                        },
                    },
                    loads);
}

Json as_json(const ExpertRouting& routing) {
  Json json = {{"dispatcher", word(dispatcher_names, routing.dispatcher)}, {"imbalance", as_json(routing.loads)}};
  if (left_to_tokens(routing)) json["quantile"] = routing.quantile;
  if (routing.capacity_factor == 0) return json;
  json["capacity_factor"] = routing.capacity_factor;
  json["pad_to_capacity"] = routing.pads_to_capacity;
  return json;
}

Json as_json(const std::vector<LoadBalancing>& balancing) {
  if (balancing.empty()) return "none";
  if (balancing.size() == 1) return word(load_balancing_names, balancing.front());
  Json all = Json::array();
  for (const LoadBalancing kind : balancing) all.push_back(word(load_balancing_names, kind));
  return all;
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
  if (runtime.offloaded_layers > 0) json["cpu-offloading-num-layers"] = runtime.offloaded_layers;
  if (const ModuleOffloadBehavior& offload = runtime.module_offload; offload.any()) {
    json["fine-grained-activation-offloading"] = true;
    json["offload-modules"] = words(offloaded_module_names, offload.modules);
    json["min-offloaded-tensor-size"] = offload.smallest;
    if (offload.fraction < 1) json["activation-offload-fraction"] = offload.fraction;
    if (offload.in_flight) json["fine-grained-offloading-max-inflight-offloads"] = *offload.in_flight;
  }
  if (runtime.optimizer.offloaded) {
    json["overlap-cpu-optimizer-d2h-h2d"] = runtime.optimizer.overlaps_copies;
    json["no-pin-cpu-grads"] = !runtime.optimizer.pins_gradients;
  }
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
  const ResultChecks& checks = runtime.checks;
  if (!checks.nan_in_loss && !checks.nan_in_grad) {
    json["no-check-for-nan-in-loss-and-grad"] = true;
  } else {
    if (!checks.nan_in_loss) json["check_for_nan_in_loss"] = false;
    if (!checks.nan_in_grad) json["check_for_nan_in_grad"] = false;
  }
  if (checks.spiky_loss) json["check-for-spiky-loss"] = true;
  if (checks.large_grads) json["check-for-large-grads"] = true;
  if (runtime.overlaps_flush) json["overlap-p2p-communication-warmup-flush"] = true;
  if (!experts.grouped_linears) json["moe-grouped-gemm"] = false;
  if (experts.router_type) json["moe-router-dtype"] = name(*experts.router_type);
  if (experts.loss_coefficients.size() == 1)
    json["moe-aux-loss-coeff"] = experts.loss_coefficients.front();
  else if (!experts.loss_coefficients.empty())
    json["moe-aux-loss-coeff"] = experts.loss_coefficients;
  if (experts.z_loss) json["moe-z-loss-coeff"] = *experts.z_loss;
  if (experts.exchange_processors != ExpertBehavior{}.exchange_processors)
    json["moe-deepep-num-sms"] = experts.exchange_processors;
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
  const SmallOptimizerSettings& small = eager.small_optimizer;
  if (small.torch_adafactor) json["adafactor"] = word(adafactor_names, true);
  if (small.first_moment) json["beta1"] = 0.9;  // what it is changes nothing
  if (small.rank > 0) json["rank"] = small.rank;
  if (small.narrow_embeddings) json["quantize_embeddings"] = true;
  if (eager.filters_losses) json["logging_nan_inf_filter"] = true;
  if (eager.neftune > 0) json["neftune_noise_alpha"] = eager.neftune;
  if (eager.checkpoints_within) json["fsdp_activation_checkpointing"] = true;
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
  if (eager.compiled != CompiledParts::None)
    json["torch_compile"] = eager.compiled == CompiledParts::Model ? Json(true) : Json("regional");
  const RuntimeKind& kind = runtime_kind(runtime.name);
  if (kind.id != RuntimeId::DeepSpeed) json["modules"] = word(module_library_names, eager.modules);
  if (kind.id == RuntimeId::DeepSpeed) {
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
    return json;
  }
  json["max_grad_norm"] = eager.clips_gradients ? 1.0 : 0.0;
  json["gradient_as_bucket_view"] = eager.gradients_view_buckets;
  if (kind.id == RuntimeId::Fsdp) {
    const FlatParameterBehavior& flat = eager.flat;
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
  } else if (kind.shards_units()) {
    json["reduce_dtype"] = name(eager.fully_shard.reduce_dtype);
    json["sync_each_batch"] = eager.fully_shard.reduces_each_backward;
    const FullyShardBehavior& behavior = eager.fully_shard;
    if (behavior.ranks_after_forward > 0)
      json["reshard_after_forward"] = behavior.ranks_after_forward;
    else if (behavior.keeps_root)
      json["reshard_after_forward"] = "default";
    json["num_to_forward_prefetch"] = behavior.forward_prefetch;
    json["num_to_backward_prefetch"] = behavior.backward_prefetch;
    if (eager.fully_shard.offload) json["pin_memory"] = eager.fully_shard.offload == MemorySpace::Pinned;
  }
  if (eager.saved_on_host) json["pin_memory"] = eager.saved_on_host == MemorySpace::Pinned;
  if (eager.bucket_mib) json["bucket_cap_mb"] = *eager.bucket_mib;
  if (eager.reentrant_checkpoint) json["use_reentrant"] = *eager.reentrant_checkpoint;
  if (eager.autocast) json["autocast"] = *eager.autocast;
  if (eager.input_gradients) json["enable_input_require_grads"] = *eager.input_gradients;
  return json;
}

Json as_json(const Adapter& adapter, DType base) {
  Json json = {{"method", "lora"},
               {"rank", adapter.rank},
               {"alpha", adapter.alpha},
               {"dropout", adapter.dropout},
               {"target_modules", adapter.all_linear ? Json("all-linear") : Json(adapter.targets)},
               {"dtype", name(adapter.dtype.value_or(base))}};
  if (!adapter.saved.empty()) json["modules_to_save"] = adapter.saved;
  return json;
}

Json as_json(const Quantization& its) {
  if (its.format == QuantizedFormat::Int8)
    return {{"format", word(quantized_format_names, its.format)},
            {"threshold", its.threshold},
            {"skip_modules", its.skipped},
            {"prepare", word(prepared_names, its.prepared)}};
  return {{"format", word(quantized_format_names, its.format)},
          {"double_quant", its.nested},
          {"block_size", its.block},
          {"compute_dtype", name(its.computed)},
          {"storage_dtype", word(storage_names, its.stored)},
          {"skip_modules", its.skipped},
          {"prepare", word(prepared_names, its.prepared)}};
}

Json as_json(const RuntimeChoice& runtime) {
  Json environment = Json::object();
  if (!runtime.cublas_workspace_config.empty())
    environment["CUBLAS_WORKSPACE_CONFIG"] = runtime.cublas_workspace_config;
  for (const auto& [name, value] : runtime.nccl_environment) environment[name] = value;
  if (const auto& requested = runtime.launch_queue.connections)
    environment["CUDA_DEVICE_MAX_CONNECTIONS"] = std::to_string(*requested);
  if (const double scale = runtime.launch_queue.scale; scale != 1)
    environment["CUDA_SCALE_LAUNCH_QUEUES"] = fmt::format("{}x", scale);
  return {{"name", runtime.name},
          {"allocator", runtime.allocator},
          {"headroom", text(runtime.headroom)},
          {"versions",
           {{"megatron", text(runtime.versions.megatron)},
            {"transformer_engine", text(runtime.versions.transformer_engine)},
            {"torch", text(runtime.versions.torch)},
            {"cuda", text(runtime.versions.cuda)},
            {"nccl", text(runtime.versions.nccl)},
            {"transformers", text(runtime.versions.transformers)},
            {"torchtitan", text(runtime.versions.torchtitan)},
            {"deepspeed", text(runtime.versions.deepspeed)},
            {"bitsandbytes", text(runtime.versions.bitsandbytes)},
            {"liger_kernel", text(runtime.versions.liger)},
            {"litgpt", text(runtime.versions.litgpt)}}},
          {"environment", environment},
          {"switches", runtime_kind(runtime.name).eager() ? eager_switches(runtime) : megatron_switches(runtime)}};
}

}  // namespace

std::string scenario_json(const Scenario& scenario, int indent) {
  Json json = {{"name", scenario.name},
               {"model", as_json(scenario.model)},
               {"cluster", as_json(scenario.cluster)},
               {"gpus", scenario.gpus},
               {"layout", as_json(scenario.layout)},
               {"train", as_json(scenario.train)},
               {"runtime", as_json(scenario.runtime)}};
  if (const CpuOffload hosts = cpu_offload(scenario.runtime); hosts.any()) {
    const auto where = [](bool host, bool drives = false) { return drives ? "nvme" : host ? "cpu" : "none"; };
    const NvmeBehavior& nvme = scenario.runtime.eager.zero.nvme;
    json["offload"] = {{"optimizer", where(hosts.optimizer, nvme.optimizer)},
                       {"parameters", where(hosts.parameters, nvme.parameters)},
                       {"activations", where(hosts.activations)}};
    if (const auto& part = scenario.runtime.optimizer.offloaded) json["offload"]["optimizer_fraction"] = *part;
  }
  if (scenario.train.rollout) json["rollout"] = as_json(*scenario.train.rollout, scenario.train.frozen);
  if (scenario.train.adapter) json["adapter"] = as_json(*scenario.train.adapter, base_dtype(scenario));
  if (scenario.train.quantization) json["quantization"] = as_json(*scenario.train.quantization);
  if (scenario.model.experts()) json["moe"] = as_json(scenario.train.routing);
  if (scenario.run.tokens > 0) json["run"] = {{"tokens", scenario.run.tokens}};
  if (scenario.run.steps > 0) json["run"] = {{"steps", scenario.run.steps}};
  // A file's name need not be UTF-8; what is not is replaced.
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tidemark::scenarios
