#include "parallel/frameworks/transformers/families.hpp"

#include <utility>

#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/torch/operation.hpp"

// In which families' modules differ from Llama's. transformers 5.24: models/*/modeling_*.py.

namespace tidemark::parallel::transformers {
namespace {

bool is(const Model& model, std::initializer_list<std::string_view> families) {
  return std::ranges::find(families, std::string_view(model.architecture)) != families.end();
}

}  // namespace

Traits traits_of(const Model& model) {
  const std::string_view its = model.architecture;
  Traits traits;
  traits.one_norm = is(model, {"cohere", "cohere2", "phi"}) || (its == "stablelm" && model.parallel_residual);
  traits.keeps_branches = its == "stablelm" && !model.parallel_residual;
  if (is(model, {"phi3", "glm", "glm4"})) traits.mlp = MlpKind::Joint;
  if (is(model, {"gpt2", "gpt_bigcode", "gpt_neox", "starcoder2", "phi"})) traits.mlp = MlpKind::Plain;
  traits.drops_within = is(model, {"starcoder2", "seed_oss"});
  traits.drops_embedding = its == "starcoder2";
  traits.drops_branches = is(model, {"phi", "phi3"});
  traits.drops_mlp = its == "stablelm";
  traits.scales_residual = its == "granite";
  traits.scales_embedding = its == "granite";
  traits.scales_logits = is(model, {"granite", "cohere", "cohere2"});
  traits.scales_queries = its == "ministral3";
  traits.norms_without_weights = its == "olmo";
  traits.cohere_norms = is(model, {"cohere", "cohere2"});
  traits.wide_tables = is(model, {"olmo", "olmo2", "olmo3"});
  traits.widens_states = is(model, {"cohere", "cohere2"});
  traits.tables_per_layer = is(model, {"glm", "glm4"});
  traits.parts_in_caller = is(model, {"stablelm", "phi"});
  traits.head_bias = its == "phi";
  traits.one_mask = is(model, {"mistral", "mixtral", "phi3", "starcoder2", "ministral3"});
  traits.norms_of_turned = model.norms == NormPlacement::Around || its == "exaone4";
  return traits;
}

bool turns_in(const Model& model, std::int64_t layer) {
  constexpr std::int64_t interval = 4;  // SmolLM3Config's no_rope_layer_interval
  if (model.architecture == "smollm3") return (layer + 1) % interval != 0;
  const bool windows_alone = model.architecture == "cohere2" || (model.architecture == "exaone4" && model.window() > 0);
  return !windows_alone || model.layer(layer).window() > 0;
}

// OlmoLayerNorm: torch.nn.functional.layer_norm in fp32, without weight and bias.
Tensor layer_norm_without_weights(Session& s, const Tensor& given) {
  const Tensor x = to(s, given, DType::FP32);
  const auto constant = [&s, width = x.sizes.back()](double value) {
    const Tensor made = s.in_registers({width}, {1}, DType::FP32, "layer_norm_constant");
    s.launch({Operation::Fill, {value}}, {}, {made});
    return made;
  };
  auto node = s.node({&x});
  Saved saved_x;
  if (node) saved_x = s.save(x);
  Tensor out = s.empty(x.sizes, x.dtype, "layer_norm");
  Shape rows = x.sizes;
  rows.back() = 1;
  const Tensor mean = s.empty(rows, DType::FP32, "layer_norm_mean");
  const Tensor deviation = s.empty(rows, DType::FP32, "layer_norm_rstd");
  s.launch({Operation::LayerNorm, {usual_epsilon}}, {x, constant(1), constant(0)}, {out, mean, deviation});
  if (node)
    node->apply = [&s, constant, saved_x, saved_mean = s.save(mean),
                   saved_deviation = s.save(deviation)](const Gradients& g) {
      const Tensor in = s.unpack(saved_x), centre = s.unpack(saved_mean), rstd = s.unpack(saved_deviation);
      Gradients made(3);
      made[0] = s.empty(in.sizes, in.dtype, "layer_norm_gradient");
      s.launch(Operation::LayerNormBackward, {g.front(), in, centre, rstd, constant(1)}, made);
      return Gradients{made[0]};
    };
  return to(s, with(std::move(out), std::move(node)), given.dtype);
}

// CohereLayerNorm, operation by operation in fp32, with a weight alone.
Tensor cohere_layer_norm(Session& s, const Tensor& given, const Tensor& weight) {
  Tensor hidden = to(s, given, DType::FP32);
  const Tensor mean = mean_last(s, hidden);
  const auto centred = [&] { return sub(s, hidden, mean); };
  const auto squares = [&] { return pow_number(s, centred(), 2); };
  const Tensor variance = mean_last(s, squares());
  const auto normalized = [&] {
    const Tensor apart = centred();
    return mul(s, apart, rsqrt(s, add_number(s, variance, usual_epsilon)));
  };
  hidden = normalized();
  hidden = mul(s, to(s, weight, DType::FP32), hidden);
  return to(s, hidden, given.dtype);
}

// OLMo's clip_qkv, in place: of a linear's output, which autograd keeps as it was.
Tensor clipped(Session& s, const Tensor& x, double most) {
  auto node = s.node({&x});
  Saved saved;
  if (node) {
    const Tensor before = s.empty(x.sizes, x.dtype, "clamp_input");
    s.launch(Operation::Copy, {x}, {before});
    saved = s.save(before);
  }
  s.launch({Operation::Clamp, {-most, most}}, {x}, {x});
  if (node)
    node->apply = [&s, saved](const Gradients& g) {
      // where(self.ge(min).logical_and_(self.le(max)), grad, 0)
      const Tensor in = s.unpack(saved);
      const auto flags = [&] { return s.empty(in.sizes, DType::BOOL, "clamp_mask"); };
      const Tensor above = flags(), below = flags();
      s.launch(Operation::LessEqual, {in, in}, {above});
      s.launch(Operation::LessEqual, {in, in}, {below});
      s.launch(Operation::And, {above, below}, {above});
      const Tensor zero = s.empty({}, g.front().dtype, "clamp_zero");
      s.launch({Operation::Fill, {0}}, {}, {zero});
      Tensor made = s.empty(in.sizes, g.front().dtype, "clamp_gradient");
      s.launch(Operation::Where, {above, g.front(), zero}, {made});
      return Gradients{made};
    };
  return with(x.detached(), std::move(node));
}

}  // namespace tidemark::parallel::transformers
