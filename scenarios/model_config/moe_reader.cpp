#include "scenarios/model_config/moe_reader.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "parallel/job/mesh.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/version_text.hpp"
#include "scenarios/model_config/hub_experts.hpp"
#include "scenarios/model_config/loads_reader.hpp"
#include "scenarios/scenario/named_files.hpp"
#include "scenarios/scenario/names.hpp"
#include "topology/deep_ep_memory.hpp"

namespace tidemark::scenarios {
namespace {

constexpr Ratio one{std::int64_t{1'000'000}}, thousandth{std::int64_t{1'000}}, most_times{std::int64_t{1'000'000'000}};

// Beyond it the last of some hundred experts would get less than a millionth of what the first gets, which is what
// weights tell apart.
constexpr Ratio steepest_zipf{std::int64_t{2'500'000}};
constexpr Ratio half{std::int64_t{500'000}}, nearly_one{std::int64_t{999'999}}, usual_quantile{std::int64_t{999'000}};
constexpr IntegerRange seeds{0, std::numeric_limits<std::int64_t>::max()};

// Of a distribution: its name, its parameter, and a seed.
ExpertLoads read_distribution(TomlReader table) {
  const std::optional<Ratio> zipf = table.ratio("zipf", Ratio{}, steepest_zipf),
                             dirichlet = table.ratio("dirichlet", thousandth, most_times);
  const auto seed = static_cast<std::uint64_t>(table.integer("seed", seeds).value_or(0));
  if (table.has("zipf") == table.has("dirichlet"))
    table.problem(table.has("zipf") ? "dirichlet" : "seed", "imbalance takes one distribution",
                  "such as { zipf = 0.5, seed = 1 } or { dirichlet = 20, seed = 1 }");
  table.refuse_unknown_keys();
  if (zipf) return ZipfLoads{as_double(*zipf), seed};
  return DirichletLoads{as_double(dirichlet.value_or(one)), seed};
}

ExpertLoads read_file(TomlReader& table, const std::string& name, const Model* model, const LoadsFiles& files) {
  const auto before = files.read_before.texts.find(name);
  const bool known = before != files.read_before.texts.end();
  const std::optional<std::filesystem::path> path = known ? before->second.path : resolved(name, files.folders);
  if (!path) {
    const std::string near = near_file(name, files.folders);
    table.problem("imbalance",
                  fmt::format("imbalance = {} is neither \"{}\" nor a file in the scenario's folder or the data root",
                              in_quotes(name), equal_loads),
                  near.empty() ? "\"uniform\", a factor such as 1.2 or { zipf = 0.5, seed = 1 } would do, too"
                               : fmt::format("did you mean {}?", in_quotes(near)));
    return {};
  }
  if (model == nullptr || !model->experts()) return {};
  try {
    ListedLoads loads = parse_loads(known ? before->second.text : read_text(*path), *path, *model);
    loads.file = name;
    return loads;
  } catch (const InputError& error) {
    files.problems.add(error);
    table.refuse_to_judge("imbalance");
    return {};
  }
}

ExpertLoads read_loads(TomlReader& table, const Model* model, const LoadsFiles& files) {
  const TomlValue* const given = table.raw("imbalance");
  if (given == nullptr) return EqualLoads{};
  if (const auto* const name = std::get_if<std::string>(&given->value))
    return *name == equal_loads ? EqualLoads{} : read_file(table, *name, model, files);
  if (std::holds_alternative<TomlTable>(given->value)) return read_distribution(table.table("imbalance"));
  const Ratio factor = table.ratio("imbalance", one, most_times).value_or(one);
  if (factor == one) return EqualLoads{};
  return LoadOfOneRank{as_double(factor)};
}

// Each token chooses an expert once: a rank gets as many choices as there are tokens for each of its experts, and all
// that there are at most. Whether experts are chosen by groups, or drop tokens, changes neither.
void check_one_rank(const Scenario& scenario, ScenarioTables& tables) {
  const Experts& experts = *scenario.model.experts();
  const auto* const one_rank = std::get_if<LoadOfOneRank>(&scenario.train.routing.loads);
  const std::int64_t ranks = scenario.layout.expert;
  if (one_rank == nullptr || ranks == 1 || experts.count % ranks != 0 || !tables.moe.sound("imbalance")) return;
  const std::int64_t given = std::llround(one_rank->factor * static_cast<double>(one.count())),
                     by_tokens = one.count() * experts.count / experts.chosen, by_ranks = one.count() * ranks;
  if (given <= std::min(by_tokens, by_ranks)) return;
  const auto most = static_cast<double>(std::min(by_tokens, by_ranks)) / static_cast<double>(one.count());
  tables.moe.problem(
      "imbalance",
      fmt::format("imbalance = {:.9g}: a rank with {} of {} experts gets at most {:.9g} times its equal share",
                  one_rank->factor, experts.count / ranks, experts.count, most),
      by_tokens < by_ranks
          ? fmt::format("at most {:.9g} would do: a token goes to an expert once, and chooses {} of {}", most,
                        experts.chosen, experts.count)
          : fmt::format("less than {:.9g} would do: that is all choices, which leaves none to the other ranks", most));
}

// PyTorch allocates nothing for tensors without rows, which programs do not say yet.
void check_rows(const Scenario& scenario, std::int64_t tokens, ScenarioTables& tables) {
  const Model& model = scenario.model;
  for (std::int64_t i = 0; i < model.all_layers(); ++i) {
    if (!model.has_experts(i)) continue;
    const auto layer = static_cast<std::int32_t>(i);
    const LayerRouting routing(model, scenario.train.routing, layer, tokens, scenario.layout.expert);
    for (std::int32_t rank = 0; rank < scenario.layout.expert; ++rank) {
      const std::vector<std::int64_t> rows = routing.received(rank, 1);
      if (std::ranges::any_of(rows, [](std::int64_t count) { return count > 0; })) continue;
      tables.layout.problem("expert",
                            fmt::format("of a rank's {} tokens, none reach the experts of rank {} of {} in layer {}",
                                        tokens, rank, scenario.layout.expert, layer),
                            "fewer ranks, more tokens or less uneven loads would do");
      return;
    }
    if (alike_in_all_layers(scenario.train.routing.loads)) return;
  }
}

}  // namespace

ExpertRouting read_routing(TomlReader& table, const Model* model, const LoadsFiles& files) {
  ExpertRouting routing;
  routing.dispatcher = read_name(table, "dispatcher", dispatcher_names).value_or(TokenDispatcher::AllToAll);
  if (const std::optional<Ratio> given = table.ratio("capacity_factor", Ratio{}, most_times)) {
    routing.capacity_factor = as_double(*given);
    if (*given == Ratio{})
      table.problem("capacity_factor", "capacity_factor = 0: experts would take no tokens",
                    "leave it out, so that no token is dropped");
  }
  routing.pads_to_capacity = table.boolean("pad_to_capacity").value_or(false);
  if (routing.pads_to_capacity && table.sound("capacity_factor") && routing.capacity_factor == 0)
    table.problem("pad_to_capacity", "pad_to_capacity = true: the number of tokens per expert is not given",
                  "capacity_factor = 1.0 would");
  routing.loads = read_loads(table, model, files);
  routing.quantile = as_double(table.ratio("quantile", half, nearly_one).value_or(usual_quantile));
  if (table.has("quantile") && !left_to_tokens(routing))
    table.problem("quantile",
                  "quantile says how many tokens to expect beyond what is stated, and pad_to_capacity fixes it",
                  "leave it out");
  table.refuse_unknown_keys();
  return routing;
}

namespace {

constexpr std::string_view balancing_switch = "moe-router-load-balancing-type",
                           coefficient_switch = "moe-aux-loss-coeff", processors_switch = "moe-deepep-num-sms";

// The names of a switch that takes one or several; Megatron's own default where it is left out or wrong.
std::vector<LoadBalancing> read_balancing(TomlReader& switches, bool& several) {
  static constexpr std::string_view none = "none";
  const TomlValue* const given = switches.raw(balancing_switch);
  if (given == nullptr) return {LoadBalancing::Loss};
  const auto* const list = std::get_if<std::vector<TomlValue>>(&given->value);
  several = list != nullptr && list->size() > 1;
  std::vector<LoadBalancing> kinds;
  for (const TomlValue& entry : list != nullptr ? *list : std::vector{*given}) {
    const auto* const name = std::get_if<std::string>(&entry.value);
    if (name != nullptr && *name == none && !several) continue;
    const auto is_it = [&](std::string_view its) { return name != nullptr && *name == its; };
    const auto* const named = std::ranges::find_if(load_balancing_names, is_it, &Named<LoadBalancing>::text);
    if (named != load_balancing_names.end() && !(several && named->value == LoadBalancing::Sinkhorn)) {
      kinds.push_back(named->value);
      continue;
    }
    std::vector<std::string> all;
    for (const Named<LoadBalancing>& its : load_balancing_names)
      if (!several || its.value != LoadBalancing::Sinkhorn) all.push_back(in_quotes(its.text));
    if (!several) all.push_back(in_quotes(none));
    switches.problem(balancing_switch,
                     fmt::format("{} = {}: {} is not {}", balancing_switch, text(*given), text(entry),
                                 several ? "one of several auxiliary losses" : "known"),
                     one_of(all) + " would do");
    return {};
  }
  return kinds;
}

// arguments.py: a coefficient for each loss, which counts nothing where it is left out.
std::vector<double> read_coefficients(TomlReader& switches, std::size_t count) {
  const TomlValue* const given = switches.raw(coefficient_switch);
  const auto* const list = given != nullptr ? std::get_if<std::vector<TomlValue>>(&given->value) : nullptr;
  if (list == nullptr || (list->size() == 1 && count == 1)) {
    if (count > 1) {
      switches.problem(given != nullptr ? coefficient_switch : balancing_switch,
                       fmt::format("{} takes a coefficient for each of {} losses", coefficient_switch, count),
                       "such as [0.01, 0.01]");
      return std::vector<double>(count);
    }
    if (list == nullptr) return {as_double(switches.ratio(coefficient_switch, Ratio{}, most_times).value_or(Ratio{}))};
  }
  std::vector<double> found;
  for (const TomlValue& entry : *list) {
    const auto* const whole = std::get_if<std::int64_t>(&entry.value);
    const auto* const number = std::get_if<double>(&entry.value);
    const double value = whole != nullptr ? static_cast<double>(*whole) : number != nullptr ? *number : -1;
    if (!(value >= 0 && value <= as_double(most_times)))
      switches.problem(coefficient_switch,
                       fmt::format("{} = {}: {} is not a coefficient", coefficient_switch, text(*given), text(entry)),
                       "0 to 1000 would do");
    found.push_back(value);
  }
  if (found.size() != count) {
    switches.problem(
        coefficient_switch,
        fmt::format("{} has {} coefficients, and there is one for each loss", coefficient_switch, found.size()),
        fmt::format("a list as long as that of {} would do", balancing_switch));
    found.resize(count);
  }
  return found;
}

}  // namespace

ExpertBehavior read_expert_behavior(TomlReader& switches) {
  static constexpr auto router_types = std::to_array<Option>({{"fp32"}, {"fp64"}});
  static constexpr std::array router_dtypes{DType::FP32, DType::FP64};
  ExpertBehavior behavior;
  behavior.grouped_linears = switches.boolean("moe-grouped-gemm").value_or(true);
  behavior.fused_permutation = switches.boolean("moe-permute-fusion").value_or(false);
  if (const std::optional<std::size_t> type = switches.option("moe-router-dtype", router_types))
    behavior.router_type = router_dtypes.at(*type);
  static constexpr IntegerRange processors{2, 256};
  behavior.exchange_processors =
      static_cast<std::int32_t>(switches.integer(processors_switch, processors).value_or(behavior.exchange_processors));
  if (behavior.exchange_processors % 2 != 0)
    switches.problem(processors_switch,
                     fmt::format("{} = {}: DeepEP's channels take two multiprocessors each", processors_switch,
                                 behavior.exchange_processors),
                     "an even number would do");
  bool several = false;
  const std::vector<LoadBalancing> kinds = read_balancing(switches, several);
  const bool sinkhorn = !kinds.empty() && kinds.front() == LoadBalancing::Sinkhorn;
  const std::vector<double> coefficients =
      read_coefficients(switches, several && !kinds.empty() ? kinds.size() : std::size_t{1});
  // router.py apply_z_loss: computed whatever it counts, once it is given.
  if (const std::optional<Ratio> given = switches.ratio("moe-z-loss-coeff", Ratio{}, most_times))
    behavior.z_loss = as_double(*given);
  std::vector<std::pair<LoadBalancing, double>> counting;
  for (std::size_t i = 0; i < kinds.size(); ++i)
    if (sinkhorn || coefficients.at(i) > 0) counting.emplace_back(kinds[i], coefficients.at(i));
  std::ranges::sort(counting);
  for (const auto& [kind, coefficient] : counting) {
    behavior.balancing.push_back(kind);
    if (!sinkhorn) behavior.loss_coefficients.push_back(coefficient);
  }
  if (std::ranges::adjacent_find(behavior.balancing) != behavior.balancing.end())
    switches.problem(balancing_switch, fmt::format("{} names a loss twice", balancing_switch), "once would do");
  if (sinkhorn && coefficients.front() > 0)
    switches.problem(coefficient_switch, "Sinkhorn routing has no auxiliary loss", "leave it out");
  return behavior;
}

namespace {

// What Megatron-LM has kernels for: core/transformer/mlp.py, moe/experts.py, moe/router.py,
// models/gpt/moe_module_specs.py.
void check_kernels(const Scenario& scenario, ScenarioTables& tables) {
  const Model& model = scenario.model;
  const ExpertBehavior& behavior = scenario.runtime.experts;
  if (model.activation != Activation::SwiGlu && scenario.runtime.bias_gelu_fusion)
    tables.top.problem("model", "experts' fused activation is SwiGLU, and this model has another one",
                       "no-bias-gelu-fusion = true in [runtime.switches]");
  if (scenario.train.attention == AttentionKernel::Local && behavior.grouped_linears)
    tables.train.problem("attention",
                         not_modelled("attention = \"local\": grouped linears of Megatron's own are not modelled"),
                         "moe-grouped-gemm = false in [runtime.switches]");
  if (scenario.train.recompute.selects(RecomputedModule::ExpertActivation) && !behavior.grouped_linears)
    tables.train.problem("recompute_modules", "moe_act: experts' activations run again with grouped linears only",
                         "leave moe-grouped-gemm out");
  if (model.experts()->biases && !behavior.grouped_linears)
    tables.top.problem("model", "experts with biases are modelled with grouped linears only",
                       "leave moe-grouped-gemm out");
  if (model.experts()->clamped_gate && !scenario.runtime.bias_swiglu_fusion)
    tables.top.problem("model", "gates within limits are modelled in one kernel only",
                       "leave no-bias-swiglu-fusion out");
  if (behavior.router_type == DType::FP64 && scenario.cluster.device.peak.fp64 == OperationRate{})
    tables.runtime.problem("switches",
                           fmt::format("moe-router-dtype = \"fp64\": the cluster file does not say how fast {} "
                                       "multiplies in fp64",
                                       scenario.cluster.device.name),
                           "fp64 in its [device.peak]");
  // moe/router.py _apply_global_aux_loss is there from 0.15 on, several losses from 0.14.
  if (behavior.balances_by(LoadBalancing::GlobalLoss) && scenario.runtime.versions.megatron < Version{0, 15})
    tables.runtime.problem("switches",
                           fmt::format("{} = \"global_aux_loss\": Megatron-LM core {} has no such loss",
                                       balancing_switch, text(scenario.runtime.versions.megatron)),
                           "megatron = \"0.15\" in [runtime.versions], or \"aux_loss\"");
  if (behavior.balancing.size() > 1 && scenario.runtime.versions.megatron < Version{0, 14})
    tables.runtime.problem("switches",
                           fmt::format("{}: Megatron-LM core {} takes one loss only", balancing_switch,
                                       text(scenario.runtime.versions.megatron)),
                           "megatron = \"0.14\" in [runtime.versions], or one of them");
  if (model.experts()->chosen == 1 && model.experts()->score == RouterScore::Softmax &&
      !behavior.balances_by(LoadBalancing::Sinkhorn))
    tables.top.problem("model", "softmax over the one expert that is chosen is 1 whatever the router says",
                       "moe-router-load-balancing-type = \"sinkhorn\" in [runtime.switches]");
}

// core/transformer/moe/token_dispatcher.py MoEFlexTokenDispatcher, and what DeepEP's kernels take (deep_ep/buffer.py,
// csrc/kernels/launch.cuh).
void check_flex(const Scenario& scenario, ScenarioTables& tables) {
  const Layout& layout = scenario.layout;
  const ExpertRouting& routing = scenario.train.routing;
  const Version core = scenario.runtime.versions.megatron;
  const auto refuse = [&](const ProblemText& what, const std::string& hint) {
    tables.moe.problem("dispatcher", ProblemText("dispatcher = \"flex\": " + what.text, what.kind), hint);
  };
  const std::string other = "\"alltoall\" would do";
  if (core < Version{0, 14} || core > Version{0, 17})
    refuse(fmt::format("it is modelled as Megatron-LM core 0.14 to 0.17 have it, not {}", text(core)),
           "megatron = \"0.14\" in [runtime.versions], or \"alltoall\"");
  if (scenario.train.precision != DType::BF16)
    refuse("DeepEP's kernels sum bf16 only", "precision = \"bf16\" in [train], or \"alltoall\"");
  if (routing.pads_to_capacity)
    refuse("Megatron does not pad experts to their capacity with it", "leave pad_to_capacity out, or \"alltoall\"");
  else if (routing.capacity_factor > 0)
    refuse(not_modelled("dropped tokens are not modelled with it yet"), "leave capacity_factor out, or \"alltoall\"");
  if (scenario.model.experts()->groups > 0 && !std::holds_alternative<EqualLoads>(routing.loads))
    refuse("which experts tokens choose together is found for equal loads only where they choose by groups",
           "imbalance = \"uniform\", or \"alltoall\"");
  if (scenario.runtime.experts.balances_by(LoadBalancing::Sinkhorn))
    refuse(not_modelled("Sinkhorn routing is not modelled with it yet"), other);
  const std::int32_t within = layout.expert_tensor_parallel(), ranks = layout.expert * within;
  if (ranks == 1) {
    refuse("Megatron has it for experts of several ranks", "expert = 2 in [layout], or \"alltoall\"");
    return;
  }
  const std::span<const std::int32_t> groups = topology::deep_ep_groups();
  if (std::ranges::find(groups, ranks) == groups.end()) {
    std::vector<std::string> those;
    for (const std::int32_t group : groups) those.push_back(std::to_string(group));
    refuse(fmt::format("DeepEP has no configuration for {} ranks", ranks), one_of(those) + " would do");
    return;
  }
  if (8 % within != 0) {
    refuse(fmt::format("expert_tensor = {} does not divide the eight ranks that DeepEP assumes per node", within),
           "1, 2, 4 or 8 would do");
    return;
  }
  // Eight ranks, or the whole group, reach each other by NVLink.
  const std::int32_t devices = scenario.cluster.node.devices, together = std::min(ranks, 8);
  const Mesh mesh = expert_mesh(layout);
  const std::int32_t apart =
      (within - 1) * mesh.along(axis::etp).stride + (together / within - 1) * mesh.along(axis::ep).stride;
  if (apart >= devices || devices % together != 0)
    refuse(fmt::format("DeepEP assumes that {} consecutive ranks share a node, which has {}", together, devices),
           "an order in which they lie together, or \"alltoall\"");
}

}  // namespace

namespace {

// torchtitan's: distributed/parallel_dims.py, and llama4/infra/parallelize.py apply_fsdp.
void check_shared_out(const Scenario& scenario, ScenarioTables& tables) {
  const Layout& layout = scenario.layout;
  const std::int64_t count = scenario.model.experts()->count;
  const std::int32_t parts = layout.expert_tensor_parallel(), shards = layout.shards() * layout.tensor / parts;
  if (layout.expert == 1 || !tables.layout.sound("expert")) return;
  std::vector<std::string> degrees;  // that do
  for (std::int64_t degree = 1; degree <= count; ++degree)
    if (count % degree == 0 && shards % degree == 0) degrees.push_back(std::to_string(degree));
  const std::string those = one_of(degrees) + " would";
  if (count % layout.expert != 0)
    tables.layout.problem("expert", fmt::format("expert = {} does not divide {} experts", layout.expert, count), those);
  else if (shards % layout.expert != 0)
    tables.layout.problem(
        "expert",
        fmt::format("expert = {} does not divide the {} ranks that share out parameters", layout.expert, shards),
        those);
  else if (shards > count)
    tables.layout.problem(
        "expert",
        not_modelled(fmt::format("expert = {}: of {} experts and {} ranks that share out parameters, torchtitan "
                                 "cuts weights along another dimension, which is not modelled yet",
                                 layout.expert, count, shards)),
        count * parts < layout.tensor
            ? std::string("expert = 1")
            : fmt::format("shard_group = {}, or less, or expert = 1", count * parts / layout.tensor));
  else {
    check_one_rank(scenario, tables);
    if (scenario.train.tokens() * parts >= layout.tensor && tables.moe.sound("imbalance"))
      check_rows(scenario, scenario.train.tokens() * parts / layout.tensor, tables);
  }
}

// How experts are cut and spread over ranks.
void check_expert_ranks(const Experts& experts, const Layout& layout, ScenarioTables& tables) {
  const std::int32_t ranks = layout.tensor * layout.context * layout.data, within = layout.expert_tensor_parallel();
  std::vector<std::string> degrees;  // that do
  for (std::int64_t degree = 1; degree <= experts.count; ++degree)
    if (experts.count % degree == 0 && ranks % (degree * within) == 0) degrees.push_back(std::to_string(degree));
  const std::string those = degrees.empty() ? std::string() : one_of(degrees) + " would";
  if (experts.count % layout.expert != 0)
    tables.layout.problem("expert", fmt::format("expert = {} does not divide {} experts", layout.expert, experts.count),
                          those);
  const char* const degree = layout.expert_tensor > 0 ? "expert_tensor" : "tensor";
  if (experts.ffn % within != 0)
    tables.layout.problem(degree,
                          fmt::format("{} = {} does not divide experts' width of {}", degree, within, experts.ffn),
                          "expert_tensor = 1 would do");
  else if (ranks % (layout.expert * within) != 0)
    tables.layout.problem(
        "expert",
        within == 1 ? fmt::format("expert = {} does not divide tensor x context x data = {}", layout.expert, ranks)
                    : fmt::format("expert = {} x expert_tensor = {} does not divide tensor x context "
                                  "x data = {}",
                                  layout.expert, within, ranks),
        within == 1 ? those : "expert_tensor = 1 would leave more ranks");
  if (experts.biases && within > 1)
    tables.layout.problem(degree, not_modelled("parts of experts with biases are not modelled yet"),
                          "expert_tensor = 1 would do");
}

}  // namespace

void check_experts(const Scenario& scenario, ScenarioTables& tables) {
  if (!tables.model_sound) return;
  const Layout& layout = scenario.layout;
  const Experts* experts = scenario.model.experts();
  if (!experts) {
    if (tables.moe.present()) tables.top.problem("moe", "the model has no experts", "leave the table out");
    if (layout.expert > 1)
      tables.layout.problem("expert", fmt::format("expert = {}, and the model has no experts", layout.expert),
                            "leave it out");
    return;
  }
  const RuntimeKind& runtime = runtime_kind(scenario.runtime.name);
  if (runtime.id == RuntimeId::TorchTitan)
    return check_shared_out(scenario, tables);  // the rest settle_titan has judged
  if (runtime.eager()) return check_hub_experts(scenario, tables);
  if (layout.schedule == ScheduleKind::ZeroBubbleH1)
    tables.layout.problem("schedule", not_modelled("weight gradients of experts that come later are not modelled yet"),
                          "\"1f1b\" would do");
  check_expert_ranks(*experts, layout, tables);
  check_kernels(scenario, tables);
  if (layout.tensor > 1 && !layout.sequence_parallel)
    tables.layout.problem("sequence_parallel",
                          "Megatron trains experts under tensor parallelism only with sequence_parallel = true",
                          "sequence_parallel = true");
  if (scenario.train.routing.dispatcher == TokenDispatcher::AllGather && scenario.train.routing.capacity_factor > 0)
    tables.moe.problem("capacity_factor", "Megatron drops tokens only with the all-to-all dispatcher",
                       "leave it out, or dispatcher = \"alltoall\"");
  check_one_rank(scenario, tables);
  const std::int64_t tokens = scenario.train.tokens() / layout.context / (layout.sequence_parallel ? layout.tensor : 1);
  if (capacity_of(*experts, scenario.train.routing, tokens) > tokens)
    tables.moe.problem("capacity_factor", "an expert would take more tokens than there are",
                       fmt::format("at most {:.6g} would do",
                                   static_cast<double>(experts->count) / static_cast<double>(experts->chosen)));
  else if (experts->count % layout.expert == 0 && tokens > 0 && tables.moe.sound("imbalance"))
    check_rows(scenario, tokens, tables);
  if (scenario.train.routing.dispatcher == TokenDispatcher::Flex) check_flex(scenario, tables);
}

}  // namespace tidemark::scenarios
