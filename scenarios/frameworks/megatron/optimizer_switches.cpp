#include "scenarios/frameworks/megatron/optimizer_switches.hpp"

#include <fmt/format.h>

#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/toml_value.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

constexpr auto state_types = std::to_array<Option>({{"fp32"}, {"fp16"}, {"bf16"}, {"fp8"}});
constexpr std::array state_dtypes{DType::FP32, DType::FP16, DType::BF16, DType::E4M3};

// What is of no other type than fp32 unless the optimizer is one that is aware of it, and stays on the device.
void check_types(TomlReader& switches, const OptimizerBehavior& behavior) {
  for (const std::string_view key : {"main-params-dtype", "exp-avg-dtype", "exp-avg-sq-dtype"}) {
    const TomlValue* const given = switches.raw(key);
    if (given == nullptr || !switches.sound(key) || text(*given) == in_quotes("fp32")) continue;
    if (!behavior.precision_aware)
      switches.problem(key, fmt::format("{} = {} takes a precision-aware optimizer", key, text(*given)),
                       "use-precision-aware-optimizer = true");
  }
}

}  // namespace

// Megatron-LM megatron/training/arguments.py; --store-param-remainders is a key of core's OptimizerConfig.
OptimizerBehavior read_optimizer_behavior(TomlReader& switches) {
  OptimizerBehavior behavior;
  const auto dtype = [&](std::string_view key, std::span<const Option> types) {
    return state_dtypes.at(switches.option(key, types).value_or(0));
  };
  behavior.precision_aware = switches.boolean("use-precision-aware-optimizer").value_or(false);
  behavior.main_parameters = dtype("main-params-dtype", std::span(state_types).first(2));
  behavior.mean = dtype("exp-avg-dtype", state_types);
  behavior.squares = dtype("exp-avg-sq-dtype", state_types);
  behavior.remainders = switches.boolean("store-param-remainders").value_or(true);
  behavior.overlaps_copies = switches.boolean("overlap-cpu-optimizer-d2h-h2d").value_or(false);
  behavior.pins_gradients = !switches.boolean("no-pin-cpu-grads").value_or(false);
  check_types(switches, behavior);
  return behavior;
}

std::int32_t read_offloaded_layers(TomlReader& switches) {
  constexpr IntegerRange layers{0, 100'000};
  return static_cast<std::int32_t>(switches.integer("cpu-offloading-num-layers", layers).value_or(0));
}

namespace {

// core/transformer/transformer_config.py __post_init__; transformer_engine/pytorch/cpu_offload.py.
void check_offloaded_layers(const Scenario& requested, ScenarioTables& tables) {
  if (requested.runtime.offloaded_layers == 0) return;
  const auto wrong = [&](const ProblemText& why, const char* hint) {
    tables.runtime.problem(
        "switches",
        ProblemText(fmt::format("cpu-offloading-num-layers = {}: {}", requested.runtime.offloaded_layers, why.text),
                    why.kind),
        hint);
  };
  if (tables.model_sound && requested.runtime.offloaded_layers >= requested.model.layers.size())
    wrong("the last layer's activations stay on the device", "fewer than the model has would do");
  if (requested.layout.pipeline > 1) wrong("Megatron-LM offloads layers without a pipeline only", "pipeline = 1");
  if (requested.layout.schedule != ScheduleKind::OneFOneB)
    wrong("Megatron-LM offloads layers where each micro-batch's passes follow one another", "schedule = \"1f1b\"");
  if (requested.train.recompute.kind != Recompute::None)
    wrong("recomputed layers have nothing to offload", "recompute = \"none\"");
  if (!requested.model.further.empty())
    wrong(not_modelled("with further tokens' layers it is not modelled yet"), "leave it out");
  if (requested.runtime.versions.transformer_engine < Version{2, 10})
    wrong(not_modelled("TransformerEngine offloads in another way before 2.10, which is not modelled"),
          "transformer_engine = \"2.11\" in [runtime.versions]");
}

}  // namespace

// core/optimizer/optimizer_config.py __post_init__, distrib_optimizer.py.
void check_optimizer_behavior(const Scenario& requested, ScenarioTables& tables) {
  check_offloaded_layers(requested, tables);
  const OptimizerBehavior& behavior = requested.runtime.optimizer;
  if (!behavior.precision_aware && !behavior.offloaded) return;
  const std::string_view what = behavior.offloaded ? "an optimizer on the host" : "a precision-aware optimizer";
  if (requested.layout.sharding != Sharding::Zero1 && tables.layout.sound("sharding"))
    tables.layout.problem("sharding", fmt::format("{} is modelled with the distributed optimizer only", what),
                          "sharding = \"zero1\"");
  if (requested.train.optimizer != Optimizer::AdamW && tables.train.sound("optimizer"))
    tables.train.problem("optimizer", fmt::format("{} is AdamW", what), "optimizer = \"adamw\"");
  if (behavior.precision_aware && requested.train.precision == DType::FP32 && tables.train.sound("precision"))
    tables.train.problem("precision", not_modelled("a precision-aware optimizer of fp32 parameters is not modelled"),
                         "precision = \"bf16\", or leave use-precision-aware-optimizer out");
  if (behavior.offloaded &&
      (behavior.main_parameters != DType::FP32 || behavior.mean != DType::FP32 || behavior.squares != DType::FP32))
    tables.runtime.problem("switches", "an optimizer on the host keeps its state in fp32, whatever types are asked for",
                           "leave main-params-dtype, exp-avg-dtype and exp-avg-sq-dtype out");
}

}  // namespace tidemark::scenarios
