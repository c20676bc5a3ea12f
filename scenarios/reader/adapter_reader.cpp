#include "scenarios/reader/adapter_reader.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "parallel/frameworks/transformers/adapters.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/scenario/module_list.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

using parallel::transformers::ModuleName;

constexpr std::string_view all_linear = "all-linear";
constexpr IntegerRange ranks{1, 1 << 16};
constexpr Ratio most_alpha{std::int64_t{1'000'000'000'000}};

void check_modules(const Scenario& requested, TomlReader& table) {
  const Adapter& adapter = *requested.train.adapter;
  const Model& model = requested.model;
  const bool fused = parallel::transformers::has_fused_experts(requested.runtime.versions);
  const std::vector<ModuleName> modules = parallel::transformers::module_names(model, fused);
  if (table.sound("modules_to_save"))
    for (const std::string& name : adapter.saved)
      if (std::ranges::none_of(modules, [&](const ModuleName& its) { return its.path.ends_with(name); }))
        report_unknown_module(table, "modules_to_save", name, model, modules);
  if (!table.sound("target_modules")) return;
  for (const std::string& name : adapter.targets) {
    if (fused && parallel::transformers::names_expert_parameter(model, name)) continue;
    Adapter only;
    only.targets = {name};
    const auto is_meant = [&](const ModuleName& its) {
      return parallel::transformers::is_target(only, model, its.path, fused);
    };
    const bool linear =
        std::ranges::any_of(modules, [&](const ModuleName& its) { return its.linear && is_meant(its); });
    const bool other =
        std::ranges::any_of(modules, [&](const ModuleName& its) { return !its.linear && is_meant(its); });
    if (!linear || other) report_unknown_module(table, "target_modules", name, model, modules, "linear");
  }
  const auto is_adapted = [&](const ModuleName& its) {
    return its.linear && parallel::transformers::is_target(adapter, model, its.path, fused);
  };
  const bool of_experts = fused && parallel::transformers::expert_targets(adapter, model).any();
  if (table.sound("target_modules") && !of_experts && std::ranges::none_of(modules, is_adapted))
    table.problem("target_modules", "no linear is left to adapt: modules_to_save contains all of target_modules",
                  "leave it out of one of them");
}

// Of a model that zero.Init partitioned before PEFT adapts it, what is trained lies in one buffer of one type
// (defragment in deepspeed/runtime/zero/utils.py).
void refuse_under_stage_3(const Scenario& requested, const auto& refuse) {
  const ZeroBehavior& zero = requested.runtime.eager.zero;
  refuse(zero.nvme.optimizer || zero.nvme.parameters,
         not_modelled("under DeepSpeed's stage 3 on NVMe is not modelled yet"),
         "\"cpu\" would do, or leave [offload] out");
  if (requested.train.quantization)
    return refuse(!requested.train.adapter->saved.empty(),
                  not_modelled("modules_to_save with a quantized base under DeepSpeed's stage 3 are not modelled yet"),
                  "leave modules_to_save out");
  refuse(!zero.contiguous_gradients && requested.train.adapter->dtype == DType::FP32,
         not_modelled("gradients in fp32 that are not contiguous are not modelled yet"),
         "leave contiguous_gradients out");
  refuse(!requested.train.adapter->saved.empty(),
         "modules_to_save under DeepSpeed's stage 3, which puts all trained parameters into one buffer of one type",
         "leave modules_to_save out");
}

// Its magnitudes are a parameter beside those that a wrapper gathers, and base weights are read whole.
void refuse_decomposed(const Scenario& requested, bool sharded, const auto& refuse) {
  if (requested.train.adapter->method != AdapterMethod::Dora) return;
  refuse(requested.train.quantization.has_value(), not_modelled("DoRA beside quantized linears is not modelled yet"),
         "method = \"lora\" would do, or leave [quantization] out");
  refuse(sharded, not_modelled(fmt::format("DoRA under {} is not modelled yet", requested.runtime.name)),
         "method = \"lora\" would do, or [runtime] name = \"pytorch\"");
  const Model& model = requested.model;
  refuse(model.architecture == "gpt2", not_modelled("DoRA beside transformers' Conv1D is not modelled yet"),
         "method = \"lora\" would do");
  const bool fused = parallel::transformers::has_fused_experts(requested.runtime.versions);
  refuse(fused && parallel::transformers::expert_targets(*requested.train.adapter, model).any(),
         "DoRA beside parameters of experts, which PEFT does not make", "method = \"lora\" would do");
}

void settle_adapter_type(Scenario& requested, ScenarioTables& tables, bool stage_3) {
  Adapter& adapter = *requested.train.adapter;
  TomlReader& table = tables.adapter;
  const bool zero = runtime_kind(requested.runtime.name).id == RuntimeId::DeepSpeed;
  // The engine casts all of a module, unless zero.Init has partitioned it before PEFT adapts it, which it does not of
  // quantized ones.
  const bool partitioned = stage_3 && !requested.train.quantization;
  const DType base = base_dtype(requested);
  if (zero && !partitioned && adapter.dtype && *adapter.dtype != base) {
    if (table.has("dtype") && table.sound("dtype"))
      table.problem(
          "dtype",
          fmt::format("dtype = \"{}\": DeepSpeed casts adapters, too, to \"{}\"", name(*adapter.dtype), name(base)),
          "leave it out");
    adapter.dtype = std::nullopt;
  }
  // Adapters beside codes have no linear's type: they are fp32 until they are cast.
  const bool beside_codes = !zero && requested.train.quantization && !requested.train.quantization->stored;
  if (beside_codes) return;
  if (adapter.dtype && *adapter.dtype != DType::FP32 && *adapter.dtype != base && table.sound("dtype") &&
      tables.train.sound("master_dtype"))
    table.problem("dtype",
                  fmt::format("dtype = \"{}\": PEFT makes adapters of their linears' type, master_dtype = \"{}\", or "
                              "of fp32",
                              name(*adapter.dtype), name(base)),
                  fmt::format("\"{}\" or \"fp32\" would do", name(base)));
  // "As their linears" is of what linears are made in. In fp32 adapters are fp32, however linears are gathered or
  // coded.
  if (adapter.dtype == base && base != DType::FP32) adapter.dtype = std::nullopt;
}

}  // namespace

DType base_dtype(const Scenario& scenario) {
  return runtime_kind(scenario.runtime.name).id == RuntimeId::DeepSpeed ? scenario.train.precision
                                                                        : scenario.train.master_dtype;
}

std::optional<Adapter> read_adapter(TomlReader& table) {
  if (!table.present()) return std::nullopt;
  Adapter adapter;
  const std::vector<Option> methods{
      {"lora"}, {"dora"}, {"qlora", Modelled::NotYet}, {"ia3", Modelled::NotYet}, {"prefix_tuning", Modelled::NotYet}};
  if (table.option("method", methods) == 1) adapter.method = AdapterMethod::Dora;
  adapter.rank = table.integer("rank", ranks).value_or(adapter.rank);
  if (const auto given = table.ratio("alpha", Ratio{}, most_alpha)) adapter.alpha = as_double(*given);
  if (const auto given = table.ratio("dropout", Ratio{}, one)) adapter.dropout = as_double(*given);
  if (adapter.dropout == 1) table.problem("dropout", "dropout = 1: nothing would be left", "0 to 0.999999 would do");
  constexpr std::string_view like = "such as [\"q_proj\", \"v_proj\"], or \"all-linear\"";
  const TomlValue* const targets = table.raw("target_modules");
  const auto* const word = targets == nullptr ? nullptr : std::get_if<std::string>(&targets->value);
  if (word != nullptr && *word == all_linear)
    adapter.all_linear = true;
  else if (word != nullptr)
    table.problem(
        "target_modules",
        not_modelled(fmt::format("target_modules = {}: regular expressions are not modelled yet", in_quotes(*word))),
        std::string(like));
  else
    adapter.targets = read_module_list(table, "target_modules", like);
  adapter.saved = read_module_list(table, "modules_to_save", "such as [\"embed_tokens\", \"lm_head\"]");
  adapter.dtype = read_name(table, "dtype", precision_names).value_or(DType::FP32);
  table.refuse_unknown_keys();
  return adapter;
}

void settle_adapter(Scenario& requested, ScenarioTables& tables) {
  if (!requested.train.adapter) return;
  Adapter& adapter = *requested.train.adapter;
  TomlReader& table = tables.adapter;
  const RuntimeKind& runtime = runtime_kind(requested.runtime.name);
  const EagerSettings& switches = requested.runtime.eager;
  const bool flat = runtime.id == RuntimeId::Fsdp;
  const bool zero = runtime.id == RuntimeId::DeepSpeed;
  if (runtime.id != RuntimeId::PyTorch && runtime.id != RuntimeId::Fsdp2 && !flat && !zero) {
    tables.top.problem("adapter",
                       not_modelled(fmt::format("adapter: training one under {} is not modelled yet", runtime.name)),
                       "[runtime] name = \"pytorch\" would do");
    return;
  }
  const auto refuse = [&](bool wrong, const ProblemText& what, std::string_view hint) {
    if (wrong)
      tables.top.problem("adapter", ProblemText(fmt::format("adapter: {}", what.text), what.kind), std::string(hint));
  };
  refuse(switches.modules == ModuleLibrary::LitGpt, not_modelled("LitGPT's own LoRA is not modelled yet"),
         "modules = \"transformers\" would do");
  refuse(switches.input_gradients == false && requested.train.recompute.kind != Recompute::None,
         not_modelled("enable_input_require_grads = false where layers are checkpointed is not modelled yet"),
         "leave it out");
  refuse(switches.compiled != CompiledParts::None, not_modelled("torch_compile of adapted models is not modelled yet"),
         "leave torch_compile out");
  refuse(flat && !adapter.saved.empty(),
         not_modelled("modules_to_save under FullyShardedDataParallel are not modelled yet"),
         "leave modules_to_save out");
  refuse_decomposed(requested, runtime.id != RuntimeId::PyTorch, refuse);
  const bool stage_3 = zero && requested.layout.sharding == Sharding::Zero3;
  if (stage_3) refuse_under_stage_3(requested, refuse);
  settle_adapter_type(requested, tables, stage_3);
  if (!tables.model_sound || !parallel::transformers::models_layers_of(requested.model)) return;
  if (!table.has("target_modules")) {
    adapter.targets = parallel::transformers::usual_targets(requested.model);
    if (adapter.targets.empty()) {
      table.problem("target_modules",
                    fmt::format("PEFT knows no target_modules for models of type {}", requested.model.architecture),
                    "name them, or set \"all-linear\"");
      return;
    }
  }
  check_modules(requested, table);
}

}  // namespace tidemark::scenarios
