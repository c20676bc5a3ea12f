#include "scenarios/scenario/zero_keys.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "scenarios/formats/json_table.hpp"
#include "scenarios/scenario/names.hpp"

// deepspeed/runtime/config.py, precision_config.py, zero/config.py (0.19).

namespace tidemark::scenarios {
namespace {

constexpr std::int64_t most_elements = 1'000'000'000'000;

struct NumberKey {
  std::string_view name;
  std::int64_t ZeroBehavior::*mode;  ///< none where nothing comes of it
  std::int64_t low = 0, high = most_elements;
};
constexpr std::array number_keys{
    NumberKey{"reduce_bucket_size", &ZeroBehavior::reduce_bucket, 1},
    // Parameters are gathered by one call for each group (runtime/utils.py all_gather_into_tensor_dp_groups).
    NumberKey{"allgather_bucket_size", nullptr},
    NumberKey{"stage3_prefetch_bucket_size", &ZeroBehavior::prefetch_bucket},
    NumberKey{"stage3_param_persistence_threshold", &ZeroBehavior::persistence_threshold},
    NumberKey{"stage3_model_persistence_threshold", &ZeroBehavior::model_persistence_threshold, 0,
              std::numeric_limits<std::int64_t>::max()},
    NumberKey{"stage3_max_live_parameters", &ZeroBehavior::max_live},
    NumberKey{"stage3_max_reuse_distance", &ZeroBehavior::max_reuse},
    NumberKey{"sub_group_size", &ZeroBehavior::sub_group_size, 1},
    NumberKey{"zero_hpz_partition_size", &ZeroBehavior::secondary_ranks, 0, 1 << 20},
};

struct SwitchKey {
  std::string_view name;
  bool ZeroBehavior::*mode;
};
constexpr std::array switch_keys{
    SwitchKey{"overlap_comm", &ZeroBehavior::overlaps},
    SwitchKey{"contiguous_gradients", &ZeroBehavior::contiguous_gradients},
    SwitchKey{"reduce_scatter", &ZeroBehavior::reduce_scatter},
    SwitchKey{"round_robin_gradients", &ZeroBehavior::round_robin},
};

struct NvmeKey {
  std::string_view name;
  std::int64_t NvmeBehavior::*mode;
  std::int64_t low = 0, high = most_elements;
};
struct NvmeSwitch {
  std::string_view name;
  bool NvmeBehavior::*mode;
};
constexpr std::int64_t most_buffers = 100'000;
constexpr std::array optimizer_nvme{NvmeKey{"buffer_count", &NvmeBehavior::optimizer_buffers, 1, most_buffers}};
constexpr std::array parameter_nvme{NvmeKey{"buffer_count", &NvmeBehavior::parameter_buffers, 1, most_buffers},
                                    NvmeKey{"buffer_size", &NvmeBehavior::parameter_buffer_size, 1},
                                    NvmeKey{"max_in_cpu", &NvmeBehavior::max_in_cpu}};
constexpr std::array nvme_switches{NvmeSwitch{"pipeline_read", &NvmeBehavior::pipeline_read},
                                   NvmeSwitch{"pipeline_write", &NvmeBehavior::pipeline_write},
                                   NvmeSwitch{"fast_init", &NvmeBehavior::fast_init}};
constexpr std::array aio_numbers{NvmeKey{"block_size", &NvmeBehavior::block_size, 1},
                                 NvmeKey{"intra_op_parallelism", &NvmeBehavior::threads, 1, 4096}};

constexpr std::string_view forces_cpu_adam = "zero_force_ds_cpu_optimizer";
constexpr std::string_view scale_power = "initial_scale_power";
constexpr IntegerRange scale_powers{0, 32};
constexpr auto accumulation_names =
    std::to_array<Named<DType>>({{"bf16", DType::BF16}, {"fp16", DType::FP16}, {"fp32", DType::FP32}});

void read_numbers(TomlReader& table, ZeroKeys& keys) {
  for (const NumberKey& key : number_keys)
    if (const auto given = table.integer(key.name, {key.low, key.high})) keys.numbers[key.name] = *given;
  for (const SwitchKey& key : switch_keys)
    if (const auto given = table.boolean(key.name)) keys.numbers[key.name] = *given ? 1 : 0;
  const auto gathered = keys.numbers.find("allgather_bucket_size");
  if (gathered != keys.numbers.end() && gathered->second % 2 != 0)
    table.problem("allgather_bucket_size",
                  fmt::format("allgather_bucket_size = {} is odd, which DeepSpeed refuses", gathered->second),
                  fmt::format("{} would do", gathered->second + 1));
}

std::optional<Ratio> read_clipping(TomlReader& table) {
  constexpr Ratio most{std::int64_t{1'000'000'000'000}};
  return table.ratio("gradient_clipping", Ratio{}, most);
}

ZeroOffloadKeys read_offload(TomlReader offload, bool of_optimizer) {
  ZeroOffloadKeys keys;
  if (!offload.present()) return keys;
  std::vector<Option> devices;
  for (const std::string_view place : offload_places) devices.push_back({place});
  keys.place = static_cast<OffloadPlace>(offload.option("device", devices).value_or(0));
  const auto read = [&](const auto& numbers) {
    for (const NvmeKey& key : numbers)
      if (const auto given = offload.integer(key.name, {key.low, key.high})) keys.numbers[key.name] = *given;
  };
  keys.pins = offload.boolean("pin_memory");
  if (of_optimizer) {
    keys.ratio = offload.ratio("ratio", Ratio{}, one);
    offload.refuse("super_offload", "an optimizer that runs ahead (SuperOffload) is", {"false"});
    read(optimizer_nvme);
    for (const NvmeSwitch& key : nvme_switches)
      if (const auto given = offload.boolean(key.name)) keys.numbers[key.name] = *given ? 1 : 0;
    (void)offload.raw("cpuadam_cores_perc");
  } else {
    read(parameter_nvme);
  }
  (void)offload.raw("nvme_path");
  offload.refuse_unknown_keys();
  return keys;
}

void read_offload(TomlReader& table, ZeroKeys& keys) {
  keys.optimizer = read_offload(table.table("offload_optimizer"), true);
  keys.parameters = read_offload(table.table("offload_param"), false);
}

// How deep its queues are is of their drives' bandwidth alone.
void read_aio(TomlReader aio, ZeroKeys& keys) {
  if (!aio.present()) return;
  for (const NvmeKey& key : aio_numbers)
    if (const auto given = aio.integer(key.name, {key.low, key.high})) keys.numbers[key.name] = *given;
  aio.refuse("use_gds", "reading drives straight to the device is", {"false"});
  for (const std::string_view key : {"queue_depth", "single_submit", "overlap_events", "thread_count"})
    (void)aio.raw(key);
  aio.refuse_unknown_keys();
}

// Nobody reads it: transformers runs torch.utils.checkpoint, and calls no deepspeed.checkpointing.configure.
void read_checkpointing(TomlReader section, ZeroKeys& keys) {
  if (!section.present()) return;
  keys.checkpointing = true;
  for (const std::string_view key : {"partition_activations", "contiguous_memory_optimization", "cpu_checkpointing",
                                     "synchronize_checkpoint_boundary", "profile"})
    (void)section.boolean(key);
  (void)section.raw("number_checkpoints");
  section.refuse_unknown_keys();
}

// ---- ds_config.json ------------------------------------------------------------------------------------------------

// What these ask for is pinned (zero/config.py).
void read_deprecated_offload(TomlReader& zero, ZeroKeys& keys) {
  const auto read = [&](std::string_view key, ZeroOffloadKeys& into) {
    if (zero.boolean(key).value_or(false) && !into.place) into.place = OffloadPlace::Cpu;
  };
  read("cpu_offload", keys.optimizer);
  read("cpu_offload_param", keys.parameters);
  for (const std::string_view key : {"zenflow", "super_offload"})
    zero.refuse(key, fmt::format("{} is", key), {"false"});
}

void read_zero(TomlReader zero, DsConfig& config) {
  if (!zero.present()) return;
  config.stage = zero.integer("stage", {0, 3});
  if (config.stage == 0)
    zero.problem("stage", not_modelled("stage = 0 shards nothing: DeepSpeed without ZeRO is not modelled"),
                 "1, 2 or 3 would do; [runtime] name = \"pytorch\" has replicas");
  read_numbers(zero, config.keys);
  read_offload(zero, config.keys);
  read_deprecated_offload(zero, config.keys);
  for (const std::string_view key :
       {"zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients",
        "use_all_reduce_for_fetch_params", "allgather_sequential", "parameter_alignment", "legacy_stage1",
        "mics_hierarchical_params_gather"})
    zero.refuse(key, fmt::format("{} is", key), {"false"});
  zero.refuse("mics_shard_size", "sharding within groups (MiCS) is", {"-1"});
  zero.refuse("stage3_module_granularity_threshold", "fetching modules whole is", {"0"});
  zero.refuse("leaf_module", "fetching modules whole is", {});
  zero.refuse("compute_grad_norm", "leaving out the norm is", {"true"});
  zero.refuse("use_multi_rank_bucket_allreduce", "reducing to each rank by itself is", {"true"});
  zero.refuse("memory_efficient_linear", "another linear is", {"true"});
  zero.refuse("allgather_partitions", "broadcasting what was updated is", {"true"});
  // These concern checkpoints, warnings and what is not offloaded.
  for (const std::string_view key :
       {"load_from_fp32_weights", "elastic_checkpoint", "ignore_unused_parameters",
        "gather_16bit_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save",
        "stage3_gather_fp16_weights_on_model_save", "grad_hooks", "override_module_apply", "log_trace_cache_warnings",
        "pipeline_loading_checkpoint", "cpu_offload_use_pin_memory", "enable_sanity_checks"})
    (void)zero.raw(key);
  zero.refuse_unknown_keys();
}

// {"enabled": false}
bool is_off(const TomlValue* value) {
  const auto* const table = value == nullptr ? nullptr : std::get_if<TomlTable>(&value->value);
  return table != nullptr && std::ranges::any_of(table->keys, [](const TomlKey& key) {
           const auto* const flag = std::get_if<bool>(&key.value.value);
           return key.name == "enabled" && flag != nullptr && !*flag;
         });
}

void read_precision(TomlReader& top, DsConfig& config) {
  TomlReader bf16 = top.table("bf16"), fp16 = top.table("fp16"), types = top.table("data_types");
  const bool wide = bf16.boolean("enabled").value_or(false), half = fp16.boolean("enabled").value_or(false);
  if (wide && half) top.problem("fp16", "fp16 and bf16 are both enabled", "leave one of them out");
  if (bf16.present() || fp16.present()) config.precision = wide ? DType::BF16 : half ? DType::FP16 : DType::FP32;
  bf16.refuse("immediate_grad_update", "adding each gradient at once is", {"false"});
  bf16.refuse("check_grad_overflow", "leaving out the look for infinite gradients is", {"true"});
  for (TomlReader* const its : {&bf16, &fp16}) {
    for (const std::string_view key :
         {"bf16_master_weights_and_grads", "bf16_optimizer_states", "fp16_master_weights_and_grads", "auto_cast"})
      its->refuse(key, fmt::format("{} is", key), {"false"});
  }
  const auto power = fp16.integer(scale_power, scale_powers);
  if (half) config.keys.numbers[scale_power] = power.value_or(16);
  fp16.refuse("loss_scale", "a loss scale that stays is", {"0"});
  for (const std::string_view key : {"loss_scale_window", "hysteresis", "consecutive_hysteresis", "min_loss_scale"})
    (void)fp16.raw(key);
  bf16.refuse_unknown_keys();
  fp16.refuse_unknown_keys();
  config.keys.accumulation = read_name(types, "grad_accum_dtype", accumulation_names);
  types.refuse_unknown_keys();
}

// FusedAdam, unless it is asked for torch's (DeepSpeedEngine._configure_basic_optimizer).
void read_optimizer(TomlReader& top, DsConfig& config) {
  TomlReader optimizer = top.table("optimizer");
  if (!optimizer.present()) return;
  const std::string type = optimizer.string("type").value_or("AdamW");
  std::string lower = type;  // as DeepSpeedConfig compares it
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower != "adamw" && lower != "adam")
    optimizer.problem(
        "type", not_modelled(fmt::format("type = \"{}\": an optimizer of DeepSpeed's that is not modelled yet", type)),
        "\"AdamW\" would do; [train] optimizer names others, which a script makes itself");
  TomlReader parameters = optimizer.table("params");
  config.fused_adam = !parameters.boolean("torch_adam").value_or(false);
  config.keys.forces_cpu_adam = config.fused_adam;
  for (const std::string_view key : {"lr", "betas", "eps", "weight_decay", "bias_correction", "adam_w_mode"})
    (void)parameters.raw(key);
  parameters.refuse_unknown_keys();
  optimizer.refuse_unknown_keys();
}

// What takes no memory of a device while it trains, or is said elsewhere in a scenario.
void pass_over(TomlReader& top) {
  for (const std::string_view key :
       {"scheduler", "steps_per_print", "wall_clock_breakdown", "dump_state", "zero_allow_untested_optimizer",
        "tensorboard", "wandb", "csv_monitor", "comet", "comms_logger", "checkpoint", "nebula", "memory_breakdown",
        "dataloader_drop_last", "seq_parallel_communication_data_type"})
    (void)top.raw(key);
}

}  // namespace

bool has_cpu_adam(const ZeroKeys& keys) { return keys.forces_cpu_adam.value_or(true); }

std::vector<std::string_view> zero_switches() {
  std::vector<std::string_view> names;
  for (const NumberKey& key : number_keys) names.push_back(key.name);
  for (const SwitchKey& key : switch_keys) names.push_back(key.name);
  return names;
}

ZeroKeys read_zero_keys(TomlReader& table) {
  ZeroKeys keys;
  read_numbers(table, keys);
  read_offload(table, keys);
  keys.forces_cpu_adam = table.boolean(forces_cpu_adam);
  if (const auto power = table.integer(scale_power, scale_powers)) keys.numbers[scale_power] = *power;
  keys.accumulation = read_name(table, "grad_accum_dtype", accumulation_names);
  keys.clipping = read_clipping(table);
  read_aio(table.table("aio"), keys);
  read_checkpointing(table.table("activation_checkpointing"), keys);
  return keys;
}

DsConfig parse_ds_config(std::string_view text, const std::filesystem::path& file) {
  const TomlTable document = parse_json_table(text, file.string());
  Problems problems(file.string());
  TomlReader top(&document, {1, 1}, {}, problems);
  DsConfig config;
  constexpr IntegerRange sequences{1, most_elements};
  config.batch = top.integer("train_batch_size", sequences);
  config.micro_batch = top.integer("train_micro_batch_size_per_gpu", sequences);
  config.micro_batches = top.integer("gradient_accumulation_steps", sequences);
  config.keys.clipping = read_clipping(top);
  read_precision(top, config);
  read_zero(top.table("zero_optimization", Presence::Required), config);
  config.keys.forces_cpu_adam = top.boolean(forces_cpu_adam);
  read_optimizer(top, config);
  read_aio(top.table("aio"), config.keys);
  read_checkpointing(top.table("activation_checkpointing"), config.keys);
  top.refuse("prescale_gradients", "scaling gradients before they are reduced is", {"false"});
  top.refuse("gradient_predivide_factor", "scaling gradients before they are reduced is", {"1", "1.0"});
  top.refuse("communication_data_type", "reducing gradients in another type is", {});
  top.refuse("sparse_gradients", "sparse_gradients is", {"false"});
  top.refuse("torch_autocast", "autocast under DeepSpeed is", {});
  for (const std::string_view key :
       {"amp", "autotuning", "compile", "compression_training", "curriculum_learning", "data_efficiency", "elasticity",
        "eigenvalue", "flops_profiler", "hybrid_engine", "pipeline", "progressive_layer_drop", "quantize_training",
        "sparse_attention", "tensor_parallel", "weight_quantization"})
    if (!is_off(top.raw(key))) top.refuse(key, fmt::format("{} is", key), {});
  pass_over(top);
  top.refuse_unknown_keys();
  problems.raise_if_any();
  return config;
}

ZeroBehavior behavior_of(const ZeroKeys& keys, bool partitions_parameters, DType precision) {
  ZeroBehavior behavior;
  behavior.overlaps = partitions_parameters;
  for (const NumberKey& key : number_keys)
    if (const auto given = keys.numbers.find(key.name); given != keys.numbers.end() && key.mode != nullptr)
      behavior.*key.mode = given->second;
  for (const SwitchKey& key : switch_keys)
    if (const auto given = keys.numbers.find(key.name); given != keys.numbers.end())
      behavior.*key.mode = given->second != 0;
  behavior.secondary_ranks = std::max<std::int64_t>(behavior.secondary_ranks, 1);
  behavior.accumulation = keys.accumulation;
  const auto space = [](const ZeroOffloadKeys& its) -> std::optional<MemorySpace> {
    if (its.place.value_or(OffloadPlace::None) == OffloadPlace::None) return std::nullopt;
    return its.pins.value_or(true) ? MemorySpace::Pinned : MemorySpace::Pageable;
  };
  behavior.offload_optimizer = space(keys.optimizer);
  behavior.offload_parameters = space(keys.parameters);
  const auto set = [&](const auto& keys_of, const std::map<std::string_view, std::int64_t>& given) {
    for (const auto& key : keys_of) {
      const auto its = given.find(key.name);
      if (its == given.end()) continue;
      auto& mode = behavior.nvme.*key.mode;
      mode = static_cast<std::remove_reference_t<decltype(mode)>>(its->second);
    }
  };
  behavior.nvme.optimizer = keys.optimizer.place == OffloadPlace::Nvme;
  behavior.nvme.parameters = keys.parameters.place == OffloadPlace::Nvme;
  set(optimizer_nvme, keys.optimizer.numbers);
  set(nvme_switches, keys.optimizer.numbers);
  set(parameter_nvme, keys.parameters.numbers);
  set(aio_numbers, keys.numbers);
  behavior.idle_checkpointing = keys.checkpointing;
  behavior.cpu_adam = !behavior.offload_optimizer || has_cpu_adam(keys);
  if (behavior.offload_optimizer && keys.optimizer.ratio)
    behavior.offload_ratio = static_cast<double>(keys.optimizer.ratio->count()) / static_cast<double>(one.count());
  if (keys.clipping) behavior.clipping = static_cast<double>(keys.clipping->count()) / static_cast<double>(one.count());
  if (precision == DType::FP16) {
    constexpr int usual_power = 16;
    const auto power = keys.numbers.find(scale_power);
    behavior.loss_scale = std::ldexp(1.0, power == keys.numbers.end() ? usual_power : static_cast<int>(power->second));
  }
  return behavior;
}

std::map<std::string, std::int64_t> zero_numbers(const ZeroBehavior& behavior) {
  std::map<std::string, std::int64_t> numbers;
  for (const NumberKey& key : number_keys)
    if (key.mode != nullptr) numbers.emplace(key.name, behavior.*key.mode);
  return numbers;
}

}  // namespace tidemark::scenarios
