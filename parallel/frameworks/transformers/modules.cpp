#include "parallel/frameworks/transformers/modules.hpp"

#include <cmath>
#include <numbers>
#include <utility>

#include "parallel/frameworks/transformers/fused.hpp"
#include "parallel/torch/checkpoint.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/stage_3_linear.hpp"

// A call's arguments live until it returns, in Python; here a temporary lives until its statement ends. So no call is
// nested in a call that is nested in another.
//
// Read in transformers 4.48 and 5.23: models/*/modeling_*.py, integrations/sdpa_attention.py, loss/loss_utils.py,
// cache_utils.py, masking_utils.py, modeling_layers.py.

namespace tidemark::parallel::transformers {
namespace {

// Of which cross_entropy takes no loss: its ignore_index.
constexpr double no_label = -100;

// integrations/neftune.py neftune_post_forward_hook. The noise is drawn, which changes neither memory nor time: here it
// is none.
Tensor with_noise(Session& s, const Tensor& embedded) {
  const Session::Scope scope(s, "neftune");
  const Tensor noise = s.empty(embedded.sizes, embedded.dtype, "noise");
  s.launch({Operation::Fill, {0}}, {}, {noise});
  return add(s, embedded, noise);
}

}  // namespace

Tensor Linear::operator()(Session& s, const Tensor& given) const {
  return hooked(hooks, given, [&](const Tensor& x) { return lora ? adapted(s, x) : product(s, x); });
}

Tensor Linear::product(Session& s, const Tensor& x) const {
  if (quantized) return quantized_product(s, x);
  const Tensor none;
  return times(s, x, weight->value, bias ? bias->value : none);
}

Tensor Linear::times(Session& s, const Tensor& x, const Tensor& its, const Tensor& added) const {
  if (adds_apart && !inputs_first) {
    const Tensor made = linear_of_stage_3(s, x, its);
    return added.defined() ? add_in_place(s, made, added) : made;
  }
  return inputs_first ? conv1d(s, x, its, added) : linear(s, x, its, added);
}

Tensor Norm::operator()(Session& s, const Tensor& given) const {
  return hooked(hooks, given, [&](const Tensor& x) { return normalized(s, x); });
}

Tensor Norm::normalized(Session& s, const Tensor& x) const {
  switch (kind) {
    case NormKind::Layer:
      return layer_norm(s, x, weight->value, bias->value);
    case NormKind::LayerWithoutWeights:
      return layer_norm_without_weights(s, x);
    case NormKind::CohereLayer:
      return cohere_layer_norm(s, x, weight->value);
    case NormKind::LigerRms:
      return liger::rms_norm(s, x, weight->value, 0, liger::Gradient::InPlace);
    case NormKind::LigerRmsApart:
      return liger::rms_norm(s, x, weight->value, 0, liger::Gradient::Apart);
    case NormKind::LigerZeroCenteredRms:
      return liger::rms_norm(s, x, weight->value, 1, liger::Gradient::InPlace);
    case NormKind::LigerZeroCenteredRmsApart:
      return liger::rms_norm(s, x, weight->value, 1, liger::Gradient::Apart);
    case NormKind::FoakRms:
      return foak::rms_norm(s, x, weight->value);
    case NormKind::Rms:
    case NormKind::WideRms:
    case NormKind::WidenedRms:
    case NormKind::ZeroCenteredRms:
      break;
  }
  const auto mean_of_squares = [&](const Tensor& wide) { return mean_last(s, pow_number(s, wide, 2)); };
  if (kind == NormKind::ZeroCenteredRms) {  // Gemma: in fp32 to the end
    Tensor output = to(s, x, DType::FP32);
    const auto normalized = [&] {  // all one expression
      Tensor scale = mean_of_squares(output);
      scale = add_number(s, scale, usual_epsilon);
      scale = rsqrt(s, scale);
      return mul(s, output, scale);
    };
    output = normalized();
    Tensor scale = to(s, weight->value, DType::FP32);
    scale = add_number(s, scale, 1);
    output = mul(s, output, std::exchange(scale, Tensor{}));
    return to(s, output, x.dtype);
  }
  Tensor hidden = to(s, x, DType::FP32);
  const Tensor variance = mean_of_squares(hidden);
  const auto scale = [&] { return rsqrt(s, add_number(s, variance, usual_epsilon)); };
  hidden = mul(s, hidden, scale());
  if (kind == NormKind::WidenedRms) {  // LitGPT: x_normed * weight.float()
    const Tensor weighted = mul(s, hidden, to(s, weight->value, DType::FP32));
    return to(s, weighted, x.dtype);
  }
  if (kind == NormKind::WideRms) {  // OLMo 2: weighted in fp32
    const Tensor weighted = mul(s, weight->value, hidden);
    return to(s, weighted, x.dtype);
  }
  return mul(s, weight->value, to(s, hidden, x.dtype));
}

// ---- layers --------------------------------------------------------------------------------------------------------

// A dropout of the residual stream, by the module's name.
Tensor CausalLM::dropped(std::string_view module, const ForwardHooks& hooks, const Tensor& given) {
  const Session::Scope scope(s_, module);
  return hooked(hooks, given, [&](const Tensor& x) { return dropout(s_, x, train_.hidden_dropout); });
}

Tensor CausalLM::activate(const Mlp& mlp, const Tensor& given) {
  return hooked(mlp.of_activation, given, [&](const Tensor& x) { return activated(x); });
}

Tensor CausalLM::activated(const Tensor& x) {
  if (model_.activation == Activation::SwiGlu) return silu(s_, x);
  if (model_.activation == Activation::SquaredRelu) return pow_number(s_, relu(s_, x), 2);
  if (model_.gelu == GeluForm::Exact) return gelu(s_, x, Approximate::None);
  if (model_.gelu == GeluForm::Tanh) return gelu(s_, x, Approximate::Tanh);
  // 0.5 * input * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (input + 0.044715 * torch.pow(input, 3.0))))
  Tensor rest;
  const Tensor half = mul_number(s_, x, 0.5);
  rest = pow_number(s_, x, 3);
  rest = mul_number(s_, rest, 0.044715);
  rest = add(s_, x, rest);
  rest = mul_number(s_, rest, std::sqrt(2 / std::numbers::pi));
  rest = tanh(s_, rest);
  rest = add_number(s_, rest, 1);
  return mul(s_, half, rest);  // whose left operand goes first
}

Tensor CausalLM::run_mlp(const Layer& layer, const Tensor& given) {
  return hooked(layer.mlp.hooks, given,
                [&](const Tensor& x) { return layer.mixture ? mixture_of(layer, x) : mlp(layer, x); });
}

Tensor CausalLM::gated_mlp(const Mlp& m, const Tensor& x) {
  const auto product = [&] {
    if (behavior_.liger.has(FusedModule::SwiGlu)) {
      const Tensor gate = m.gate(s_, x);
      const Tensor up = m.up(s_, x);
      return model_.activation == Activation::SwiGlu ? liger::swiglu(s_, gate, up) : liger::geglu(s_, gate, up);
    }
    const Tensor gate = activate(m, m.gate(s_, x));
    return mul(s_, gate, m.up(s_, x));
  };
  return m.down(s_, product());
}

Tensor CausalLM::mlp(const Layer& layer, const Tensor& x) {
  const Session::Scope scope(s_, "mlp");
  const Mlp& m = layer.mlp;
  switch (traits_.mlp) {
    case MlpKind::Gated: {
      const Tensor made = gated_mlp(m, x);
      return traits_.drops_within ? dropout(s_, made, train_.hidden_dropout) : made;
    }
    case MlpKind::Joint: {
      const std::vector<Tensor> parts = split_last(s_, m.gate(s_, x), {model_.ffn, model_.ffn});
      const Tensor product = mul(s_, parts[1], activate(m, parts[0]));
      return m.down(s_, product);
    }
    case MlpKind::Plain: {
      Tensor hidden = m.up(s_, x);
      hidden = activate(m, hidden);
      hidden = m.down(s_, hidden);
      if (traits_.drops_within) return dropout(s_, hidden, train_.hidden_dropout);
      if (!gpt_style(model_)) return hidden;
      return hooked(layer.of_mlp_dropout, hidden,
                    [&](const Tensor& product) { return dropout(s_, product, train_.hidden_dropout); });
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
  attended = dropped("post_attention_dropout", layer.of_attention_dropout, attended);
  if (!model_.parallel_residual) {
    attended = add(s_, attended, hidden);
    output = run_mlp(layer, layer.mlp_norm(s_, attended));
    output = dropped("post_mlp_dropout", layer.of_mlp_dropout, output);
    return add(s_, output, attended);
  }
  output = run_mlp(layer, layer.mlp_norm(s_, hidden));
  output = dropped("post_mlp_dropout", layer.of_mlp_dropout, output);
  return add(s_, add(s_, output, attended), hidden);
}

// Cohere, Phi and StableLM's parallel form: both branches read what one norm gives, and are added at once.
Tensor CausalLM::one_norm_forward(const Layer& layer, const Tensor& hidden, const Context& context,
                                  std::vector<Tensor>* cache) {
  Tensor attended, made, weights;
  const Tensor normed = layer.attention_norm(s_, hidden);
  attended = attend(layer, normed, context, cache, weights);
  if (traits_.drops_branches) attended = dropped("resid_dropout", layer.of_attention_dropout, attended);
  made = run_mlp(layer, normed);
  if (traits_.drops_branches || traits_.drops_mlp) made = dropped("resid_dropout", layer.of_mlp_dropout, made);
  if (traits_.drops_branches) return add(s_, add(s_, attended, made), hidden);  // Phi
  return add(s_, add(s_, hidden, attended), made);
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

// The same of a layer.
Tensor CausalLM::call(const Layer& layer, const Tensor& given, const Context& context, std::vector<Tensor>* cache) {
  const ForwardHooks& hooks = layer.hooks;
  const auto inner = [&](const Tensor& x, const Context& handed) {
    const bool compiles = behavior_.compiled != CompiledParts::None && s_.tracer == nullptr;
    return compiles ? compiled_layer(layer, x, handed, false) : forward(layer, x, handed, cache);
  };
  if (!hooks.before || hooks.around_checkpoint) return inner(given, context);
  const Context handed = hooks.inputs ? cast(context, *hooks.inputs) : context;
  const Tensor input = hooks.before(given);
  return hooks.after(inner(input, handed));
}

Context CausalLM::cast(Context context, DType dtype) {
  const auto floating = [](DType type) { return type == DType::FP32 || type == DType::BF16 || type == DType::FP16; };
  for (Context::View* const view : {&context.whole, &context.window})
    for (Tensor* const x : {&view->cosine, &view->sine, &view->mask})
      if (x->defined() && floating(x->dtype)) *x = to(s_, *x, dtype);
  return context;
}

Tensor CausalLM::forward(const Layer& layer, const Tensor& given, const Context& context, std::vector<Tensor>* cache) {
  if (litgpt()) return litgpt_forward(layer, given, context);
  if (family_of(model_) == Family::NeoX) return neox_forward(layer, given, context, cache);
  if (gpt_style(model_)) return gpt_forward(layer, given, context, cache);
  if (traits_.one_norm) return one_norm_forward(layer, given, context, cache);
  // Phi-3 drops out within the sum, Granite scales there.
  const auto joined = [&](const Tensor& before, const Tensor& branch, std::string_view module,
                          const ForwardHooks& hooks, bool drops) {
    if (traits_.scales_residual) return add(s_, before, mul_number(s_, branch, 1));
    return add(s_, before, drops ? dropped(module, hooks, branch) : branch);
  };
  Tensor weights, attended, residual = given, hidden = given;
  if (layer.attention_norm.exists()) hidden = layer.attention_norm(s_, hidden);
  hidden = attend(layer, hidden, context, cache, weights);
  if (traits_.keeps_branches) attended = hidden.detached();
  if (layer.after_attention.exists()) hidden = layer.after_attention(s_, hidden);
  hidden = joined(residual, hidden, "resid_attn_dropout", layer.of_attention_dropout, traits_.drops_branches);
  residual = hidden;
  if (layer.mlp_norm.exists()) hidden = layer.mlp_norm(s_, hidden);
  hidden = run_mlp(layer, hidden);
  if (layer.after_mlp.exists()) hidden = layer.after_mlp(s_, hidden);
  hidden =
      joined(residual, hidden, "resid_mlp_dropout", layer.of_mlp_dropout, traits_.drops_branches || traits_.drops_mlp);
  return hidden;
}

// What a layer is handed, and so keeps, of what all share.
Context CausalLM::handed_to(const Layer& layer, const Context& context) {
  return layer.windowed ? Context{{}, context.window, context.position_ids}
                        : Context{context.whole, {}, context.position_ids};
}

Tensor CausalLM::checkpointed(const Layer& layer, const Tensor& hidden, const Context& shared,
                              std::vector<Tensor>* cache) {
  const Context context = handed_to(layer, shared);
  // A wrapper around the layer's checkpoint leaves both to the compiler.
  if (behavior_.compiled != CompiledParts::None && layer.hooks.around_checkpoint)
    return compiled_layer(layer, hidden, context, true);
  // What the layer gives: its output, and keys and values where they are cached.
  const WideRegion region = [this, &layer, context, caches = cache != nullptr](const Tensor& x) {
    std::vector<Tensor> made(1);
    std::vector<Tensor> keys;
    made.front() = call(layer, x, context, caches ? &keys : nullptr);
    made.insert(made.end(), keys.begin(), keys.end());
    return made;
  };
  std::vector<Tensor> made = behavior_.reentrant_checkpoint ? checkpoint_reentrant(s_, hidden, region)
                                                            : checkpoint(s_, hidden, region, CheckpointOptions{});
  if (cache != nullptr) cache->insert(cache->end(), made.begin() + 1, made.end());
  Tensor out = std::move(made.front());
  if (behavior_.reentrant_checkpoint && out.requires_grad())
    s_.outlives_backward.push_back(std::make_shared<Context>(context));
  return out;
}

Tensor CausalLM::run_layer(const Layer& layer, const Tensor& hidden, const Context& context,
                           std::vector<Tensor>* cache) {
  const Session::Scope scope(s_, layer.name);
  s_.mark(Phase::Forward, layer.name);
  const bool wrapped = layer.hooks.around_checkpoint, checkpoints = train_.recompute.kind != Recompute::None;
  const Tensor input = wrapped ? layer.hooks.before(hidden) : hidden;
  Tensor out = checkpoints ? checkpointed(layer, input, context, cache) : call(layer, input, context, cache);
  return wrapped ? layer.hooks.after(out) : out;
}

// ---- the whole model -----------------------------------------------------------------------------------------------

Tensor CausalLM::decoder(const Tensor& ids, const Tensor& given_positions, std::vector<Tensor>& cache) {
  s_.mark(Phase::Forward, "embedding");
  Context context;
  Tensor positions;
  if (litgpt()) {
    Tensor hidden = hooked(of_tokens_, {}, [&](const Tensor&) { return embedding(s_, ids, tokens_->value); });
    context.whole.cosine = narrowed(frequencies_[0], 0, 0, ids.sizes[1]);
    context.whole.sine = narrowed(frequencies_[1], 0, 0, ids.sizes[1]);
    for (const Layer& layer : layers_) hidden = run_layer(layer, hidden, context, nullptr);
    s_.mark(Phase::Forward, "norm");
    return last_normed(hidden);
  }
  const bool as_it_is = behavior_.neftune == 0 && !model_.scaled_embedding;
  Tensor embedded_tokens = hooked(of_tokens_, {}, [&](const Tensor&) {
    Tensor made = embedding(s_, ids, tokens_->value);
    if (as_it_is) ask_for_gradient(made);  // by a hook, which is there before others are
    return made;
  });
  if (behavior_.neftune > 0) embedded_tokens = with_noise(s_, embedded_tokens);
  if (model_.scaled_embedding)  // embed_scale.to(self.weight.dtype)
    embedded_tokens = mul(s_, embedded_tokens, to(s_, embedding_scale_, embedded_tokens.dtype));
  if (!as_it_is) ask_for_gradient(embedded_tokens);
  if (traits_.scales_embedding) embedded_tokens = mul_number(s_, embedded_tokens, 1);
  Tensor hidden = embedded_tokens;
  const bool mask_first = family_of(model_) == Family::BigCode;
  const Tensor places = given_positions.defined() ? given_positions : position_ids(ids.sizes[1]);
  if (family_of(model_) != Family::BigCode) context.position_ids = places;
  const bool of_checkpointed = family_of(model_) == Family::BigCode && behavior_.caches_checkpointed;
  const bool caching = behavior_.caches_keys && (train_.recompute.kind == Recompute::None || of_checkpointed);
  if (mask_first) make_masks(context, places, hidden, caching);
  if (positions_) {
    positions = hooked(of_positions_, {}, [&](const Tensor&) { return embedding(s_, places, positions_->value); });
    hidden = add(s_, embedded_tokens, positions);
  }
  if (!mask_first) make_masks(context, places, hidden, caching);
  if (gpt_style(model_) || family_of(model_) == Family::NeoX)
    hidden = hooked(of_dropout_, hidden, [&](const Tensor& x) { return dropout(s_, x, train_.hidden_dropout); });
  if (traits_.drops_embedding) hidden = dropout(s_, hidden, train_.hidden_dropout);
  if (model_.positions == Positions::Rotary) {
    if (of_rotary_.before) (void)of_rotary_.before({});
    // Gemma 3 makes tables for the kinds of layers that it has.
    if (!model_.window_rotary || has_layers(false)) rotary_tables(context.whole, places, hidden);
    if (model_.window_rotary && has_layers(true)) rotary_tables(context.window, places, hidden);
    if (!model_.window_rotary) context.window.cosine = context.whole.cosine, context.window.sine = context.whole.sine;
    if (of_rotary_.after) (void)of_rotary_.after({});
  }
  for (const Layer& layer : layers_) hidden = run_layer(layer, hidden, context, caching ? &cache : nullptr);
  s_.mark(Phase::Forward, "norm");
  return last_normed(hidden);
}

// By itself where layers are: an RMSNorm is a module of the model's own, LayerNorm PyTorch's, which the compiler leaves
// alone unless it is asked for it.
Tensor CausalLM::last_normed(const Tensor& hidden) {
  const bool compiles = behavior_.compiled != CompiledParts::None && s_.tracer == nullptr &&
                        (last_norm_.kind != NormKind::Layer || behavior_.compiled == CompiledParts::Layers);
  if (!compiles) return last_norm_(s_, hidden);
  std::vector<Tensor> inputs{hidden, last_norm_.weight->value};
  if (last_norm_.bias) inputs.push_back(last_norm_.bias->value);
  const auto region = [&](std::vector<Tensor> given) {
    const auto exchange = [&] {
      std::swap(last_norm_.weight->value, given[1]);
      if (last_norm_.bias) std::swap(last_norm_.bias->value, given[2]);
    };
    exchange();
    Tensor made = last_norm_(s_, given[0]);
    exchange();
    return made;
  };
  return compiled_norm_(s_, inputs, region, {.marks = s_.process.label("compiled_norm")});
}

// ---- torch.compile -------------------------------------------------------------------------------------------------

// A layer reads its parameters, and what all layers share, wherever it is told they are.
Tensor CausalLM::compiled_layer(const Layer& layer, const Tensor& hidden, const Context& context, bool checkpointed) {
  const Context::View& view = layer.windowed ? context.window : context.whole;
  std::vector<Tensor> inputs{hidden};
  if (view.cosine.defined()) inputs.push_back(view.cosine), inputs.push_back(view.sine);
  const CompileOptions options{.checkpointed = checkpointed, .policy = {}, .others = inputs.size()};
  const Range& range = layer.parameters;
  for (std::size_t p = range.begin; p < range.end; ++p) inputs.push_back(parameters_[p]->value);
  const auto region = [&](std::vector<Tensor> given) {
    Context::View seen = view;
    if (view.cosine.defined()) seen.cosine = given[1], seen.sine = given[2];
    const auto exchange = [&] {
      for (std::size_t p = range.begin; p < range.end; ++p)
        std::swap(parameters_[p]->value, given[options.others + p - range.begin]);
    };
    exchange();
    Tensor out = forward(layer, given.front(), {seen, seen, {}}, nullptr);
    exchange();
    return out;
  };
  return compiled_layer_(s_, inputs, region, options);
}

// LitGPT's model as one graph, which gives logits.
Tensor CausalLM::compiled_logits(const Tensor& ids) {
  std::vector<Tensor> inputs{ids};
  for (const std::shared_ptr<Leaf>& p : parameters_) inputs.push_back(p->value);
  inputs.insert(inputs.end(), frequencies_.begin(), frequencies_.end());
  const auto region = [&](std::vector<Tensor> given) {
    const auto exchange = [&] {
      std::size_t next = 1;
      for (const std::shared_ptr<Leaf>& p : parameters_) std::swap(p->value, given[next++]);
      for (Tensor& buffer : frequencies_) std::swap(buffer, given[next++]);
    };
    exchange();
    std::vector<Tensor> none;
    Tensor logits = logits_of(decoder(given.front(), {}, none));
    exchange();
    return logits;
  };
  return compiled_(s_, inputs, region, {.marks = s_.process.label("compiled_model")});
}

Tensor CausalLM::loss_of(const Tensor& given, const Tensor& labels) {
  const Session::Scope scope(s_, "loss", Category::LogitsLoss);
  s_.mark(Phase::Forward, "loss");
  if (litgpt()) {  // whose loops hand out targets that are shifted already, and take logits as they are
    const Tensor rows = view(s_, given, {labels.elements(), given.size(-1)});
    return cross_entropy(s_, rows, view(s_, labels, {labels.elements()}));
  }
  const bool stays = has_own_loss() && !behavior_.upcasts_every_loss;
  Tensor shifted, padded, logits = stays ? given : to(s_, given, DType::FP32);
  const std::int64_t vocabulary = logits.size(-1);
  if (behavior_.shifts_logits) {
    shifted = contiguous(s_, slice(s_, logits, 1, 0, logits.sizes[1] - 1));
    const Tensor shifted_labels = s_.empty({labels.sizes[0], labels.sizes[1] - 1}, DType::INT64, "shifted_labels");
    s_.launch(Operation::Copy, {narrowed(labels, 1, 1, labels.sizes[1] - 1)}, {shifted_labels});
    const Tensor rows = view(s_, shifted, {shifted.elements() / vocabulary, vocabulary});
    return rows_loss(rows, view(s_, shifted_labels, {shifted_labels.elements()}));
  }
  padded = s_.empty({labels.sizes[0], labels.sizes[1] + 1}, DType::INT64, "padded_labels");
  s_.launch({Operation::Fill, {no_label}}, {}, {padded});
  s_.launch(Operation::Copy, {labels}, {narrowed(padded, 1, 0, labels.sizes[1])});
  // labels[..., 1:].contiguous(): of one sequence it is so already.
  shifted = contiguous(s_, slice(s_, padded, 1, 1, padded.sizes[1]));
  logits = view(s_, logits, {logits.elements() / vocabulary, vocabulary});
  return rows_loss(logits, view(s_, shifted, {shifted.elements()}));
}

CausalLM::Outputs CausalLM::operator()(const Tensor& ids, const Tensor& labels, const Tensor& positions) {
  for (const ForwardHooks* const its : {&around_[0], &around_[1], &hooks_})
    if (its->before) (void)its->before({});
  Outputs outputs = run(ids, labels, positions);
  for (const ForwardHooks* const its : {&hooks_, &around_[1], &around_[0]})
    if (its->after) outputs.loss = its->after(outputs.loss);
  return outputs;
}

CausalLM::Outputs CausalLM::run(const Tensor& ids, const Tensor& labels, const Tensor& positions) {
  Outputs outputs;
  // Hooks, and loops around them, leave layers by themselves.
  if (behavior_.compiled == CompiledParts::Model && litgpt() && !layers_.front().hooks.before) {
    outputs.logits = compiled_logits(ids);
    outputs.loss = loss_of(outputs.logits, labels);
    return outputs;
  }
  const Tensor hidden = hooked(of_decoder_, {}, [&](const Tensor&) { return decoder(ids, positions, outputs.cache); });
  if (fuses_head()) {
    outputs.loss = fused_loss_of(hidden, labels);
    return outputs;
  }
  outputs.logits = logits_of(hidden);
  outputs.loss = loss_of(outputs.logits, labels);
  return outputs;
}

// GPT-2's, GPTBigCode's and GPT-NeoX's classes computed it themselves for longer than others did.
bool CausalLM::has_own_loss() const { return gpt_style(model_) || family_of(model_) == Family::NeoX; }

Tensor CausalLM::logits_of(const Tensor& hidden) {
  s_.mark(Phase::Forward, "lm_head");
  const Session::Scope scope(s_, "lm_head", Category::LogitsLoss);
  Tensor logits = head_(s_, hidden);
  if (traits_.scales_logits) logits = mul_number(s_, logits, 1);
  if (model_.logit_softcap > 0) {
    logits = mul_number(s_, logits, 1 / model_.logit_softcap);
    logits = tanh(s_, logits);
    logits = mul_number(s_, logits, model_.logit_softcap);
  }
  if (behavior_.widens_logits && !litgpt() && !has_own_loss()) logits = to(s_, logits, DType::FP32);
  return logits;
}

}  // namespace tidemark::parallel::transformers
