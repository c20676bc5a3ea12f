#include "scenarios/reader/scenario_json.hpp"

#include <nlohmann/json.hpp>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/quantity.hpp"
#include "scenarios/formats/version_text.hpp"
#include "scenarios/reader/adapter_reader.hpp"
#include "scenarios/reader/detail/scenario_parts_json.hpp"
#include "scenarios/scenario/axis_order.hpp"
#include "scenarios/scenario/cpu_offload.hpp"
#include "scenarios/scenario/named_files.hpp"
#include "scenarios/scenario/names.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::scenarios {

namespace {

using Json = nlohmann::ordered_json;

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

Json as_json(const Adapter& adapter, DType base) {
  Json json = {{"method", adapter.method == AdapterMethod::Dora ? "dora" : "lora"},
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
          {"switches", switches_json(runtime)}};
}

}  // namespace

std::string scenario_json(const Scenario& scenario, int indent) {
  Json json = {{"name", scenario.name},
               {"model", model_json(scenario.model)},
               {"cluster", cluster_json(scenario.cluster)},
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
