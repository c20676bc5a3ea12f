#include "scenarios/frameworks/pytorch/small_optimizers.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <variant>

#include <fmt/format.h>

#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/version_text.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

// What TrainingArguments.optim, bitsandbytes and others call them.
struct OtherName {
  std::string_view text, hint;
};
constexpr OtherName other_names[] = {
    {"adam", "\"adamw\""},
    {"adamw_torch", "\"adamw\""},
    {"adamw_torch_fused", "\"adamw\", with the switch fused = true"},
    {"adamw_bnb_8bit", "\"adamw_8bit\""},
    {"adam8bit", "\"adamw_8bit\""},
    {"adamw8bit", "\"adamw_8bit\""},
    {"paged_adamw", "\"paged_adamw_32bit\" or \"paged_adamw_8bit\""},
    {"paged_lion", "\"paged_lion_32bit\" or \"paged_lion_8bit\""},
    {"lion", "\"lion_32bit\" or \"lion_8bit\", bitsandbytes'"},
    {"galore", "\"galore_adamw\" or \"galore_adamw_layerwise\""},
    {"apollo", "\"apollo_adamw\""},
};

constexpr IntegerRange ranks{1, 1 << 20};

bool is_small(Optimizer kind) {
  return kind != Optimizer::AdamW && kind != Optimizer::Sgd && kind != Optimizer::SgdMomentum;
}

bool is_galore(Optimizer kind) { return kind == Optimizer::GaloreAdamW || kind == Optimizer::GaloreAdamWLayerwise; }

// Of gradients that were projected to few dimensions.
bool projects_gradients(Optimizer kind) { return kind == Optimizer::ApolloAdamW || is_galore(kind); }

bool is_quantized(Optimizer kind) {
  return kind == Optimizer::AdamW8Bit || kind == Optimizer::Lion8Bit || kind == Optimizer::PagedAdamW8Bit ||
         kind == Optimizer::PagedLion8Bit;
}

// Over a rank's shards: what it cannot do there, or is not modelled.
std::optional<ProblemText> beyond_shards(Optimizer kind, bool torch_adafactor, RuntimeId runtime) {
  if (runtime == RuntimeId::Fsdp2) {
    if (kind == Optimizer::Muon)
      return not_modelled("Muon gathers the matrices of DTensors, which is not modelled yet");
    if (kind == Optimizer::Adafactor)
      return torch_adafactor
                 ? not_modelled("torch.optim.Adafactor of DTensors is not modelled yet")
                 : ProblemText("transformers' Adafactor adds DTensors to plain tensors, which PyTorch refuses");
    if (projects_gradients(kind)) return not_modelled("projecting DTensors is not modelled yet");
    return "bitsandbytes' kernels do not accept DTensors";
  }
  if (projects_gradients(kind)) return "it projects matrices, and shards of flat parameters have one dimension";
  if (kind == Optimizer::Muon) return "Muon takes matrices, and shards of flat parameters have one dimension";
  return std::nullopt;
}

struct OptimizerProblems {
  std::string_view name;
  ScenarioTables& tables;

  void optimizer(bool wrong, const ProblemText& what, std::string_view hint) const {
    if (wrong && tables.train.sound("optimizer"))
      tables.train.problem("optimizer", ProblemText(fmt::format("optimizer = \"{}\": {}", name, what.text), what.kind),
                           std::string(hint));
  }
  void switches(bool wrong, std::string_view what, std::string_view hint) const {
    if (wrong) tables.runtime.problem("switches", fmt::format("switches: {}", what), std::string(hint));
  }
};

void check_optimizer_switches(Optimizer kind, const SmallOptimizerSettings& settings, const OptimizerProblems& refuse) {
  const bool adafactor = kind == Optimizer::Adafactor;
  refuse.switches(settings.torch_adafactor && !adafactor, "adafactor = \"torch\" is of optimizer = \"adafactor\"",
                  "leave it out");
  refuse.switches(settings.first_moment && (!adafactor || settings.torch_adafactor),
                  "beta1 is an argument of transformers' Adafactor", "leave it out");
  refuse.switches(settings.narrow_embeddings && !is_quantized(kind),
                  "quantize_embeddings is for optimizers that keep their state in 8 bits",
                  "leave it out, or optimizer = \"adamw_8bit\"");
  refuse.switches(settings.rank > 0 && !projects_gradients(kind),
                  "rank is for optimizers that project gradients: \"apollo_adamw\", \"galore_adamw\"", "leave it out");
}

// trainer_optimizer.py _setup_low_rank_optimizer.
void check_steps_in_backward(const Scenario& requested, const OptimizerProblems& refuse) {
  if (!steps_in_backward(requested.train.optimizer)) return;
  refuse.optimizer(requested.gpus > 1,
                   "an optimizer that steps in the backward pass does not work with DistributedDataParallel",
                   "\"galore_adamw\"");
  refuse.optimizer(requested.train.global_batch > requested.train.micro_batch * requested.gpus,
                   "an optimizer that steps in the backward pass cannot accumulate gradients",
                   "\"galore_adamw\", or one micro-batch a step");
  refuse.optimizer(requested.train.precision == DType::FP16 && requested.train.master_dtype == DType::FP32,
                   "an optimizer that steps in the backward pass cannot unscale gradients",
                   "precision = \"bf16\" would do");
}

}  // namespace

std::optional<Optimizer> read_optimizer(TomlReader& train) {
  const TomlValue* given = train.raw("optimizer");
  const auto* text = given == nullptr ? nullptr : std::get_if<std::string>(&given->value);
  const auto* other = text == nullptr ? nullptr : std::ranges::find(other_names, *text, &OtherName::text);
  if (other == nullptr || other == std::end(other_names))
    return read_name(train, "optimizer", optimizer_names, {"galore_adamw_8bit", "galore_adafactor"});
  train.problem("optimizer", fmt::format("optimizer = {} is not known by that name", in_quotes(*text)),
                fmt::format("{} would do", other->hint));
  return std::nullopt;
}

SmallOptimizerSettings read_small_optimizer(TomlReader& switches) {
  SmallOptimizerSettings settings;
  settings.torch_adafactor = read_name(switches, "adafactor", adafactor_names).value_or(false);
  settings.first_moment = switches.ratio("beta1", Ratio{}, one).has_value();
  settings.narrow_embeddings = switches.boolean("quantize_embeddings").value_or(false);
  settings.rank = switches.integer("rank", ranks).value_or(0);
  return settings;
}

void check_small_optimizer(const Scenario& requested, ScenarioTables& tables) {
  const Optimizer kind = requested.train.optimizer;
  const EagerSettings& switches = requested.runtime.eager;
  const SmallOptimizerSettings& settings = switches.small_optimizer;
  const RuntimeId runtime = runtime_kind(requested.runtime.name).id;
  const OptimizerProblems refuse{word(optimizer_names, kind), tables};
  const bool adafactor = kind == Optimizer::Adafactor;
  check_optimizer_switches(kind, settings, refuse);
  refuse.optimizer(projects_gradients(kind) && tables.model_sound && requested.model.architecture == "gpt2",
                   "it projects gradients of linears, and GPT-2 has Conv1D instead", "\"adamw\"");
  check_steps_in_backward(requested, refuse);
  const bool megatrons = kind == Optimizer::Muon && runtime == RuntimeId::Megatron;  // settle_muon
  if (!is_small(kind) || runtime == RuntimeId::TorchTitan || megatrons) return;
  if (runtime != RuntimeId::PyTorch && !runtime_kind(requested.runtime.name).shards_units()) {
    refuse.optimizer(true, not_modelled(fmt::format("{} is not modelled with it", requested.runtime.name)),
                     "\"adamw\", or [runtime] name = \"pytorch\" or \"fsdp\"");
    return;
  }
  const bool shards = runtime != RuntimeId::PyTorch;
  if (shards) {
    const std::optional<ProblemText> why = beyond_shards(kind, settings.torch_adafactor, runtime);
    if (why) refuse.optimizer(true, *why, "\"adamw\", or [runtime] name = \"pytorch\"");
  }
  refuse.optimizer(switches.flat.offload || switches.fully_shard.offload,
                   not_modelled("its work on the host is not modelled yet"),
                   "\"adamw\", or leave [offload] parameters out");
  refuse.optimizer(kind == Optimizer::Muon && requested.train.precision == DType::FP16 &&
                       requested.train.master_dtype == DType::FP32,
                   not_modelled("a gradient scaler with two optimizers is not modelled yet"),
                   "precision = \"bf16\" would do");
  const Version torch = requested.runtime.versions.torch;
  const auto from = [&](bool asks, Version first, std::string_view what) {
    refuse.optimizer(asks && torch < first, fmt::format("{} exists from PyTorch {} on", what, text(first)),
                     fmt::format("versions = {{ torch = \"{}\" }}, or later", text(first)));
  };
  from(kind == Optimizer::Muon, {2, 9}, "torch.optim.Muon");
  from(adafactor && settings.torch_adafactor, {2, 5}, "torch.optim.Adafactor");
  refuse.switches(
      switches.amsgrad || !switches.decoupled_weight_decay,
      fmt::format("amsgrad and decoupled_weight_decay are AdamW's, not those of optimizer = \"{}\"", refuse.name),
      "leave them out");
  refuse.switches(switches.optimizer == OptimizerKernels::Fused && kind != Optimizer::Muon,
                  fmt::format("fused: optimizer = \"{}\" has no such kernels", refuse.name), "leave it out");
}

}  // namespace tidemark::scenarios
