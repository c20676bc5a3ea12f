#include "scenarios/frameworks/deepspeed/zero_checks.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/scenario/named_files.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::array stages{Sharding::None, Sharding::Zero1, Sharding::Zero2, Sharding::Zero3};

// Keys of both, where they agree.
ZeroKeys joined(const ZeroRequest& requested, ScenarioTables& tables) {
  ZeroKeys keys = requested.switches;
  if (!requested.config) return keys;
  const auto disagrees = [&](std::string_view key) {
    tables.runtime.problem("switches", fmt::format("switches: {} is another in {}", key, in_quotes(requested.file)),
                           "leave one of them out");
  };
  const ZeroKeys& others = requested.config->keys;
  for (const auto& [key, value] : others.numbers)
    if (keys.numbers.try_emplace(key, value).first->second != value) disagrees(key);
  if (others.clipping && keys.clipping.value_or(*others.clipping) != *others.clipping) disagrees("gradient_clipping");
  if (others.accumulation && keys.accumulation.value_or(*others.accumulation) != *others.accumulation)
    disagrees("grad_accum_dtype");
  const auto join = [&](ZeroOffloadKeys& ours, const ZeroOffloadKeys& theirs, std::string_view key) {
    const auto one = [&](auto& its, const auto& their) {
      if (!its) its = their;
      return !their || *its == *their;
    };
    bool agree = one(ours.place, theirs.place) & one(ours.pins, theirs.pins) & one(ours.ratio, theirs.ratio);
    for (const auto& [name, value] : theirs.numbers)
      agree &= ours.numbers.try_emplace(name, value).first->second == value;
    if (!agree) disagrees(key);
  };
  join(keys.optimizer, others.optimizer, "offload_optimizer");
  join(keys.parameters, others.parameters, "offload_param");
  keys.checkpointing |= others.checkpointing;
  if (!keys.forces_cpu_adam) keys.forces_cpu_adam = others.forces_cpu_adam;
  if (!keys.clipping) keys.clipping = others.clipping;
  if (!keys.accumulation) keys.accumulation = others.accumulation;
  return keys;
}

void settle_stage(Scenario& requested, ScenarioTables& tables) {
  Layout& layout = requested.layout;
  const std::optional<DsConfig>& config = tables.zero.config;
  const bool says = config && config->stage;
  const Sharding said = says ? stages[static_cast<std::size_t>(*config->stage)] : Sharding::None;
  if (!tables.layout.sound("sharding")) return;
  if (!tables.layout.has("sharding")) {
    if (says)
      layout.sharding = said;
    else if (tables.runtime.sound("config"))
      tables.layout.problem("sharding", "sharding is missing: it says which stage of ZeRO DeepSpeed runs",
                            R"("zero1", "zero2" or "zero3"; or zero_optimization.stage in a ds_config.json)");
  } else if (layout.sharding == Sharding::None) {
    tables.layout.problem("sharding", not_modelled("sharding = \"none\": DeepSpeed without ZeRO is not modelled"),
                          R"("zero1", "zero2" or "zero3" would do)");
  } else if (says && said != layout.sharding) {
    tables.layout.problem("sharding",
                          fmt::format("sharding = \"{}\", and {} has stage {}", word(sharding_names, layout.sharding),
                                      in_quotes(tables.zero.file), *config->stage),
                          "leave one of them out");
  }
}

// What a ds_config.json and [train] both say.
void check_train(Scenario& requested, ScenarioTables& tables) {
  if (!tables.zero.config) return;
  const DsConfig& config = *tables.zero.config;
  Train& train = requested.train;
  const auto check = [&](std::string_view key, std::string_view theirs, std::optional<std::int64_t> said,
                         std::int64_t ours) {
    if (said && tables.train.sound(key) && *said != ours)
      tables.train.problem(
          key, fmt::format("{} = {}, and {} has {} = {}", key, ours, in_quotes(tables.zero.file), theirs, *said),
          "give both the same");
  };
  const std::int64_t together = train.micro_batch * requested.gpus;
  const std::int64_t all = tables.train.has("global_batch") ? train.global_batch : together;
  check("micro_batch", "train_micro_batch_size_per_gpu", config.micro_batch, train.micro_batch);
  check("global_batch", "train_batch_size", config.batch, all);
  if (config.micro_batches && tables.train.sound("global_batch") && tables.train.sound("micro_batch") &&
      *config.micro_batches * together != all)
    tables.train.problem("global_batch",
                         fmt::format("global_batch = {} on {} devices, and {} has gradient_accumulation_steps = {}",
                                     all, requested.gpus, in_quotes(tables.zero.file), *config.micro_batches),
                         fmt::format("{} would do", *config.micro_batches * together));
  if (!config.precision || !tables.train.sound("precision")) return;
  if (!tables.train.has("precision"))
    train.precision = *config.precision;
  else if (train.precision != *config.precision)
    tables.train.problem("precision",
                         fmt::format("precision = \"{}\", and {} enables {}", name(train.precision),
                                     in_quotes(tables.zero.file), name(*config.precision)),
                         "give both the same");
}

void check_accumulation(const Scenario& requested, const ZeroBehavior& behavior, ScenarioTables& tables) {
  const DType precision = requested.train.precision;
  const DType accumulation = behavior.accumulation.value_or(precision);
  if (accumulation == precision) return;
  if (accumulation != DType::FP32)
    tables.runtime.problem("switches",
                           fmt::format("grad_accum_dtype = \"{}\" is neither \"fp32\" nor precision = \"{}\"",
                                       name(accumulation), name(precision)),
                           "leave it out");
  else if (requested.layout.sharding == Sharding::Zero1 && behavior.offload_optimizer)
    tables.runtime.problem(
        "switches",
        not_modelled("grad_accum_dtype = \"fp32\" with stage 1 and its optimizer on the host is not modelled yet"),
        "stage 2, or leave one of them out");
  else if (requested.layout.sharding == Sharding::Zero1 && precision != DType::BF16)
    tables.runtime.problem("switches",
                           not_modelled("grad_accum_dtype = \"fp32\" with stage 1 in fp16 is not modelled yet"),
                           "precision = \"bf16\", stage 2, or leave it out");
}

void check_secondary(const Scenario& requested, ScenarioTables& tables) {
  const ZeroBehavior& behavior = requested.runtime.eager.zero;
  const std::int64_t ranks = behavior.secondary_ranks;
  if (ranks == 1) return;
  const auto problem = [&](ProblemText what, std::string hint) {
    tables.runtime.problem("switches", std::move(what), std::move(hint));
  };
  if (requested.layout.sharding == Sharding::Zero1 || requested.layout.sharding == Sharding::Zero2)
    problem("zero_hpz_partition_size: stages 1 and 2 partition no parameters", "stage 3, or leave it out");
  else if (requested.gpus == 1)
    problem("zero_hpz_partition_size: one rank has no neighbours", "leave it out");
  else if (requested.gpus % ranks != 0)
    problem(fmt::format("zero_hpz_partition_size = {} does not divide {} ranks", ranks, requested.gpus),
            "as many as a node has would do");
  else if (behavior.offload_parameters)
    problem(not_modelled("zero_hpz_partition_size: secondary partitions on the host (offload_param) are not modelled"),
            "leave one of them out");
}

void check_drives(const Scenario& requested, bool of_stage_3, ScenarioTables& tables) {
  const NvmeBehavior& nvme = requested.runtime.eager.zero.nvme;
  if (!nvme.optimizer && !nvme.parameters) return;
  if (nvme.optimizer && !of_stage_3)
    tables.runtime.problem("switches", "offload_optimizer: stages 1 and 2 have no files on NVMe",
                           "stage 3, or device = \"cpu\", which is what DeepSpeed does then");
  const Host& host = requested.cluster.host;
  if (!tables.cluster_sound || (host.nvme_read_bandwidth && host.nvme_write_bandwidth)) return;
  tables.top.problem(
      "cluster", fmt::format("cluster: {} does not say how fast its nodes' NVMe drives are", requested.cluster.name),
      "nvme_read_bandwidth and nvme_write_bandwidth in its [host], of all drives of a node together");
}

void check_offload(const Scenario& requested, const ZeroKeys& keys, ScenarioTables& tables) {
  const auto problem = [&](ProblemText what, std::string hint) {
    tables.runtime.problem("switches", std::move(what), std::move(hint));
  };
  const ZeroBehavior& behavior = requested.runtime.eager.zero;
  const bool of_stage_3 = requested.layout.sharding == Sharding::Zero3;
  if (behavior.offload_parameters && !of_stage_3)
    problem("offload_param: stages 1 and 2 keep parameters on the device", "stage 3, or leave it out");
  check_drives(requested, of_stage_3, tables);
  const bool of_part = keys.optimizer.ratio.value_or(one) != one;
  if (of_part && !behavior.offload_optimizer)
    problem("ratio: no optimizer is on the host", "leave it out, or set offload_optimizer's device = \"cpu\"");
  else if (of_part && !of_stage_3)
    problem("ratio: stages 1 and 2 offload all of the optimizer", "stage 3, or leave it out");
  else if (of_part && (behavior.nvme.optimizer || behavior.nvme.parameters))
    problem(not_modelled("ratio: a part of the optimizer on the device beside one on NVMe is not modelled yet"),
            "leave it out, or device = \"cpu\"");
  else if (of_part && !behavior.cpu_adam)
    problem("ratio: DeepSpeed leaves a part on the device with DeepSpeedCPUAdam only",
            "leave it out, or zero_force_ds_cpu_optimizer = false");
  if (!behavior.offload_optimizer || !behavior.cpu_adam) return;
  if (requested.train.optimizer != Optimizer::AdamW && tables.train.sound("optimizer"))
    tables.train.problem("optimizer", "on the host DeepSpeed asks for an Adam of its own (DeepSpeedCPUAdam)",
                         "\"adamw\" would do, or zero_force_ds_cpu_optimizer = false, and PyTorch's");
  if (requested.runtime.eager.amsgrad)
    problem("amsgrad: DeepSpeedCPUAdam has none", "leave it out, or zero_force_ds_cpu_optimizer = false");
}

}  // namespace

bool updates_on_host(const ZeroRequest& zero) {
  const auto moves = [](const ZeroKeys& keys) {
    return keys.optimizer.place.value_or(OffloadPlace::None) != OffloadPlace::None;
  };
  const bool config = zero.config.has_value();
  const std::optional<bool> ours = zero.switches.forces_cpu_adam;
  const bool cpu_adam = ours || !config ? has_cpu_adam(zero.switches) : has_cpu_adam(zero.config->keys);
  return (moves(zero.switches) || (config && moves(zero.config->keys))) && !cpu_adam;
}

void read_zero_offload(TomlReader table, ZeroRequest& zero) {
  if (!table.present()) return;
  std::vector<Option> places;
  for (const std::string_view place : offload_places) places.push_back({place});
  const auto read = [&](std::string_view key, ZeroOffloadKeys& switches, const ZeroOffloadKeys* config,
                        std::string_view theirs) {
    const std::optional<std::size_t> given = table.option(key, places);
    if (!given) return;
    const auto place = static_cast<OffloadPlace>(*given);
    for (const ZeroOffloadKeys* const said : std::array{static_cast<const ZeroOffloadKeys*>(&switches), config})
      if (said != nullptr && said->place.value_or(place) != place)
        return table.problem(key,
                             fmt::format("{} = \"{}\", and {} has device = \"{}\"", key, offload_places[*given], theirs,
                                         offload_places[static_cast<std::size_t>(*said->place)]),
                             "give both the same");
    switches.place = place;
  };
  const ZeroKeys* const config = zero.config ? &zero.config->keys : nullptr;
  read("optimizer", zero.switches.optimizer, config != nullptr ? &config->optimizer : nullptr, "offload_optimizer");
  read("parameters", zero.switches.parameters, config != nullptr ? &config->parameters : nullptr, "offload_param");
  const std::vector<Option> activations{{"none"}, {"cpu", Modelled::NotYet}, {"nvme", Modelled::NotYet}};
  (void)table.option("activations", activations);
  if (const std::optional<Ratio> fraction = table.ratio("optimizer_fraction", Ratio{}, one)) {
    for (const ZeroKeys* const said : std::array{static_cast<const ZeroKeys*>(&zero.switches), config})
      if (said != nullptr && said->optimizer.ratio.value_or(*fraction) != *fraction)
        table.problem("optimizer_fraction", "optimizer_fraction is another ratio than offload_optimizer's",
                      "leave one of them out");
    zero.switches.optimizer.ratio = fraction;
  }
  table.refuse_unknown_keys();
}

void read_ds_config(TomlReader& runtime, const LoadsFiles& files, ZeroRequest& into) {
  const std::optional<std::string> name = runtime.string("config");
  if (!name) return;
  const auto before = files.read_before.texts.find(*name);
  const bool known = before != files.read_before.texts.end();
  const std::optional<std::filesystem::path> path = known ? before->second.path : resolved(*name, files.folders);
  if (!path) {
    const std::string near = near_file(*name, files.folders);
    runtime.problem(
        "config", fmt::format("config = {} is neither in the scenario's folder nor in the data root", in_quotes(*name)),
        near.empty() ? "a ds_config.json beside the scenario would do"
                     : fmt::format("did you mean {}?", in_quotes(near)));
    return;
  }
  try {
    into.config = parse_ds_config(known ? before->second.text : read_text(*path), *path);
    into.file = *name;
  } catch (const InputError& error) {
    files.problems.add(error);
    runtime.refuse_to_judge("config");
  }
}

void settle_zero(Scenario& requested, ScenarioTables& tables) {
  settle_stage(requested, tables);
  check_train(requested, tables);
  const ZeroKeys keys = joined(tables.zero, tables);
  EagerSettings& settings = requested.runtime.eager;
  settings.zero = behavior_of(keys, requested.layout.sharding == Sharding::Zero3, requested.train.precision);
  if (requested.gpus > 1)  // min(group_size, world_size)
    settings.zero.secondary_ranks = std::min<std::int64_t>(settings.zero.secondary_ranks, requested.gpus);
  settings.clips_gradients = settings.zero.clipping > 0;
  check_offload(requested, keys, tables);
  check_secondary(requested, tables);
  check_accumulation(requested, settings.zero, tables);
  if (tables.zero.config && tables.zero.config->fused_adam.value_or(false) && !settings.zero.offload_optimizer)
    settings.optimizer = OptimizerKernels::Fused;
  if (tables.train.sound("master_dtype") && requested.train.master_dtype != DType::FP32)
    tables.train.problem("master_dtype", "DeepSpeed's optimizers keep parameters that they update in fp32",
                         "leave it out");
}

}  // namespace tidemark::scenarios
