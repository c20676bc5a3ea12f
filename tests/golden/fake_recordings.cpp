#include "tests/golden/fake_recordings.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "parallel/frameworks/transformers/adapters.hpp"
#include "scenarios/io/cluster_reader.hpp"
#include "scenarios/io/config_reader.hpp"
#include "scenarios/io/names.hpp"
#include "scenarios/io/titan_pipeline.hpp"
#include "scenarios/io/version_text.hpp"
#include "tests/golden/root.hpp"

namespace tidemark::tests::golden {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::pair<std::string_view, Kind>, 9> recorded_kinds{{{"parameter", Kind::Parameter},
                                                                           {"buffer", Kind::Parameter},
                                                                           {"gradient", Kind::Gradient},
                                                                           {"optimizer_state", Kind::OptimizerState},
                                                                           {"activation", Kind::Activation},
                                                                           {"input", Kind::Activation},
                                                                           {"temporary", Kind::Temporary},
                                                                           {"other", Kind::Temporary},
                                                                           {"bucket", Kind::Gradient}}};

StepPeak recorded(const Json& step) {
  StepPeak peak;
  for (const auto& [name, kind] : recorded_kinds)
    peak[kind] += Bytes{step.at("peak_by_category").value(std::string(name), std::int64_t{0})};
  if (step.contains("after")) {
    const Json& after = step["after"].at("optimizer");  // drawn recordings have the sum alone
    peak.after = Bytes{(after.is_object() ? after.at("bytes") : after).get<std::int64_t>()};
  }
  peak.where =
      step.at("peak_at").at("phase").get<std::string>() + ", " + step.at("peak_at").at("op").get<std::string>();
  return peak;
}

std::vector<StepPeak> recorded_steps(const Json& steps) {
  std::vector<StepPeak> peaks;
  for (const Json& step : steps) peaks.push_back(recorded(step));
  return peaks;
}

PlainRun plain_run(const Json& steps) {
  PlainRun run;
  for (const Json& step : steps) {
    run.allocated.emplace_back(step.at("peak").at("allocated").get<std::int64_t>());
    run.reserved = std::max(run.reserved, Bytes{step.at("peak").at("reserved").get<std::int64_t>()});
  }
  return run;
}

std::string text_of(const Json& settings, const char* key) {
  return settings.contains(key) && settings[key].is_string() ? settings[key].get<std::string>() : std::string();
}

void read_optimizer(const std::string& text, Scenario& scenario) {
  std::string kind = text.substr(0, text.find(' '));
  if (kind == "cpu_adam") kind = "adamw";
  scenario.runtime.eager.small_optimizer.torch_adafactor = kind == "torch_adafactor";
  if (kind == "torch_adafactor") kind = "adafactor";
  if (kind == "apollo") kind = "apollo_adamw";
  if (kind == "galore") kind = "galore_adamw";
  if (kind == "galore_layerwise") kind = "galore_adamw_layerwise";
  const auto named = std::ranges::find(optimizer_names, kind, &Named<Optimizer>::text);
  if (named == optimizer_names.end()) throw std::runtime_error("no optimizer of that name: " + kind);
  scenario.train.optimizer = named->value;
  scenario.runtime.eager.optimizer = text.ends_with("fused")      ? OptimizerKernels::Fused
                                     : text.ends_with("for-loop") ? OptimizerKernels::ForLoop
                                                                  : OptimizerKernels::Foreach;
}

DType type_of(const Json& settings, const char* key) {
  return settings.at(key).get<std::string>() == "bf16" ? DType::BF16 : DType::FP32;
}

// Of fully_shard, of whose world one rank was recorded.
void read_sharding(const Json& settings, Scenario& s) {
  s.runtime.name = "fsdp2";
  s.gpus = s.layout.data = settings.at("world").get<std::int32_t>();
  s.layout.shard_group = settings.at("shard_group").is_null() ? 0 : settings["shard_group"].get<std::int32_t>();
  FullyShardHabits& habits = s.runtime.eager.fully_shard;
  const Json& reshards = settings.at("reshard_after_forward");
  habits.reshards_after_forward = !reshards.is_boolean() || reshards.get<bool>();
  habits.keeps_root = reshards.is_null();
  if (reshards.is_number()) habits.ranks_after_forward = reshards.get<std::int64_t>();
  habits.forward_prefetch = settings.value("forward_prefetch", std::int64_t{0});
  habits.backward_prefetch = settings.value("backward_prefetch", std::int64_t{0});
  s.layout.sharding = habits.reshards_after_forward ? Sharding::Zero3 : Sharding::Zero2;
  habits.reduce_dtype = type_of(settings, "reduce_dtype");
  habits.reduces_each_backward = settings.at("sync_each_batch").get<bool>();
  if (settings.contains("offload"))
    habits.offload = text_of(settings, "offload") == "pinned" ? MemorySpace::Pinned : MemorySpace::Pageable;
  s.train.master_dtype = s.train.gradient_dtype = type_of(settings, "parameters");
  s.train.global_batch = s.train.micro_batch * s.layout.data * settings.at("micro_batches").get<std::int64_t>();
}

// Of DeepSpeed's ZeRO, the same.
void read_zero(const Json& settings, Scenario& s) {
  s.runtime.name = "deepspeed";
  const bool partitions = settings.at("stage") == 3;
  if (s.train.quantization && !partitions) s.train.quantization->prepared = Prepared::Nothing;  // cast with the rest
  if (s.train.adapter && !(partitions && !s.train.quantization)) s.train.adapter->dtype = std::nullopt;  // the same
  s.gpus = s.layout.data = settings.at("world").get<std::int32_t>();
  constexpr Sharding stages[] = {Sharding::None, Sharding::Zero1, Sharding::Zero2, Sharding::Zero3};
  s.layout.sharding = stages[settings.at("stage").get<std::size_t>()];
  s.train.master_dtype = s.train.gradient_dtype = DType::FP32;
  s.train.global_batch = s.train.micro_batch * s.layout.data * settings.at("micro_batches").get<std::int64_t>();
  ZeroHabits& habits = s.runtime.eager.zero;
  habits.clipping = settings.at("clip_grad_norm").is_null() ? 0 : settings["clip_grad_norm"].get<double>();
  s.runtime.eager.clips_gradients = habits.clipping > 0;
  if (!settings.at("accumulation").is_null()) habits.accumulation = type_of(settings, "accumulation");
  const Json& ds = settings.at("ds");
  habits.reduce_bucket = ds.value("reduce_bucket_size", habits.reduce_bucket);
  habits.overlaps = ds.value("overlap_comm", s.layout.sharding == Sharding::Zero3);
  habits.contiguous_gradients = ds.value("contiguous_gradients", habits.contiguous_gradients);
  habits.reduce_scatter = ds.value("reduce_scatter", habits.reduce_scatter);
  habits.round_robin = ds.value("round_robin_gradients", habits.round_robin);
  habits.prefetch_bucket = ds.value("stage3_prefetch_bucket_size", habits.prefetch_bucket);
  habits.persistence_threshold = ds.value("stage3_param_persistence_threshold", habits.persistence_threshold);
  habits.max_live = ds.value("stage3_max_live_parameters", habits.max_live);
  habits.max_reuse = ds.value("stage3_max_reuse_distance", habits.max_reuse);
  habits.sub_group_size = ds.value("sub_group_size", habits.sub_group_size);
  habits.secondary_ranks = ds.value("zero_hpz_partition_size", habits.secondary_ranks);
  constexpr double first_scale = 65536;  // 2^initial_scale_power
  if (s.train.precision == DType::FP16) habits.loss_scale = first_scale;
  const auto space = [&](const char* key) -> std::optional<MemorySpace> {
    if (!ds.contains(key)) return std::nullopt;
    return ds[key].value("pin_memory", true) ? MemorySpace::Pinned : MemorySpace::Pageable;
  };
  habits.offload_optimizer = space("offload_optimizer");
  habits.offload_parameters = space("offload_param");
  if (habits.offload_optimizer) {
    const Json& its = ds["offload_optimizer"];
    habits.offload_ratio = its.value("ratio", habits.offload_ratio);
    habits.nvme.optimizer = its.value("device", "") == "nvme";
    habits.nvme.optimizer_buffers = its.value("buffer_count", habits.nvme.optimizer_buffers);
    habits.nvme.pipeline_read = its.value("pipeline_read", false);
    habits.nvme.pipeline_write = its.value("pipeline_write", false);
  }
  if (habits.offload_parameters) {
    const Json& its = ds["offload_param"];
    habits.nvme.parameters = its.value("device", "") == "nvme";
    habits.nvme.parameter_buffers = its.value("buffer_count", habits.nvme.parameter_buffers);
    habits.nvme.parameter_buffer_size = its.value("buffer_size", habits.nvme.parameter_buffer_size);
    habits.nvme.max_in_cpu = its.value("max_in_cpu", habits.nvme.max_in_cpu);
  }
  // Of no meaning for memory.
  s.cluster.host.nvme_read_bandwidth = s.cluster.host.nvme_write_bandwidth = Bandwidth{10'000'000'000};
  habits.cpu_adam = text_of(settings, "optimizer") == "cpu_adam";
}

// The same of FullyShardedDataParallel.
void read_flat(const Json& settings, Scenario& s) {
  s.runtime.name = "fsdp";
  s.gpus = s.layout.data = settings.at("world").get<std::int32_t>();
  s.layout.shard_group = settings.at("shard_group").is_null() ? 0 : settings["shard_group"].get<std::int32_t>();
  const std::string strategy = settings.at("strategy").get<std::string>();
  FlatParameterHabits& habits = s.runtime.eager.flat;
  habits.whole = strategy == "no_shard";
  habits.reshards_after_forward = strategy == "full_shard" || strategy == "hybrid_shard";
  s.layout.sharding = habits.whole ? Sharding::None : habits.reshards_after_forward ? Sharding::Zero3 : Sharding::Zero2;
  habits.reduces_each_backward = !settings.at("no_sync").get<bool>();
  habits.original_parameters = settings.at("use_orig_params").get<bool>();
  const std::string prefetch = text_of(settings, "backward_prefetch");
  habits.backward_prefetch = prefetch.empty()              ? BackwardPrefetch::None
                             : prefetch == "backward_post" ? BackwardPrefetch::Post
                                                           : BackwardPrefetch::Pre;
  habits.forward_prefetch = settings.at("forward_prefetch").get<bool>();
  habits.limits_all_gathers = settings.at("limit_all_gathers").get<bool>();
  habits.sync_module_states = settings.at("sync_module_states").get<bool>();
  habits.autocast = !settings.at("autocast").is_null();
  habits.param_dtype = type_of(settings, "precision");
  habits.reduce_dtype = type_of(settings, "reduce_dtype");
  habits.offload = settings.contains("offload");
  if (settings.at("buffers") == "bf16") habits.buffer_dtype = DType::BF16;
  if (habits.autocast) s.train.precision = type_of(settings, "autocast");
  s.train.master_dtype = s.train.gradient_dtype = type_of(settings, "parameters");
  s.train.global_batch = s.train.micro_batch * s.layout.data * settings.at("micro_batches").get<std::int64_t>();
}

// Of PEFT: LoraConfig's arguments.
void read_adapter(const Json& settings, Scenario& s) {
  const Json& given = settings.at("adapter");
  Adapter& adapter = s.train.adapter.emplace();
  adapter.rank = given.at("r").get<std::int64_t>();
  adapter.dropout = given.value("lora_dropout", 0.0);
  if (!given.value("autocast_adapter_dtype", true)) adapter.dtype = std::nullopt;
  if (!given.contains("target_modules"))
    adapter.targets = parallel::transformers::usual_targets(s.model);
  else if (given["target_modules"].is_string())
    adapter.all_linear = true;
  else
    adapter.targets = given["target_modules"].get<std::vector<std::string>>();
  if (given.contains("modules_to_save")) adapter.saved = given["modules_to_save"].get<std::vector<std::string>>();
}

// tests/ground_truth/quantized.py.
void read_quantization(const Json& given, Scenario& s) {
  Quantization& its = s.train.quantization.emplace();
  const auto named = [&](const auto& names, const char* key) {
    return std::ranges::find(names, given.at(key).get<std::string>(), [](const auto& n) { return n.text; })->value;
  };
  its.format = named(quantized_format_names, "format");
  its.prepared = named(prepared_names, "prepare");
  its.nested = given.value("double_quant", false);
  if (given.contains("storage")) its.stored = named(storage_names, "storage");
  its.computed = s.train.precision;
  its.skipped = {"lm_head"};
  s.runtime.versions.bitsandbytes = {0, 50};
}

Scenario scenario_of(const Json& recording) {
  const Json& settings = recording.at("settings");
  const Json& config = recording.at("config");
  Scenario s;
  s.name = recording.at("name").get<std::string>();
  s.model = parse_model(config.dump(), s.name + ".json");
  s.cluster = read_cluster(root / "scenarios/clusters/a100-sxm-80g.toml");
  s.runtime.name = "pytorch";
  s.runtime.versions.torch = {2, 15};
  s.train.sequence_length = settings.at("sequence").get<std::int64_t>();
  s.train.micro_batch = settings.at("batch").get<std::int64_t>();
  const std::string precision = settings.at("precision").get<std::string>();
  s.train.precision = precision == "fp32" ? DType::FP32 : precision.ends_with("fp16") ? DType::FP16 : DType::BF16;
  const bool one_type = precision.starts_with("pure") || precision == "bf16_autocast";
  s.train.master_dtype = s.train.gradient_dtype = one_type ? s.train.precision : DType::FP32;
  if (precision == "bf16_autocast") s.runtime.eager.autocast = true;
  if (settings.contains("adapter")) read_adapter(settings, s);
  if (settings.contains("quantization")) read_quantization(settings["quantization"], s);
  read_optimizer(settings.at("optimizer").get<std::string>(), s);
  s.runtime.eager.clips_gradients = !settings.at("clip_grad_norm").is_null();
  const std::string checkpointing = text_of(settings, "checkpointing");
  if (!checkpointing.empty()) {
    s.train.recompute.kind = Recompute::Full;
    s.runtime.eager.reentrant_checkpoint = checkpointing == "reentrant";
  }
  const std::string attention = text_of(settings, "attention");
  s.train.attention = attention == "eager"               ? AttentionKernel::Unfused
                      : attention == "flash_attention_2" ? AttentionKernel::Flash
                                                         : AttentionKernel::Fused;
  s.train.packed = settings.value("packed", std::int64_t{0});
  s.runtime.eager.caches_keys = config.value("use_cache", true);
  for (const char* key : {"resid_pdrop", "hidden_dropout"})
    if (config.contains(key)) s.train.hidden_dropout = config[key].get<double>();
  for (const char* key : {"attn_pdrop", "attention_dropout"})
    if (config.contains(key)) s.train.attention_dropout = config[key].get<double>();
  s.runtime.eager.keeps_outputs = text_of(settings, "outputs") == "kept";
  s.runtime.eager.fake_tensors = true;
  s.runtime.eager.cudnn_attention = false;  // which a device that does nothing has not
  if (const std::string ddp = text_of(settings, "ddp"); !ddp.empty()) {
    s.layout.data = 2;  // the recorder's process group is a fake of any size
    s.runtime.eager.gradients_view_buckets = ddp == "views";
  }
  s.gpus = s.layout.data;
  s.train.global_batch = s.train.micro_batch * s.layout.data * settings.value("micro_batches", std::int64_t{1});
  if (settings.contains("bucket_cap_mb") && !settings["bucket_cap_mb"].is_null())
    s.runtime.eager.bucket_mib = settings["bucket_cap_mb"].get<std::int64_t>();
  s.runtime.allocator = text_of(settings, "allocator");
  s.runtime.eager.weight_decay = settings.value("weight_decay", 0.0);
  s.runtime.eager.amsgrad = settings.value("amsgrad", false);
  s.runtime.eager.small_optimizer.first_moment = settings.contains("beta1") && !settings["beta1"].is_null();
  if (settings.contains("neftune") && !settings["neftune"].is_null())
    s.runtime.eager.neftune = settings["neftune"].get<double>();
  for (const Json& module : settings.value("liger", Json::array()))
    s.runtime.eager.liger.add(
        std::ranges::find(fused_module_names, module.get<std::string>(), &Named<FusedModule>::text)->value);
  if (settings.contains("rank") && settings.contains("beta1") && !settings["rank"].is_null())
    s.runtime.eager.small_optimizer.rank = settings["rank"].get<std::int64_t>();
  s.runtime.eager.small_optimizer.narrow_embeddings = settings.value("narrow_embeddings", false);
  s.train.steps = static_cast<std::int32_t>(recording.at("steps").size());
  if (recording.value("by", "") == "record_saved")
    s.runtime.eager.saved_on_host = settings.at("offload") == "pinned" ? MemorySpace::Pinned : MemorySpace::Pageable;
  if (settings.contains("stage"))
    read_zero(settings, s);
  else if (settings.contains("strategy"))
    read_flat(settings, s);
  else if (settings.contains("world"))
    read_sharding(settings, s);
  return s;
}

// Of record_compiled.py.
Scenario compiled_model_scenario(const Json& recording) {
  const Json& settings = recording.at("settings");
  Scenario s = scenario_of(recording);
  EagerSettings& switches = s.runtime.eager;
  switches.compiled = text_of(settings, "compile") == "regional" ? CompiledParts::Layers : CompiledParts::Model;
  switches.modules = text_of(settings, "modules") == "litgpt" ? ModuleLibrary::LitGpt : ModuleLibrary::Transformers;
  if (s.gpus == 1) {
    s.runtime.name = "pytorch";
    s.layout.sharding = Sharding::None;
  }
  return s;
}

void read_pipeline(const Json& settings, Scenario& s) {
  s.layout.pipeline = settings.at("pipeline").get<std::int32_t>();
  if (s.layout.pipeline == 1) return;
  TitanSettings& titan = s.runtime.eager.titan;
  titan.pipelined = true;
  titan.first_stage_less = settings.at("first_less").get<std::int32_t>();
  titan.last_stage_less = settings.at("last_less").get<std::int32_t>();
  const std::string schedule = settings.at("schedule").get<std::string>();
  const std::map<std::string, ScheduleKind> schedules{{"1F1B", ScheduleKind::OneFOneB},
                                                      {"GPipe", ScheduleKind::GPipe},
                                                      {"Interleaved1F1B", ScheduleKind::Interleaved},
                                                      {"LoopedBFS", ScheduleKind::LoopedBreadthFirst},
                                                      {"InterleavedZeroBubble", ScheduleKind::InterleavedZeroBubble},
                                                      {"ZBVZeroBubble", ScheduleKind::ZeroBubbleV},
                                                      {"DualPipeV", ScheduleKind::DualPipeV}};
  s.layout.schedule = schedules.at(schedule);
  s.layout.chunks = traits_of(s.layout.schedule).several_chunks ? 2 : 1;
  s.layout.stage_layers = scenarios::titan_stage_layers(s.model.layers, s.layout.stages(), titan);
}

// Of torchtitan.
Scenario titan_scenario(const Json& recording) {
  const Json& settings = recording.at("settings");
  Scenario s;
  s.name = recording.at("name").get<std::string>();
  s.model = parse_model(recording.at("config").dump(), s.name + ".json");
  const bool hopper = settings.value("capability", "80") == "90";
  s.cluster =
      read_cluster(root / (hopper ? "scenarios/clusters/h100-sxm-80g.toml" : "scenarios/clusters/a100-sxm-80g.toml"));
  s.runtime.name = "torchtitan";
  s.runtime.versions.torch = {2, 15};
  s.runtime.versions.torchtitan = *parse_version(settings.at("torchtitan").get<std::string>());
  s.gpus = settings.at("world").get<std::int32_t>();
  s.layout.tensor = settings.at("tensor").get<std::int32_t>();
  s.layout.sequence_parallel = s.layout.tensor > 1;
  s.layout.context = settings.value("context", 1);
  s.layout.expert = settings.value("expert", 1);
  if (s.layout.expert > 1 && s.layout.tensor > 1)
    s.layout.expert_tensor = settings.at("expert_tensor").get<std::int32_t>();
  if (settings.contains("pipeline")) read_pipeline(settings, s);
  s.layout.data = s.gpus / (s.layout.tensor * s.layout.context * s.layout.pipeline);
  const std::int32_t replicas = settings.at("replicate").get<std::int32_t>();
  s.layout.shard_group = replicas > 1 ? s.layout.data / replicas : 0;
  s.layout.sharding = Sharding::Zero3;
  TitanSettings& titan = s.runtime.eager.titan;
  const std::string reshard = settings.at("reshard").get<std::string>();
  titan.reshard = reshard == "always"  ? ReshardPolicy::Always
                  : reshard == "never" ? ReshardPolicy::Never
                                       : ReshardPolicy::Default;
  titan.loss_parallel = settings.at("loss_parallel").get<bool>();
  titan.balances_context = !settings.contains("load_balancer") || !settings["load_balancer"].is_null();
  titan.compile_layers = titan.compile_loss = settings.value("compile", false);
  const std::string checkpointing = settings.at("checkpointing").get<std::string>();
  constexpr std::string_view budget = "budget ";
  const bool budgeted = checkpointing.starts_with(budget);
  if (budgeted) titan.memory_budget = std::stod(checkpointing.substr(budget.size()));
  s.train.recompute.kind = checkpointing == "none" || budgeted ? Recompute::None
                           : checkpointing == "full"           ? Recompute::Full
                                                               : Recompute::Selective;
  if (s.train.recompute.kind == Recompute::Selective && checkpointing != "op")
    titan.checkpointed_layers = std::stoi(checkpointing);
  s.train.sequence_length = settings.at("sequence").get<std::int64_t>();
  s.train.micro_batch = settings.at("batch").get<std::int64_t>();
  s.train.global_batch = s.train.micro_batch * s.layout.data * settings.at("micro_batches").get<std::int64_t>();
  s.train.precision = type_of(settings, "precision");
  const bool replicated = replicas > 1 && replicas == s.gpus;
  if (s.layout.replicas() == 1 || replicated) s.layout.sharding = Sharding::None, s.layout.shard_group = 0;
  // Mixed precision of a model in parts comes with FSDP.
  if (s.layout.replicas() == 1 && s.gpus > 1) s.train.precision = DType::FP32;
  s.train.attention = AttentionKernel::Flash;
  s.runtime.eager.fully_shard.reduce_dtype = type_of(settings, "reduce_dtype");
  if (settings.contains("offload")) s.runtime.eager.fully_shard.offload = MemorySpace::Pinned;
  read_optimizer("adamw " + settings.at("implementation").get<std::string>(), s);
  s.train.steps = static_cast<std::int32_t>(recording.at("steps").size());
  return s;
}

HostPeaks host_peaks(const Json& host) {
  HostPeaks peaks;
  const auto reach = [&](const Json& stretch) {
    const auto most = [&](const char* what) { return Bytes{stretch.at("peak").at(what).get<std::int64_t>()}; };
    peaks.pinned = std::max(peaks.pinned, most("pinned_held"));
    peaks.pageable = std::max(peaks.pageable, most("pageable"));
    peaks.both = std::max(peaks.both, most("both_held"));
  };
  reach(host.at("set_up"));
  for (const Json& step : host.at("steps")) reach(step);
  return peaks;
}

std::vector<HostPeaks> host_by_step(const Json& host) {
  std::vector<HostPeaks> parts;
  const auto add = [&](const Json& stretch) {
    const auto most = [&](const char* what) { return Bytes{stretch.at("peak").at(what).get<std::int64_t>()}; };
    parts.push_back({most("pinned"), most("pageable"), most("both")});
  };
  add(host.at("set_up"));
  for (const Json& step : host.at("steps")) add(step);
  return parts;
}

// Of those that `by` made.
std::vector<Recording> sharded_in(const std::filesystem::path& folder, Scenario (*scenario)(const Json& recording),
                                  std::string_view by = "record_sharded") {
  std::vector<Recording> found;
  for (const auto& entry : std::filesystem::directory_iterator(root / "tests/golden" / folder)) {
    if (entry.path().extension() != ".json") continue;
    const Json json = Json::parse(std::ifstream(entry.path()));
    if (json.value("by", by) != by) continue;
    const Rank rank{json.at("settings").value("rank", 0)};
    std::vector<Bytes> requested;
    for (const Json& step : json.at("steps"))
      requested.emplace_back(step.at("peak").at("requested").get<std::int64_t>());
    found.push_back({entry.path().stem().string(),
                     scenario(json),
                     {},
                     {},
                     plain_run(json.at("steps")),
                     rank,
                     std::move(requested),
                     json.contains("host") ? host_peaks(json["host"]) : HostPeaks{},
                     json.contains("host") ? host_by_step(json["host"]) : std::vector<HostPeaks>{}});
    if (!json.contains("live_at_peak")) continue;
    for (const auto& [made_by, bytes] : json["live_at_peak"].items())
      found.back().live_at_peak[made_by] = Bytes{bytes.get<std::int64_t>()};
  }
  std::ranges::sort(found, {}, &Recording::name);
  return found;
}

std::vector<Recording> recordings_in(const std::filesystem::path& folder) {
  std::vector<Recording> found;
  for (const auto& entry : std::filesystem::directory_iterator(root / "tests/golden/fake_tensor" / folder)) {
    if (entry.path().extension() != ".json") continue;
    const Json json = Json::parse(std::ifstream(entry.path()));
    found.push_back({entry.path().stem().string(),
                     scenario_of(json),
                     recorded_steps(json.at("steps")),
                     recorded_steps(json.value("without_in_place_accumulation", Json::array())),
                     plain_run(json.at("caching_allocator")),
                     Rank{0},
                     {}});
  }
  std::sort(found.begin(), found.end(), [](const Recording& a, const Recording& b) { return a.name < b.name; });
  return found;
}

}  // namespace

Bytes StepPeak::total() const {
  Bytes sum;
  for (const Bytes b : bytes) sum += b;
  return sum;
}

std::vector<Recording> fake_recordings() { return recordings_in("recordings"); }
std::vector<Recording> drawn_recordings() { return recordings_in("drawn"); }
std::vector<Recording> optimizer_recordings() { return recordings_in("optimizers"); }
std::vector<Recording> fused_recordings() { return recordings_in("fused"); }
std::vector<Recording> packed_recordings() { return recordings_in("packed"); }
std::vector<Recording> adapted_recordings() { return recordings_in("adapted"); }

std::vector<Recording> gpu_plain_runs() {
  const Json all = Json::parse(std::ifstream(root / "tests/golden/gpu_recordings/plain_runs.json"));
  const Json& versions = all.at("provenance").at("versions");
  const auto version = [&](const char* of) {  // "2.11.0+cu130"
    const std::string text = versions.at(of).get<std::string>();
    return *parse_version(text.substr(0, text.find('+')));
  };
  std::vector<Recording> found;
  for (const Json& run : all.at("runs")) {
    Recording& its = found.emplace_back();
    its.name = run.at("name").get<std::string>();
    its.scenario = scenario_of(run);
    its.scenario.cluster = read_cluster(root / "scenarios/clusters/h200-sxm-141g.toml");
    its.scenario.runtime.versions.torch = version("torch");
    its.scenario.runtime.eager.cudnn_attention = true;
    its.scenario.runtime.versions.transformers = version("transformers");
    its.plain = plain_run(run.at("steps"));
    for (const Json& step : run.at("steps"))
      its.requested.emplace_back(step.at("peak").at("requested").get<std::int64_t>());
    // Ids, labels and a mask come from a collator; where there is none, labels are the ids, and there is no mask.
    if (text_of(run.at("settings"), "batches") != "collated")
      its.not_made = 2 * its.scenario.train.micro_batch * its.scenario.train.sequence_length * size_of(DType::INT64);
  }
  return found;
}

std::vector<Recording> sharded_recordings() { return sharded_in("sharded/recordings", scenario_of); }
std::vector<Recording> flat_recordings() { return sharded_in("flat/recordings", scenario_of); }
std::vector<Recording> titan_recordings() { return sharded_in("titan/recordings", titan_scenario); }
std::vector<Recording> compiled_recordings() { return sharded_in("compiled/recordings", titan_scenario); }
std::vector<Recording> compiled_model_recordings() { return sharded_in("compiled/models", compiled_model_scenario); }
std::vector<Recording> offload_recordings() { return sharded_in("offload/recordings", scenario_of); }
std::vector<Recording> offloaded_flat_recordings() {
  return sharded_in("offload/recordings", scenario_of, "record_flat");
}
std::vector<Recording> saved_on_cpu_recordings() {
  return sharded_in("offload/recordings", scenario_of, "record_saved");
}
std::vector<Recording> offloaded_titan_recordings() {
  return sharded_in("offload/recordings", titan_scenario, "record_titan");
}
std::vector<Recording> offloaded_zero_recordings() {
  return sharded_in("offload/recordings", scenario_of, "record_zero");
}
std::vector<Recording> zero_recordings() { return sharded_in("zero/recordings", scenario_of); }

}  // namespace tidemark::tests::golden
