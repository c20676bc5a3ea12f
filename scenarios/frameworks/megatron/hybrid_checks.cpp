#include "scenarios/frameworks/megatron/hybrid_checks.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/frameworks/megatron/heterogeneous_checks.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

class HybridChecks {
 public:
  HybridChecks(const Scenario& scenario, ScenarioTables& tables)
      : s_(scenario), layout_(scenario.layout), tables_(tables) {}

  void run() {
    const Version release = s_.runtime.versions.megatron;
    if (release < Version{0, 12} || release >= Version{0, 17})  // from there on core/models/hybrid has other stacks
      tables_.runtime.problem("versions",
                              "hybrids of Megatron-LM core are modelled of 0.12 to 0.16, and not of other releases yet",
                              "megatron = \"0.16\" in [runtime.versions]");
    if (std::ranges::any_of(s_.model.layers.kinds(), [](const Layer& its) { return its.own_sizes(); }))
      tables_.top.problem("layers", "MLPs of a hybrid are of one width", "\"dense\" without a width");
    check_ranks();
    check_stages();
    check_training();
  }

 private:
  void layout(std::string_view key, ProblemText message, std::string hint) {
    if (tables_.layout.sound(key)) tables_.layout.problem(key, std::move(message), std::move(hint));
  }

  // mamba_mixer.py: each rank has whole groups of heads.
  void check_ranks() {
    const Mamba2* const mamba = s_.model.mamba();
    const std::int64_t tensor = layout_.tensor;
    if (mamba != nullptr && (mamba->heads % tensor != 0 || mamba->groups % tensor != 0))
      layout("tensor",
             fmt::format("tensor = {} does not divide {} heads of Mamba in {} groups", tensor, mamba->heads,
                         mamba->groups),
             fmt::format("a divisor of {} would do", std::gcd(mamba->heads, mamba->groups)));
    if (layout_.context > 1)
      layout("context", not_modelled("context parallelism of layers of Mamba is not modelled yet"), "leave it out");
  }

  // mamba_block.py _select_layers_for_pipeline_parallel
  void check_stages() {
    if (layout_.chunks > 1) layout("chunks", "Megatron-LM's hybrids have no virtual stages", "chunks = 1");
    const bool ends = layout_.first_layers > 0 || layout_.last_layers > 0;
    if (ends && s_.runtime.versions.megatron < Version{0, 16})
      layout(layout_.first_layers > 0 ? "first_stage_layers" : "last_stage_layers",
             "stages of a hybrid have equally many layers before Megatron-LM core 0.16", "leave it out");
    for (const auto& [key, given] : {std::pair{"count_embedding", layout_.count_embedding},
                                     {"count_loss", layout_.count_loss},
                                     {"stage_layers", !layout_.stage_layers.empty()}})
      if (given) layout(key, fmt::format("{}: stages of a hybrid do not support it", key), "leave it out");
  }

  void check_training() {
    const auto train = [&](std::string_view key, ProblemText message, std::string hint) {
      if (tables_.train.sound(key)) tables_.train.problem(key, std::move(message), std::move(hint));
    };
    if (s_.train.recompute.kind == Recompute::Full)
      train("recompute", "recompute = \"full\": Megatron-LM does not recompute layers of a hybrid",
            "\"none\", or \"selective\" for core attention");
    if (s_.train.attention == AttentionKernel::Local)
      train("attention", "attention = \"local\": hybrids have Transformer Engine's layers alone",
            R"("auto", "fused", "flash" or "unfused" would do)");
    if (s_.train.optimizer == Optimizer::Muon)
      train("optimizer", not_modelled("Muon is not modelled yet with layers of Mamba"), "\"adamw\" would do");
    if (s_.train.rollout)
      tables_.top.problem("rollout", not_modelled("an engine's states of Mamba are not modelled yet"), "leave it out");
    const auto unmodelled = [&](bool requested, std::string_view what) {
      if (requested)
        tables_.runtime.problem("switches", not_modelled(fmt::format("{} not modelled yet in hybrids", what)),
                                "leave it out");
    };
    unmodelled(s_.runtime.tensor_overlap.has_value(), "products that overlap their communication are");
    unmodelled(s_.runtime.offloaded_layers > 0, "offloading of layers' activations is");
    unmodelled(s_.runtime.module_offload.any(), "offloading of modules' activations is");
  }

  const Scenario& s_;
  const Layout& layout_;
  ScenarioTables& tables_;
};

}  // namespace

void check_hybrid(const Scenario& scenario, ScenarioTables& tables) {
  if (!tables.model_sound) return;
  const auto kinds = scenario.model.layers.kinds();
  const auto of_megatron = std::ranges::find_if(kinds, [](const Layer& its) { return its.megatron_alone(); });
  if (of_megatron != kinds.end() && runtime_kind(scenario.runtime.name).id != RuntimeId::Megatron)
    tables.runtime.problem(
        "name",
        not_modelled(fmt::format("name = \"{}\": layers of \"{} {}\" are not modelled there yet", scenario.runtime.name,
                                 word_of(of_megatron->mixer), word_of(of_megatron->mlp))),
        "\"megatron\" would do");
  else if (scenario.model.hybrid())
    HybridChecks(scenario, tables).run();
  else if (scenario.model.heterogeneous())
    check_heterogeneous(scenario, tables);
}

}  // namespace tidemark::scenarios
