#include <limits>
#include <utility>

#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/torch/operation.hpp"

// What a model makes before its layers run: places of tokens, masks of attention, tables of rotary positions.
// transformers 5.23: masking_utils.py, models/*/modeling_*.py.

namespace tidemark::parallel::transformers {

Tensor CausalLM::position_ids(std::int64_t sequence) {
  const auto made = [&] { return s_.empty({1, sequence}, DType::INT64, "position_ids"); };
  const Tensor counted = made();
  s_.launch({Operation::Arange, {0}}, {}, {counted});
  Tensor places = made();
  s_.launch({Operation::AddNumber, {0}}, {counted}, {places});  // … + past_seen_tokens
  return places;
}

// masking_utils.py find_packed_sequence_indices: whether a row holds several sequences, that is, whether places go on
// by one. Nobody asks where keys are cached. Gives to which of them each token belongs; nothing where rows have one.
Tensor CausalLM::find_packed_sequences(const Tensor& positions, std::int64_t batch) {
  const std::int64_t sequence = positions.size(-1);
  const Tensor places = expanded(positions, {batch, sequence});
  const auto numbers = [&](std::int64_t columns) {
    return s_.empty({batch, columns}, DType::INT64, "packed_sequences");
  };
  const auto flags = [&](std::int64_t columns) { return s_.empty({batch, columns}, DType::BOOL, "packed_sequences"); };
  const Tensor first = numbers(1);
  s_.launch({Operation::AddNumber, {-1}}, {narrowed(places, 1, 0, 1)}, {first});
  Tensor joined = numbers(sequence + 1);
  s_.launch(Operation::Copy, {first, places}, {narrowed(joined, 1, 0, 1), narrowed(joined, 1, 1, sequence)});
  const Tensor steps = numbers(sequence);
  s_.launch({Operation::AddScaled, {-1}}, {narrowed(joined, 1, 1, sequence), narrowed(joined, 1, 0, sequence)},
            {steps});
  joined = {};
  Tensor jumps = flags(sequence);
  s_.launch({Operation::AddNumber, {-1}}, {steps}, {jumps});  // steps != 1: as a truth value, what remains
  const Tensor sums = numbers(sequence);
  {
    const Tensor converted = numbers(sequence);
    s_.launch(Operation::Copy, {jumps}, {converted});
    constexpr std::int64_t of_scan = 1279;  // bytes that CUB asks for to sum one row, in torch 2.15
    Tensor scratch;
    if (batch == 1) scratch = s_.empty({of_scan}, DType::BOOL, "packed_sequences_scan");
    s_.launch(Operation::CumulativeSum, {converted}, {sums}, scratch);
  }
  jumps = {};
  {
    // (sums[:, -1] == 0).all(): no row has one. Here, whether any has.
    const Tensor packed = flags(1), any = flags(1);
    s_.launch(Operation::Copy, {narrowed(sums, 1, sequence - 1, 1)}, {packed});
    s_.launch(Operation::Largest, {packed}, {narrowed(any, 0, 0, 1)});
  }
  s_.process.synchronize();
  return train_.sequences() > batch ? sums : Tensor{};
}

namespace {

// torch.finfo(dtype).min
double lowest(DType dtype) {
  if (dtype == DType::FP16) return -65504;
  if (dtype == DType::BF16) return -0x1.fep127;
  return std::numeric_limits<float>::lowest();
}

// masking_utils.py: which keys queries see, as truth values of queries, in rows, and keys.
class SeenKeys {
 public:
  SeenKeys(Session& s, std::int64_t sequence, std::int64_t window) : s_(s), sequence_(sequence), window_(window) {}

  [[nodiscard]] Tensor counted(std::int64_t count) const {
    Tensor made = numbers(count);
    s_.launch({Operation::Arange, {0}}, {}, {made});
    return made;
  }

  [[nodiscard]] Tensor places() const {
    const Tensor range = counted(sequence_);
    return plus(range, 0);  // … + offset
  }

  // Not later, and near where there is a window: and_masks.
  [[nodiscard]] Tensor causal(std::string_view what, const Tensor& queries, const Tensor& keys) const {
    if (window_ == 0) return not_later(what, queries, keys);
    const Tensor near = within_window(queries, keys);
    const Tensor earlier = not_later("mask_causal", queries, keys);
    return pairs(what, Operation::And, near, earlier);
  }

  // Causal, and of the same sequence: packed_sequence_compatibility_function.
  [[nodiscard]] Tensor packed(const Tensor& sequences, const Tensor& positions, const Tensor& queries,
                              const Tensor& keys) const {
    const Tensor same = in_one_sequence(sequences, queries, keys);
    const auto remapped = [&] {
      const Tensor of_queries = at(positions, queries), of_keys = at(positions, keys);
      return causal("mask_causal", of_queries, of_keys);
    };
    const Tensor within = remapped();
    return pairs("mask", Operation::And, same, within);
  }

 private:
  [[nodiscard]] Tensor numbers(std::int64_t count) const { return s_.empty({count}, DType::INT64, "mask_places"); }
  [[nodiscard]] Tensor as_rows(const Tensor& places) const { return sized(places, {sequence_, 1}); }

  [[nodiscard]] Tensor plus(const Tensor& places, double number) const {
    Tensor made = numbers(places.sizes[0]);
    s_.launch({Operation::AddNumber, {number}}, {places}, {made});
    return made;
  }

  [[nodiscard]] Tensor pairs(std::string_view what, Operation operation, const Tensor& a, const Tensor& b) const {
    Tensor made = s_.empty({1, 1, sequence_, sequence_}, DType::BOOL, what);
    s_.launch(operation, {a, b}, {made});
    return made;
  }

  // Of tokens, at places.
  [[nodiscard]] Tensor at(const Tensor& numbers_of_tokens, const Tensor& of) const {
    Tensor made = numbers(sequence_);
    s_.launch(Operation::Gather, {sized(numbers_of_tokens, {sequence_}), of}, {made});
    return made;
  }

  [[nodiscard]] Tensor all() const {
    Tensor made = s_.empty({1}, DType::BOOL, "mask_all");
    s_.launch({Operation::Fill, {1}}, {}, {made});
    return made;
  }

  [[nodiscard]] Tensor not_later(std::string_view what, const Tensor& queries, const Tensor& keys) const {
    return pairs(what, Operation::LessEqual, keys, as_rows(queries));
  }

  [[nodiscard]] Tensor within_window(const Tensor& queries, const Tensor& keys) const {
    const Tensor every = all();
    const auto within = [&] {
      // keys > queries - window, of whole numbers
      const Tensor ends = plus(queries, static_cast<double>(1 - window_));
      return pairs("mask_window", Operation::LessEqual, as_rows(ends), keys);
    };
    const Tensor window = within();
    return pairs("mask_near", Operation::And, every, window);
  }

  [[nodiscard]] Tensor in_one_sequence(const Tensor& sequences, const Tensor& queries, const Tensor& keys) const {
    const Tensor every = all();
    const auto of_one = [&] {
      const Tensor of_queries = at(sequences, queries), of_keys = at(sequences, keys);
      return pairs("mask_same", Operation::LessEqual, of_keys, as_rows(of_queries));  // equal, among earlier ones
    };
    const Tensor one = of_one();
    return pairs("mask_sequences", Operation::And, every, one);
  }

  Session& s_;
  std::int64_t sequence_, window_;
};

}  // namespace

Tensor CausalLM::mask_of(bool windowed, const Tensor& hidden, const Tensor& positions, const Tensor& packed) {
  const std::int64_t batch = hidden.sizes[0], sequence = hidden.sizes[1];
  const SeenKeys mask(s_, sequence, windowed ? model_.window() : 0);
  Tensor seen;
  {
    const Tensor of_batch = mask.counted(batch), of_heads = mask.counted(1);
    const Tensor queries = mask.places(), keys = mask.places();
    seen = packed.defined() ? mask.packed(packed, positions, queries, keys) : mask.causal("mask", queries, keys);
  }
  const Shape sizes{batch, 1, sequence, sequence};
  if (train_.attention != AttentionKernel::Unfused) return expand(s_, seen, sizes);
  const auto number = [&](double value, std::string_view what) {
    Tensor made = s_.empty({}, hidden.dtype, what);
    s_.launch({Operation::Fill, {value}}, {}, {made});
    return made;
  };
  const Tensor zero = number(0, "mask_zero"), low = number(lowest(hidden.dtype), "mask_low");
  Tensor made = s_.empty(sizes, hidden.dtype, "causal_mask");
  s_.launch(Operation::Where, {seen, zero, low}, {made});
  return made;
}

void CausalLM::make_masks(Context& context, const Tensor& positions, const Tensor& hidden, bool caching) {
  const NoGrad no_grad(s_);
  // Mistral, Mixtral, Phi-3 and a few more make one mask for all layers, Qwen a second one where a layer has a window,
  // Gemma always.
  const bool gemma = model_.norms == NormPlacement::Around;
  const bool one_for_all = has_layers(true) && traits_.one_mask;
  // FlashAttention's own functions take windows as numbers.
  const bool scores = train_.attention == AttentionKernel::Unfused;
  if (train_.attention == AttentionKernel::Flash) return;
  const auto prepare = [&] { return caching ? Tensor{} : find_packed_sequences(positions, hidden.sizes[0]); };
  if (!one_for_all) {
    const Tensor packed = prepare();
    if (scores || packed.defined()) context.whole.mask = mask_of(false, hidden, positions, packed);
  }
  if (!has_layers(true) && !(gemma && model_.window() > 0)) return;
  const Tensor packed = prepare();
  // _ignore_causal_mask_sdpa: where nothing lies beyond the window, the kernel's own causal mask will do.
  if (scores || packed.defined() || hidden.sizes[1] >= model_.window())
    context.window.mask = mask_of(true, hidden, positions, packed);
}

void CausalLM::rotary_tables(Context::View& view, const Tensor& positions, const Tensor& hidden) {
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "rotary_emb");
  const std::int64_t sequence = hidden.sizes[1], width = model_.rotary_dim();
  Tensor frequencies = to(s_, frequencies_.front(), DType::FP32);
  const auto turns = [&] {
    const Tensor places = s_.empty({1, sequence}, DType::FP32, "places");
    s_.launch(Operation::Copy, {positions}, {places});
    Tensor made = s_.empty({1, sequence, width / 2}, DType::FP32, "angles");
    // A product, of columns and rows of one number.
    s_.launch(Operation::Multiply, {sized(places, {1, sequence, 1}), frequencies}, {made});
    return made;
  };
  Tensor angles = turns();
  Tensor both = cat_last(s_, {angles, angles});
  const auto function = [&](std::string_view what, Operation operation) {
    const Tensor wide = s_.empty(both.sizes, DType::FP32, what);
    s_.launch(operation, {both}, {wide});
    return mul_number(s_, wide, 1);  // attention_scaling
  };
  Tensor cosine = function("cos", Operation::Cosine), sine = function("sin", Operation::Sine);
  const DType dtype = traits_.wide_tables ? DType::FP32 : hidden.dtype;
  view.cosine = to(s_, cosine, dtype);
  view.sine = to(s_, sine, dtype);
  // A Python frame drops its variables in the order in which they were named.
  frequencies = {}, angles = {}, both = {}, cosine = {}, sine = {};
}

}  // namespace tidemark::parallel::transformers
