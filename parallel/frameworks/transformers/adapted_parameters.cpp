#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/frameworks/transformers/adapters.hpp"
#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/products.hpp"

// PEFT's LoRA beside parameters of modules that are no linears: experts, and their router, from transformers 5.0 on. A
// wrapper puts the sum of a parameter and its adapters' product in the parameter's place while the module runs, and
// makes it once more before, to look at its shape (torch/nn/utils/parametrize.py ParametrizationList.__init__).
//
// Read in peft 0.21.2: tuners/lora/layer.py ParamWrapper, _LoraFactorsProxy, _LoraParameterProxy,
// tuners/tuners_utils.py _inject_parameters, utils/transformers_weight_conversion.py.

namespace tidemark::parallel::transformers {
namespace {

struct ExpertName {
  std::string_view of_linear;  ///< that was a module's before 5.0
  bool ExpertTargets::*parameter;
};
using ExpertNames = std::array<ExpertName, 4>;

// _MOE_TARGET_MODULE_MAPPING, of those that _MODEL_TO_CONVERSION_PATTERN has: Qwen2-MoE's own name is not in it.
const ExpertNames* expert_names(const Model& model) {
  static constexpr ExpertNames mixtral{ExpertName{"gate", &ExpertTargets::router},
                                       {"w1", &ExpertTargets::gate},
                                       {"w3", &ExpertTargets::up},
                                       {"w2", &ExpertTargets::down}};
  static constexpr ExpertNames qwen3{ExpertName{"gate", &ExpertTargets::router},
                                     {"gate_proj", &ExpertTargets::gate},
                                     {"up_proj", &ExpertTargets::up},
                                     {"down_proj", &ExpertTargets::down}};
  if (!model.experts()) return nullptr;
  return model.architecture == "mixtral" ? &mixtral : model.architecture == "qwen3_moe" ? &qwen3 : nullptr;
}

}  // namespace

bool names_expert_parameter(const Model& model, std::string_view name) {
  const ExpertNames* const all = expert_names(model);
  return all != nullptr &&
         std::ranges::any_of(*all, [&](const ExpertName& its) { return is_or_ends(name, its.of_linear); });
}

ExpertTargets expert_targets(const Adapter& adapter, const Model& model) {
  ExpertTargets found;
  const ExpertNames* const all = expert_names(model);
  if (all == nullptr) return found;
  for (const ExpertName& its : *all)
    found.*its.parameter = adapter.all_linear || std::ranges::any_of(adapter.targets, [&](const std::string& target) {
                             return is_or_ends(target, its.of_linear);
                           });
  return found;
}

// ---- what runs -----------------------------------------------------------------------------------------------------

// get_delta_factors: of [experts, outputs, inputs] a factor of all experts' outputs, and one of their inputs.
CausalLM::Factors CausalLM::factors_of(const Lora& lora, const Tensor& base) {
  const std::int64_t experts = base.size(0);
  const auto as_base = [&](const Tensor& x) { return to(s_, x, base.dtype); };
  Factors made;
  const Tensor& down = lora.down->value;
  const Tensor inputs = view(s_, down, {experts, down.size(0) / experts, down.size(1)});
  const Tensor& up = lora.up->value;
  const auto by_expert = [&] {
    const Tensor apart = view(s_, up, {up.size(0), up.size(1) / experts, experts});
    return transpose(s_, transpose(s_, apart, 0, 2), 1, 2);
  };
  made.left = as_base(by_expert());
  made.right = as_base(inputs);
  return made;
}

Tensor CausalLM::folded(const Lora& lora, const Tensor& base, const Factors& factors) {
  return baddbmm(s_, base, factors.left, factors.right, lora.scale);
}

// The wrapper of down_proj is around that of gate_up_proj, and what both have made stays until the outer one is done.
Tensor CausalLM::adapted_experts(const Mixture& m, const Tensor& hidden, const Choice& choice) {
  struct Wrapper {
    const std::optional<Lora>& lora;
    const Leaf& base;
    Factors factors = {};
  };
  Wrapper down{m.down_lora, *m.down}, gate_up{m.gate_up_lora, *m.gate_up};
  Tensor result;
  {
    std::vector<Tensor> cached;
    const auto enter = [&](Wrapper& its) {
      if (!its.lora) return;
      its.factors = factors_of(*its.lora, its.base.value);
      (void)folded(*its.lora, its.base.value, its.factors);
    };
    enter(down);
    enter(gate_up);
    const auto read = [&](const Wrapper& its) {
      if (!its.lora) return its.base.value;
      return cached.emplace_back(folded(*its.lora, its.base.value, its.factors));
    };
    result = grouped_experts(m, hidden, choice, {[&] { return read(gate_up); }, [&] { return read(down); }});
    gate_up.factors = {};
  }
  down.factors = {};
  return result;
}

// Of a matrix the product is made first, and added each time.
Tensor CausalLM::adapted_router(const Mixture& m, const std::function<Tensor(const Tensor&)>& run) {
  const Lora& lora = *m.router_lora;
  const Tensor& base = m.router.weight->value;
  const auto product = [&] {
    const Tensor made = conv1d(s_, lora.up->value, lora.down->value, {});
    return to(s_, mul_number(s_, made, lora.scale), base.dtype);
  };
  const Tensor delta = product();
  (void)add(s_, base, delta);
  return run(add(s_, base, delta));
}

// ---- construction --------------------------------------------------------------------------------------------------

// Of a parameter of all experts adapters are matrices of all their rows or columns; of two that are one, of twice the
// rank.
std::vector<CausalLM::AdapterSite> CausalLM::parameter_sites(const Adapter& adapter) {
  std::vector<AdapterSite> sites;
  const ExpertTargets targets = expert_targets(adapter, model_);
  if (!behavior_.experts.fused) return sites;
  for (Layer& layer : layers_) {
    if (!layer.mixture) continue;
    Mixture& m = *layer.mixture;
    const std::string block = block_name(layer.name);
    const auto add = [&](bool targeted, const std::string& name, const Leaf& base, const Leaf& last, std::int64_t rank,
                         std::optional<Lora>& place) {
      if (!targeted) return;
      const Shape& sizes = base.value.sizes;
      const std::int64_t outputs = sizes[sizes.size() - 2], inputs = sizes.back();
      const std::int64_t rows = rank * (sizes.size() == 3 ? sizes[0] : 1);
      const auto at = std::ranges::find_if(parameters_, [&](const auto& p) { return p.get() == &last; });
      sites.push_back({.name = name,
                       .last = static_cast<std::size_t>(at - parameters_.begin()),
                       .down = {rows, inputs},
                       .up = {outputs, rows},
                       .base = base.value.dtype,
                       .place = &place});
    };
    const auto of_router = [&] {
      const Leaf& its = *m.router.weight;
      add(targets.router, block + ".gate.weight", its, its, adapter.rank, m.router_lora);
    };
    if (router_first()) of_router();
    const std::string in = block + ".experts.";
    add(targets.gate && targets.up, in + "gate_up_proj", *m.gate_up, *m.down, 2 * adapter.rank, m.gate_up_lora);
    add(targets.down, in + "down_proj", *m.down, *m.down, adapter.rank, m.down_lora);
    if (!router_first()) of_router();
  }
  return sites;
}

}  // namespace tidemark::parallel::transformers
