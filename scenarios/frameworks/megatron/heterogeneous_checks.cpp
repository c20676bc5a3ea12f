#include "scenarios/frameworks/megatron/heterogeneous_checks.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

using parallel::NormPlacement;

// arguments.py validate_model_config_args_from_heterogeneous_config and argument_utils.py: Llama's layers, without
// experts and latents. Of its spec (heterogeneous_layer_specs.py) and of GPTModel: nothing else that layers may have.
bool as_llama(const Model& m) {
  const bool layers = m.activation == Activation::SwiGlu && m.normalization == Normalization::Rms &&
                      m.norms == NormPlacement::Before && !m.zero_centered_norms && !m.parallel_residual;
  const bool attention = m.positions == Positions::Rotary && m.rotary_fraction == 1 && m.attention_softcap == 0 &&
                         !m.attention_sinks && m.window() == 0 && m.latent() == nullptr && m.mamba() == nullptr;
  return layers && attention && m.logit_softcap == 0 && !m.scaled_embedding && m.experts() == nullptr &&
         m.further.empty();
}

}  // namespace

void check_heterogeneous(const Scenario& scenario, ScenarioTables& tables) {
  const Model& model = scenario.model;
  const Version release = scenario.runtime.versions.megatron;
  if (release < Version{0, 12} || release >= Version{0, 20})
    tables.runtime.problem("versions",
                           "layers that differ in width or lack a branch are Megatron-LM core's 0.12 to 0.19",
                           "megatron = \"0.16\" in [runtime.versions]");
  if (!as_llama(model))
    tables.top.problem(tables.top.has("layers") ? "layers" : "model",
                       "Megatron-LM has layers that differ in width, or lack a branch, in models like Llama alone: "
                       "SwiGLU, RMSNorm, rotary positions, neither experts nor latent attention",
                       "a llama or nemotron-nas model would do");
  const auto attends = [](const Layer& its) { return std::holds_alternative<parallel::Attention>(its.mixer); };
  if (std::ranges::none_of(model.layers.kinds(), attends) && tables.top.has("layers"))
    tables.top.problem("layers", "no layer has attention: Megatron-LM asks the first that has for its heads of keys",
                       "\"attention\" in one of them");
  // gpt_builders.py makes the spec for no virtual stage.
  if (scenario.layout.chunks > 1 && tables.layout.sound("chunks"))
    tables.layout.problem(
        "chunks", "layers that differ in width or lack a branch have no virtual stages in Megatron-LM", "chunks = 1");
  const bool lacks = std::ranges::any_of(model.layers.kinds(), [](const Layer& its) { return its.lacks_branch(); });
  if (!lacks) return;
  const auto unmodelled = [&](TomlReader& table, std::string_view key, bool requested, std::string_view what) {
    if (requested && table.sound(key))
      table.problem(key, not_modelled(fmt::format("{} not modelled yet where layers lack attention or an MLP", what)),
                    "leave it out");
  };
  using Module = parallel::RecomputedModule;
  const auto again = [&](Module module) { return scenario.train.recompute.selects(module); };
  unmodelled(tables.train, "recompute_modules", again(Module::Mlp) || again(Module::LayerNorm),
             "recomputation of other modules than core attention is");
  unmodelled(tables.runtime, "switches", scenario.runtime.tensor_overlap.has_value(),
             "products that overlap their communication are");
  unmodelled(tables.runtime, "switches", scenario.runtime.offloaded_layers > 0, "offloading of layers' activations is");
  unmodelled(tables.runtime, "switches", scenario.runtime.module_offload.any(),
             "offloading of modules' activations is");
}

}  // namespace tidemark::scenarios
