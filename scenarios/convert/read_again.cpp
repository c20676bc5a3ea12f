#include "scenarios/convert/read_again.hpp"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "parallel/job/stages.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/frameworks/megatron/megatron_switches.hpp"
#include "scenarios/frameworks/pytorch/pytorch_switches.hpp"
#include "scenarios/frameworks/torchtitan/titan_switches.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/scenario/cpu_offload.hpp"
#include "scenarios/scenario/names.hpp"
#include "scenarios/scenario/zero_keys.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

std::string_view ending(Dialect dialect) {
  switch (dialect) {
    case Dialect::Megatron:
      return ".sh";
    case Dialect::Accelerate:
      return ".yaml";
    case Dialect::DeepSpeed:
    case Dialect::TrainingArguments:
      return ".json";
    case Dialect::Scenario:
    case Dialect::TorchTitan:
      break;
  }
  return ".toml";
}

/// Keys that a dialect leaves to the command line of the script, whatever they say.
std::vector<std::string_view> beside_of(Dialect dialect) {
  switch (dialect) {
    case Dialect::DeepSpeed:
      return {"model", "gpus", "train.sequence_length"};
    case Dialect::Accelerate:
      return {"model", "train.sequence_length", "train.micro_batch", "train.global_batch"};
    case Dialect::TrainingArguments:
      return {"model", "gpus", "train.sequence_length"};
    case Dialect::TorchTitan:
      return {"gpus"};
    case Dialect::Scenario:
    case Dialect::Megatron:
      break;
  }
  return {};
}

/// Why a key has no word there.
struct Reason {
  std::string_view path, why;
};
constexpr std::array reasons{
    Reason{"runtime.versions", "which releases run is a matter of what is installed"},
    Reason{"runtime.headroom", "is asked of Tidemark"},
    Reason{"train.steps", "is asked of Tidemark"},
    Reason{"run.", "how long a run is and what it costs changes neither its memory nor its step"},
    Reason{"moe.imbalance", "how tokens choose experts is expected, not asked for"},
    Reason{"moe.quantile", "how tokens choose experts is expected, not asked for"},
    Reason{"runtime.name", "this is another framework"},
    Reason{"runtime.switches.check_for_nan_in_", "one flag asks for both checks, --no-check-for-nan-in-loss-and-grad"},
    Reason{"runtime.switches", "is a switch of the scenario's own runtime"},
};

// One entry for each key, but for those of lists.
void flatten(const Json& value, const std::string& path, std::map<std::string, std::string>& out) {
  if (!value.is_object()) {
    out[path] = value.dump();
    return;
  }
  for (const auto& [key, inner] : value.items()) flatten(inner, path.empty() ? key : path + '.' + key, out);
}

/// A value, and the key by its own framework's name.
struct Said {
  std::string key, value;
};
using Keys = std::map<std::string, Said>;

// Whether it says what is so without it.
bool is_usual_queue(Scenario scenario) {
  const LaunchQueue requested = launch_queue_of(scenario);
  scenario.runtime.launch_queue.connections.reset();
  return requested == launch_queue_of(scenario);
}

Keys keys_of(const Scenario& scenario, bool in_launch_line) {
  std::map<std::string, std::string> flat;
  flatten(Json::parse(scenario_json(scenario, -1)), "", flat);
  Keys keys;
  for (auto& [key, value] : flat) keys[key] = {key, std::move(value)};
  const bool usual_queue = is_usual_queue(scenario);
  std::erase_if(keys, [&](const auto& entry) {
    const std::string& key = entry.first;
    return (usual_queue && key == "runtime.environment.CUDA_DEVICE_MAX_CONNECTIONS") || key == "name" ||
           key.starts_with("cluster.") || key == "model.name" || key == "model.model_type" || key == "layout.data" ||
           (in_launch_line && (key.starts_with("runtime.environment.") || key == "runtime.allocator")) ||
           (key == "model.max_position_embeddings" && scenario.model.positions != Positions::Learned);
  });
  return keys;
}

constexpr std::string_view switches = "runtime.switches.", largest_norm = "runtime.switches.max_grad_norm";

std::string as_text(const auto& value) { return Json(value).dump(); }

// Of where things are on the host, [offload] says what DeepSpeed's own keys say again.
void put_offload_alike(Keys& keys) {
  const std::string of_optimizer = fmt::format("{}offload_optimizer.", switches),
                    of_parameters = fmt::format("{}offload_param.", switches),
                    pins = fmt::format("{}pin_memory", switches), fraction = "offload.optimizer_fraction";
  const auto rename = [&](const std::string& from, const std::string& to) {
    auto its = keys.extract(from);
    if (its.empty()) return;
    its.key() = to;
    keys.insert(std::move(its));
  };
  keys.erase(of_optimizer + "device"), keys.erase(of_parameters + "device");
  rename(of_optimizer + "pin_memory", pins);
  if (!keys.contains(pins))
    rename(of_parameters + "pin_memory", pins);
  else if (const auto its = keys.find(of_parameters + "pin_memory"); its != keys.end())
    if (its->second.value == keys.at(pins).value) keys.erase(its);
  rename(of_optimizer + "ratio", fraction);
  if (const auto its = keys.find(fraction); its != keys.end() && its->second.value == as_text(1.0)) keys.erase(its);
  for (const char* key : {"offload.optimizer", "offload.parameters", "offload.activations"})
    keys.try_emplace(key, Said{key, as_text("none")});
}

// What two frameworks have other words for gets one.
void put_alike(Keys& keys, const Scenario& s) {
  const RuntimeKind& kind = runtime_kind(s.runtime.name);
  const auto rename = [&](std::string_view from, std::string_view to) {
    auto its = keys.extract(fmt::format("{}{}", switches, from));
    if (its.empty()) return;
    its.key() = to;
    keys.insert(std::move(its));
  };
  rename("gradient_clipping", largest_norm);
  // Both always clip; to which norm is nothing that is simulated.
  if (kind.id == RuntimeId::Megatron || kind.id == RuntimeId::TorchTitan)
    keys.try_emplace(std::string(largest_norm), Said{std::string(largest_norm), as_text(1.0)});
  rename("mixed_precision_reduce", fmt::format("{}reduce_dtype", switches));
  if (kind.eager()) {
    const std::string kernels = fmt::format("{}implementation", switches);
    for (const char* key : {"foreach", "fused"}) keys.erase(fmt::format("{}{}", switches, key));
    keys[kernels] = {kernels, as_text(word(optimizer_kernel_names, s.runtime.eager.optimizer))};
  }
  // Layer by layer, as all but Megatron do.
  if (s.train.recompute.method == RecomputeMethod::Uniform && s.train.recompute.layers == 1)
    keys.erase("train.recompute_method"), keys.erase("train.recompute_layers");
  if (s.layout.pipeline > 1) {
    std::vector<std::int32_t> layers;
    for (const Stage& stage : split_into_stages(static_cast<std::int32_t>(s.model.layers.size()), s.layout))
      layers.push_back(stage.layers());
    for (const char* key : {"count_embedding", "count_loss", "first_stage_layers", "last_stage_layers"})
      keys.erase(fmt::format("layout.{}", key));
    keys["layout.stage_layers"] = {"layout.stage_layers", as_text(layers)};
  }
  put_offload_alike(keys);
}

/// The keys of two frameworks under one name where they mean the same, and which of them are as they are left out.
struct Alike {
  Keys keys, usual;
  [[nodiscard]] bool leaves_out(const std::string& key) const {
    const auto its = keys.find(key), left_out = usual.find(key);
    if (its == keys.end()) return true;
    if (key == "train.attention") return its->second.value == as_text("auto");
    return key.starts_with(switches) && key != largest_norm && left_out != usual.end() &&
           left_out->second.value == its->second.value;
  }
};

Alike alike(const Scenario& scenario, bool in_launch_line) {
  Alike made{keys_of(scenario, in_launch_line), {}};
  Scenario usual = scenario;
  usual.runtime = usual_runtime(scenario);
  made.usual = keys_of(usual, in_launch_line);
  put_alike(made.keys, scenario), put_alike(made.usual, usual);
  return made;
}

}  // namespace

RuntimeChoice usual_runtime(const Scenario& scenario) {
  const RuntimeKind& kind = runtime_kind(scenario.runtime.name);
  const ZeroBehavior& zero = scenario.runtime.eager.zero;
  const CpuOffload hosts = cpu_offload(scenario.runtime);
  const bool deepspeed = kind.id == RuntimeId::DeepSpeed;
  const OffloadRequest offloaded{.parameters = deepspeed ? hosts.optimizer && !zero.cpu_adam : hosts.parameters,
                                 .activations = hosts.activations,
                                 .optimizer = scenario.runtime.optimizer.offloaded};
  const TomlTable nothing;
  Problems problems({});
  TomlReader none(&nothing, {}, {}, problems);
  RuntimeChoice usual;
  usual.name = scenario.runtime.name;
  usual.versions = scenario.runtime.versions;
  if (!kind.eager()) {
    read_own_switches(none, usual);
    usual.optimizer.offloaded = offloaded.optimizer;
    return usual;
  }
  const DType computed = scenario.train.precision;
  usual.eager = kind.id == RuntimeId::TorchTitan ? read_titan_switches(none, offloaded)
                                                 : read_pytorch_switches(none, kind, offloaded);
  usual.eager.flat.param_dtype = usual.eager.flat.reduce_dtype = computed;
  if (!deepspeed) return usual;
  ZeroKeys keys;
  if (hosts.optimizer) keys.optimizer.place = zero.nvme.optimizer ? OffloadPlace::Nvme : OffloadPlace::Cpu;
  if (hosts.parameters) keys.parameters.place = zero.nvme.parameters ? OffloadPlace::Nvme : OffloadPlace::Cpu;
  usual.eager.zero = behavior_of(keys, scenario.layout.sharding == Sharding::Zero3, computed);
  return usual;
}

std::vector<Remark> differences(const Scenario& scenario, Dialect dialect, const std::string& text,
                                const Beside& beside) {
  const std::vector<std::string_view> aside = beside_of(dialect);
  const auto is_aside = [&](std::string_view key) { return std::ranges::find(aside, key) != aside.end(); };
  const bool in_launch_line = dialect != Dialect::Megatron;  // variables of the environment
  Alike ours{keys_of(scenario, in_launch_line), {}}, theirs;
  std::vector<Remark> remarks;
  const auto remark = [&](std::string what, std::string why) {
    remarks.push_back({RemarkKind::NotExpressed, {}, {}, std::move(what), std::move(why)});
  };

  const std::filesystem::path file = scenario.name + std::string(ending(dialect));
  ConvertRequest requested{.files = {file},
                           .texts = {{file, text}},
                           .variables = {},
                           .model = {},
                           .cluster = beside.cluster,
                           .gpus = {},
                           .sequence_length = {},
                           .micro_batch = {},
                           .global_batch = {},
                           .data_root = beside.data_root};
  bool names_model = is_aside("model") || (dialect == Dialect::TorchTitan && text.find("flavor") == std::string::npos);
  if (names_model) requested.model = beside.model;
  if (is_aside("gpus")) requested.gpus = scenario.gpus;
  if (is_aside("train.sequence_length")) requested.sequence_length = scenario.train.sequence_length;
  if (is_aside("train.micro_batch")) requested.micro_batch = scenario.train.micro_batch;
  if (is_aside("train.global_batch")) requested.global_batch = scenario.train.global_batch;
  const auto read_back = [&] {
    const Converted again = convert(requested);
    return scenario_or_problems(again.document, file, {file.parent_path(), beside.data_root}, {});
  };
  auto read = read_back();
  bool untold_model = false;
  // A model that no flags describe is told as that; all else is compared beside it.
  if (const auto* problems = std::get_if<std::vector<Problem>>(&read);
      problems != nullptr && !names_model &&
      std::ranges::any_of(*problems, [](const Problem& its) { return its.message == "model is missing"; })) {
    remark(fmt::format("model = {}", beside.model),
           fmt::format("{} has no flags for all of it: what was written is of another model", name(dialect)));
    names_model = untold_model = true;
    requested.model = beside.model;
    read = read_back();
  }
  if (const auto* found = std::get_if<Scenario>(&read)) {
    if (found->runtime.name == scenario.runtime.name)
      theirs.keys = keys_of(*found, in_launch_line);
    else
      ours = alike(scenario, in_launch_line), theirs = alike(*found, in_launch_line);
  } else {
    for (const Problem& problem : std::get<std::vector<Problem>>(read)) remark(problem.message, problem.hint);
  }

  const auto said_beside = [&](std::string what) {
    remarks.push_back(
        {RemarkKind::Beside, {}, {}, std::move(what), "an argument of the script, or of what launches it"});
  };
  if (names_model && !untold_model) said_beside(fmt::format("model = {}", beside.model));
  for (const std::string_view key : aside)
    if (key != "model" && key != "gpus") said_beside(fmt::format("{} = {}", key, ours.keys.at(std::string(key)).value));
  if (theirs.keys.empty()) return remarks;
  // Of two frameworks, what each leaves to itself is no difference.
  const bool others = !theirs.usual.empty();
  const auto is_usual = [&](const std::string& key) {
    if (!others) return false;
    const bool here = ours.leaves_out(key), there = theirs.leaves_out(key);
    return key == "train.attention" ? here || there : here && there;
  };
  for (const auto& [key, said] : ours.keys) {
    const auto found = theirs.keys.find(key);
    if (found != theirs.keys.end() && found->second.value == said.value) continue;
    if ((names_model && key.starts_with("model.")) || is_usual(key)) continue;
    const auto* reason = std::ranges::find_if(reasons, [&](const Reason& r) { return key.starts_with(r.path); });
    const std::string other =
        found == theirs.keys.end() ? "it has no such key" : fmt::format("it comes back as {}", found->second.value);
    remark(fmt::format("{} = {}", said.key, said.value),
           reason == reasons.end() ? other : fmt::format("{} ({})", reason->why, other));
  }
  for (const auto& [key, said] : theirs.keys)
    if (!ours.keys.contains(key) && !is_usual(key) && !(names_model && key.starts_with("model.")))
      remark(fmt::format("{} left out", said.key), fmt::format("it comes back as {}", said.value));
  return remarks;
}

}  // namespace tidemark::scenarios
