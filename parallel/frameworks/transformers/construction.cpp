#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/torch/operation.hpp"

// What a model's constructors make, in their order: parameters are registered in it.

namespace tidemark::parallel::transformers {

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

std::shared_ptr<Leaf> CausalLM::parameter(const std::string& name, Shape sizes) {
  parameters_.push_back(make_ ? make_(name, sizes, dtype_) : initialized_parameter(s_, name, std::move(sizes), dtype_));
  return parameters_.back();
}

Linear CausalLM::make_linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias) {
  if (quantizes(name)) return make_quantized(name, outputs, inputs, bias);
  const bool inputs_first = family_of(model_) == Family::Gpt2;
  Linear made;
  made.name = name;
  made.inputs_first = inputs_first;
  made.adds_apart = behavior_.stage_3_linear;
  made.weight = parameter(name + ".weight", inputs_first ? Shape{inputs, outputs} : Shape{outputs, inputs});
  if (bias) made.bias = parameter(name + ".bias", {outputs});
  return made;
}

Norm CausalLM::make_norm(const std::string& name, std::int64_t width) {
  Norm made;
  made.name = name;
  if (traits_.norms_without_weights) {
    made.kind = NormKind::LayerWithoutWeights;
    return made;
  }
  made.weight = parameter(name + ".weight", {width});
  if (traits_.cohere_norms) {
    made.kind = NormKind::CohereLayer;
  } else if (model_.normalization == Normalization::Layer) {
    made.kind = NormKind::Layer;
    made.bias = parameter(name + ".bias", {width});
  } else if (model_.zero_centered_norms) {
    made.kind = NormKind::ZeroCenteredRms;
  } else if (litgpt()) {
    if (behavior_.litgpt_weights_wide) made.kind = NormKind::WidenedRms;
  } else if (traits_.wide_tables) {
    made.kind = NormKind::WideRms;
  }
  made.kind = fused_norm(made.kind);
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
      a.output = make_linear(in + (model_.architecture == "phi" ? ".dense" : ".o_proj"), model_.hidden, q_width,
                             model_.output_bias);
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

CausalLM::Mlp CausalLM::make_gated(const std::string& at, std::int64_t width, bool bias) {
  Mlp made;
  made.gate = make_linear(at + ".gate_proj", width, model_.hidden, bias);
  made.up = make_linear(at + ".up_proj", width, model_.hidden, bias);
  made.down = make_linear(at + ".down_proj", model_.hidden, width, bias);
  return made;
}

void CausalLM::make_mlp(const std::string& at, Layer& layer) {
  Mlp& m = layer.mlp;
  const std::string in = at + ".mlp.";
  const auto make = [&](std::string_view name, std::int64_t outputs, std::int64_t inputs) {
    return make_linear(in + std::string(name), outputs, inputs, model_.mlp_bias);
  };
  switch (traits_.mlp) {
    case MlpKind::Gated:
      m = make_gated(at + ".mlp", model_.ffn, model_.mlp_bias);
      return;
    case MlpKind::Joint:
      m.gate = make("gate_up_proj", 2 * model_.ffn, model_.hidden);
      m.down = make("down_proj", model_.hidden, model_.ffn);
      return;
    case MlpKind::Plain: {
      const bool neox = family_of(model_) == Family::NeoX, phi = model_.architecture == "phi";
      m.up = make(neox ? "dense_h_to_4h" : phi ? "fc1" : "c_fc", model_.ffn, model_.hidden);
      m.down = make(neox ? "dense_4h_to_h" : phi ? "fc2" : "c_proj", model_.hidden, model_.ffn);
      return;
    }
  }
}

void CausalLM::make_layer_norms(const std::string& at, Layer& layer) {
  const std::int64_t width = model_.hidden;
  if (traits_.one_norm) {
    layer.attention_norm = make_norm(at + ".input_layernorm", width);
    return;
  }
  if (model_.architecture == "glm4") {
    layer.attention_norm = make_norm(at + ".input_layernorm", width);
    layer.mlp_norm = make_norm(at + ".post_attention_layernorm", width);
    layer.after_attention = make_norm(at + ".post_self_attn_layernorm", width);
    layer.after_mlp = make_norm(at + ".post_mlp_layernorm", width);
    return;
  }
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
  layer.windowed = model_.layer(index).window() > 0;
  layer.turns = turns_in(model_, index);
  layer.parameters.begin = parameters_.size();
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
    if (model_.has_experts(index))
      make_mixture(layer.name, index, layer);
    else
      make_mlp(layer.name, layer);
    make_layer_norms(layer.name, layer);
  }
  layer.parameters.end = parameters_.size();
  layers_.push_back(std::move(layer));
}

CausalLM::CausalLM(Session& session, const Model& model, std::int64_t vocabulary, const Train& train,
                   const EagerBehavior& behavior, DType dtype, MakeParameter make)
    : s_(session),
      model_(model),
      train_(train),
      behavior_(behavior),
      traits_(traits_of(model)),
      dtype_(dtype),
      make_(std::move(make)) {
  if (litgpt()) {
    make_litgpt(vocabulary);
    return;
  }
  tokens_ = parameter("embed_tokens.weight", {vocabulary, model.hidden});
  tokens_->role = ParameterRole::Embedding;
  if (model.positions == Positions::Learned) {
    positions_ = parameter("embed_positions.weight", {model.max_positions, model.hidden});
    positions_->role = ParameterRole::Embedding;
  }
  if (model.scaled_embedding) {
    // A buffer of the type that the model is made in, which DeepSpeed's engine leaves as it is from 0.19.2 on.
    embedding_scale_ = s_.empty({}, train.master_dtype, "embed_scale", Category::Parameters);
    s_.launch({Operation::Fill, {std::sqrt(static_cast<double>(model.hidden))}}, {}, {embedding_scale_});
  }
  for (std::int32_t i = 0; i < model.layers.size(); ++i) make_layer(i);
  last_norm_ = make_norm("norm", model.hidden);
  if (family_of(model) == Family::BigCode) make_causal_table();
  if (model.positions == Positions::Rotary) make_frequencies();
  head_.name = "lm_head";
  head_.adds_apart = behavior_.stage_3_linear;
  if (model.tied_embeddings) {
    // modeling_utils.py tie_weights: the head has a weight of its own first.
    if (!make_) (void)s_.empty({vocabulary, model.hidden}, dtype_, "lm_head.weight.untied", Category::Temporaries);
    head_.weight = tokens_;
  } else {
    head_.weight = parameter("lm_head.weight", {vocabulary, model.hidden});
    head_.weight->role = ParameterRole::Head;
  }
  if (traits_.head_bias) head_.bias = parameter("lm_head.bias", {vocabulary});
  if (train.quantization) prepare_for_training();
  if (train.adapter) adapt();
}

Parameters CausalLM::parameters_of(const Mixture& mixture) {
  Parameters all;
  const auto add = [&](const Linear& its) {
    for (const std::shared_ptr<Leaf>& p : {its.weight, its.bias})
      if (p) all.push_back(p);
    if (its.lora)
      for (const std::shared_ptr<Leaf>& p : {its.lora->down, its.lora->up, its.lora->magnitude})
        if (p) all.push_back(p);
  };
  const auto add_mlp = [&](const Mlp& its) { add(its.gate), add(its.up), add(its.down); };
  add(mixture.router);
  if (mixture.gate_up) all.insert(all.end(), {mixture.gate_up, mixture.down});
  for (const Mlp& its : mixture.each) add_mlp(its);
  add_mlp(mixture.shared);
  add(mixture.shared_gate);
  return all;
}

std::vector<ModuleSite> CausalLM::modules() {
  std::vector<ModuleSite> sites;
  const auto add = [&](ForwardHooks& hooks, std::initializer_list<std::shared_ptr<Leaf>> own = {}) {
    sites.push_back({.own = {}, .hooks = &hooks});
    for (const std::shared_ptr<Leaf>& its : own)
      if (its) sites.back().own.push_back(its);
  };
  const auto add_linear = [&](Linear& its) {
    if (!its.weight) return;
    if (its.lora) add(its.hooks);
    add(its.lora ? its.lora->of_base : its.hooks, {its.weight, its.bias});
    if (its.quantized) sites.back().viewed = sites.back().own;
    if (!its.lora) return;
    add(its.lora->of_dropout);
    add(its.lora->of_down, {its.lora->down});
    add(its.lora->of_up, {its.lora->up});
  };
  const auto add_norm = [&](Norm& its) {
    if (its.weight) add(its.hooks, {its.weight, its.bias});
  };
  const auto add_mlp = [&](Mlp& its) {
    for (Linear* const linear : {&its.gate, &its.up, &its.down}) add_linear(*linear);
    add(its.of_activation);
  };
  for (ForwardHooks& hooks : around_)
    if (train_.adapter) add(hooks);
  add(hooks_);
  add(of_decoder_);
  add(of_tokens_, {tokens_});
  if (positions_) add(of_positions_, {positions_});
  if (model_.positions == Positions::Rotary) add(of_rotary_);
  const bool drops = family_of(model_) != Family::Llama;
  if (drops && family_of(model_) != Family::Phi3) add(of_dropout_);
  for (Layer& layer : layers_) {
    add(layer.hooks);
    if (drops) add(layer.of_attention_dropout), add(layer.of_mlp_dropout);
    add(layer.attention.hooks);
    for (Linear* const its :
         {&layer.attention.query, &layer.attention.key, &layer.attention.value, &layer.attention.output})
      add_linear(*its);
    for (Norm* const its : {&layer.attention.query_norm, &layer.attention.key_norm}) add_norm(*its);
    add(layer.mlp.hooks);
    // Whole, with what is within (deepspeed/runtime/zero/leaf_module_config.py DEFAULT_LEAF_MODULE_CLASSES).
    if (layer.mixture) {
      ModuleSite& block = sites.back();
      block.own = parameters_of(*layer.mixture);
      block.whole = true;
      // torch._grouped_mm is handed weights that are transposed.
      if (layer.mixture->gate_up) block.viewed = {layer.mixture->gate_up, layer.mixture->down};
    } else {
      add_mlp(layer.mlp);
    }
    for (Norm* const its : {&layer.attention_norm, &layer.after_attention, &layer.mlp_norm, &layer.after_mlp})
      add_norm(*its);
  }
  add_norm(last_norm_);
  add_linear(head_);
  return sites;
}

// Gemma3RotaryEmbedding has frequencies for each kind of layers that the model has.
void CausalLM::make_frequencies() {
  const int kinds = model_.window_rotary && has_layers(true) && has_layers(false) ? 2 : 1;
  const auto made = [&](std::string_view what) {
    const DType dtype = behavior_.zero_init ? dtype_ : DType::FP32;
    frequencies_.push_back(s_.empty({model_.rotary_dim() / 2}, dtype, what, Category::Parameters));
    return frequencies_.back();
  };
  for (int k = 0; k < kinds; ++k) {
    const Tensor frequencies = made("inv_freq");  // no dimension of places: angles at place 1
    s_.launch({Operation::RotaryTable, {usual_rotary_base}}, {}, {frequencies});
    s_.launch(Operation::Copy, {frequencies}, {made("original_inv_freq")});
  }
}

void CausalLM::cast_buffers(DType dtype) {
  const auto cast = [&](Tensor& buffer, std::string_view what) {
    if (!buffer.defined() || buffer.dtype == dtype) return;
    Tensor made = s_.empty(buffer.sizes, dtype, what, Category::Parameters);
    s_.launch(Operation::Copy, {buffer}, {made});
    buffer = std::move(made);
  };
  for (std::size_t i = 0; i < frequencies_.size(); ++i)
    cast(frequencies_[i], i % 2 == 0 ? "inv_freq" : "original_inv_freq");
  cast(embedding_scale_, "embed_scale");
}

// Which keys each place may look at, though none of these attentions reads it: torch.tril(torch.ones(...)), which
// initializing the weights (GPTBigCodePreTrainedModel._init_weights) makes once more and copies.
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

}  // namespace tidemark::parallel::transformers
