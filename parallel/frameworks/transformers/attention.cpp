#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/torch/operation.hpp"

// Attention of transformers' decoders: projections, rotation, and the kernels that score. As in modules.cpp, no call is
// nested in a call that is nested in another.
//
// Read in transformers 4.48 and 5.23: models/*/modeling_*.py, integrations/sdpa_attention.py, cache_utils.py.

namespace tidemark::parallel::transformers {
namespace {

Tensor rotated_half(Session& s, const Tensor& x) {
  const std::int64_t half = x.size(-1) / 2;
  const Tensor x1 = slice(s, x, -1, 0, half);
  const Tensor x2 = slice(s, x, -1, half, x.size(-1));
  return cat_last(s, {neg(s, x2), x1});
}

// batch, heads, sequence, width: each head of keys as often as query heads share it.
Tensor repeated(Session& s, const Tensor& x, std::int64_t times) {
  if (times == 1) return x;
  const Shape& z = x.sizes;
  const Tensor wide = expand(s, unsqueeze(s, x, 2), {z[0], z[1], times, z[2], z[3]});
  return reshape(s, wide, {z[0], z[1] * times, z[2], z[3]});
}

}  // namespace

Tensor turned(Session& s, const Tensor& x, const Tensor& cosine, const Tensor& sine) {
  const Tensor straight = mul(s, x, cosine);
  const Tensor crossed = mul(s, rotated_half(s, x), sine);
  return add(s, straight, crossed);
}

CausalLM::States CausalLM::separate(const Attention& a, const Tensor& hidden) {
  const std::int64_t batch = hidden.sizes[0], sequence = hidden.sizes[1], width = model_.head_dim;
  const auto by_head = [&](const Tensor& x, std::int64_t heads) {
    return view(s_, x, {batch, sequence, heads, width});
  };
  const auto turned = [&](const Tensor& x, std::int64_t heads) { return transpose(s_, by_head(x, heads), 1, 2); };
  States states;
  if (model_.qkv_clip > 0) {  // OLMo: the same once all three are limited
    states.query = a.query(s_, hidden);
    states.key = a.key(s_, hidden);
    states.value = a.value(s_, hidden);
    for (Tensor* const its : {&states.query, &states.key, &states.value}) *its = clipped(s_, *its, model_.qkv_clip);
    states.query = turned(states.query, model_.heads);
    states.key = turned(states.key, model_.kv_heads);
    states.value = turned(states.value, model_.kv_heads);
    return states;
  }
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
  // Qwen3 normalizes each before it transposes it, Gemma 3 and EXAONE 4 what they have transposed, once all three are
  // there.
  const bool norms_last = traits_.norms_of_turned;
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

// GPTBigCode's before transformers 4.54: queries and the rest, and then that.
std::vector<Tensor> CausalLM::parted(const Tensor& joint, std::int64_t query, std::int64_t key, Tensor& pair) {
  if (family_of(model_) != Family::BigCode || !behavior_.pairs_keys) return split_last(s_, joint, {query, key, key});
  const std::vector<Tensor> two = split_last(s_, joint, {query, 2 * key});
  pair = two[1];
  const std::vector<Tensor> both = split_last(s_, pair, {key, key});
  return {two[0], both[0], both[1]};
}

CausalLM::States CausalLM::of_split(const Attention& a, const Tensor& hidden) {
  const std::int64_t batch = hidden.sizes[0], sequence = hidden.sizes[1], width = model_.head_dim;
  const std::int64_t q = model_.heads * width, kv = model_.kv_heads * width;
  States states;
  const std::vector<Tensor> parts = parted(a.query(s_, hidden), q, kv, states.pair);
  const auto by_head = [&](const Tensor& x, std::int64_t heads) {
    return transpose(s_, view(s_, x, {batch, sequence, heads, width}), 1, 2);
  };
  states.key = by_head(parts[1], model_.kv_heads);
  states.value = by_head(parts[2], model_.kv_heads);
  states.query = by_head(parts[0], model_.heads);
  return states;
}

CausalLM::States CausalLM::of_heads(const Attention& a, const Tensor& hidden) {
  const std::int64_t batch = hidden.sizes[0], sequence = hidden.sizes[1], width = model_.head_dim;
  const Tensor joint = transpose(s_, view(s_, a.query(s_, hidden), {batch, sequence, model_.heads, 3 * width}), 1, 2);
  Tensor pair;
  const std::vector<Tensor> parts = parted(joint, width, width, pair);
  const bool named = family_of(model_) == Family::NeoX;
  return {parts[0], parts[1], parts[2], named ? joint.detached() : Tensor{}, pair, {}};
}

CausalLM::States CausalLM::project(const Attention& a, const Tensor& hidden) {
  if (litgpt()) return of_groups(a, hidden);
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
  if (litgpt()) return turn_part(states, view);
  if (fuses_rope()) return turn_fused(states, view);
  const Tensor cosine = unsqueeze(s_, view.cosine, 1), sine = unsqueeze(s_, view.sine, 1);
  const std::int64_t turning = view.cosine.size(-1);
  // Some families put what turns and what does not together again, also where nothing is left over.
  const bool in_parts = family_of(model_) == Family::NeoX || family_of(model_) == Family::Phi3 ||
                        traits_.parts_in_caller || traits_.tables_per_layer;
  if (in_parts || turning != states.query.size(-1)) return turn_parts(states, cosine, sine);
  const DType given = states.query.dtype;
  // Cohere's pairs are neighbours (rotate_half by stacking), which takes what halves take.
  Tensor query = traits_.widens_states ? to(s_, states.query, DType::FP32) : states.query;
  Tensor key = traits_.widens_states ? to(s_, states.key, DType::FP32) : states.key;
  query = turned(s_, query, cosine, sine), key = turned(s_, key, cosine, sine);
  if (traits_.wide_tables || traits_.widens_states) {
    const Tensor narrow_query = to(s_, query, given), narrow_key = to(s_, key, given);
    query = narrow_query, key = narrow_key;
  }
  states.query = std::move(query);
  states.key = std::move(key);
}

void CausalLM::turn_parts(States& states, const Tensor& shared_cosine, const Tensor& shared_sine) {
  Tensor cosine = shared_cosine, sine = shared_sine;
  const std::int64_t turning = cosine.size(-1);
  if (traits_.tables_per_layer) {  // the first half, each number twice
    const auto twice = [&](const Tensor& x) {
      const Tensor half = slice(s_, x, -1, 0, turning / 2);
      return cat_last(s_, {half, half});
    };
    cosine = twice(cosine), sine = twice(sine);
  }
  struct Parts {
    Tensor turns, stays;
  };
  const auto cut = [&](const Tensor& x) -> Parts {
    return {slice(s_, x, -1, 0, turning), slice(s_, x, -1, turning, x.size(-1))};
  };
  const auto joined = [&](const Tensor& made, const Parts& of) { return cat_last(s_, {made, of.stays}); };
  const Parts of_query = cut(states.query), of_key = cut(states.key);
  if (traits_.parts_in_caller) states.held = {states.query.detached(), states.key.detached()};
  Tensor query = turned(s_, of_query.turns, cosine, sine);
  // Phi-3 joins queries before it turns keys.
  const bool at_once = !traits_.parts_in_caller && !traits_.tables_per_layer && family_of(model_) != Family::NeoX;
  if (at_once) query = joined(query, of_query);
  Tensor key = turned(s_, of_key.turns, cosine, sine);
  if (traits_.parts_in_caller) states.held.insert(states.held.end(), {query.detached(), key.detached()});
  if (!at_once) query = joined(query, of_query);
  key = joined(key, of_key);
  states.query = std::move(query);
  states.key = std::move(key);
}

// modeling_ministral3.py get_llama_4_attn_scale: 1 + beta log(1 + floor(place / places)), a number for each place.
void CausalLM::scale_queries(States& states, const Tensor& places) {
  const Tensor scales = s_.empty({1, 1, places.size(-1), 1}, DType::FP32, "query_scales");
  s_.launch({Operation::Fill, {1}}, {}, {scales});
  const Tensor narrow = to(s_, scales, states.query.dtype);
  states.query = mul(s_, states.query, narrow);
}

Tensor CausalLM::scored(const States& states, const Tensor& mask, Tensor& weights) {
  const std::int64_t times = model_.heads / model_.kv_heads;
  Tensor keys = repeated(s_, states.key, times), values = repeated(s_, states.value, times);
  const double scale = 1 / std::sqrt(static_cast<double>(model_.head_dim));
  weights = mul_number(s_, matmul(s_, states.query, transpose(s_, keys, 2, 3)), scale);
  if (model_.attention_softcap > 0) {
    weights = mul_number(s_, weights, 1 / model_.attention_softcap);
    weights = tanh(s_, weights);
    weights = mul_number(s_, weights, model_.attention_softcap);
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

// Up to 4.47 models had classes of their own for FlashAttention: Mistral's, and those made after it, repeat keys and
// values (modeling_mistral.py MistralFlashAttention2); Llama's, and those made after it, hand them over as they are.
bool CausalLM::repeats_keys_for_flash() const {
  constexpr std::string_view like_mistral[] = {"mistral", "mixtral", "qwen2", "qwen2_moe", "phi3"};
  return behavior_.own_flash_classes && std::ranges::find(like_mistral, model_.architecture) != std::end(like_mistral);
}

Tensor CausalLM::fused(const Layer& layer, const States& states, const Context& context) {
  const Tensor& mask = (layer.windowed ? context.window : context.whole).mask;
  // integrations/sdpa_attention.py use_gqa_in_sdpa: with a mask, keys and values are repeated as before.
  const bool flash = train_.attention == AttentionKernel::Flash;
  const bool repeats = !litgpt() && (flash ? repeats_keys_for_flash() : behavior_.repeats_keys || mask.defined());
  const std::int64_t times = repeats ? model_.heads / model_.kv_heads : 1;
  Tensor query = states.query, keys = repeated(s_, states.key, times), values = repeated(s_, states.value, times);
  // modeling_flash_attention_utils.py: what norms or rotary positions left in fp32 is cast, in autocast's type.
  if (flash && query.dtype == DType::FP32) {
    const DType narrow = s_.autocast.value_or(train_.precision);
    query = to(s_, query, narrow);
    keys = to(s_, keys, narrow);
    values = to(s_, values, narrow);
  }
  if (flash && train_.packed > 0)
    return attend_packed(query, keys, values, context.position_ids, layer.windowed ? model_.window() : 0);
  const Tensor output =
      flash ? flash_attention(s_, query, keys, values, train_.attention_dropout, layer.windowed ? model_.window() : 0)
            : scaled_dot_product_attention(s_, states.query, keys, values, mask, train_.attention_dropout);
  return contiguous(s_, transpose(s_, output, 1, 2));
}

Tensor CausalLM::attend(const Layer& layer, const Tensor& given, const Context& context, std::vector<Tensor>* cache,
                        Tensor& weights) {
  const ForwardHooks& hooks = layer.attention.hooks;
  if (!hooks.before) return attention(layer, given, context, cache, weights);
  // Llama's and its like are handed what they work on by name, which hooks do not see.
  const bool by_name = !gpt_style(model_) && family_of(model_) != Family::NeoX;
  const Tensor input = hooks.before(by_name ? Tensor{} : given);
  return hooks.after(attention(layer, by_name ? given : input, context, cache, weights));
}

Tensor CausalLM::attention(const Layer& layer, const Tensor& hidden, const Context& context, std::vector<Tensor>* cache,
                           Tensor& weights) {
  const Session::Scope scope(s_, "attention");
  const Context::View& view = layer.windowed ? context.window : context.whole;
  States states = project(layer.attention, hidden);
  if (view.cosine.defined() && layer.turns) turn(states, view);
  if (traits_.scales_queries) scale_queries(states, context.position_ids);
  if (cache != nullptr) {
    if (behavior_.copies_into_cache) {
      // cache_utils.py: layers with a window keep its length; torch.cat of what there was, nothing of the keys' type,
      // and this.
      if (layer.windowed) cache->push_back(s_.empty({1}, DType::INT64, "cache_window"));
      Tensor keys = cat_last(s_, {states.key}), values = cat_last(s_, {states.value}, states.key.dtype);
      states.key = std::move(keys), states.value = std::move(values);
    }
    for (const Tensor& its : states.pair.defined() ? std::vector{states.pair} : std::vector{states.key, states.value})
      cache->push_back(its);
  }
  Tensor output =
      train_.attention == AttentionKernel::Unfused ? scored(states, view.mask, weights) : fused(layer, states, context);
  output = contiguous(s_, reshape(s_, output, {hidden.sizes[0], hidden.sizes[1], model_.heads * model_.head_dim}));
  output = layer.attention.output(s_, output);
  if (gpt_style(model_)) output = dropped("resid_dropout", layer.of_attention_dropout, output);
  if (traits_.drops_within) output = dropout(s_, output, train_.hidden_dropout);
  states = {};
  return output;
}

}  // namespace tidemark::parallel::transformers
