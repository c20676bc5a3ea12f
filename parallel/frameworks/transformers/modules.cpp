#include "parallel/frameworks/transformers/modules.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

// A call's arguments live until it returns, in Python; here a temporary lives until its statement ends. So no call is
// nested in a call that is nested in another.
//
// Read in transformers 4.48 and 5.23: models/*/modeling_*.py, integrations/sdpa_attention.py, loss/loss_utils.py,
// cache_utils.py, masking_utils.py, modeling_layers.py.

namespace tidemark::parallel::transformers {
namespace {

// How a family's attention makes queries, keys and values, and what its layers look like.
enum class Family : std::uint8_t { Llama, Phi3, Gpt2, BigCode, NeoX };

Family family_of(const Model& model) {
  if (model.architecture == "phi3") return Family::Phi3;
  if (model.architecture == "gpt2") return Family::Gpt2;
  if (model.architecture == "gpt_bigcode") return Family::BigCode;
  if (model.architecture == "gpt_neox") return Family::NeoX;
  return Family::Llama;
}

bool gpt_style(const Model& model) {
  const Family family = family_of(model);
  return family == Family::Gpt2 || family == Family::BigCode;
}

Tensor rotated_half(Session& s, const Tensor& x) {
  const std::int64_t half = x.size(-1) / 2;
  const Tensor x1 = slice(s, x, -1, 0, half);
  const Tensor x2 = slice(s, x, -1, half, x.size(-1));
  return cat_last(s, {neg(s, x2), x1});
}

Tensor embedded(Session& s, const Tensor& x, const Tensor& cosine, const Tensor& sine) {
  const Tensor straight = mul(s, x, cosine);
  const Tensor crossed = mul(s, rotated_half(s, x), sine);
  return add(s, straight, crossed);
}

// batch, heads, sequence, width: each head of keys as often as query heads share it.
Tensor repeated(Session& s, const Tensor& x, std::int64_t times) {
  if (times == 1) return x;
  const Shape& z = x.sizes;
  const Tensor wide = expand(s, unsqueeze(s, x, 2), {z[0], z[1], times, z[2], z[3]});
  return reshape(s, wide, {z[0], z[1] * times, z[2], z[3]});
}

}  // namespace

bool computes_wide(const Model& model) { return model.architecture == "olmo2"; }

Tensor Linear::operator()(Session& s, const Tensor& x) const {
  const Tensor none;
  const Tensor& its_bias = bias ? bias->value : none;
  return inputs_first ? conv1d(s, x, weight->value, its_bias) : linear(s, x, weight->value, its_bias);
}

Tensor Norm::operator()(Session& s, const Tensor& x) const {
  if (kind == NormKind::Layer) return layer_norm(s, x, weight->value, bias->value);
  const auto mean_of_squares = [&](const Tensor& wide) { return mean_last(s, pow_number(s, wide)); };
  if (kind == NormKind::ZeroCenteredRms) {  // Gemma: in fp32 to the end
    Tensor output = to(s, x, DType::FP32);
    const auto normalized = [&] {  // all one expression
      Tensor scale = mean_of_squares(output);
      scale = add_number(s, scale);
      scale = rsqrt(s, scale);
      return mul(s, output, scale);
    };
    output = normalized();
    Tensor scale = to(s, weight->value, DType::FP32);
    scale = add_number(s, scale);
    output = mul(s, output, std::exchange(scale, Tensor{}));
    return to(s, output, x.dtype);
  }
  Tensor hidden = to(s, x, DType::FP32);
  const Tensor variance = mean_of_squares(hidden);
  const auto scale = [&] { return rsqrt(s, add_number(s, variance)); };
  hidden = mul(s, hidden, scale());
  if (kind == NormKind::WideRms) {  // OLMo 2: weighted in fp32
    const Tensor weighted = mul(s, weight->value, hidden);
    return to(s, weighted, x.dtype);
  }
  return mul(s, weight->value, to(s, hidden, x.dtype));
}

// ---- construction --------------------------------------------------------------------------------------------------

std::shared_ptr<Leaf> CausalLM::parameter(const std::string& name, Shape sizes) {
  const Session::Scope scope(s_, name);
  const Tensor made = s_.empty(std::move(sizes), dtype_, trained_parameter, Category::Parameters);
  s_.stream(Streaming::Fill, {}, {made});
  parameters_.push_back(leaf(s_, made));
  parameters_.back()->parameter = true;
  return parameters_.back();
}

Linear CausalLM::make_linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias) {
  const bool inputs_first = family_of(model_) == Family::Gpt2;
  Linear made;
  made.inputs_first = inputs_first;
  made.weight = parameter(name + ".weight", inputs_first ? Shape{inputs, outputs} : Shape{outputs, inputs});
  if (bias) made.bias = parameter(name + ".bias", {outputs});
  return made;
}

Norm CausalLM::make_norm(const std::string& name, std::int64_t width) {
  Norm made;
  made.weight = parameter(name + ".weight", {width});
  if (model_.normalization == Normalization::Layer) {
    made.kind = NormKind::Layer;
    made.bias = parameter(name + ".bias", {width});
  } else if (model_.zero_centered_norms) {
    made.kind = NormKind::ZeroCenteredRms;
  } else if (computes_wide(model_)) {
    made.kind = NormKind::WideRms;
  }
  return made;
}

void CausalLM::make_attention(const std::string& at, Layer& layer) {
  const std::int64_t q_width = model_.heads * model_.head_dim, kv_width = model_.kv_heads * model_.head_dim;
  Attention& a = layer.attention;
  switch (family_of(model_)) {
    case Family::Llama: {
      const std::string in = at + ".self_attn";
      a.query = make_linear(in + ".q_proj", q_width, model_.hidden, model_.qkv_bias);
      a.key = make_linear(in + ".k_proj", kv_width, model_.hidden, model_.qkv_bias);
      a.value = make_linear(in + ".v_proj", kv_width, model_.hidden, model_.qkv_bias);
      a.output = make_linear(in + ".o_proj", model_.hidden, q_width, model_.output_bias);
      if (model_.qk_norm != QkNorm::None) {
        const bool whole = model_.qk_norm == QkNorm::AllHeads;
        a.query_norm = make_norm(in + ".q_norm", whole ? q_width : model_.head_dim);
        a.key_norm = make_norm(in + ".k_norm", whole ? kv_width : model_.head_dim);
      }
      return;
    }
    case Family::Phi3:
      a.output = make_linear(at + ".self_attn.o_proj", model_.hidden, q_width, model_.output_bias);
      a.query = make_linear(at + ".self_attn.qkv_proj", q_width + 2 * kv_width, model_.hidden, model_.qkv_bias);
      return;
    case Family::Gpt2:
    case Family::BigCode:
      a.query = make_linear(at + ".attn.c_attn", q_width + 2 * kv_width, model_.hidden, model_.qkv_bias);
      a.output = make_linear(at + ".attn.c_proj", model_.hidden, q_width, model_.output_bias);
      return;
    case Family::NeoX:
      a.query = make_linear(at + ".attention.query_key_value", q_width + 2 * kv_width, model_.hidden, model_.qkv_bias);
      a.output = make_linear(at + ".attention.dense", model_.hidden, q_width, model_.output_bias);
      return;
  }
}

void CausalLM::make_mlp(const std::string& at, Layer& layer) {
  Mlp& m = layer.mlp;
  const std::string in = at + ".mlp";
  switch (family_of(model_)) {
    case Family::Llama:
      m.gate = make_linear(in + ".gate_proj", model_.ffn, model_.hidden, model_.mlp_bias);
      m.up = make_linear(in + ".up_proj", model_.ffn, model_.hidden, model_.mlp_bias);
      m.down = make_linear(in + ".down_proj", model_.hidden, model_.ffn, model_.mlp_bias);
      return;
    case Family::Phi3:
      m.gate = make_linear(in + ".gate_up_proj", 2 * model_.ffn, model_.hidden, model_.mlp_bias);
      m.down = make_linear(in + ".down_proj", model_.hidden, model_.ffn, model_.mlp_bias);
      return;
    case Family::Gpt2:
    case Family::BigCode:
      m.up = make_linear(in + ".c_fc", model_.ffn, model_.hidden, model_.mlp_bias);
      m.down = make_linear(in + ".c_proj", model_.hidden, model_.ffn, model_.mlp_bias);
      return;
    case Family::NeoX:
      m.up = make_linear(in + ".dense_h_to_4h", model_.ffn, model_.hidden, model_.mlp_bias);
      m.down = make_linear(in + ".dense_4h_to_h", model_.hidden, model_.ffn, model_.mlp_bias);
      return;
  }
}

void CausalLM::make_layer_norms(const std::string& at, Layer& layer) {
  const std::int64_t width = model_.hidden;
  switch (model_.norms) {
    case NormPlacement::Before:
      layer.attention_norm = make_norm(at + ".input_layernorm", width);
      layer.mlp_norm = make_norm(at + ".post_attention_layernorm", width);
      return;
    case NormPlacement::After:
      layer.after_attention = make_norm(at + ".post_attention_layernorm", width);
      layer.after_mlp = make_norm(at + ".post_feedforward_layernorm", width);
      return;
    case NormPlacement::Around:
      layer.attention_norm = make_norm(at + ".input_layernorm", width);
      layer.after_attention = make_norm(at + ".post_attention_layernorm", width);
      layer.mlp_norm = make_norm(at + ".pre_feedforward_layernorm", width);
      layer.after_mlp = make_norm(at + ".post_feedforward_layernorm", width);
      return;
  }
}

bool CausalLM::has_layers(bool windowed) const {
  return std::any_of(layers_.begin(), layers_.end(), [&](const Layer& l) { return l.windowed == windowed; });
}

void CausalLM::make_layer(std::int32_t index) {
  Layer layer;
  layer.name = fmt::format("layers.{}", index);
  layer.windowed = model_.has_window(static_cast<std::size_t>(index));
  if (gpt_style(model_)) {
    layer.attention_norm = make_norm(layer.name + ".ln_1", model_.hidden);
    make_attention(layer.name, layer);
    layer.mlp_norm = make_norm(layer.name + ".ln_2", model_.hidden);
    make_mlp(layer.name, layer);
  } else if (family_of(model_) == Family::NeoX) {
    make_layer_norms(layer.name, layer);
    make_attention(layer.name, layer);
    make_mlp(layer.name, layer);
  } else {
    make_attention(layer.name, layer);
    make_mlp(layer.name, layer);
    make_layer_norms(layer.name, layer);
  }
  layers_.push_back(std::move(layer));
}

CausalLM::CausalLM(Session& session, const Model& model, std::int64_t vocabulary, const Train& train,
                   const EagerHabits& habits)
    : s_(session), model_(model), train_(train), habits_(habits), dtype_(train.master_dtype) {
  tokens_ = parameter("embed_tokens.weight", {vocabulary, model.hidden});
  if (model.positions == Positions::Learned)
    positions_ = parameter("embed_positions.weight", {model.max_positions, model.hidden});
  if (model.scaled_embedding) embedding_scale_ = s_.empty({}, dtype_, "embed_scale", Category::Parameters);
  for (std::int32_t i = 0; i < model.layers; ++i) make_layer(i);
  last_norm_ = make_norm("norm", model.hidden);
  if (family_of(model) == Family::BigCode) make_causal_table();
  if (model.positions == Positions::Rotary) make_frequencies();
  if (model.tied_embeddings) {
    // modeling_utils.py tie_weights: the head has a weight of its own first.
    (void)s_.empty({vocabulary, model.hidden}, dtype_, "lm_head.weight.untied", Category::Temporaries);
    head_.weight = tokens_;
  } else {
    head_.weight = parameter("lm_head.weight", {vocabulary, model.hidden});
  }
}

// Gemma3RotaryEmbedding has frequencies for each kind of layers that the model has.
void CausalLM::make_frequencies() {
  const int kinds = model_.window_rotary && has_layers(true) && has_layers(false) ? 2 : 1;
  for (int k = 0; k < kinds; ++k)
    for (const std::string_view what : {"inv_freq", "original_inv_freq"})
      frequencies_.push_back(s_.empty({model_.rotary_dim() / 2}, DType::FP32, what, Category::Parameters));
}

// Which keys each place may look at, though few attentions read it: torch.tril(torch.ones(...)), which initializing the
// weights (GPTBigCodePreTrainedModel._init_weights) makes once more and copies.
void CausalLM::make_causal_table() {
  const Shape sizes{model_.max_positions, model_.max_positions};
  const auto table = [&](std::string_view what, Category category) {
    return s_.empty(sizes, DType::BOOL, what, category);
  };
  {
    const Tensor ones = table("ones", Category::Temporaries);
    causal_table_ = table("bias", Category::Parameters);
  }
  Tensor again;
  const Tensor ones = table("ones", Category::Temporaries);
  again = table("bias", Category::Temporaries);
}

// ---- attention -----------------------------------------------------------------------------------------------------

CausalLM::States CausalLM::separate(const Attention& a, const Tensor& hidden) {
  const std::int64_t batch = hidden.sizes[0], sequence = hidden.sizes[1], width = model_.head_dim;
  const auto by_head = [&](const Tensor& x, std::int64_t heads) {
    return view(s_, x, {batch, sequence, heads, width});
  };
  const auto turned = [&](const Tensor& x, std::int64_t heads) { return transpose(s_, by_head(x, heads), 1, 2); };
  States states;
  if (model_.qk_norm == QkNorm::AllHeads) {  // OLMo 2: heads are separated once all three are there
    states.query = a.query(s_, hidden);
    states.query = a.query_norm(s_, states.query);
    states.key = a.key(s_, hidden);
    states.key = a.key_norm(s_, states.key);
    states.value = a.value(s_, hidden);
    states.query = turned(states.query, model_.heads);
    states.key = turned(states.key, model_.kv_heads);
    states.value = turned(states.value, model_.kv_heads);
    return states;
  }
  // Qwen3 normalizes each before it transposes it, Gemma 3 what it has transposed, once all three are there.
  const bool norms_last = model_.norms == NormPlacement::Around;
  const auto made = [&](const Linear& projection, const Norm& norm, std::int64_t heads) {
    Tensor x = by_head(projection(s_, hidden), heads);
    if (norm.weight && !norms_last) x = norm(s_, x);
    return transpose(s_, x, 1, 2);
  };
  states.query = made(a.query, a.query_norm, model_.heads);
  states.key = made(a.key, a.key_norm, model_.kv_heads);
  states.value = made(a.value, {}, model_.kv_heads);
  if (a.query_norm.weight && norms_last) {
    states.query = a.query_norm(s_, states.query);
    states.key = a.key_norm(s_, states.key);
  }
  return states;
}

CausalLM::States CausalLM::of_slices(const Attention& a, const Tensor& hidden) {
  const std::int64_t batch = hidden.sizes[0], sequence = hidden.sizes[1], width = model_.head_dim;
  const Tensor joint = a.query(s_, hidden);
  const std::int64_t q = model_.heads * width, kv = model_.kv_heads * width;
  States states;
  states.query = slice(s_, joint, -1, 0, q);
  states.key = slice(s_, joint, -1, q, q + kv);
  states.value = slice(s_, joint, -1, q + kv, q + 2 * kv);
  states.query = transpose(s_, view(s_, states.query, {batch, sequence, model_.heads, width}), 1, 2);
  states.key = transpose(s_, view(s_, states.key, {batch, sequence, model_.kv_heads, width}), 1, 2);
  states.value = transpose(s_, view(s_, states.value, {batch, sequence, model_.kv_heads, width}), 1, 2);
  states.joint = joint.detached();
  return states;
}

CausalLM::States CausalLM::of_split(const Attention& a, const Tensor& hidden) {
  const std::int64_t batch = hidden.sizes[0], sequence = hidden.sizes[1], width = model_.head_dim;
  const std::int64_t q = model_.heads * width, kv = model_.kv_heads * width;
  const std::vector<Tensor> parts = split_last(s_, a.query(s_, hidden), {q, kv, kv});
  const auto by_head = [&](const Tensor& x, std::int64_t heads) {
    return transpose(s_, view(s_, x, {batch, sequence, heads, width}), 1, 2);
  };
  States states;
  states.key = by_head(parts[1], model_.kv_heads);
  states.value = by_head(parts[2], model_.kv_heads);
  states.query = by_head(parts[0], model_.heads);
  return states;
}

CausalLM::States CausalLM::of_heads(const Attention& a, const Tensor& hidden) {
  const std::int64_t batch = hidden.sizes[0], sequence = hidden.sizes[1], width = model_.head_dim;
  const Tensor joint = transpose(s_, view(s_, a.query(s_, hidden), {batch, sequence, model_.heads, 3 * width}), 1, 2);
  const std::vector<Tensor> parts = split_last(s_, joint, {width, width, width});
  const bool named = family_of(model_) == Family::NeoX;
  return {parts[0], parts[1], parts[2], named ? joint.detached() : Tensor{}};
}

CausalLM::States CausalLM::project(const Attention& a, const Tensor& hidden) {
  switch (family_of(model_)) {
    case Family::Llama:
      return separate(a, hidden);
    case Family::Phi3:
      return of_slices(a, hidden);
    case Family::Gpt2:
      return of_split(a, hidden);
    case Family::BigCode:
      return model_.kv_heads == 1 ? of_split(a, hidden) : of_heads(a, hidden);  // multi_query
    case Family::NeoX:
      return of_heads(a, hidden);
  }
  return {};
}

void CausalLM::turn(States& states, const Context::View& view) {
  const Tensor cosine = unsqueeze(s_, view.cosine, 1), sine = unsqueeze(s_, view.sine, 1);
  const std::int64_t turning = view.cosine.size(-1);
  // Some families put what turns and what does not together again, also where nothing is left over.
  const bool in_parts = family_of(model_) == Family::NeoX || family_of(model_) == Family::Phi3;
  struct Parts {
    Tensor turns, stays;
  };
  const auto cut = [&](const Tensor& x) -> Parts {
    return {slice(s_, x, -1, 0, turning), slice(s_, x, -1, turning, x.size(-1))};
  };
  const auto joined = [&](const Tensor& made, const Parts& of) { return cat_last(s_, {made, of.stays}); };
  if (!in_parts && turning == states.query.size(-1)) {
    Tensor query = embedded(s_, states.query, cosine, sine), key = embedded(s_, states.key, cosine, sine);
    if (computes_wide(model_)) {
      const Tensor narrow_query = to(s_, query, states.query.dtype), narrow_key = to(s_, key, states.key.dtype);
      query = narrow_query, key = narrow_key;
    }
    states.query = std::move(query);
    states.key = std::move(key);
    return;
  }
  const Parts of_query = cut(states.query), of_key = cut(states.key);
  Tensor query = embedded(s_, of_query.turns, cosine, sine);
  const bool at_once = family_of(model_) != Family::NeoX;  // GPT-NeoX turns both before it joins either
  if (at_once) query = joined(query, of_query);
  Tensor key = embedded(s_, of_key.turns, cosine, sine);
  if (!at_once) query = joined(query, of_query);
  key = joined(key, of_key);
  states.query = std::move(query);
  states.key = std::move(key);
}

Tensor CausalLM::scored(const States& states, const Tensor& mask, Tensor& weights) {
  const std::int64_t times = model_.heads / model_.kv_heads;
  Tensor keys = repeated(s_, states.key, times), values = repeated(s_, states.value, times);
  weights = mul_number(s_, matmul(s_, states.query, transpose(s_, keys, 2, 3)));
  if (model_.attention_softcap > 0) {
    weights = mul_number(s_, weights);
    weights = tanh(s_, weights);
    weights = mul_number(s_, weights);
  }
  weights = add(s_, weights, mask);
  if (family_of(model_) == Family::Gpt2) {  // which leaves the type to autocast, whose list of fp32 has softmax
    weights = softmax_last(s_, weights, s_.autocast ? DType::FP32 : weights.dtype);
    weights = to(s_, weights, states.query.dtype);
  } else {
    const auto probabilities = [&] {
      const Tensor made = softmax_last(s_, weights, DType::FP32);
      return to(s_, made, states.query.dtype);
    };
    weights = probabilities();  // one expression: the scores stay until its result is there
  }
  weights = dropout(s_, weights, train_.attention_dropout);
  Tensor output = matmul(s_, weights, values);
  output = contiguous(s_, transpose(s_, output, 1, 2));
  keys = {}, values = {};
  return output;
}

Tensor CausalLM::fused(const States& states, const Tensor& mask) {
  // integrations/sdpa_attention.py use_gqa_in_sdpa: with a mask, keys and values are repeated as before.
  const std::int64_t times = habits_.repeats_keys || mask.defined() ? model_.heads / model_.kv_heads : 1;
  const Tensor keys = repeated(s_, states.key, times), values = repeated(s_, states.value, times);
  const Tensor output =
      train_.attention == AttentionKernel::Flash
          ? flash_attention(s_, states.query, keys, values, train_.attention_dropout)
          : scaled_dot_product_attention(s_, states.query, keys, values, mask, train_.attention_dropout);
  return contiguous(s_, transpose(s_, output, 1, 2));
}

Tensor CausalLM::attend(const Layer& layer, const Tensor& hidden, const Context& context, std::vector<Tensor>* cache,
                        Tensor& weights) {
  const Session::Scope scope(s_, "attention");
  const Context::View& view = layer.windowed ? context.window : context.whole;
  States states = project(layer.attention, hidden);
  if (view.cosine.defined()) turn(states, view);
  if (cache != nullptr) {
    if (habits_.copies_into_cache) {
      // cache_utils.py: layers with a window keep its length; torch.cat of what there was, nothing of the keys' type,
      // and this.
      if (layer.windowed) cache->push_back(s_.empty({1}, DType::INT64, "cache_window"));
      Tensor keys = cat_last(s_, {states.key}), values = cat_last(s_, {states.value}, states.key.dtype);
      states.key = std::move(keys), states.value = std::move(values);
    }
    cache->push_back(states.key);
    cache->push_back(states.value);
  }
  Tensor output =
      train_.attention == AttentionKernel::Unfused ? scored(states, view.mask, weights) : fused(states, view.mask);
  output = contiguous(s_, reshape(s_, output, {hidden.sizes[0], hidden.sizes[1], model_.heads * model_.head_dim}));
  output = layer.attention.output(s_, output);
  if (gpt_style(model_)) output = dropout(s_, output, train_.hidden_dropout);
  states = {};
  return output;
}

// ---- layers --------------------------------------------------------------------------------------------------------

Tensor CausalLM::activate(const Tensor& x) {
  if (model_.activation == Activation::SwiGlu) return silu(s_, x);
  if (model_.activation == Activation::SquaredRelu) return pow_number(s_, relu(s_, x));
  if (!model_.composite_gelu) return gelu(s_, x);
  // 0.5 * input * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (input + 0.044715 * torch.pow(input, 3.0))))
  Tensor rest;
  const Tensor half = mul_number(s_, x);
  rest = pow_number(s_, x);
  rest = mul_number(s_, rest);
  rest = add(s_, x, rest);
  rest = mul_number(s_, rest);
  rest = tanh(s_, rest);
  rest = add_number(s_, rest);
  return mul(s_, half, rest);  // whose left operand goes first
}

Tensor CausalLM::run_mlp(const Layer& layer, const Tensor& x) {
  const Session::Scope scope(s_, "mlp");
  const Mlp& m = layer.mlp;
  switch (family_of(model_)) {
    case Family::Llama: {
      const auto product = [&] {
        const Tensor gate = activate(m.gate(s_, x));
        return mul(s_, gate, m.up(s_, x));
      };
      return m.down(s_, product());
    }
    case Family::Phi3: {
      const std::vector<Tensor> parts = split_last(s_, m.gate(s_, x), {model_.ffn, model_.ffn});
      const Tensor product = mul(s_, parts[1], activate(parts[0]));
      return m.down(s_, product);
    }
    case Family::Gpt2:
    case Family::BigCode:
    case Family::NeoX: {
      Tensor hidden = m.up(s_, x);
      hidden = activate(hidden);
      hidden = m.down(s_, hidden);
      return gpt_style(model_) ? dropout(s_, hidden, train_.hidden_dropout) : hidden;
    }
  }
  return {};
}

// What a frame of Python names is dropped when it returns, in the order of the names; what is declared last here goes
// first.
Tensor CausalLM::neox_forward(const Layer& layer, const Tensor& hidden, const Context& context,
                              std::vector<Tensor>* cache) {
  Tensor output, weights;
  Tensor attended = attend(layer, layer.attention_norm(s_, hidden), context, cache, weights);
  attended = dropout(s_, attended, train_.hidden_dropout);
  if (!model_.parallel_residual) {
    attended = add(s_, attended, hidden);
    output = run_mlp(layer, layer.mlp_norm(s_, attended));
    output = dropout(s_, output, train_.hidden_dropout);
    return add(s_, output, attended);
  }
  output = run_mlp(layer, layer.mlp_norm(s_, hidden));
  output = dropout(s_, output, train_.hidden_dropout);
  return add(s_, add(s_, output, attended), hidden);
}

// GPT-2 and GPTBigCode give what attention and MLP return names of their own: a norm's output stays meanwhile.
Tensor CausalLM::gpt_forward(const Layer& layer, const Tensor& given, const Context& context,
                             std::vector<Tensor>* cache) {
  Tensor fed_forward, weights, attended, residual = given;
  Tensor hidden = layer.attention_norm(s_, given);
  attended = attend(layer, hidden, context, cache, weights);
  hidden = add(s_, attended, residual);
  residual = hidden;
  hidden = layer.mlp_norm(s_, hidden);
  fed_forward = run_mlp(layer, hidden);
  hidden = add(s_, residual, fed_forward);
  return hidden;
}

Tensor CausalLM::forward(const Layer& layer, const Tensor& given, const Context& context, std::vector<Tensor>* cache) {
  if (family_of(model_) == Family::NeoX) return neox_forward(layer, given, context, cache);
  if (gpt_style(model_)) return gpt_forward(layer, given, context, cache);
  // Phi-3 drops out within the sum.
  const bool phi = family_of(model_) == Family::Phi3;
  const auto joined = [&](const Tensor& before, const Tensor& branch) {
    return add(s_, before, phi ? dropout(s_, branch, train_.hidden_dropout) : branch);
  };
  Tensor weights, residual = given, hidden = given;
  if (layer.attention_norm.weight) hidden = layer.attention_norm(s_, hidden);
  hidden = attend(layer, hidden, context, cache, weights);
  if (layer.after_attention.weight) hidden = layer.after_attention(s_, hidden);
  hidden = joined(residual, hidden);
  residual = hidden;
  if (layer.mlp_norm.weight) hidden = layer.mlp_norm(s_, hidden);
  hidden = run_mlp(layer, hidden);
  if (layer.after_mlp.weight) hidden = layer.after_mlp(s_, hidden);
  hidden = joined(residual, hidden);
  return hidden;
}

// What a layer is handed, and so keeps, of what all share.
Context CausalLM::handed_to(const Layer& layer, const Context& context) {
  return layer.windowed ? Context{{}, context.window, context.position_ids}
                        : Context{context.whole, {}, context.position_ids};
}

Tensor CausalLM::checkpointed(const Layer& layer, const Tensor& hidden, const Context& shared) {
  const Context context = handed_to(layer, shared);
  // torch/utils/checkpoint.py _checkpoint_without_reentrant_generator: the frame keeps the region's inputs.
  auto frame = std::make_shared<CheckpointFrame>();
  frame->run_again = [this, &layer, hidden, context, dtype = s_.autocast](Session& s) {
    const Autocast autocast(s, dtype);
    const Session::Scope scope(s, layer.name);
    const Tensor again = leaf(s, hidden)->value;
    again.gradient.node->leaf = false;  // but what it was: the output of the layer before
    (void)forward(layer, again, context, nullptr);
  };
  s_.keep(hidden);
  s_.pack_into(frame);
  Tensor out = forward(layer, hidden, context, nullptr);
  s_.pack_into(nullptr);
  s_.checkpointed(layer.name, hidden, out);
  return out;
}

Tensor CausalLM::checkpointed_reentrant(const Layer& layer, const Tensor& hidden, const Context& shared) {
  const Context context = handed_to(layer, shared);
  auto node = s_.node({&hidden});
  Tensor out;
  {
    const NoGrad no_grad(s_);
    out = forward(layer, hidden, context, nullptr);
  }
  if (!node) return out;
  s_.outlives_backward.push_back({context.whole.cosine, context.whole.sine, context.whole.mask, context.window.cosine,
                                  context.window.sine, context.window.mask, context.position_ids});
  s_.checkpointed(layer.name, hidden, out);
  // CheckpointFunction.backward: the region once more on a detached input, then its own backward pass.
  node->apply = [this, &layer, context, saved = s_.save(hidden),
                 dtype = s_.autocast](const std::vector<Tensor>& gradients) {
    const std::shared_ptr<Leaf> input = leaf(s_, s_.unpack(saved));
    Tensor again;
    {
      const Autocast autocast(s_, dtype);
      const Session::Again once_more(s_);
      again = forward(layer, input->value, context, nullptr);
    }
    backward(s_, again, gradients.front());
    return std::vector<Tensor>{input->gradient};
  };
  out.gradient = {std::move(node), 0};
  return out;
}

Tensor CausalLM::run_layer(const Layer& layer, const Tensor& hidden, const Context& context,
                           std::vector<Tensor>* cache) {
  const Session::Scope scope(s_, layer.name);
  s_.mark(Phase::Forward, layer.name);
  if (train_.recompute.kind == Recompute::None) return forward(layer, hidden, context, cache);
  return habits_.reentrant_checkpoint ? checkpointed_reentrant(layer, hidden, context)
                                      : checkpointed(layer, hidden, context);
}

// ---- the whole model -----------------------------------------------------------------------------------------------

Tensor CausalLM::decoder(const Tensor& ids, std::vector<Tensor>& cache) {
  s_.mark(Phase::Forward, "embedding");
  Context context;
  Tensor positions;
  Tensor embedded_tokens = embedding(s_, ids, tokens_->value);
  if (model_.scaled_embedding) embedded_tokens = mul(s_, embedded_tokens, embedding_scale_);
  Tensor hidden = embedded_tokens;
  const bool mask_first = family_of(model_) == Family::BigCode;
  const Tensor places = position_ids(ids.sizes[1]);
  if (family_of(model_) != Family::BigCode) context.position_ids = places;
  const bool caching = habits_.caches_keys && train_.recompute.kind == Recompute::None;
  if (mask_first) make_masks(context, hidden, caching);
  if (positions_) {
    positions = embedding(s_, places, positions_->value);
    hidden = add(s_, embedded_tokens, positions);
  }
  if (!mask_first) make_masks(context, hidden, caching);
  if (gpt_style(model_) || family_of(model_) == Family::NeoX) hidden = dropout(s_, hidden, train_.hidden_dropout);
  if (model_.positions == Positions::Rotary) {
    // Gemma 3 makes tables for the kinds of layers that it has.
    if (!model_.window_rotary || has_layers(false)) rotary_tables(context.whole, hidden);
    if (model_.window_rotary && has_layers(true)) rotary_tables(context.window, hidden);
    if (!model_.window_rotary) context.window.cosine = context.whole.cosine, context.window.sine = context.whole.sine;
  }
  for (const Layer& layer : layers_) hidden = run_layer(layer, hidden, context, caching ? &cache : nullptr);
  s_.mark(Phase::Forward, "norm");
  return last_norm_(s_, hidden);
}

Tensor CausalLM::loss_of(const Tensor& given, const Tensor& labels) {
  const Session::Scope scope(s_, "loss", Category::LogitsLoss);
  s_.mark(Phase::Forward, "loss");
  const bool own_loss = (gpt_style(model_) || family_of(model_) == Family::NeoX) && !habits_.upcasts_every_loss;
  Tensor shifted, padded, logits = own_loss ? given : to(s_, given, DType::FP32);
  const std::int64_t vocabulary = logits.size(-1);
  if (habits_.shifts_logits) {
    shifted = contiguous(s_, slice(s_, logits, 1, 0, logits.sizes[1] - 1));
    const Tensor shifted_labels = s_.empty({labels.sizes[0], labels.sizes[1] - 1}, DType::INT64, "shifted_labels");
    s_.stream(Streaming::Copy, {labels}, {shifted_labels});
    const Tensor rows = view(s_, shifted, {shifted.elements() / vocabulary, vocabulary});
    return cross_entropy(s_, rows, view(s_, shifted_labels, {shifted_labels.elements()}));
  }
  padded = s_.empty({labels.sizes[0], labels.sizes[1] + 1}, DType::INT64, "padded_labels");
  s_.stream(Streaming::Copy, {labels}, {padded});
  // labels[..., 1:].contiguous(): of one sequence it is so already.
  shifted = contiguous(s_, slice(s_, padded, 1, 1, padded.sizes[1]));
  logits = view(s_, logits, {logits.elements() / vocabulary, vocabulary});
  return cross_entropy(s_, logits, view(s_, shifted, {shifted.elements()}));
}

CausalLM::Outputs CausalLM::operator()(const Tensor& ids, const Tensor& labels) {
  Outputs outputs;
  const Tensor hidden = decoder(ids, outputs.cache);
  s_.mark(Phase::Forward, "lm_head");
  Tensor& logits = outputs.logits;
  {
    const Session::Scope scope(s_, "lm_head", Category::LogitsLoss);
    logits = head_(s_, hidden);
    if (model_.logit_softcap > 0) {
      logits = mul_number(s_, logits);
      logits = tanh(s_, logits);
      logits = mul_number(s_, logits);
    }
  }
  outputs.loss = loss_of(logits, labels);
  return outputs;
}

}  // namespace tidemark::parallel::transformers
