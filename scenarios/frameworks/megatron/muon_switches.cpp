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
std::optional<MuonHabits> read_muon(TomlReader& switches) {
  constexpr IntegerRange iterations{1, 1000};
  if (std::ranges::none_of(muon_switches, [&](std::string_view flag) { return switches.has(flag); })) return {};
  MuonHabits habits;
  habits.layer_wise_layout = !switches.boolean("no-use-layer-wise-param-layout").value_or(false);
  habits.nesterov = switches.boolean("muon-nesterov").value_or(false);
  habits.splits_qkv = !switches.boolean("muon-no-split-qkv").value_or(false);
  habits.bf16_products = switches.option("muon-fp32-matmul-prec", precisions).value_or(0) == 0;
  habits.across_ranks = switches.option("muon-tp-mode", modes).value_or(0) == 0 ? MuonAcrossRanks::Duplicated
                                                                                : MuonAcrossRanks::Blockwise;
  habits.steps = switches.integer("muon-num-ns-steps", iterations).value_or(habits.steps);
  (void)switches.option("muon-scalar-optimizer", scalar_optimizers);
  return habits;
}

// core/optimizer/__init__.py _get_megatron_emerging_optimizer, core/optimizer/layer_wise_optimizer.py.
void settle_muon(Scenario& asked, ScenarioTables& tables) {
  OptimizerHabits& habits = asked.runtime.optimizer;
  if (asked.train.optimizer != Optimizer::Muon) {
    if (habits.muon && tables.train.sound("optimizer"))
      tables.runtime.problem("switches", "flags of Muon's, which is not the optimizer",
                             "optimizer = \"muon\" in [train], or leave them out");
    habits.muon.reset();
    return;
  }
  if (!habits.muon) habits.muon.emplace();
  const bool sharded = asked.layout.sharding == Sharding::Zero1;
  if (asked.train.precision == DType::FP16 && tables.train.sound("precision"))
    tables.train.problem("precision", "precision = \"fp16\": Megatron-LM's Muon takes bf16 or fp32",
                         "\"bf16\" would do");
  if (habits.precision_aware || habits.offloaded)
    tables.runtime.problem("switches",
                           fmt::format("Muon is not {}", habits.offloaded ? "offloaded" : "precision-aware"),
                           "optimizer = \"adamw\", or leave that out");
  if (sharded && asked.layout.shard_group > 0 && tables.layout.sound("shard_group"))
    tables.layout.problem("shard_group", "shard_group: Muon's matrices are shared out over all who hold the same",
                          "leave it out");
  if (sharded && habits.muon->layer_wise_layout && tables.model_sound && asked.model.experts && asked.model.mlp_bias)
    tables.runtime.problem("switches", "experts' biases are no matrices, and have no optimizer beside Muon's layout",
                           "no-use-layer-wise-param-layout = true");
}

}  // namespace tidemark::scenarios
