#include "scenarios/model_config/hub_experts.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "parallel/frameworks/transformers/adapters.hpp"
#include "parallel/model/expert_routing.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/version_text.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::string_view linears_hint = "transformers = \"4.57\" in [runtime.versions], where experts are linears";

void check_family(const Scenario& requested, ScenarioTables& tables) {
  const Model& m = requested.model;
  if (!parallel::transformers::models_layers_of(m))
    tables.top.problem(
        "model",
        not_modelled(fmt::format("{}: experts of transformers' {} are not modelled yet", m.name, m.architecture)),
        "Mixtral's, Qwen2-MoE's and Qwen3-MoE's are; or name = \"megatron\" in [runtime]");
  else if (requested.runtime.eager.modules == ModuleLibrary::LitGpt)
    tables.runtime.problem("switches", not_modelled("switches: LitGPT's experts are not modelled yet"),
                           "modules = \"transformers\" would do");
}

// Experts of every rank are all there, and take all tokens that choose them.
void check_routing(const Scenario& requested, ScenarioTables& tables) {
  if (requested.layout.expert > 1)
    tables.layout.problem("expert", "expert: every rank has all experts of transformers' modules", "leave it out");
  for (const std::string_view key : {"dispatcher", "capacity_factor", "pad_to_capacity", "quantile"})
    if (tables.moe.has(key))
      tables.moe.problem(std::string(key),
                         fmt::format("{}: every rank has all experts of transformers' modules, which take all tokens "
                                     "that choose them",
                                     key),
                         "leave it out");
  if (std::holds_alternative<LoadOfOneRank>(requested.train.routing.loads) && tables.moe.sound("imbalance"))
    tables.moe.problem("imbalance", "imbalance: every rank has all experts, and none gets more tokens than another",
                       "such as { zipf = 0.5, seed = 1 }, or leave it out");
}

// What takes the place of modules, or looks into parameters that are no matrices.
void check_parts(const Scenario& requested, ScenarioTables& tables, bool fused) {
  const EagerSettings& switches = requested.runtime.eager;
  const auto refuse = [&](bool wrong, const std::string& what, std::string_view hint) {
    if (wrong)
      tables.runtime.problem("switches",
                             not_modelled(fmt::format("switches: {} is not modelled yet with experts", what)),
                             std::string(hint));
  };
  refuse(switches.compiled != CompiledParts::None, "torch_compile", "leave it out");
  refuse(switches.liger != FusedModules{}, "use_liger_kernel", "leave it out");
  refuse(switches.foak != FusedModules{}, "fast_kernels", "leave it out");
  if (requested.train.rollout)
    tables.top.problem("rollout", not_modelled("rollout: generation with experts of transformers is not modelled yet"),
                       "leave it out");
  static constexpr std::array of_matrices{Optimizer::Adafactor, Optimizer::Muon, Optimizer::ApolloAdamW,
                                          Optimizer::GaloreAdamW, Optimizer::GaloreAdamWLayerwise};
  const bool of_experts = fused && !requested.train.adapter;
  if (of_experts && std::ranges::find(of_matrices, requested.train.optimizer) != of_matrices.end())
    tables.train.problem(
        "optimizer",
        not_modelled("optimizer: experts' parameters of three dimensions are not modelled yet with optimizers of "
                     "matrices"),
        fmt::format("\"adamw\" would do, or {}", linears_hint));
}

// peft/utils/transformers_weight_conversion.py: names of the linears that experts were, and of all linears, become
// target_parameters. tuners/lora/layer.py ParamWrapper reads an adapter's own parameters outside of its modules.
void check_targets(const Scenario& requested, ScenarioTables& tables, bool fused) {
  if (!fused || !requested.train.adapter) return;
  const Adapter& adapter = *requested.train.adapter;
  const parallel::transformers::ExpertTargets targets =
      parallel::transformers::expert_targets(adapter, requested.model);
  if (!targets.any()) return;
  const std::string hint = fmt::format("q_proj, k_proj, v_proj and o_proj would do, or {}", linears_hint);
  if (targets.gate != targets.up)
    tables.adapter.problem("target_modules",
                           fmt::format("target_modules: from transformers 5.0 on experts' {} and {} are one parameter, "
                                       "and PEFT stops where only one of them is named",
                                       requested.model.architecture == "mixtral" ? "w1" : "gate_proj",
                                       requested.model.architecture == "mixtral" ? "w3" : "up_proj"),
                           fmt::format("name both, or {}", linears_hint));
  if (adapter.dropout > 0 && tables.adapter.sound("dropout"))
    tables.adapter.problem("dropout",
                           not_modelled("dropout: from transformers 5.0 on PEFT puts adapters of experts beside "
                                        "parameters (target_parameters), and stops there at any dropout"),
                           fmt::format("0, or {}", linears_hint));
  const auto refuse = [&](bool wrong, std::string_view under) {
    if (wrong)
      tables.adapter.problem("target_modules",
                             not_modelled(fmt::format("target_modules: adapters of experts' parameters, as PEFT makes "
                                                      "them from transformers 5.0 on, under {} are not modelled yet",
                                                      under)),
                             hint);
  };
  const RuntimeId runtime = runtime_kind(requested.runtime.name).id;
  refuse(runtime == RuntimeId::Fsdp, "FullyShardedDataParallel");
  refuse(runtime == RuntimeId::DeepSpeed && requested.layout.sharding == Sharding::Zero3, "stage 3");
}

void check_releases(const Scenario& requested, ScenarioTables& tables, bool fused) {
  const Versions& versions = requested.runtime.versions;
  if (fused && versions.torch < Version{2, 9})
    tables.runtime.problem("versions",
                           not_modelled(fmt::format("versions: experts of transformers {} without torch._grouped_mm on "
                                                    "every device, as torch {} has it, are not modelled yet",
                                                    text(versions.transformers), text(versions.torch))),
                           fmt::format("torch = \"2.9\", or {}", linears_hint));
  if (!fused && requested.model.architecture == "qwen3_moe" && versions.transformers < Version{4, 51})
    tables.runtime.problem("versions",
                           fmt::format("versions: transformers {} has no Qwen3-MoE", text(versions.transformers)),
                           "4.51 has it");
}

// PyTorch allocates nothing for tensors without rows, which programs do not say yet.
void check_rows_of_linears(const Scenario& requested, ScenarioTables& tables) {
  const Model& m = requested.model;
  if (!tables.train.sound("sequence_length") || !tables.train.sound("micro_batch") || !tables.moe.sound("imbalance"))
    return;
  for (std::int32_t layer = 0; layer < m.layers.size(); ++layer) {
    if (!m.has_experts(layer)) continue;
    const LayerRouting routing(m, requested.train.routing, layer, requested.train.tokens(), 1);
    const std::vector<std::int64_t> rows = routing.received(0, 1);
    if (std::ranges::all_of(rows, [](std::int64_t count) { return count > 0; })) continue;
    tables.train.problem("sequence_length",
                         not_modelled(fmt::format("sequence_length: of {} tokens none choose some experts of layer {}, "
                                                  "which is not modelled yet of experts that are linears",
                                                  requested.train.tokens(), layer)),
                         "more tokens, or transformers = \"5.23\" in [runtime.versions]");
    return;
  }
}

}  // namespace

void check_hub_experts(const Scenario& requested, ScenarioTables& tables) {
  const bool fused = parallel::transformers::has_fused_experts(requested.runtime.versions);
  check_family(requested, tables);
  check_routing(requested, tables);
  check_parts(requested, tables, fused);
  check_targets(requested, tables, fused);
  check_releases(requested, tables, fused);
  if (!fused && parallel::transformers::models_layers_of(requested.model)) check_rows_of_linears(requested, tables);
}

}  // namespace tidemark::scenarios
