#include "tests/golden/detail/recording_toml.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/toml_text.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/scenario/names.hpp"
#include "tests/golden/root.hpp"

namespace tidemark::tests::golden {
namespace {

using Json = nlohmann::json;

constexpr std::string_view a100 = "clusters/a100-sxm-80g.toml", h100 = "clusters/h100-sxm-80g.toml",
                           h200 = "clusters/h200-sxm-141g.toml";
constexpr std::string_view with_drives = "a100-with-nvme.toml";

// ---- a JSON object as TOML ------------------------------------------------------------------------------------------

bool is_table(const Json& value) { return value.is_object(); }

// Values are written alike, but for what is null, which TOML has not: such keys are left out.
void write_table(const Json& table, const std::string& path, std::string& out) {
  for (const auto& [key, value] : table.items())
    if (!is_table(value) && !value.is_null()) out += key + " = " + value.dump() + "\n";
  for (const auto& [key, value] : table.items()) {
    if (!is_table(value) || value.empty()) continue;
    const std::string its = path.empty() ? key : path + "." + key;
    out += "\n[" + its + "]\n";
    write_table(value, its, out);
  }
}

std::string toml_of(const Json& document) {
  std::string out;
  write_table(document, {}, out);
  return out;
}

// ---- settings -------------------------------------------------------------------------------------------------------

bool given(const Json& settings, const char* key) { return settings.contains(key) && !settings[key].is_null(); }

std::string text_of(const Json& settings, const char* key) {
  return given(settings, key) && settings[key].is_string() ? settings[key].get<std::string>() : std::string();
}

std::int64_t number_of(const Json& settings, const char* key) { return settings.at(key).get<std::int64_t>(); }

// A scenario says how many sequences all ranks train on in a step.
void write_batch(const Json& settings, std::int64_t replicas, Json& train) {
  train["sequence_length"] = settings.at("sequence");
  train["micro_batch"] = settings.at("batch");
  train["global_batch"] = number_of(settings, "batch") * replicas * settings.value("micro_batches", std::int64_t{1});
}

// "pure_bf16": of one type; "autocast_bf16": fp32 weights; "bf16_autocast": bf16 weights under autocast; "bf16": what
// shards are gathered in.
void write_precision(const std::string& precision, Json& train, Json& switches) {
  const bool half = precision.ends_with("fp16");
  const std::string type = precision == "fp32" ? "fp32" : half ? "fp16" : "bf16";
  train["precision"] = type;
  if (precision.starts_with("pure") || precision == "bf16_autocast") train["master_dtype"] = type;
  if (precision == "bf16_autocast") switches["autocast"] = true;
}

void write_kernels(const std::string& optimizer, Json& switches) {
  if (optimizer.ends_with("fused"))
    switches["fused"] = true;
  else
    switches["foreach"] = !optimizer.ends_with("for-loop");
}

void write_optimizer(const Json& settings, Json& train, Json& switches) {
  const std::string text = text_of(settings, "optimizer"), kind = text.substr(0, text.find(' '));
  const std::map<std::string, std::string> others{
      {"cpu_adam", "adamw"},      {"adam", "adamw"},          {"torch_adafactor", "adafactor"},
      {"apollo", "apollo_adamw"}, {"galore", "galore_adamw"}, {"galore_layerwise", "galore_adamw_layerwise"}};
  const auto other = others.find(kind);
  train["optimizer"] = other == others.end() ? kind : other->second;
  if (kind == "adam") switches["decoupled_weight_decay"] = false;
  if (kind == "torch_adafactor") switches["adafactor"] = "torch";
  write_kernels(text, switches);
  if (given(settings, "weight_decay")) switches["weight_decay"] = settings["weight_decay"];
  if (settings.value("amsgrad", false)) switches["amsgrad"] = true;
  if (given(settings, "beta1")) switches["beta1"] = settings["beta1"];
  if (settings.value("narrow_embeddings", false)) switches["quantize_embeddings"] = true;
  // Of recordings of optimizers; of others it is the process.
  if (settings.contains("beta1") && given(settings, "rank")) switches["rank"] = settings["rank"];
}

// What the model's own configuration has of dropout, which is what its modules do.
void write_dropout(const Json& config, Json& train) {
  train["hidden_dropout"] = train["attention_dropout"] = 0.0;
  for (const char* key : {"resid_pdrop", "hidden_dropout", "residual_dropout"})
    if (given(config, key)) train["hidden_dropout"] = config[key];
  for (const char* key : {"attn_pdrop", "attention_dropout"})
    if (given(config, key)) train["attention_dropout"] = config[key];
}

// LoraConfig's arguments. PEFT makes adapters fp32, unless it is told to leave them in their linears' type.
void write_adapter(const Json& lora, const std::string& linears, Json& document) {
  Json& adapter = document["adapter"];
  if (lora.value("use_dora", false)) adapter["method"] = "dora";
  adapter["rank"] = lora.at("r");
  if (lora.contains("lora_dropout")) adapter["dropout"] = lora["lora_dropout"];
  if (lora.contains("target_modules")) adapter["target_modules"] = lora["target_modules"];
  if (lora.contains("modules_to_save")) adapter["modules_to_save"] = lora["modules_to_save"];
  if (!lora.value("autocast_adapter_dtype", true)) adapter["dtype"] = linears;
  if (lora.contains("cast")) adapter["dtype"] = lora["cast"];
}

// tests/ground_truth/quantized.py.
void write_quantization(const Json& its, Json& document) {
  Json& quantization = document["quantization"];
  quantization["format"] = its.at("format");
  quantization["prepare"] = its.at("prepare");
  if (its.contains("double_quant") && its.at("format") != "int8") quantization["double_quant"] = its["double_quant"];
  if (its.contains("storage")) quantization["storage_dtype"] = its["storage"];
  document["runtime"]["versions"]["bitsandbytes"] = "0.50";
}

void write_fused_modules(const Json& settings, Json& switches) {
  if (given(settings, "neftune")) switches["neftune_noise_alpha"] = settings["neftune"];
  const auto named = settings.value("liger", std::vector<std::string>{});
  if (named.empty()) return;
  switches["use_liger_kernel"] = true;
  for (const Named<FusedModule>& module : fused_module_names)
    switches["liger_kernel_config"][std::string(module.text)] = std::ranges::find(named, module.text) != named.end();
}

void write_ddp(const Json& settings, Json& document) {
  Json& switches = document["runtime"]["switches"];
  document["runtime"]["name"] = "pytorch";
  const std::string ddp = text_of(settings, "ddp");
  // The recorder's process group is a fake of any size.
  const std::int64_t replicas = ddp.empty() ? 1 : 2;
  document["gpus"] = replicas;
  if (!ddp.empty()) switches["gradient_as_bucket_view"] = ddp == "views";
  if (given(settings, "bucket_cap_mb")) switches["bucket_cap_mb"] = settings["bucket_cap_mb"];
  write_batch(settings, replicas, document["train"]);
}

// save_on_cpu.
void write_saved(const Json& settings, Json& document) {
  document["offload"]["activations"] = "cpu";
  document["runtime"]["switches"]["pin_memory"] = settings.at("offload") == "pinned";
}

// fully_shard, of whose world one rank was recorded.
void write_sharding(const Json& settings, Json& document) {
  Json& switches = document["runtime"]["switches"];
  document["runtime"]["name"] = "fsdp2";
  document["gpus"] = settings.at("world");
  document["layout"]["shard_group"] = settings.at("shard_group");
  const Json& reshards = settings.at("reshard_after_forward");
  switches["reshard_after_forward"] = reshards.is_null() ? Json("default") : reshards;
  if (given(settings, "forward_prefetch")) switches["num_to_forward_prefetch"] = settings["forward_prefetch"];
  if (given(settings, "backward_prefetch")) switches["num_to_backward_prefetch"] = settings["backward_prefetch"];
  switches["reduce_dtype"] = settings.at("reduce_dtype");
  switches["sync_each_batch"] = settings.at("sync_each_batch");
  if (settings.contains("offload")) {
    document["offload"]["parameters"] = "cpu";
    switches["pin_memory"] = settings["offload"] == "pinned";
  }
  document["train"]["master_dtype"] = settings.at("parameters");
  write_batch(settings, number_of(settings, "world"), document["train"]);
}

// FullyShardedDataParallel.
void write_flat(const Json& settings, Json& document) {
  Json &switches = document["runtime"]["switches"], &train = document["train"];
  document["runtime"]["name"] = "fsdp";
  document["gpus"] = settings.at("world");
  document["layout"]["shard_group"] = settings.at("shard_group");
  const std::string strategy = text_of(settings, "strategy");
  document["layout"]["sharding"] = strategy == "no_shard"                                   ? "none"
                                   : strategy == "full_shard" || strategy == "hybrid_shard" ? "zero3"
                                                                                            : "zero2";
  switches["sync_each_batch"] = !settings.at("no_sync").get<bool>();
  for (const char* key : {"use_orig_params", "forward_prefetch", "limit_all_gathers", "sync_module_states"})
    switches[key] = settings.at(key);
  const std::string prefetch = text_of(settings, "backward_prefetch");
  switches["backward_prefetch"] = prefetch.empty() ? "none" : prefetch;
  switches["param_dtype"] = settings.at("precision");
  switches["reduce_dtype"] = settings.at("reduce_dtype");
  if (settings.at("buffers") == "bf16") switches["buffer_dtype"] = "bf16";
  if (settings.contains("offload")) document["offload"]["parameters"] = "cpu";
  if (given(settings, "autocast")) {
    switches["autocast"] = true;
    train["precision"] = settings["autocast"];
  }
  train["master_dtype"] = settings.at("parameters");
  write_batch(settings, number_of(settings, "world"), train);
}

// DeepSpeed's ZeRO; switches have the names of ds_config.json.
void write_zero(const Json& settings, Json& document) {
  Json& switches = document["runtime"]["switches"];
  document["runtime"]["name"] = "deepspeed";
  document["gpus"] = settings.at("world");
  document["layout"]["sharding"] = "zero" + std::to_string(number_of(settings, "stage"));
  switches.erase("max_grad_norm");
  if (given(settings, "clip_grad_norm")) switches["gradient_clipping"] = settings["clip_grad_norm"];
  if (given(settings, "accumulation")) switches["grad_accum_dtype"] = settings["accumulation"];
  for (const auto& [key, value] : settings.at("ds").items()) switches[key] = value;
  for (const char* key : {"offload_optimizer", "offload_param"})
    if (switches.contains(key) && switches[key].value("device", "") == "nvme") document["cluster"] = with_drives;
  if (switches.contains("offload_optimizer") && text_of(settings, "optimizer") != "cpu_adam")
    switches["zero_force_ds_cpu_optimizer"] = false;
  write_batch(settings, number_of(settings, "world"), document["train"]);
}

void write_compiled(const Json& settings, Json& document) {
  Json& switches = document["runtime"]["switches"];
  switches["torch_compile"] = text_of(settings, "compile") == "regional" ? Json("regional") : Json(true);
  switches["modules"] = settings.at("modules");
  if (number_of(settings, "world") > 1) return;
  // A world of one shards nothing.
  document["runtime"]["name"] = "pytorch";
  document.erase("layout");
  for (const char* key : {"reshard_after_forward", "reduce_dtype", "sync_each_batch"}) switches.erase(key);
}

Json document_of(const Json& recording) {
  const Json &settings = recording.at("settings"), &config = recording.at("config");
  Json document = {{"model", recorded_model},
                   {"cluster", settings.value("capability", "80") == "90" ? h100 : a100},
                   {"layout", Json::object()}};
  Json &train = document["train"], &runtime = document["runtime"];
  runtime["versions"]["torch"] = "2.15";
  Json& switches = runtime["switches"];
  write_precision(text_of(settings, "precision"), train, switches);
  write_optimizer(settings, train, switches);
  write_dropout(config, train);
  train["steps"] = recording.at("steps").size();
  switches["max_grad_norm"] = given(settings, "clip_grad_norm") ? settings["clip_grad_norm"] : Json(0.0);
  if (const std::string kind = text_of(settings, "checkpointing"); !kind.empty()) {
    train["recompute"] = "full";
    switches["use_reentrant"] = kind == "reentrant";
  }
  const std::string attention = text_of(settings, "attention");
  train["attention"] = attention == "eager" ? "unfused" : attention == "flash_attention_2" ? "flash" : "fused";
  if (const std::int64_t packed = settings.value("packed", std::int64_t{0}); packed > 0)
    train["packed_sequences"] = packed;
  switches["use_cache"] = config.value("use_cache", true);
  switches["keep_outputs"] = text_of(settings, "outputs") == "kept";
  switches["enable_cudnn_sdp"] = false;  // which a device that does nothing has not
  if (given(settings, "allocator")) runtime["allocator"] = settings["allocator"];
  write_fused_modules(settings, switches);
  if (given(settings, "quantization")) write_quantization(settings["quantization"], document);
  if (settings.contains("stage"))
    write_zero(settings, document);
  else if (settings.contains("strategy"))
    write_flat(settings, document);
  else if (settings.contains("world"))
    write_sharding(settings, document);
  else
    write_ddp(settings, document);
  if (recording.value("by", "") == "record_saved") write_saved(settings, document);
  if (settings.contains("modules")) write_compiled(settings, document);
  // DeepSpeed has made its linears of the type that is computed in before they are adapted.
  if (given(settings, "adapter"))
    write_adapter(settings["adapter"],
                  train.value(settings.contains("stage") ? "precision" : "master_dtype", std::string("fp32")),
                  document);
  return document;
}

// ---- torchtitan -----------------------------------------------------------------------------------------------------

void write_stages(const Json& settings, Json& document) {
  const std::int64_t stages = settings.value("pipeline", std::int64_t{1});
  if (stages == 1) return;
  const std::map<std::string, std::string> schedules{{"1F1B", "1f1b"},
                                                     {"GPipe", "gpipe"},
                                                     {"Interleaved1F1B", "interleaved"},
                                                     {"LoopedBFS", "looped-bfs"},
                                                     {"InterleavedZeroBubble", "interleaved-zb"},
                                                     {"ZBVZeroBubble", "zb-v"},
                                                     {"DualPipeV", "dualpipe-v"}};
  document["layout"]["pipeline"] = stages;
  document["layout"]["schedule"] = schedules.at(text_of(settings, "schedule"));
  Json& switches = document["runtime"]["switches"];
  switches["pipeline_parallel_first_stage_less_layers"] = settings.at("first_less");
  switches["pipeline_parallel_last_stage_less_layers"] = settings.at("last_less");
  if (text_of(settings, "schedule") == "DualPipeV") switches["pipeline_parallel_expert_parallel_overlap"] = false;
}

void write_checkpointing(const std::string& checkpointing, Json& train, Json& switches) {
  constexpr std::string_view budget = "budget ";
  if (checkpointing.starts_with(budget)) {
    switches["memory_budget"] = std::stod(checkpointing.substr(budget.size()));
  } else if (checkpointing == "none" || checkpointing == "full") {
    train["recompute"] = checkpointing;
  } else {
    train["recompute"] = "selective";
    switches["selective_ac_option"] = checkpointing == "op" ? Json("op") : Json(std::stoi(checkpointing));
  }
}

}  // namespace

std::string recording_toml(const Json& recording) { return toml_of(document_of(recording)); }

std::string titan_toml(const Json& recording) {
  const Json& settings = recording.at("settings");
  const bool hopper = settings.value("capability", "80") == "90";
  Json document = {{"model", recorded_model}, {"cluster", hopper ? h100 : a100}, {"gpus", settings.at("world")}};
  Json &layout = document["layout"], &train = document["train"], &runtime = document["runtime"];
  runtime["name"] = "torchtitan";
  runtime["versions"] = {{"torch", "2.15"}, {"torchtitan", settings.at("torchtitan")}};
  Json& switches = runtime["switches"];
  const std::int64_t world = number_of(settings, "world"), tensor = number_of(settings, "tensor"),
                     context = settings.value("context", std::int64_t{1}),
                     expert = settings.value("expert", std::int64_t{1}),
                     pipeline = settings.value("pipeline", std::int64_t{1}),
                     data = world / (tensor * context * pipeline), replicas = number_of(settings, "replicate");
  layout["tensor"] = tensor;
  layout["context"] = context;
  layout["expert"] = expert;
  if (expert > 1 && tensor > 1) layout["expert_tensor"] = settings.at("expert_tensor");
  if (replicas > 1 && replicas == world)
    layout["sharding"] = "none";
  else if (replicas > 1)
    layout["shard_group"] = data / replicas;
  write_stages(settings, document);
  switches["fsdp_reshard_after_forward"] = settings.at("reshard");
  switches["disable_loss_parallel"] = !settings.at("loss_parallel").get<bool>();
  if (settings.contains("load_balancer") && settings["load_balancer"].is_null())
    switches["context_parallel_load_balancer"] = "None";
  if (settings.value("compile", false)) switches["compile"] = true;
  write_checkpointing(text_of(settings, "checkpointing"), train, switches);
  switches["implementation"] = settings.at("implementation");
  switches["mixed_precision_reduce"] = settings.at("reduce_dtype");
  if (settings.contains("offload")) document["offload"]["parameters"] = "cpu";
  if (given(settings, "allocator")) runtime["allocator"] = settings["allocator"];
  train["precision"] = settings.at("precision");
  // DeepSeek-V3's is torch's flex_attention.
  if (!recording.at("config").contains("kv_lora_rank")) train["attention"] = "flash";
  train["steps"] = recording.at("steps").size();
  write_batch(settings, data, train);
  return toml_of(document);
}

std::string megatron_toml(const Json& recording) {
  const Json& settings = recording.at("settings");
  const std::int64_t world = number_of(settings, "world");
  const std::filesystem::path script = recording.at("name").get<std::string>() + ".sh";
  const std::string line = "torchrun pretrain_gpt.py " + recording.at("flags").get<std::string>() + "\n";
  const Converted converted = convert({.files = {script},
                                       .texts = {{script, line}},
                                       .variables = {},
                                       .model = {},
                                       .cluster = std::string(a100),
                                       .gpus = world,
                                       .sequence_length = {},
                                       .micro_batch = {},
                                       .global_batch = {},
                                       .data_root = root / "scenarios"});
  for (const Remark& remark : converted.remarks)
    if (remark.kind == RemarkKind::NotExpressed)
      throw std::runtime_error(script.string() + ": " + remark.what + ": " + remark.why);
  // What no flag says: releases ("0.16.0" is 0.16), and how many steps were recorded.
  const std::string release = text_of(settings, "megatron"), train = "[train]\n";
  std::string toml = toml_text(converted.document);
  const std::string engine = settings.value("transformer_engine", "");
  const std::string of_engine =
      engine.empty() ? "" : "transformer_engine = \"" + engine.substr(0, engine.rfind('.')) + "\"\n";
  const std::string said = "[runtime.versions]\nmegatron = \"" + release.substr(0, release.rfind('.')) +
                           "\"\ntorch = \"2.14\"\n" + of_engine +
                           "\n[train]\nsteps = " + std::to_string(recording.at("steps").size()) + "\n";
  toml.replace(toml.find(train), train.size(), said);
  // From 0.18 on the NullTokenizer counts no token besides its vocabulary; `convert`, which is not told the release,
  // takes the one that counts one.
  constexpr std::string_view extra = "vocabulary_extra = 1\n";
  if (std::stoi(release.substr(release.find('.') + 1)) >= 18) toml.erase(toml.find(extra), extra.size());
  return toml;
}

std::string gpu_run_toml(const Json& run, const Json& versions) {
  Json document = document_of(run);
  document["cluster"] = h200;
  for (const char* of : {"torch", "transformers"}) {  // "2.11.0+cu130"
    const std::string text = text_of(versions, of);
    document["runtime"]["versions"][of] = text.substr(0, text.find('+'));
  }
  document["runtime"]["switches"].erase("enable_cudnn_sdp");
  return toml_of(document);
}

Scenario read_recording(const Json& recording, const std::string& toml) {
  const std::string name = recording.at("name").get<std::string>();
  const std::filesystem::path data_root = root / "scenarios";
  ScenarioFiles files;
  if (recording.contains("config")) files.texts[recorded_model] = {name + ".json", recording["config"].dump()};
  // Recordings count what goes to drives; how fast they are, no recording says, and no figure here depends on.
  std::ifstream cluster(data_root / a100);
  std::string text{std::istreambuf_iterator<char>(cluster), {}};
  constexpr std::string_view host = "[host]\n";
  const std::size_t at = text.find(host);
  if (at == std::string::npos) throw std::runtime_error("no [host] in the cluster of recordings");
  text.insert(at + host.size(), "nvme_read_bandwidth = \"10 GB/s\"\nnvme_write_bandwidth = \"10 GB/s\"\n");
  files.texts[std::string(with_drives)] = {data_root / a100, text};
  const std::filesystem::path file = name + ".toml";
  return scenario_of(parse_toml(toml, file.string()), file, {data_root, data_root}, files);
}

}  // namespace tidemark::tests::golden
