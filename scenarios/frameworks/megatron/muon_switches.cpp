#include "scenarios/frameworks/megatron/muon_switches.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

constexpr auto precisions = std::to_array<Option>({{"medium"}, {"high"}, {"highest"}});
constexpr auto modes = std::to_array<Option>({{"duplicated"}, {"blockwise"}, {"distributed", Modelled::NotYet}});
constexpr auto scalar_optimizers = std::to_array<Option>({{"adam"}, {"lion", Modelled::NotYet}});

}  // namespace

// Megatron-LM megatron/training/arguments.py.
std::optional<MuonBehavior> read_muon(TomlReader& switches) {
  constexpr IntegerRange iterations{1, 1000};
  if (std::ranges::none_of(muon_switches, [&](std::string_view flag) { return switches.has(flag); })) return {};
  MuonBehavior behavior;
  behavior.layer_wise_layout = !switches.boolean("no-use-layer-wise-param-layout").value_or(false);
  behavior.nesterov = switches.boolean("muon-nesterov").value_or(false);
  behavior.splits_qkv = !switches.boolean("muon-no-split-qkv").value_or(false);
  behavior.bf16_products = switches.option("muon-fp32-matmul-prec", precisions).value_or(0) == 0;
  behavior.across_ranks = switches.option("muon-tp-mode", modes).value_or(0) == 0 ? MuonAcrossRanks::Duplicated
                                                                                  : MuonAcrossRanks::Blockwise;
  behavior.steps = switches.integer("muon-num-ns-steps", iterations).value_or(behavior.steps);
  (void)switches.option("muon-scalar-optimizer", scalar_optimizers);
  return behavior;
}

// core/optimizer/__init__.py _get_megatron_emerging_optimizer, core/optimizer/layer_wise_optimizer.py.
void settle_muon(Scenario& requested, ScenarioTables& tables) {
  OptimizerBehavior& behavior = requested.runtime.optimizer;
  if (requested.train.optimizer != Optimizer::Muon) {
    if (behavior.muon && tables.train.sound("optimizer"))
      tables.runtime.problem("switches", "flags of Muon, which is not the optimizer",
                             "optimizer = \"muon\" in [train], or leave them out");
    behavior.muon.reset();
    return;
  }
  if (!behavior.muon) behavior.muon.emplace();
  const bool sharded = requested.layout.sharding == Sharding::Zero1;
  if (requested.train.precision == DType::FP16 && tables.train.sound("precision"))
    tables.train.problem("precision", "precision = \"fp16\": Megatron-LM's Muon takes bf16 or fp32",
                         "\"bf16\" would do");
  if (behavior.precision_aware || behavior.offloaded)
    tables.runtime.problem("switches",
                           fmt::format("Muon is not {}", behavior.offloaded ? "offloaded" : "precision-aware"),
                           "optimizer = \"adamw\", or leave that out");
  if (sharded && requested.layout.shard_group > 0 && tables.layout.sound("shard_group"))
    tables.layout.problem("shard_group",
                          "shard_group: Muon's matrices are distributed over all ranks with the same parameters",
                          "leave it out");
  if (sharded && behavior.muon->layer_wise_layout && tables.model_sound && requested.model.experts() &&
      requested.model.mlp_bias)
    tables.runtime.problem("switches",
                           "experts' biases are not matrices, and no optimizer updates them in Muon's layout",
                           "no-use-layer-wise-param-layout = true");
}

}  // namespace tidemark::scenarios
