#include "scenarios/reader/scenario_reader.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/cluster/calibration_reader.hpp"
#include "scenarios/cluster/cluster_reader.hpp"
#include "scenarios/environment/allocator_conf.hpp"
#include "scenarios/environment/environment.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/version_text.hpp"
#include "scenarios/frameworks/deepspeed/zero_checks.hpp"
#include "scenarios/frameworks/megatron/megatron_switches.hpp"
#include "scenarios/frameworks/megatron/module_offload.hpp"
#include "scenarios/frameworks/megatron/muon_switches.hpp"
#include "scenarios/frameworks/megatron/optimizer_switches.hpp"
#include "scenarios/frameworks/pytorch/offload_reader.hpp"
#include "scenarios/frameworks/pytorch/pytorch_switches.hpp"
#include "scenarios/frameworks/pytorch/small_optimizers.hpp"
#include "scenarios/frameworks/torchtitan/titan_pipeline.hpp"
#include "scenarios/frameworks/torchtitan/titan_switches.hpp"
#include "scenarios/model_config/config_reader.hpp"
#include "scenarios/model_config/moe_reader.hpp"
#include "scenarios/reader/adapter_reader.hpp"
#include "scenarios/reader/document_parts.hpp"
#include "scenarios/reader/layers_reader.hpp"
#include "scenarios/reader/packed_sequences.hpp"
#include "scenarios/reader/quantization_reader.hpp"
#include "scenarios/reader/recompute_reader.hpp"
#include "scenarios/reader/rollout_reader.hpp"
#include "scenarios/reader/scenario_checks.hpp"
#include "scenarios/scenario/axis_order.hpp"
#include "scenarios/scenario/named_files.hpp"
#include "scenarios/scenario/names.hpp"
#include "scenarios/scenario/scenario_tables.hpp"
#include "scenarios/scenario/schedule_reader.hpp"

namespace tidemark::scenarios {
namespace {

// Far above any job; products of a few of them stay within 64 bits.
constexpr IntegerRange token_count{1, 1 << 24};
constexpr IntegerRange ranks_or_all{0, rank_count.high};
constexpr IntegerRange micro_batch_size{1, 1 << 12};
constexpr IntegerRange packed_count{1, 1 << 20};
constexpr IntegerRange global_batch_size{1, 1 << 24};
constexpr IntegerRange step_count{2, 64};  // the second step differs from the first, later ones repeat it
constexpr IntegerRange extra_tokens{0, 1 << 20};
constexpr IntegerRange padding_quantum{1, 1 << 20};

/// What `parse` makes of the file that `key` names, unless it is among `known`, which are made of `texts`; nothing when
/// there is a problem, which is then reported.
template <class T, class Parse>
std::optional<T> read_named_file(TomlReader& top, std::string_view key, const ScenarioFolders& folders,
                                 Problems& problems, const decltype(ScenarioFiles::texts)& texts,
                                 const std::map<std::string, T, std::less<>>& known, Parse parse) {
  const std::optional<std::string> name = top.string(key, Presence::Required);
  if (!name) return std::nullopt;
  if (const auto found = known.find(*name); found != known.end()) return found->second;
  const auto parsed = [&](const ScenarioFiles::File& file) -> std::optional<T> {
    try {
      return parse(file.text, file.path);
    } catch (const InputError& error) {
      problems.add(error);
      return std::nullopt;
    }
  };
  if (const auto read = texts.find(*name); read != texts.end()) return parsed(read->second);
  try {
    if (const auto file = read_named(key, *name, folders)) return parsed(*file);
    top.problem(key,
                fmt::format("{} = {} is neither in the scenario's folder nor in the data root{}", key, in_quotes(*name),
                            key == model_key && !name->ends_with(".json") ? ", nor a model's name that is known" : ""),
                hint_for_file(key, *name, folders));
    return std::nullopt;
  } catch (const InputError& error) {
    problems.add(error);
    return std::nullopt;
  }
}

std::vector<ConfigOverride> read_overrides(TomlReader& table, const std::string& file) {
  std::vector<ConfigOverride> overrides;
  for (const TomlKey& key : table.keys()) {
    if (key.name == "vocabulary_extra" || key.name == "vocabulary_multiple") continue;
    const Place place = key.value.place;
    ConfigOverride entry{key.name, false, {file, place.line, place.column, {}, {}}};
    if (const auto* boolean = std::get_if<bool>(&key.value.value)) {
      entry.value = *boolean;
    } else if (const auto* integer = std::get_if<std::int64_t>(&key.value.value)) {
      entry.value = *integer;
    } else if (const auto* number = std::get_if<double>(&key.value.value)) {
      entry.value = *number;
    } else if (const auto* string = std::get_if<std::string>(&key.value.value)) {
      entry.value = *string;
    } else {
      table.problem(key.name,
                    fmt::format("{} takes a number, a text, true or false, not {}", key.name, text(key.value)),
                    "other values go into a config.json of your own");
      continue;
    }
    overrides.push_back(std::move(entry));
  }
  return overrides;
}

// Whether overrides make another size of model: the file's name is then no name of it. A padded vocabulary is no other.
bool resized(const std::string& text, const std::vector<ConfigOverride>& overrides) {
  static constexpr std::array<std::string_view, 15> sizes{"hidden_size",
                                                          "intermediate_size",
                                                          "num_hidden_layers",
                                                          "num_attention_heads",
                                                          "num_key_value_heads",
                                                          "n_embd",
                                                          "n_layer",
                                                          "n_head",
                                                          "n_inner",
                                                          "head_dim",
                                                          "num_local_experts",
                                                          "moe_intermediate_size",
                                                          "num_experts",
                                                          "n_routed_experts",
                                                          "num_layers"};
  const nlohmann::json config = nlohmann::json::parse(text, nullptr, false);
  return std::ranges::any_of(overrides, [&](const ConfigOverride& its) {
    const auto* const value = std::get_if<std::int64_t>(&its.value);
    if (value == nullptr || std::ranges::find(sizes, its.key) == sizes.end() || !config.is_object()) return false;
    const auto own = config.find(its.key);
    return own != config.end() && own->is_number_integer() && own->get<std::int64_t>() != *value;
  });
}

void read_model_part(ScenarioTables& tables, const ScenarioFolders& folders, Problems& problems,
                     const ScenarioFiles& files, Scenario& scenario) {
  const std::vector<ConfigOverride> overrides = read_overrides(tables.model_override, problems.file());
  const auto parse = [&](const std::string& text, const std::filesystem::path& path) {
    Model model = parse_model(text, path, overrides);
    if (resized(text, overrides)) model.name = "resized " + model.name;
    return model;
  };
  static const decltype(files.models) none;
  std::optional<Model> model = read_named_file(tables.top, "model", folders, problems, files.texts,
                                               overrides.empty() ? files.models : none, parse);
  const std::optional<std::int64_t> extra = tables.model_override.integer("vocabulary_extra", extra_tokens);
  const std::optional<std::int64_t> multiple = tables.model_override.integer("vocabulary_multiple", padding_quantum);
  tables.model_sound = model.has_value() && tables.model_override.sound("vocabulary_extra") &&
                       tables.model_override.sound("vocabulary_multiple");
  if (model) scenario.model = *std::move(model);
  read_layers(tables.top, scenario.model);
  scenario.model.vocabulary_extra = extra.value_or(0);
  scenario.model.vocabulary_multiple = multiple.value_or(0);
  tables.model_sound = tables.model_sound && tables.top.sound(layers_key);
}

void read_order(TomlReader& table, Layout& layout) {
  const std::optional<std::string> given = table.string("order");
  if (!given) return;
  if (const auto order = parse_axis_order(*given))
    layout.order = *order;
  else
    table.problem("order", fmt::format("order = {} does not name tp, dp and pp once each", in_quotes(*given)),
                  "\"tp-cp-ep-dp-pp\" is Megatron's default");
}

void read_context(TomlReader& table, Layout& layout) {
  layout.context = narrow(table.integer("context", rank_count).value_or(1));
  layout.context_kind = read_name(table, "context_kind", context_kind_names).value_or(ContextKind::Ring);
  layout.context_inner = narrow(table.integer("context_inner", rank_count).value_or(1));
}

void read_layout(TomlReader& table, Layout& layout) {
  layout.tensor = narrow(table.integer("tensor", rank_count).value_or(1));
  layout.sequence_parallel = table.boolean("sequence_parallel").value_or(false);
  read_context(table, layout);
  layout.expert = narrow(table.integer("expert", rank_count).value_or(1));
  layout.expert_tensor = narrow(table.integer("expert_tensor", rank_count).value_or(0));
  layout.pipeline = narrow(table.integer("pipeline", rank_count).value_or(1));
  layout.data = narrow(table.integer("data", rank_count).value_or(1));
  layout.sharding = read_name(table, "sharding", sharding_names).value_or(Sharding::None);
  layout.shard_group = narrow(table.integer("shard_group", ranks_or_all).value_or(0));
  layout.count_embedding = table.boolean("count_embedding").value_or(false);
  layout.count_loss = table.boolean("count_loss").value_or(false);
  read_order(table, layout);
  read_schedule(table, layout);
  table.refuse_unknown_keys();
}

DType read_precision(TomlReader& table) {
  const TomlValue* given = table.raw("precision");
  const auto* text = given == nullptr ? nullptr : std::get_if<std::string>(&given->value);
  if (text != nullptr && text->starts_with("fp8")) {
    table.problem("precision", not_modelled(fmt::format("precision = {}: FP8 is not modelled yet", in_quotes(*text))),
                  "\"bf16\" or \"fp16\" would do");
    return DType::BF16;
  }
  return read_name(table, "precision", precision_names).value_or(DType::BF16);
}

/// Megatron drops out a tenth unless told otherwise (arguments.py): leaving the key out does not mean 0.
double read_dropout(TomlReader& table, std::string_view key) {
  constexpr Ratio whole{std::int64_t{1'000'000}};
  const std::optional<Ratio> given = table.ratio(key, Ratio{}, whole);
  if (given && *given == whole)
    table.problem(key, fmt::format("{} = 1: nothing would be left", key), "0 to 0.999999 would do");
  constexpr double usual = 0.1;
  return given ? static_cast<double>(given->count()) / static_cast<double>(whole.count()) : usual;
}

void read_train(TomlReader& table, Train& train) {
  if (!table.present()) {
    for (const std::string_view key : {"sequence_length", "micro_batch", "global_batch"}) table.refuse_to_judge(key);
    return;
  }
  train.sequence_length = table.integer("sequence_length", token_count, Presence::Required).value_or(1);
  train.micro_batch = table.integer("micro_batch", micro_batch_size, Presence::Required).value_or(1);
  train.global_batch = table.integer("global_batch", global_batch_size).value_or(1);
  train.precision = read_precision(table);
  train.gradient_dtype = read_name(table, "gradient_dtype", precision_names).value_or(DType::FP32);
  train.optimizer = read_optimizer(table).value_or(Optimizer::AdamW);
  train.attention = read_name(table, "attention", attention_names).value_or(AttentionKernel::Auto);
  train.cross_entropy = read_name(table, "cross_entropy", cross_entropy_names).value_or(CrossEntropy::Unfused);
  train.packed = table.integer("packed_sequences", packed_count).value_or(0);
  train.steps = narrow(table.integer("steps", step_count).value_or(step_count.low));
  train.recompute = read_recomputation(table);
  train.hidden_dropout = read_dropout(table, "hidden_dropout");
  train.attention_dropout = read_dropout(table, "attention_dropout");

  train.master_dtype = read_name(table, "master_dtype", precision_names).value_or(DType::FP32);
  table.refuse("moment_dtypes", "optimizer state of another precision is", {"[\"fp32\", \"fp32\"]"});
  table.refuse_unknown_keys();
}

Version read_version(TomlReader& table, const Component& component, Version fallback) {
  const std::optional<std::string> given = table.string(component.key);
  if (!given) return fallback;
  std::optional<Version> version = parse_version(*given);
  if (!version)
    table.problem(component.key, fmt::format("{} = {} is not a version", component.key, in_quotes(*given)),
                  fmt::format("such as \"{}\"", text(fallback)));
  else if (!component.by_patch)
    version->patch = 0;
  return version.value_or(fallback);
}

std::string reported(Version first, Version last) {
  return fmt::format("{} to {}", in_quotes(text(first)), in_quotes(text(last)));
}

// What the runtime knows of the release that was asked for. One newer than it knows is taken as the last one it does,
// which the answer says; a release of another age is a slip.
void check_release(TomlReader& table, const KnownReleases& known, Version requested) {
  if (!table.has(known.key) || !table.sound(known.key)) return;
  if (requested < known.first)
    table.problem(known.key,
                  fmt::format("{} = {} is older than {}, the first release that Tidemark knows", known.key,
                              in_quotes(text(requested)), text(known.first)),
                  reported(known.first, known.last) + " would do; later ones are taken as the last");
  if (requested.major > known.last.major + 1)
    table.problem(known.key,
                  fmt::format("{} = {} is far beyond {}, the last release that Tidemark knows", known.key,
                              in_quotes(text(requested)), text(known.last)),
                  reported(known.first, known.last) + " would do");
}

Versions read_versions(TomlReader table, const std::string& runtime) {
  Versions versions;
  for (const Component& component : components)
    versions.*component.version = read_version(table, component, versions.*component.version);
  for (const KnownReleases& known : known_releases(runtime))
    for (const Component& component : components)
      if (component.key == known.key) check_release(table, known, versions.*component.version);
  table.refuse_unknown_keys();
  return versions;
}

// Beside the variable of the environment, which PyTorch reads; here or there, not two things.
std::string read_allocator(TomlReader& table, const Environment& environment) {
  if (!environment.allocator) return read_allocator_text(table, "allocator");
  if (!table.has("allocator")) return *environment.allocator;
  std::string text = read_allocator_text(table, "allocator");
  if (text != *environment.allocator)
    table.problem(
        "allocator",
        fmt::format("allocator = {}, and the environment says {}", in_quotes(text), in_quotes(*environment.allocator)),
        "leave one of them out");
  return text;
}

// So many of a node's, with their share of its network cards.
void take_devices(Node& node, std::int32_t taken) {
  if (node.nics % node.devices == 0) node.nics = node.nics / node.devices * taken;
  node.devices = taken;
}

// Where schedulers give jobs of several nodes a part of each: the rest of a node is another job's, or spare. A job of
// whole nodes alone has all of them.
void leave_devices_out(Node& node, std::int32_t gpus) {
  const std::int32_t taken = node.job_devices;
  const bool whole_nodes = gpus % node.devices == 0 && (taken == 0 || gpus % taken != 0);
  if (taken == 0 || taken == node.devices || gpus <= node.devices || whole_nodes) return;
  take_devices(node, taken);
}

void read_run(TomlReader table, RunLength& run, Cluster& cluster) {
  constexpr IntegerRange count{0, std::int64_t{1} << 60};  // 0: not said
  run.tokens = table.integer("tokens", count).value_or(0);
  run.steps = table.integer("steps", count).value_or(0);
  if (run.tokens > 0 && run.steps > 0)
    table.problem("steps", "tokens and steps both say how long the run is", "leave one of them out");
  // In place of the cluster's own.
  if (const auto given = read_dollars_per_gpu_hour(table)) cluster.dollars_per_gpu_hour = given;
  table.refuse_unknown_keys();
}

/// Returns the switches, which are judged once everything they may repeat has been read.
TomlReader read_runtime(TomlReader& table, TomlReader offload, RuntimeChoice& runtime, const LoadsFiles& files,
                        ZeroRequest& zero) {
  std::vector<Option> names;
  for (const RuntimeKind& kind : runtimes()) names.push_back({kind.name});
  runtime.name = names[table.option("name", names).value_or(0)].text;
  runtime.headroom = table.bytes("headroom").value_or(Bytes{});
  runtime.versions = read_versions(table.table("versions"), runtime.name);
  const Environment environment = read_environment(table.table("environment"));
  runtime.cublas_workspace_config = environment.cublas_workspace_config;
  runtime.nccl = environment.nccl;
  runtime.nccl_environment = environment.nccl_variables;
  runtime.launch_queue = environment.launch_queue;
  runtime.allocator = read_allocator(table, environment);
  TomlReader switches = table.table("switches");
  const RuntimeKind& kind = runtime_kind(runtime.name);
  OffloadRequest offloaded;
  if (kind.id == RuntimeId::DeepSpeed) {
    zero.switches = read_zero_keys(switches);
    read_ds_config(table, files, zero);
    read_zero_offload(std::move(offload), zero);
    offloaded.parameters = updates_on_host(zero);
  } else if (table.has("config")) {
    (void)table.raw("config");
    table.problem("config", fmt::format("config: {} reads no ds_config.json", runtime.name),
                  "leave it out, or set name = \"deepspeed\"");
  }
  if (kind.id != RuntimeId::DeepSpeed) offloaded = read_offload(std::move(offload), kind);
  if (kind.eager()) {
    runtime.eager = kind.id == RuntimeId::TorchTitan ? read_titan_switches(switches, offloaded)
                                                     : read_pytorch_switches(switches, kind, offloaded);
    switches.refuse_unknown_keys();
  } else {
    read_own_switches(switches, runtime);
    runtime.optimizer.offloaded = offloaded.optimizer;
    if (offloaded.activations && runtime.offloaded_layers == 0 && !runtime.module_offload.any())
      table.problem("switches",
                    "activations = \"cpu\" in [offload]: neither the number of layers nor the modules are given",
                    "cpu-offloading-num-layers = 1 in [runtime.switches], or more, or offload-modules");
    check_offload_variable(runtime, environment, table);
  }
  runtime.deterministic |= environment.deterministic;
  table.refuse_unknown_keys();
  return switches;
}

// Tables of studies, which begin at a job and are none.
void refuse_questions(TomlReader& top) {
  if (top.has("space")) {
    (void)top.raw("space");  // else it is unknown as well
    top.problem("space", "[space] is for searches, and this command reads one job",
                "tidemark plan searches it; leave it out to read the job at its start");
  }
  if (top.has("capacity")) {
    (void)top.raw("capacity");
    top.problem("capacity", "[capacity] is for studies, which this command does not take",
                "tidemark capacity takes the file; leave the table out for other commands");
  }
}

void read_cluster_part(ScenarioTables& tables, const ScenarioFolders& folders, Problems& problems,
                       const ScenarioFiles& read_before, Scenario& scenario) {
  std::optional<Cluster> cluster =
      read_named_file(tables.top, "cluster", folders, problems, read_before.texts, read_before.clusters, parse_cluster);
  tables.cluster_sound = cluster.has_value();
  if (cluster) scenario.cluster = *std::move(cluster);
  // In place of the cluster's own, where the scenario names one.
  if (SharedCalibration its = read_calibration_key(tables.top, folders, problems, scenario.cluster.device, read_before);
      its.there())
    scenario.cluster.calibration = std::move(its);
  leave_devices_out(scenario.cluster.node, scenario.gpus);
  // In place of all that a node has: torchrun's --nproc-per-node.
  Node& node = scenario.cluster.node;
  if (const auto taken = tables.layout.integer("devices_per_node", {1, std::max(node.devices, 1)}))
    take_devices(node, narrow(*taken));
}

// What keys of several tables say together.
void settle_together(Scenario& scenario, ScenarioTables& tables, TomlReader& rollout, TomlReader& switches) {
  const bool eager = runtime_kind(scenario.runtime.name).eager();
  if (runtime_kind(scenario.runtime.name).id == RuntimeId::TorchTitan) settle_titan_pipeline(scenario, tables);
  check_schedule(tables.layout, scenario.layout);
  check_recomputation(tables.train, scenario.train.recompute);

  const bool requested_sequence_parallel = scenario.layout.sequence_parallel;
  if (!eager && tables.train.sound("attention"))
    check_attention_variables(tables.runtime.table("environment"), scenario.train.attention);
  if (runtime_kind(scenario.runtime.name).id == RuntimeId::TorchTitan)
    settle_titan(scenario, tables);
  else if (eager)
    settle_pytorch(scenario, tables);
  else if (scenario.train.master_dtype != DType::FP32)
    tables.train.problem("master_dtype",
                         not_modelled("optimizer state of another precision than fp32 is not modelled yet"),
                         "plain PyTorch ([runtime] name = \"pytorch\") keeps none where it is the parameters' own");
  check_small_optimizer(scenario, tables);
  settle_adapter(scenario, tables);
  settle_quantization(scenario, tables);
  check_packed_sequences(scenario, tables);
  settle(scenario, tables);
  if (!eager) settle_muon(scenario, tables);
  settle_rollout(rollout, scenario, tables);
  if (!eager) check_optimizer_behavior(scenario, tables), check_module_offload(scenario, tables);
  if (!eager && switches.present()) {
    Scenario requested = scenario;
    requested.layout.sequence_parallel = requested_sequence_parallel;
    check_megatron_switches(switches, requested, tables);
  }
}

enum class Judged : std::uint8_t { KeyByKey, Together };

std::variant<Scenario, std::vector<Problem>> judged(const TomlTable& document, const std::filesystem::path& file,
                                                    const ScenarioFolders& folders, const ScenarioFiles& read_before,
                                                    Judged how) {
  Problems problems(file.string());
  TomlReader top(&document, {}, "", problems);
  TomlReader model_override = top.table("model_override");
  TomlReader layout = top.table("layout");
  TomlReader train = top.table("train", Presence::Required);
  TomlReader runtime = top.table("runtime");
  TomlReader moe = top.table("moe");
  TomlReader adapter = top.table("adapter");
  TomlReader quantization = top.table("quantization");
  ScenarioTables tables{std::move(top),     std::move(model_override), std::move(layout),
                        std::move(train),   std::move(runtime),        std::move(moe),
                        std::move(adapter), std::move(quantization)};

  refuse_questions(tables.top);
  Scenario scenario;
  scenario.name = file.stem().string();
  scenario.gpus = narrow(tables.top.integer("gpus", rank_count, Presence::Required).value_or(1));
  read_model_part(tables, folders, problems, read_before, scenario);
  read_cluster_part(tables, folders, problems, read_before, scenario);
  read_run(tables.top.table("run"), scenario.run, scenario.cluster);
  read_layout(tables.layout, scenario.layout);
  read_train(tables.train, scenario.train);
  TomlReader rollout = tables.top.table("rollout");
  scenario.train.frozen = read_frozen_models(rollout);
  scenario.train.rollout = read_rollout(rollout);
  scenario.train.adapter = read_adapter(tables.adapter);
  scenario.train.quantization = read_quantization(tables.quantization);
  const Model* const model = tables.model_sound ? &scenario.model : nullptr;
  scenario.train.routing = read_routing(tables.moe, model, {folders, read_before, problems});
  TomlReader switches = read_runtime(tables.runtime, tables.top.table("offload"), scenario.runtime,
                                     {folders, read_before, problems}, tables.zero);
  const bool eager = runtime_kind(scenario.runtime.name).eager();
  if (!eager) scenario.layout.chunk_group = read_chunk_group(switches);
  tables.top.refuse_unknown_keys(std::array<const TomlReader*, 3>{&tables.layout, &tables.train, &tables.runtime});
  if (how == Judged::KeyByKey) return std::move(problems).sorted();
  settle_together(scenario, tables, rollout, switches);
  if (problems.any()) return std::move(problems).sorted();
  return scenario;
}

}  // namespace

std::variant<Scenario, std::vector<Problem>> scenario_or_problems(const TomlTable& document,
                                                                  const std::filesystem::path& file,
                                                                  const ScenarioFolders& folders,
                                                                  const ScenarioFiles& read_before) {
  return judged(document, file, folders, read_before, Judged::Together);
}

std::vector<Problem> problems_of_keys(const TomlTable& document, const std::filesystem::path& file,
                                      const ScenarioFolders& folders, const ScenarioFiles& read_before) {
  return std::get<std::vector<Problem>>(judged(document, file, folders, read_before, Judged::KeyByKey));
}

Scenario scenario_of(const TomlTable& document, const std::filesystem::path& file, const ScenarioFolders& folders,
                     const ScenarioFiles& read_before) {
  auto read = scenario_or_problems(document, file, folders, read_before);
  if (auto* wrong = std::get_if<std::vector<Problem>>(&read)) throw InputError(std::move(*wrong));
  return std::get<Scenario>(std::move(read));
}

Scenario parse_scenario(std::string_view text, const std::filesystem::path& file, const ScenarioFolders& folders) {
  return scenario_of(parse_toml(text, file.string()), file, folders);
}

std::vector<std::filesystem::path> files_named(const TomlTable& document, const ScenarioFolders& folders) {
  std::vector<std::filesystem::path> found;
  for (const auto& [key, name] : names_of_files(document))
    if (std::optional<std::filesystem::path> file = file_behind(key, *name, folders)) found.push_back(*std::move(file));
  return found;
}

ScenarioFiles files_of(const TomlTable& document, const std::filesystem::path& file, const ScenarioFolders& folders) {
  Problems problems(file.string());
  TomlReader top(&document, {}, "", problems);
  ScenarioFiles files;
  add_files_of(document, folders, files);
  const auto parse = [](const std::string& text, const std::filesystem::path& path) { return parse_model(text, path); };
  const std::optional<Model> model = read_named_file(top, "model", folders, problems, files.texts, files.models, parse);
  const std::optional<Cluster> cluster =
      read_named_file(top, "cluster", folders, problems, files.texts, files.clusters, parse_cluster);
  problems.raise_if_any();
  files.models.emplace(*top.string("model"), *model);
  files.clusters.emplace(*top.string("cluster"), *cluster);
  return files;
}

void add_files_of(const TomlTable& document, const ScenarioFolders& folders, ScenarioFiles& files) {
  for (const auto& [key, name] : names_of_files(document)) {
    if (files.texts.contains(*name)) continue;
    try {
      if (auto file = read_named(key, *name, folders)) files.texts.emplace(*name, *std::move(file));
    } catch (const InputError&) {
      // Too large, or not to be read: its scenarios say so.
    }
  }
}

Scenario read_scenario(const std::filesystem::path& path, const std::filesystem::path& data_root) {
  return parse_scenario(read_text(path), path, {path.parent_path(), data_root});
}

}  // namespace tidemark::scenarios
