#include <utility>

#include "parallel/frameworks/transformers/modules.hpp"

// What a model makes before its layers run: places of tokens, masks of attention, tables of rotary positions.
// transformers 5.23: masking_utils.py, models/*/modeling_*.py.

namespace tidemark::parallel::transformers {

Tensor CausalLM::position_ids(std::int64_t sequence) {
  const auto arange = [&] {
    const Tensor made = s_.empty({1, sequence}, DType::INT64, "position_ids");
    s_.stream(Streaming::Fill, {}, {made});
    return made;
  };
  const Tensor counted = arange();
  return arange();  // … + past_seen_tokens
}

// masking_utils.py find_packed_sequence_indices: whether a row holds several sequences. Nobody asks where keys are
// cached.
void CausalLM::find_packed_sequences(std::int64_t batch, std::int64_t sequence) {
  const auto numbers = [&](std::int64_t columns) {
    return s_.empty({batch, columns}, DType::INT64, "packed_sequences");
  };
  const auto flags = [&](std::int64_t columns) { return s_.empty({batch, columns}, DType::BOOL, "packed_sequences"); };
  const Tensor first = numbers(1);
  Tensor joined = numbers(sequence + 1);
  const Tensor steps = numbers(sequence);
  s_.stream(Streaming::Copy, {joined}, {steps});
  joined = {};
  Tensor jumps = flags(sequence);
  const Tensor sums = numbers(sequence);
  {
    const Tensor converted = numbers(sequence);
    constexpr std::int64_t of_scan = 1279;  // bytes that CUB asks for to sum one row, in torch 2.15
    if (batch == 1) (void)s_.empty({of_scan}, DType::BOOL, "packed_sequences_scan");
    s_.stream(Streaming::Reduce, {converted}, {sums});
  }
  jumps = {};
  s_.stream(Streaming::Reduce, {flags(1)}, {flags(1)});
  s_.process.synchronize();
}

Tensor CausalLM::mask_of(bool windowed, const Tensor& hidden) {
  const std::int64_t batch = hidden.sizes[0], sequence = hidden.sizes[1];
  const auto numbers = [&](std::int64_t count) {
    const Tensor made = s_.empty({count}, DType::INT64, "mask_places");
    s_.stream(Streaming::Fill, {}, {made});
    return made;
  };
  const auto pairs = [&](std::string_view what) {
    const Tensor made = s_.empty({1, 1, sequence, sequence}, DType::BOOL, what);
    s_.stream(Streaming::Fill, {}, {made});
    return made;
  };
  Tensor seen;
  {
    const Tensor of_batch = numbers(batch), of_heads = numbers(1);
    const auto places = [&] {
      const Tensor counted = numbers(sequence);
      return numbers(sequence);  // … + offset
    };
    const Tensor queries = places(), keys = places();
    if (windowed) {  // and_masks: what is near, and not later
      Tensor near;
      {
        const Tensor all = s_.empty({1}, DType::BOOL, "mask_all");
        const auto within = [&] {
          const Tensor ends = numbers(sequence);
          return pairs("mask_window");
        };
        const Tensor window = within();
        near = pairs("mask_near");
      }
      const Tensor causal = pairs("mask_causal");
      seen = pairs("mask");
    } else {
      seen = pairs("mask");
    }
  }
  const Shape sizes{batch, 1, sequence, sequence};
  if (train_.attention != AttentionKernel::Unfused) return expand(s_, seen, sizes);
  const Tensor zero = s_.empty({}, hidden.dtype, "mask_zero"), low = s_.empty({}, hidden.dtype, "mask_low");
  const Tensor made = s_.empty(sizes, hidden.dtype, "causal_mask");
  s_.stream(Streaming::Activation, {seen, zero, low}, {made});
  return made;
}

void CausalLM::make_masks(Context& context, const Tensor& hidden, bool caching) {
  const NoGrad no_grad(s_);
  // Mistral and Phi-3 make one mask for all layers, Qwen a second one where a layer has a window, Gemma always.
  const bool gemma = model_.norms == NormPlacement::Around;
  const bool one_for_all = has_layers(true) && (model_.architecture == "mistral" || model_.architecture == "phi3");
  // FlashAttention's own functions take windows as numbers.
  const bool scores = train_.attention == AttentionKernel::Unfused;
  if (train_.attention == AttentionKernel::Flash) return;
  const auto prepare = [&] {
    if (!caching) find_packed_sequences(hidden.sizes[0], hidden.sizes[1]);
  };
  if (!one_for_all) {
    prepare();
    if (scores) context.whole.mask = mask_of(false, hidden);
  }
  if (!has_layers(true) && !(gemma && model_.sliding_window > 0)) return;
  prepare();
  // _ignore_causal_mask_sdpa: where nothing lies beyond the window, the kernel's own causal mask will do.
  if (scores || hidden.sizes[1] >= model_.sliding_window) context.window.mask = mask_of(true, hidden);
}

void CausalLM::rotary_tables(Context::View& view, const Tensor& hidden) {
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "rotary_emb");
  const std::int64_t sequence = hidden.sizes[1], width = model_.rotary_dim();
  const auto turns = [&] {
    const Tensor places = s_.empty({1, sequence}, DType::FP32, "places");
    s_.stream(Streaming::Fill, {}, {places});
    const Tensor made = s_.empty({1, sequence, width / 2}, DType::FP32, "angles");
    s_.stream(Streaming::Activation, {places, frequencies_.front()}, {made});
    return made;
  };
  Tensor angles = turns();
  Tensor both = cat_last(s_, {angles, angles});
  const auto function = [&](std::string_view what) {
    const Tensor wide = s_.empty(both.sizes, DType::FP32, what);
    s_.stream(Streaming::Activation, {both}, {wide});
    return mul_number(s_, wide);
  };
  Tensor cosine = function("cos"), sine = function("sin");
  const DType dtype = computes_wide(model_) ? DType::FP32 : hidden.dtype;
  view.cosine = to(s_, cosine, dtype);
  view.sine = to(s_, sine, dtype);
  // A Python frame drops its variables in the order in which they were named.
  angles = {}, both = {}, cosine = {}, sine = {};
}

}  // namespace tidemark::parallel::transformers
