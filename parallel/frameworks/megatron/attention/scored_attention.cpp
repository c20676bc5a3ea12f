#include <cmath>
#include <utility>

#include "parallel/frameworks/megatron/te.hpp"
#include "sim/base/ensure.hpp"

// Attention that stores its scores: Megatron's DotProductAttention, TransformerEngine's unfused one.

namespace tidemark::parallel::megatron {

using torch::with;

Tensor cap_forward(Worker& w, const Cap& cap, const Tensor& x, Tensor& tangent) {
  ensure(cap.value > 0, "a cap is more than nothing");
  Tensor divided = w.make(cap.divided, x.sizes, x.dtype, cap.category);
  w.launch({Operation::Scale, {1 / cap.value}}, {x}, {divided});
  tangent = w.make(cap.tangent, x.sizes, x.dtype, cap.tangent_category);
  w.launch(Operation::Tanh, {std::move(divided)}, {tangent});
  Tensor capped = w.make(cap.capped, x.sizes, x.dtype, cap.category);
  w.launch({Operation::Scale, {cap.value}}, {tangent}, {capped});
  return capped;
}

Tensor cap_backward(Worker& w, const Cap& cap, Tensor gradient, Tensor tangent) {
  const auto step = [&, shape = tangent.sizes, dtype = tangent.dtype](LabelId label) {
    return w.make(label, shape, dtype, cap.category);
  };
  Tensor multiplied = step(cap.capped_gradient);
  w.launch({Operation::Scale, {cap.value}}, {std::move(gradient)}, {multiplied});
  Tensor through = step(cap.tangent_gradient);
  w.launch(Operation::TanhBackward, {std::move(multiplied), std::move(tangent)}, {through});
  Tensor divided = step(cap.uncapped_gradient);
  w.launch({Operation::Scale, {1 / cap.value}}, {std::move(through)}, {divided});
  return divided;
}

namespace {

constexpr double masked_score = -10'000;  // core/transformer/utils.py attention_mask_func

double scale_of_scores(const Worker& w) { return 1 / std::sqrt(static_cast<double>(w.model.head_dim)); }

// Scores of all queries with all keys, head by head.
Shape scores_shape(const Worker& w) {
  const std::int64_t s = w.sizes.sequence;
  return {w.sizes.micro_batch, w.model.heads / w.sizes.tensor, s, s};
}
// [sequence, batch, heads, width] as a batch of matrices, one of each head: [batch, heads, sequence, width].
Tensor by_head(Tensor x) { return swapped(swapped(std::move(x), 0, 1), 1, 2); }
// And back.
Tensor by_token(Tensor x) { return swapped(swapped(std::move(x), 1, 2), 0, 1); }
Tensor transposed(Tensor matrices) { return swapped(std::move(matrices), -2, -1); }

// A product of each head's matrices.
void multiply(Worker& w, double scale, Tensor a, Tensor b, const Tensor& out, BufferId workspace) {
  w.launch({Operation::Matmul, {scale}}, {std::move(a), std::move(b), Tensor{}, Tensor{}}, {out}, workspace);
}

Cap scores_cap(const Worker& w, const CoreAttention& a) {
  return {.value = w.model.attention_softcap,
          .divided = a.name("divided_by_cap"),
          .tangent = a.outside("scores_tanh"),
          .capped = a.name("scores_capped"),
          .capped_gradient = a.name("capped_gradient"),
          .tangent_gradient = a.name("tanh_gradient"),
          .uncapped_gradient = a.name("uncapped_gradient")};
}

// Heads of queries as groups that share keys and values: [sequence, batch, groups, heads of a group, width].
Tensor in_groups(Tensor x, std::int64_t groups) {
  const std::int64_t heads = x.size(2);
  return sized(std::move(x), {x.size(0), x.size(1), groups, heads / groups, x.size(3)});
}

// Each query head gets keys and values of its own.
Tensor repeated(Worker& w, LabelId label, Tensor x) {
  if (w.model.kv_heads == w.model.heads) return x;
  const std::int64_t groups = x.size(2);
  Tensor whole = w.temporary(label, {x.size(0), x.size(1), w.model.heads / w.sizes.tensor, x.size(3)});
  w.launch(Operation::Copy, {in_groups(std::move(x), groups)}, {in_groups(whole, groups)});
  return whole;
}

// Places of keys, and one for the sink behind them.
Shape with_sink(Shape scores) {
  scores.back() += 1;
  return scores;
}

// TransformerEngine dot_product_attention/backends.py UnfusedDotProductAttention with softmax_type "learnable": the
// sinks' logits are joined to the scores, and what becomes of them is left out behind.
Tensor softmax_with_sinks(Worker& w, const CoreAttention& a, Tensor scores, DType dtype) {
  const Shape shape = scores.sizes;
  const std::int64_t keys = shape.back();
  Tensor masked = w.temporary(a.name("masked"), shape, dtype);
  w.launch({Operation::CausalMask, {masked_score}}, {std::move(scores)}, {masked});
  Tensor joined = w.temporary(a.name("with_sinks"), with_sink(shape), dtype);
  const Tensor place = narrowed(joined, -1, keys, 1);
  const Tensor sinks = sized(a.sinks->value.detached(), {1, a.sinks->rows, 1, 1});
  w.launch(Operation::Copy, {std::move(masked), expanded(sinks, place.sizes)}, {narrowed(joined, -1, 0, keys), place});
  Tensor softmax = w.temporary(a.outside("softmax"), joined.sizes, dtype);
  w.launch({Operation::Softmax, {1}}, {std::move(joined)}, {softmax});
  return softmax;
}

// The gradient of the scores; of the sinks, in `of_sinks`.
Tensor softmax_with_sinks_backward(Worker& w, const CoreAttention& a, Tensor gradient, Tensor softmax,
                                   Tensor& of_sinks) {
  const std::int64_t keys = gradient.size(-1);
  Tensor all = w.temporary(a.name("with_sinks_gradient"), softmax.sizes, softmax.dtype);
  w.launch({Operation::Fill, {0}}, {}, {all});
  w.launch(Operation::Copy, {std::move(gradient)}, {narrowed(all, -1, 0, keys)});
  Tensor joined = w.temporary(a.name("with_sinks_gradient"), all.sizes, all.dtype);
  w.launch({Operation::SoftmaxBackward, {1}}, {std::move(all), std::move(softmax)}, {joined});
  of_sinks = w.temporary(a.name("sinks_gradient"), a.sinks->shape());
  w.launch(Operation::Sum, {narrowed(joined, -1, keys, 1)}, {sized(of_sinks, {1, a.sinks->rows, 1, 1})});
  Tensor made = w.temporary(a.name("scores_gradient"), torch::with_size(joined.sizes, -1, keys));
  w.launch(Operation::Copy, {narrowed(joined, -1, 0, keys)}, {made});
  return made;
}

// core/fusions/fused_softmax.py is_kernel_available, and how many rows of scores a block of Apex's kernel takes
// (get_batch_per_block). Where it is not there, scores are masked in place, and PyTorch's softmax makes a tensor.
bool softmax_in_one_kernel(const Worker& w, DType dtype) {
  if (!w.runtime.framework_linears) return dtype == w.train.precision;
  constexpr std::int64_t four = 4, longest = 4096, two_rows_of_a_warp = 128;
  const Shape scores = scores_shape(w);
  const std::int64_t batches = scores[0] * scores[1], keys = scores.back();
  const std::int64_t of_block = keys <= two_rows_of_a_warp ? 8 : four;
  return dtype == w.train.precision && dtype != DType::FP32 && keys > 16 && keys <= longest && keys % four == 0 &&
         batches % of_block == 0;
}

struct ScoredContext {
  Saved query, key, value, softmax, mask, tangent, attention_mask;
  Saved weights;   // that values are summed with: the softmax, narrowed or what dropout left of it
  Shape kv_shape;  // before they were repeated
};

// Backward of forward_torch_softmax: in the softmax's type, by way of the scores that were masked in place.
Tensor torch_softmax_backward(Worker& w, const CoreAttention& a, Tensor gradient, Tensor softmax) {
  const Shape scores = scores_shape(w);
  const DType wide_type = softmax.dtype;
  Tensor wide = std::move(gradient);
  if (wide_type != wide.dtype) {
    Tensor narrow = std::move(wide);
    wide = w.temporary(a.name("weights_gradient_fp32"), scores, wide_type);
    w.launch(Operation::Copy, {std::move(narrow)}, {wide});
  }
  Tensor masked = w.temporary(a.name("masked_gradient"), scores, wide_type);
  const bool own_kernel = w.runtime.framework_linears;  // PyTorch's, which multiplies gradient and output first
  Tensor products = own_kernel ? w.temporary(a.name("masked_gradient_products"), scores, wide_type) : Tensor{};
  w.launch({Operation::SoftmaxBackward, {1}}, {std::move(wide), std::move(softmax)}, {masked}, products);
  products = {};
  Tensor unmasked = w.temporary(a.name("unmasked_gradient"), scores, wide_type);  // of masked_fill_
  w.launch(Operation::Copy, {std::move(masked)}, {unmasked});
  if (wide_type == w.train.precision) return unmasked;
  Tensor narrow = w.temporary(a.name("scores_gradient"), scores);
  w.launch(Operation::Copy, {std::move(unmasked)}, {narrow});
  return narrow;
}

Gradients scored_backward(Worker& w, const CoreAttention& a, Tensor gradient, ScoredContext c) {
  const auto take = [&](Saved& saved) { return w.take(saved); };
  const BufferId workspace = w.process.blas_workspace(HostThread::Autograd);
  Tensor query = take(c.query), keys = take(c.key), values = take(c.value), softmax = take(c.softmax);
  const Shape token_shape = values.sizes, shape = by_head(query).sizes, scores = scores_shape(w);
  Tensor context = by_head(sized(std::move(gradient), token_shape));
  // BmmBackward gives up what it saved when both are there, the second factor's first.
  Tensor weights = take(c.weights);
  Tensor dv = w.temporary(a.name("value_gradient"), context.sizes);
  multiply(w, 1, transposed(weights), context, dv, workspace);
  Tensor scores_gradient = w.temporary(a.name("weights_gradient"), scores);
  multiply(w, 1, std::move(context), transposed(by_head(std::move(values))), scores_gradient, workspace);
  weights = {};
  if (c.mask) {
    Tensor mask = take(c.mask);
    Tensor kept = w.temporary(a.name("dropout_gradient"), scores);
    w.launch({Operation::DropoutBackward, {w.train.attention_dropout}}, {std::move(scores_gradient), std::move(mask)},
             {kept});
    scores_gradient = std::move(kept);
  }
  // Of masked scores the softmax is 0, and so is their gradient.
  Tensor of_sinks;
  if (a.sinks != nullptr) {
    scores_gradient = softmax_with_sinks_backward(w, a, std::move(scores_gradient), std::move(softmax), of_sinks);
  } else if (softmax_in_one_kernel(w, softmax.dtype)) {
    w.launch({Operation::SoftmaxBackward, {1}}, {scores_gradient, std::move(softmax)}, {scores_gradient});
  } else {
    scores_gradient = torch_softmax_backward(w, a, std::move(scores_gradient), std::move(softmax));
  }
  if (c.tangent) scores_gradient = cap_backward(w, scores_cap(w, a), std::move(scores_gradient), take(c.tangent));
  // The product and then its multiple by the scale.
  const auto scaled_product = [&](Tensor of, Tensor other, LabelId label) {
    Tensor product = w.temporary(a.name("unscaled_gradient"), shape);
    multiply(w, 1, std::move(of), by_head(std::move(other)), product, workspace);
    Tensor scaled = w.temporary(label, shape);
    w.launch({Operation::Scale, {scale_of_scores(w)}}, {std::move(product)}, {scaled});
    return scaled;
  };
  Tensor dq = scaled_product(scores_gradient, keys, a.name("query_gradient"));
  Tensor dk = scaled_product(transposed(scores_gradient), query, a.name("key_gradient"));
  scores_gradient = query = keys = {};
  const auto summed = [&](Tensor of_heads) {  // over the query heads that shared it
    Tensor whole = by_token(std::move(of_heads));
    if (w.model.kv_heads == w.model.heads) return whole;
    const std::int64_t groups = c.kv_shape[2];
    Tensor sum = w.temporary(a.name("repeated_gradient_sum"), c.kv_shape);
    w.launch(Operation::Sum, {in_groups(std::move(whole), groups)}, {in_groups(sum, groups)});
    return sum;
  };
  dk = summed(std::move(dk));
  dv = summed(std::move(dv));
  Gradients made{by_token(std::move(dq)), std::move(dk), std::move(dv)};
  if (of_sinks.defined()) made.push_back(std::move(of_sinks));
  return made;
}

// Saves what a backward pass reads, where there is one.
class Keep {
 public:
  Keep(Worker& w, bool trained) : w_(w), trained_(trained) {}
  void operator()(Saved& saved, const Tensor& tensor) const {
    if (trained_) saved = w_.session.save(tensor);
  }

 private:
  Worker& w_;
  bool trained_;
};

// Scores stay referred to where the caller's frame holds them.
Tensor softmax_of_scores(Worker& w, const CoreAttention& a, Tensor& scores, const Keep& keep, ScoredContext& context) {
  const DType softmax_dtype =
      w.built.options.softmax_precision == SoftmaxPrecision::Fp32 ? DType::FP32 : w.train.precision;
  const Shape shape = scores_shape(w);
  Tensor weights;
  if (a.sinks != nullptr) {
    const Tensor softmax = softmax_with_sinks(w, a, std::move(scores), softmax_dtype);
    keep(context.softmax, softmax);
    weights = narrowed(softmax.detached(), -1, 0, shape.back());
    if (softmax_dtype != w.train.precision) {
      const Tensor narrow = w.temporary(a.outside("softmax_narrow"), shape);
      w.launch(Operation::Copy, {std::move(weights)}, {narrow});
      weights = narrow;
    }
  } else if (softmax_in_one_kernel(w, softmax_dtype)) {
    weights = w.temporary(a.outside("softmax"), shape);
    w.launch({Operation::Softmax, {1, 1}}, {scores}, {weights});  // of causal attention
    keep(context.softmax, weights);
  } else {
    // forward_torch_softmax: to fp32 where asked, masked in place, softmax, and back, which the product saves.
    Tensor wide = scores;
    if (softmax_dtype != w.train.precision) {
      wide = w.temporary(a.name("scores_fp32"), shape, softmax_dtype);
      w.launch(Operation::Copy, {scores}, {wide});
    }
    Tensor mask;  // masked_fill_ saves it
    if (w.runtime.framework_linears) mask = w.attention_mask.defined() ? w.attention_mask : w.causal_mask();
    if (mask.defined()) keep(context.attention_mask, mask);
    w.launch({Operation::CausalMask, {masked_score}}, {wide}, {wide});
    weights = w.temporary(a.outside("softmax"), shape, softmax_dtype);
    w.launch({Operation::Softmax, {1}}, {wide}, {weights});
    keep(context.softmax, weights);
    if (softmax_dtype != w.train.precision) {
      Tensor narrow = w.temporary(a.outside("softmax_narrow"), shape);
      w.launch(Operation::Copy, {std::move(weights)}, {narrow});
      weights = std::move(narrow);
    }
  }
  return weights;
}

}  // namespace

Tensor scored_attention(Worker& w, const CoreAttention& a, Tensor query, Tensor key, Tensor value) {
  w.mark(Phase::Forward, a.name);
  const auto node = a.sinks == nullptr ? w.node(a.name(), {&query, &key, &value})
                                       : w.node(a.name(), {&query, &key, &value, &a.sinks->value});
  ScoredContext context;
  const Keep keep(w, static_cast<bool>(node));
  context.kv_shape = key.sizes;
  key = repeated(w, a.outside("k_repeated"), std::move(key));
  value = repeated(w, a.outside("v_repeated"), std::move(value));
  keep(context.query, query), keep(context.key, key), keep(context.value, value);
  const Shape shape = scores_shape(w), context_shape = by_head(value).sizes;
  // torch.baddbmm adds the product to a tensor of nothing, which it does not read (beta = 0), and makes another one.
  Tensor nothing = w.runtime.persistent_scores ? w.global_buffer(shape) : w.temporary(a.name("scores_addend"), shape);
  const BufferId workspace = w.process.blas_workspace(HostThread::Main);
  Tensor scores = w.temporary(a.name("scores"), shape);
  multiply(w, scale_of_scores(w), by_head(std::move(query)), transposed(by_head(std::move(key))), scores, workspace);
  nothing = {};
  if (w.model.attention_softcap > 0) {
    Tensor tangent;
    scores = cap_forward(w, scores_cap(w, a), scores, tangent);
    keep(context.tangent, tangent);
  }
  Tensor weights = softmax_of_scores(w, a, scores, keep, context);
  if (w.train.attention_dropout > 0) {
    // The softmax's backward pass reads its output, the weighted sum's what is left of it.
    Tensor mask = w.temporary(a.outside("dropout_mask"), shape, DType::BOOL);
    Tensor dropped = w.temporary(a.outside("dropped"), shape);
    keep(context.mask, mask);
    w.launch({Operation::Dropout, {w.train.attention_dropout}}, {std::move(weights)}, {dropped, std::move(mask)});
    weights = std::move(dropped);
  }
  keep(context.weights, weights);
  // Batch and heads first; the projection reads it sequence first.
  Tensor of_heads = w.temporary(a.name("by_head"), context_shape);
  multiply(w, 1, std::move(weights), by_head(std::move(value)), of_heads, workspace);
  Tensor out = w.temporary(a.outside("context"), w.part(w.model.heads * w.model.value_dim()));
  Tensor tokens = by_token(std::move(of_heads));
  const Shape token_shape = tokens.sizes;
  w.launch(Operation::Copy, {std::move(tokens)}, {sized(out, token_shape)});
  if (!node) return out;
  node->apply = [&w, &a, context = std::move(context)](Gradients& gradients) mutable {
    return scored_backward(w, a, std::move(gradients.front()), std::move(context));
  };
  return with(std::move(out), node);
}

}  // namespace tidemark::parallel::megatron
