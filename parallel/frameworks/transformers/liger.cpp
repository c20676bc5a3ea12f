#include <algorithm>
#include <utility>

#include "parallel/frameworks/transformers/fused.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/products.hpp"

namespace tidemark::parallel::transformers::liger {
namespace {

constexpr double ignored_label = -100;

// What gates are activated by, and its gradient: of the output's gradient and the gate.
using Activated = void (*)(Session& s, const Tensor& gate, const Tensor& made);
using ActivatedBackward = void (*)(Session& s, const Tensor& gradient, const Tensor& gate);

// The gradients are written over gate and up, which were saved.
Tensor gated(Session& s, const Tensor& gate, const Tensor& up, std::string_view name, Activated forward,
             ActivatedBackward backward) {
  auto node = s.node({&gate, &up});
  Saved saved_gate, saved_up;
  if (node) saved_gate = s.save(gate), saved_up = s.save(up);
  Tensor out = s.empty(gate.sizes, gate.dtype, name);
  const auto activated = [&s, forward](const Tensor& x) {
    Tensor made = s.in_registers(x.sizes, contiguous_strides(x.sizes), x.dtype, "activated");
    forward(s, x, made);
    return made;
  };
  s.launch(Operation::Multiply, {activated(gate), up}, {out});
  if (node)
    node->apply = [&s, activated, backward, saved_gate, saved_up](const Gradients& g) {
      const Tensor a = s.unpack(saved_gate), b = s.unpack(saved_up);
      const Tensor given = contiguous(s, g.front());
      const Tensor its = activated(a);
      const Tensor of_gate = s.in_registers(a.sizes, contiguous_strides(a.sizes), a.dtype, "activated_gradient");
      s.launch(Operation::Multiply, {given, b}, {of_gate});
      backward(s, of_gate, a);
      s.launch(Operation::Multiply, {given, its}, {b});
      return Gradients{a, b};
    };
  return with(std::move(out), std::move(node));
}

}  // namespace

// ops/rms_norm.py: a multiprocessor sums its rows' gradients of the weight in fp32.
Tensor rms_norm(Session& s, const Tensor& given_x, const Tensor& weight, double weight_offset, Gradient where) {
  auto node = s.node({&given_x, &weight});
  const Tensor x = given_x.contiguous() ? given_x : contiguous(s, given_x.detached());  // ensure_contiguous
  Saved saved_x, saved_weight;
  if (node) saved_x = s.save(x), saved_weight = s.save(weight);
  Tensor out = s.empty(x.sizes, x.dtype, "rms_norm");
  const Tensor deviation = s.empty(with_size(x.sizes, -1, 1), DType::FP32, "rms_norm_rstd");
  s.launch({Operation::RmsNorm, {usual_epsilon, weight_offset}}, {x, weight, Tensor{}}, {out, deviation});
  if (node)
    node->apply = [&s, saved_deviation = s.save(deviation), saved_weight, saved_x, weight_offset, where,
                   trains = weight.requires_grad()](const Gradients& g) {
      const Tensor in = s.unpack(saved_x), scale = s.unpack(saved_weight), rows = s.unpack(saved_deviation);
      const std::int64_t processors = s.behavior().multiprocessors, width = scale.size(0);
      Gradients made(2);
      const Tensor given = contiguous(s, g.front());
      Tensor sums;
      if (trains) sums = s.empty({processors, width}, DType::FP32, "weight_gradient_sums");
      made[0] = given;
      if (where == Gradient::Apart) {
        made[0] = s.empty(given.sizes, given.dtype, "rms_norm_gradient");
        s.launch({Operation::Fill, {0}}, {}, {made[0]});
      }
      Tensor whole;
      if (trains) whole = sized(narrowed(sums, 0, 0, 1), {width});
      s.launch({Operation::RmsNormBackward, {weight_offset}}, {given, in, rows, scale, Tensor{}}, {made[0], whole});
      if (!trains) return made;
      // Here the first row has it all.
      if (processors > 1) s.launch({Operation::Fill, {0}}, {}, {narrowed(sums, 0, 1, processors - 1)});
      const Tensor sum = sum_to(s, sums, {1, width});
      made[1] = to(s, sized(sum, {width}), scale.dtype);
      return made;
    };
  return with(std::move(out), std::move(node));
}

// ops/rope.py: heads beside each other in memory, as projections give them, are turned there.
std::pair<Tensor, Tensor> rope(Session& s, const Tensor& query, const Tensor& key, const Tensor& cosine,
                               const Tensor& sine) {
  auto node = s.node({&query, &key});
  const auto laid_out = [&s](const Tensor& x) {
    return transpose(s, contiguous(s, transpose(s, x.detached(), 1, 2)), 1, 2);
  };
  const auto table = [&s](const Tensor& x) { return sized(x, {x.size(0), 1, x.size(-2), x.size(-1)}); };
  Tensor q = laid_out(query), k = laid_out(key);
  for (const Tensor* x : {&q, &k}) fused::turn(s, *x, table(cosine), table(sine), fused::Direction::Forward);
  if (!node) return {std::move(q), std::move(k)};
  node->outputs = 2;
  node->apply = [&s, laid_out, table, saved_cosine = s.save(cosine), saved_sine = s.save(sine)](const Gradients& g) {
    const Tensor its_cosine = table(s.unpack(saved_cosine)), its_sine = table(s.unpack(saved_sine));
    Gradients made(2);
    for (std::size_t i = 0; i < 2; ++i) made[i] = laid_out(g[i]);
    for (const Tensor& x : made) fused::turn(s, x, its_cosine, its_sine, fused::Direction::Backward);
    return made;
  };
  return {with(std::move(q), node), with(std::move(k), node, 1)};
}

// ops/swiglu.py
Tensor swiglu(Session& s, const Tensor& gate, const Tensor& up) {
  return gated(
      s, gate, up, "swiglu",
      [](Session& its, const Tensor& x, const Tensor& made) { its.launch(Operation::Silu, {x}, {made}); },
      [](Session& its, const Tensor& gradient, const Tensor& x) {
        its.launch(Operation::SiluBackward, {gradient, x}, {x});
      });
}

// ops/geglu.py
Tensor geglu(Session& s, const Tensor& gate, const Tensor& up) {
  constexpr double by_tanh = 1;
  return gated(
      s, gate, up, "geglu",
      [](Session& its, const Tensor& x, const Tensor& made) {
        its.launch({Operation::Gelu, {by_tanh}}, {x, Tensor{}}, {made});
      },
      [](Session& its, const Tensor& gradient, const Tensor& x) {
        its.launch({Operation::GeluBackward, {by_tanh}}, {gradient, x, Tensor{}}, {x});
      });
}

// ops/fused_linear_cross_entropy.py
Tensor linear_cross_entropy(Session& s, const Tensor& hidden, const Tensor& weight, const Tensor& labels,
                            std::int64_t counted) {
  auto node = s.node({&hidden, &weight});
  const bool trains = node && weight.requires_grad();
  const std::int64_t rows = hidden.size(0), classes = weight.size(0);
  const std::int64_t chunk = std::min(fused::rows_of_chunk(rows, hidden.size(1), classes), rows);
  const NoGrad no_grad(s);
  const Tensor of_hidden = fused::zeros(s, hidden.sizes, hidden.dtype, "hidden_gradient");
  Tensor of_weight;
  if (trains) of_weight = fused::zeros(s, weight.sizes, weight.dtype, "weight_gradient");
  const Tensor losses = fused::zeros(s, {rows}, DType::FP32, "losses");
  const Tensor ignored = s.empty({rows}, DType::BOOL, "target_mask");
  s.launch({Operation::Equals, {ignored_label}}, {labels}, {ignored});
  // _can_use_mm_out: one buffer for all chunks' logits, unless autocast converts.
  const DType computed = s.autocast.value_or(hidden.dtype);
  Tensor storage;
  if (hidden.dtype == weight.dtype && computed == hidden.dtype)
    storage = s.empty({chunk, classes}, hidden.dtype, "logits");
  // A view of a weight is converted each time, the weight itself once.
  const auto in_type = [&](const Tensor& x) { return to(s, x.detached(), computed); };
  const double share = 1 / static_cast<double>(counted);
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t count = std::min(chunk, rows - begin);
    const Tensor input = narrowed(hidden.detached(), 0, begin, count), targets = narrowed(labels, 0, begin, count);
    Tensor logits;
    if (storage.defined()) {
      logits = narrowed(storage, 0, 0, count);
      mm_into(s, input, swapped(weight.detached(), 0, 1), logits);
    } else {
      const Tensor head = in_type(weight);
      logits = linear(s, in_type(input), head, {});
    }
    const Tensor its_losses = narrowed(losses, 0, begin, count);
    fused::losses_and_gradients(s, logits, targets, logits, its_losses);
    s.launch({Operation::Scale, {share}}, {logits}, {logits});
    s.launch({Operation::Scale, {share}}, {its_losses}, {its_losses});
    const Tensor its_gradient = narrowed(of_hidden, 0, begin, count);
    if (storage.defined()) {
      mm_into(s, logits, weight.detached(), its_gradient);
    } else {
      const Tensor back = conv1d(s, logits, operand(s, weight), {});
      s.launch(Operation::Copy, {back}, {its_gradient});
    }
    if (!trains) continue;
    if (computed != DType::FP32) {
      add_mm_into(s, swapped(logits, 0, 1), in_type(input), of_weight);
    } else {  // the product's kernel adds up 16-bit factors only
      const Tensor product = s.empty(weight.sizes, DType::FP32, "mm");
      mm_into(s, swapped(logits, 0, 1), input, product);
      s.launch({Operation::AddScaled, {1}}, {of_weight, product}, {of_weight});
    }
  }
  storage = {};
  return fused::with_gradients(s, fused::sum_of(s, losses), std::move(node), of_hidden, of_weight);
}

// ops/cross_entropy.py: the gradients come with the losses, over the logits.
Tensor cross_entropy(Session& s, const Tensor& logits, const Tensor& labels, std::int64_t counted) {
  auto node = s.node({&logits});
  const Tensor rows = logits.detached();
  const Tensor losses = fused::zeros(s, {rows.size(0)}, DType::FP32, "losses");
  fused::losses_and_gradients(s, rows, labels, rows, losses);
  const double share = 1 / static_cast<double>(counted);
  s.launch({Operation::Scale, {share}}, {rows}, {rows});
  s.launch({Operation::Scale, {share}}, {losses}, {losses});
  Tensor loss = fused::sum_of(s, losses);
  if (node)
    node->apply = [&s, saved = s.save(rows)](const Gradients& g) {
      const Tensor made = s.unpack(saved);
      s.launch(Operation::Multiply, {made, g.front()}, {made});
      return Gradients{made};
    };
  return with(std::move(loss), std::move(node));
}

}  // namespace tidemark::parallel::transformers::liger
