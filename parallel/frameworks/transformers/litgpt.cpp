#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/torch/operation.hpp"

// LitGPT's GPT (litgpt/model.py, 0.4.11): one projection makes queries, keys and values, group by group, and rotary
// positions come from two tables.

namespace tidemark::parallel::transformers {

// The head is registered first.
void CausalLM::make_litgpt(std::int64_t vocabulary) {
  head_.weight = parameter("lm_head.weight", {vocabulary, model_.hidden});
  tokens_ = parameter("wte.weight", {vocabulary, model_.hidden});
  head_.weight->role = ParameterRole::Head;
  tokens_->role = ParameterRole::Embedding;
  const std::int64_t q_width = model_.heads * model_.head_dim, kv_width = model_.kv_heads * model_.head_dim;
  for (std::int32_t i = 0; i < model_.layers.size(); ++i) {
    Layer layer;
    layer.name = fmt::format("layers.{}", i);
    layer.parameters.begin = parameters_.size();
    layer.attention_norm = make_norm(layer.name + ".norm_1", model_.hidden);
    layer.attention.query =
        make_linear(layer.name + ".attn.attn", q_width + 2 * kv_width, model_.hidden, model_.qkv_bias);
    layer.attention.output = make_linear(layer.name + ".attn.proj", model_.hidden, q_width, model_.output_bias);
    layer.mlp_norm = make_norm(layer.name + ".norm_2", model_.hidden);
    const std::string mlp = layer.name + ".mlp";
    if (gated(model_.activation)) {
      layer.mlp.gate = make_linear(mlp + ".fc_1", model_.ffn, model_.hidden, model_.mlp_bias);
      layer.mlp.up = make_linear(mlp + ".fc_2", model_.ffn, model_.hidden, model_.mlp_bias);
    } else {
      layer.mlp.up = make_linear(mlp + ".fc", model_.ffn, model_.hidden, model_.mlp_bias);
    }
    layer.mlp.down = make_linear(mlp + ".proj", model_.hidden, model_.ffn, model_.mlp_bias);
    layer.parameters.end = parameters_.size();
    layers_.push_back(std::move(layer));
  }
  last_norm_ = make_norm("ln_f", model_.hidden);
  make_rope_cache();
}

// build_rope_cache: of all places that the model knows, in its parameters' type.
void CausalLM::make_rope_cache() {
  const std::int64_t width = model_.rotary_dim(), places = model_.max_positions;
  const auto table = [&](std::string_view what, Operation function) {
    frequencies_.push_back(s_.empty({places, width}, dtype_, what, Category::Parameters));
    const Tensor angles = s_.empty({places, width}, DType::FP32, "angles", Category::Temporaries);
    for (const std::int64_t half : {std::int64_t{0}, width / 2})
      s_.launch({Operation::RotaryTable, {usual_rotary_base}}, {}, {narrowed(angles, 1, half, width / 2)});
    s_.launch(function, {angles}, {frequencies_.back()});
  };
  table("cos", Operation::Cosine);
  table("sin", Operation::Sine);
}

CausalLM::States CausalLM::of_groups(const Attention& a, const Tensor& hidden) {
  const std::int64_t batch = hidden.sizes[0], sequence = hidden.sizes[1], width = model_.head_dim;
  const std::int64_t groups = model_.kv_heads, queries = model_.heads / groups;
  const Tensor joint = a.query(s_, hidden);
  const Tensor by_group = transpose(s_, view(s_, joint, {batch, sequence, groups, queries + 2, width}), 1, 2);
  std::vector<Tensor> parts = split(s_, transpose(s_, by_group, 2, 3), 2, {queries, 1, 1});
  const auto of_heads = [&](Tensor x) {
    if (x.sizes[2] != queries) x = expand(s_, x, {batch, groups, queries, sequence, width});
    return reshape(s_, x, {batch, groups * queries, sequence, width});
  };
  States states;
  states.joint = joint;  // model.py CausalSelfAttention.forward: qkv
  states.query = of_heads(parts[0]);
  states.key = of_heads(parts[1]);
  states.value = of_heads(parts[2]);
  return states;
}

// apply_rope turns the beginning of each head; the rest is put behind it again, also where nothing is left over: a
// compiler that knows leaves the order of dimensions in memory as it is, where torch.cat puts heads first.
void CausalLM::turn_part(States& states, const Context::View& view) {
  const std::int64_t turning = view.cosine.size(-1);
  const auto turned = [&](const Tensor& x) {
    const Tensor part = slice(s_, x, -1, 0, turning);
    const Tensor straight = mul(s_, part, view.cosine);
    const std::int64_t half = turning / 2;
    const Tensor x1 = slice(s_, part, -1, 0, half), x2 = slice(s_, part, -1, half, turning);
    const Tensor crossed = mul(s_, cat_last(s_, {neg(s_, x2), x1}), view.sine);
    return to(s_, add(s_, straight, crossed), x.dtype);
  };
  const auto whole = [&](const Tensor& made, const Tensor& x) {
    if (s_.tracer != nullptr && s_.behavior().drops_empty_parts && turning == x.size(-1)) return made;
    return cat_last(s_, {made, slice(s_, x, -1, turning, x.size(-1))});
  };
  const Tensor query = turned(states.query), key = turned(states.key);
  states.query = whole(query, states.query);
  states.key = whole(key, states.key);
}

Tensor CausalLM::litgpt_forward(const Layer& layer, const Tensor& given, const Context& context) {
  Tensor weights, hidden = given;
  const Tensor attended = attend(layer, layer.attention_norm(s_, hidden), context, nullptr, weights);
  if (model_.parallel_residual) {
    const Tensor made = run_mlp(layer, layer.mlp_norm(s_, hidden));
    return add(s_, add(s_, made, attended), hidden);
  }
  hidden = add(s_, attended, hidden);
  return add(s_, run_mlp(layer, layer.mlp_norm(s_, hidden)), hidden);
}

}  // namespace tidemark::parallel::transformers
