#include "scenarios/frameworks/pytorch/fused_modules.hpp"

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

// liger_kernel/transformers/monkey_patch.py: all but the loss by itself.
constexpr FusedModules usual_liger{FusedModule::Rope, FusedModule::RmsNorm, FusedModule::SwiGlu,
                                   FusedModule::LinearCrossEntropy};

}  // namespace

void read_fused_modules(TomlReader& switches, EagerSettings& settings) {
  const bool liger = switches.boolean("use_liger_kernel").value_or(false);
  TomlReader config = switches.table("liger_kernel_config");
  for (const Named<FusedModule>& module : fused_module_names)
    if (config.boolean(module.text).value_or(liger && usual_liger.has(module.value))) settings.liger.add(module.value);
  config.refuse_unknown_keys();
  if (!liger && settings.liger != FusedModules{})
    switches.problem("liger_kernel_config", "liger_kernel_config: use_liger_kernel is not set",
                     "use_liger_kernel = true, or leave it out");
  // fast_loss, fast_rms_layernorm, fast_rope_embeddings of its fused_ops_and_kernels.
  TomlReader fast = switches.table("fast_kernels");
  if (const auto loss = read_name(fast, "fast_loss", fast_loss_names)) settings.foak.add(*loss);
  if (fast.boolean("fast_rms_layernorm").value_or(false)) settings.foak.add(FusedModule::RmsNorm);
  if (fast.boolean("fast_rope_embeddings").value_or(false)) settings.foak.add(FusedModule::Rope);
  fast.refuse_unknown_keys();
  constexpr Ratio most{std::int64_t{1'000'000'000'000}};
  const Ratio noise = switches.ratio("neftune_noise_alpha", Ratio{}, most).value_or(Ratio{});
  settings.neftune = static_cast<double>(noise.count()) / static_cast<double>(one.count());
}

void check_fused_modules(const Scenario& requested, ScenarioTables& tables) {
  const EagerSettings& switches = requested.runtime.eager;
  const FusedModules liger = switches.liger, foak = switches.foak;
  if (switches.neftune > 0 && switches.modules == ModuleLibrary::LitGpt)
    tables.runtime.problem("switches", "switches: neftune_noise_alpha belongs to transformers' Trainer",
                           "leave it out");
  if (liger == FusedModules{} && foak == FusedModules{}) return;
  const auto refuse = [&](bool wrong, const ProblemText& what, std::string_view hint) {
    if (wrong)
      tables.runtime.problem("switches", ProblemText(fmt::format("switches: {}", what.text), what.kind),
                             std::string(hint));
  };
  refuse(liger != FusedModules{} && foak != FusedModules{}, "use_liger_kernel and fast_kernels patch the same modules",
         "leave one of them out");
  for (const FusedModules modules : {liger, foak})
    refuse(modules.has(FusedModule::CrossEntropy) && modules.has(FusedModule::LinearCrossEntropy),
           "cross_entropy and fused_linear_cross_entropy exclude each other", "leave one of them out");
  refuse(switches.modules == ModuleLibrary::LitGpt, "fused kernels replace transformers' modules only",
         "leave modules = \"litgpt\" out");
  refuse(switches.compiled != CompiledParts::None,
         not_modelled("torch.compile around fused kernels is not modelled yet"), "leave torch_compile out");
  refuse(switches.fake_tensors, "fused kernels do not run on fake tensors", "leave fake_tensor_mode out");
  if (!tables.model_sound) return;
  const Model& model = requested.model;
  const bool plain = model.norms == NormPlacement::Before && model.positions == Positions::Rotary &&
                     !model.zero_centered_norms && model.activation == Activation::SwiGlu &&
                     model.normalization == Normalization::Rms && model.architecture != "phi3" &&
                     (!model.transformers_alone() || model.architecture == "smollm3");
  // Gemma 2 caps logits within the fused loss; which parts of Gemma's are left out, Liger says by other names.
  const bool gemma = (model.architecture == "gemma" || model.architecture == "gemma3_text") && liger == usual_liger;
  refuse(
      liger != FusedModules{} && !plain && !gemma,
      not_modelled(fmt::format("Liger's kernels are not modelled yet in layers like those of {}", model.architecture)),
      "Llama's, Mistral's and Qwen's are");
  const bool only_loss = foak == FusedModules{FusedModule::CrossEntropy};
  const bool bigcode = model.architecture == "gpt_bigcode";
  refuse(foak != FusedModules{} && !(plain || (bigcode && only_loss)),
         fmt::format("fms-acceleration has no fast kernels of those for {}", model.architecture),
         bigcode ? "fast_loss alone is" : "Llama's and Mistral's have all of them");
  const bool rope = liger.has(FusedModule::Rope) || foak.has(FusedModule::Rope);
  refuse(rope && model.rotary_dim() != model.head_dim,
         not_modelled("fused rotary positions are not modelled where a part of a head turns"), "leave rope out");
  const bool head = liger.has(FusedModule::LinearCrossEntropy) || foak.has(FusedModule::LinearCrossEntropy);
  refuse(head && model.logit_softcap > 0, not_modelled("a fused head with capped logits is not modelled yet"),
         "leave it out");
  const RuntimeId runtime = runtime_kind(requested.runtime.name).id;
  refuse(foak.has(FusedModule::RmsNorm) && runtime == RuntimeId::PyTorch && requested.layout.data > 1,
         "fast_rms_layernorm gives norms' weights no gradients, for which DistributedDataParallel waits",
         "leave it out, or [runtime] name = \"fsdp\"");
  refuse(head && runtime != RuntimeId::PyTorch && runtime != RuntimeId::Fsdp && runtime != RuntimeId::Fsdp2,
         not_modelled("a fused head is not modelled with it"), "leave it out, or [runtime] name = \"pytorch\"");
}

}  // namespace tidemark::scenarios
