#include <algorithm>
#include <cctype>
#include <cstdint>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/hugging_face/names.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/scenario/cpu_offload.hpp"
#include "scenarios/scenario/names.hpp"
#include "scenarios/scenario/zero_keys.hpp"
#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

Json as_json(const TomlValue& value) {
  return std::visit(Overloaded{
                        [](bool b) { return Json(b); },
                        [](std::int64_t n) { return Json(n); },
                        [](double x) { return Json(x); },
                        [](const std::string& s) { return Json(s); },
                        [](const TomlTime&) {
                          ensure(false, "no key of ours takes a date");
                          return Json();
                        },
                        [](const std::vector<TomlValue>& list) {
                          Json made = Json::array();
                          for (const TomlValue& v : list) made.push_back(as_json(v));
                          return made;
                        },
                        [](const TomlTable& table) {
                          Json made = Json::object();
                          for (const TomlKey& key : table.keys) made[key.name] = as_json(key.value);
                          return made;
                        },
                    },
                    value.value);
}

Json switches_of(const Scenario& scenario) {
  return Json::parse(scenario_json(scenario, -1)).at("runtime").at("switches");
}

std::int64_t accumulation(const Scenario& s) {
  return std::max<std::int64_t>(s.train.global_batch / std::max<std::int64_t>(s.train.micro_batch * s.layout.data, 1),
                                1);
}

std::string upper(std::string_view text) {
  std::string made(text);
  std::ranges::transform(made, made.begin(), [](unsigned char c) { return std::toupper(c); });
  return made;
}

// As FullyShardedDataParallel names it.
std::string strategy_of(const Layout& layout) {
  const bool hybrid = layout.shard_group > 0;
  switch (layout.sharding) {
    case Sharding::Zero3:
      return hybrid ? "HYBRID_SHARD" : "FULL_SHARD";
    case Sharding::Zero2:
    case Sharding::Zero1:
      return hybrid ? "HYBRID_SHARD_ZERO2" : "SHARD_GRAD_OP";
    case Sharding::None:
      return "NO_SHARD";
  }
  return {};
}

/// Keys of an fsdp_config without their prefix.
Json fsdp_config(const Scenario& s) {
  const EagerSettings& eager = s.runtime.eager;
  Json config = Json::object();
  if (runtime_kind(s.runtime.name).id == RuntimeId::Fsdp2) {
    config["version"] = 2;
    config["reshard_after_forward"] = s.layout.sharding == Sharding::Zero3;
    if (eager.fully_shard.offload) config["offload_params"] = true;
  } else {
    config["version"] = 1;
    config["sharding_strategy"] = strategy_of(s.layout);
    const std::string_view prefetch = word(backward_prefetch_names, eager.flat.backward_prefetch);
    config["backward_prefetch"] = prefetch == "none" ? "NO_PREFETCH" : upper(prefetch);
    config["forward_prefetch"] = eager.flat.forward_prefetch;
    config["use_orig_params"] = eager.flat.original_parameters;
    config["sync_module_states"] = eager.flat.sync_module_states;
    config["offload_params"] = eager.flat.offload;
    if (!eager.flat.limits_all_gathers) config["limit_all_gathers"] = false;
  }
  config["auto_wrap_policy"] = "TRANSFORMER_BASED_WRAP";
  return config;
}

bool is_fsdp(const Scenario& s) {
  const RuntimeId id = runtime_kind(s.runtime.name).id;
  return id == RuntimeId::Fsdp || id == RuntimeId::Fsdp2;
}

// What another framework's offloading and clipping are to DeepSpeed: its stages 1 and 2 keep parameters on the device.
void add_in_its_words(Json& zero, double& clipping, const Scenario& s) {
  const RuntimeChoice& runtime = s.runtime;
  const CpuOffload hosts = cpu_offload(runtime);
  const bool pins = runtime_kind(runtime.name).id == RuntimeId::Megatron
                        ? runtime.optimizer.pins_gradients
                        : runtime.eager.fully_shard.offload.value_or(MemorySpace::Pinned) == MemorySpace::Pinned;
  const Json host = {{"device", "cpu"}, {"pin_memory", pins}};
  if (hosts.optimizer) zero["offload_optimizer"] = host;
  if (hosts.parameters && s.layout.sharding == Sharding::Zero3) zero["offload_param"] = host;
  // As transformers and torchtitan do, and Megatron, unless they are told otherwise.
  if (runtime.eager.clips_gradients) clipping = 1;
}

Json zero_json(const Scenario& s) {
  const Json ours = switches_of(s);
  double clipping = s.runtime.eager.zero.clipping;
  Json zero = {{"stage", static_cast<int>(s.layout.sharding)}};
  for (const std::string_view name : zero_switches())
    // As many as there can be is what it is where it is left out.
    if (ours.contains(name) && ours.at(std::string(name)) != std::numeric_limits<std::int64_t>::max())
      zero[std::string(name)] = ours.at(std::string(name));
  for (const char* name : {"offload_optimizer", "offload_param"})
    if (ours.contains(name)) zero[name] = ours.at(name);
  if (runtime_kind(s.runtime.name).id != RuntimeId::DeepSpeed) add_in_its_words(zero, clipping, s);
  Json config = {{"train_batch_size", s.train.global_batch},
                 {"train_micro_batch_size_per_gpu", s.train.micro_batch},
                 {"gradient_accumulation_steps", accumulation(s)},
                 {"zero_optimization", zero}};
  config["gradient_clipping"] = clipping;
  if (s.train.precision == DType::BF16) config["bf16"] = {{"enabled", true}};
  if (s.train.precision == DType::FP16) {
    config["fp16"] = {{"enabled", true}};
    if (ours.contains("initial_scale_power")) config["fp16"]["initial_scale_power"] = ours.at("initial_scale_power");
  }
  if (ours.contains("grad_accum_dtype")) config["data_types"] = {{"grad_accum_dtype", ours.at("grad_accum_dtype")}};
  for (const char* name : {"aio", "activation_checkpointing", "zero_force_ds_cpu_optimizer"})
    if (ours.contains(name)) config[name] = ours.at(name);
  return config;
}

// Shards of a narrow type that nothing mixes: accelerate would make them wide.
bool narrow_throughout(const Scenario& s) {
  return is_fsdp(s) && s.train.precision != DType::FP32 && s.train.master_dtype == s.train.precision &&
         !s.train.quantization && !s.train.adapter;
}

// What scripts take beside TrainingArguments, as TRL's ModelConfig calls it.
void add_script_arguments(Json& json, const Scenario& s) {
  if (s.train.attention == AttentionKernel::Flash) json["attn_implementation"] = "flash_attention_2";
  if (s.train.attention == AttentionKernel::Unfused) json["attn_implementation"] = "eager";
  if (s.train.master_dtype == DType::BF16) json["torch_dtype"] = "bfloat16";
  if (s.train.master_dtype == DType::FP16) json["torch_dtype"] = "float16";
  if (const auto& adapter = s.train.adapter) {
    json["use_peft"] = true;
    json["loss_type"] = "nll";  // whole logits, whatever the release's default
    if (adapter->method == AdapterMethod::Dora) json["use_dora"] = true;
    json["lora_r"] = adapter->rank;
    json["lora_alpha"] = adapter->alpha;
    json["lora_dropout"] = adapter->dropout;
    json["lora_target_modules"] = adapter->all_linear ? Json("all-linear") : Json(adapter->targets);
    if (!adapter->saved.empty()) json["lora_modules_to_save"] = adapter->saved;
  }
  if (const auto& quantization = s.train.quantization) {
    if (quantization->format == QuantizedFormat::Int8) {
      json["load_in_8bit"] = true;
      return;
    }
    json["load_in_4bit"] = true;
    json["bnb_4bit_quant_type"] = word(quantized_format_names, quantization->format);
    json["use_bnb_nested_quant"] = quantization->nested;
  }
}

std::string yaml_value(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

}  // namespace

std::string hugging_face::deepspeed_text(const std::vector<TomlKey>& keys) {
  return as_json({TomlTable{keys}, {}}).dump();
}

std::string deepspeed_config(const Scenario& scenario) {
  Json config = zero_json(scenario);
  // One kernel of DeepSpeed's own; what else there is, scripts make themselves.
  if (scenario.runtime.eager.optimizer == OptimizerKernels::Fused && scenario.train.optimizer == Optimizer::AdamW)
    config["optimizer"] = {{"type", "AdamW"}, {"params", {{"weight_decay", scenario.runtime.eager.weight_decay}}}};
  return config.dump(2) + '\n';
}

std::string accelerate_config(const Scenario& s) {
  const RuntimeId id = runtime_kind(s.runtime.name).id;
  const std::int32_t devices = s.cluster.node.devices;
  const std::int32_t nodes = devices > 0 ? (s.gpus + devices - 1) / devices : 1;
  std::string text = "compute_environment: LOCAL_MACHINE\n";
  const auto line = [&](std::string_view key, const std::string& value) {
    text += fmt::format("{}: {}\n", key, value);
  };
  line("distributed_type", is_fsdp(s) ? "FSDP" : id == RuntimeId::DeepSpeed ? "DEEPSPEED" : "MULTI_GPU");
  line("mixed_precision",
       s.train.precision == DType::FP32 || narrow_throughout(s) ? "'no'" : std::string(name(s.train.precision)));
  line("num_machines", std::to_string(nodes));
  line("num_processes", std::to_string(s.gpus));
  if (accumulation(s) > 1) line("gradient_accumulation_steps", std::to_string(accumulation(s)));
  line("main_training_function", "main");
  if (is_fsdp(s)) {
    text += "fsdp_config:\n";
    const Json config = fsdp_config(s);
    for (const auto& [key, value] : config.items())
      if (key != "limit_all_gathers") text += fmt::format("  fsdp_{}: {}\n", key, yaml_value(value));
    if (s.train.recompute.kind == Recompute::Full && s.runtime.eager.reentrant_checkpoint == false)
      text += "  fsdp_activation_checkpointing: true\n";
  } else if (id == RuntimeId::DeepSpeed) {
    const Json ours = switches_of(s);
    text += fmt::format("deepspeed_config:\n  zero_stage: {}\n", static_cast<int>(s.layout.sharding));
    for (const char* what : {"optimizer", "param"}) {
      const std::string key = fmt::format("offload_{}", what);
      text +=
          fmt::format("  {}_device: {}\n", key, ours.contains(key) ? yaml_value(ours.at(key).at("device")) : "none");
    }
    if (ours.contains("gradient_clipping"))
      text += fmt::format("  gradient_clipping: {}\n", ours.at("gradient_clipping").dump());
  }
  if (s.runtime.eager.compiled != CompiledParts::None) {
    text += "dynamo_config:\n  dynamo_backend: INDUCTOR\n";
    if (s.runtime.eager.compiled == CompiledParts::Layers) text += "  dynamo_use_regional_compilation: true\n";
  }
  return text;
}

std::string training_arguments(const Scenario& s) {
  const EagerSettings& eager = s.runtime.eager;
  const RuntimeId id = runtime_kind(s.runtime.name).id;
  const Json ours = switches_of(s);
  Json json = {{"per_device_train_batch_size", s.train.micro_batch}, {"gradient_accumulation_steps", accumulation(s)}};
  json["bf16"] = s.train.precision == DType::BF16 && !narrow_throughout(s);
  json["fp16"] = s.train.precision == DType::FP16 && !narrow_throughout(s);
  json["gradient_checkpointing"] = s.train.recompute.kind == Recompute::Full;
  if (s.train.recompute.kind == Recompute::Full && eager.reentrant_checkpoint)
    json["gradient_checkpointing_kwargs"] = {{"use_reentrant", *eager.reentrant_checkpoint}};
  std::string optimizer = eager.optimizer == OptimizerKernels::Fused ? "adamw_torch_fused" : "adamw_torch";
  for (const hugging_face::OptimizerName& its : hugging_face::optimizers)
    if (!its.ours.empty() && its.ours == word(optimizer_names, s.train.optimizer)) {
      optimizer = its.hugging;
      break;
    }
  json["optim"] = optimizer;
  if (ours.contains("weight_decay")) json["weight_decay"] = ours.at("weight_decay");
  if (ours.contains("max_grad_norm")) json["max_grad_norm"] = ours.at("max_grad_norm");
  if (ours.contains("use_cache")) json["use_cache"] = ours.at("use_cache");
  if (eager.compiled == CompiledParts::Model) json["torch_compile"] = true;
  for (const char* key : {"use_liger_kernel", "liger_kernel_config", "neftune_noise_alpha"})
    if (ours.contains(key)) json[key] = ours.at(key);
  if (!eager.filters_losses) json["logging_nan_inf_filter"] = false;
  if (ours.contains("bucket_cap_mb")) json["ddp_bucket_cap_mb"] = ours.at("bucket_cap_mb");
  add_script_arguments(json, s);
  if (is_fsdp(s)) {
    const bool offloads = id == RuntimeId::Fsdp ? eager.flat.offload : eager.fully_shard.offload.has_value();
    std::string strategy = strategy_of(s.layout);
    std::ranges::transform(strategy, strategy.begin(), [](unsigned char c) { return std::tolower(c); });
    json["fsdp"] = strategy + " auto_wrap" + (offloads ? " offload" : "");
    json["fsdp_config"] = fsdp_config(s);
    json["fsdp_config"].erase("sharding_strategy");
    json["fsdp_config"].erase("offload_params");
  } else if (id == RuntimeId::DeepSpeed) {
    json["deepspeed"] = zero_json(s);
  }
  return json.dump(2) + '\n';
}

}  // namespace tidemark::scenarios
