#include "parallel/torch/ops/aten.hpp"

#include <algorithm>
#include <utility>

#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/reduction.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel::torch {
namespace {

Tensor unary(Session& s, std::string_view name, const Computation& what, const Tensor& x) {
  return elementwise(s, name, what, {&x}, x.dtype);
}

// autocast_mode.h: operations that run in fp32.
Tensor in_fp32(Session& s, const Tensor& x) { return s.autocast ? to(s, x, DType::FP32) : x; }

// Type promotion among tensors that have dimensions: of floating-point ones, and of one with a mask.
DType promoted(DType a, DType b) {
  if (a == b || b == DType::BOOL) return a;
  return a == DType::FP64 || b == DType::FP64 ? DType::FP64 : DType::FP32;
}

// An output laid out as an elementwise operation does it.
Tensor laid_out_as(Session& s, std::string_view name, Operands operands, DType dtype) {
  Shape sizes = operands.front().sizes;
  for (const Tensor& t : operands) sizes = broadcast(sizes, t.sizes);
  return s.empty_strided(sizes, elementwise_strides(operands, sizes), dtype, name);
}

}  // namespace

Tensor elementwise(Session& s, std::string_view name, const Computation& what, Operands operands, DType dtype) {
  Tensor out = laid_out_as(s, name, operands, dtype);
  s.launch(what, operands, {out});
  return out;
}

// ---- element by element --------------------------------------------------------------------------------------------

Tensor add(Session& s, const Tensor& a, const Tensor& b) {
  auto node = s.node({&a, &b});
  Tensor out = elementwise(s, "add", Operation::Add, {&a, &b}, promoted(a.dtype, b.dtype));
  if (node) node->apply = [](const Gradients& g) { return Gradients{g.front(), g.front()}; };
  return with(std::move(out), std::move(node));
}

Tensor sub(Session& s, const Tensor& a, const Tensor& b) {
  auto node = s.node({&a, &b});
  Tensor out = elementwise(s, "sub", {Operation::AddScaled, {-1}}, {&a, &b}, promoted(a.dtype, b.dtype));
  if (node)
    node->apply = [&s, of_both = node->needs(1)](const Gradients& g) {
      Gradients made{g.front(), Tensor{}};
      if (of_both) made[1] = unary(s, "sub_gradient", {Operation::Scale, {-1}}, g.front());
      return made;
    };
  return with(std::move(out), std::move(node));
}

Tensor add_in_place(Session& s, const Tensor& a, const Tensor& b) {
  auto node = s.node({&a, &b});
  s.launch(Operation::Add, {a, b}, {a});
  if (node) node->apply = [](const Gradients& g) { return Gradients{g.front(), g.front()}; };
  return with(a.detached(), std::move(node));
}

Tensor mul(Session& s, const Tensor& a, const Tensor& b) {
  auto node = s.node({&a, &b});
  Saved saved_a, saved_b;
  if (node && node->needs(0)) saved_b = s.save(b);
  if (node && node->needs(1)) saved_a = s.save(a);
  Tensor out = elementwise(s, "mul", Operation::Multiply, {&a, &b}, promoted(a.dtype, b.dtype));
  if (node)
    node->apply = [&s, saved_a, saved_b](const Gradients& g) {
      const Tensor other = saved_b ? s.unpack(saved_b) : Tensor{}, self = saved_a ? s.unpack(saved_a) : Tensor{};
      const auto times = [&](const Tensor& factor) {
        return elementwise(s, "mul_gradient", Operation::Multiply, {&g.front(), &factor},
                           promoted(g.front().dtype, factor.dtype));
      };
      Gradients made(2);
      if (saved_a) made[1] = times(self);
      if (saved_b) made[0] = times(other);
      return made;
    };
  return with(std::move(out), std::move(node));
}

Tensor complex_mul(Session& s, const Tensor& a, const Tensor& b) {
  auto node = s.node({&a});
  Saved saved;
  if (node) saved = s.save(b);
  Tensor out = elementwise(s, "mul", {Operation::ComplexMultiply, {0}}, {&a, &b}, a.dtype);
  if (node)
    node->apply = [&s, saved](const Gradients& g) {
      // mul_tensor_backward: grad * other.conj(), a view that the kernel cannot read and so copies
      // (ConjugateFallback.cpp).
      const Tensor other = s.unpack(saved);
      const Tensor copied = s.empty(other.sizes, other.dtype, "conjugate");
      s.launch(Operation::Copy, {other}, {copied});
      return Gradients{
          elementwise(s, "mul_gradient", {Operation::ComplexMultiply, {1}}, {&g.front(), &copied}, g.front().dtype)};
    };
  return with(std::move(out), std::move(node));
}

Tensor add_number(Session& s, const Tensor& x, double number) {
  auto node = s.node({&x});
  Tensor out = unary(s, "add_number", {Operation::AddNumber, {number}}, x);
  if (node) node->apply = [](const Gradients& g) { return Gradients{g.front()}; };
  return with(std::move(out), std::move(node));
}

namespace {

Tensor scaled(Session& s, std::string_view name, std::string_view backward_name, const Tensor& x, double factor) {
  auto node = s.node({&x});
  Tensor out = unary(s, name, {Operation::Scale, {factor}}, x);
  if (node)
    node->apply = [&s, backward_name, factor](const Gradients& g) {
      return Gradients{unary(s, backward_name, {Operation::Scale, {factor}}, g.front())};
    };
  return with(std::move(out), std::move(node));
}

// What an operation whose backward pass makes one tensor from the gradient and another one saves.
enum class Saves : std::uint8_t { Input, Output };

struct Activation {
  std::string_view name, backward_name;
  Operation forward, backward;
  Saves saves;
};

Tensor activated(Session& s, const Activation& what, const Tensor& x) {
  auto node = s.node({&x});
  Saved saved;
  if (node && what.saves == Saves::Input) saved = s.save(x);
  Tensor out = unary(s, what.name, what.forward, x);
  if (node && what.saves == Saves::Output) saved = s.save(out);
  if (node)
    node->apply = [&s, saved, name = what.backward_name, backward = what.backward](const Gradients& g) {
      const Tensor other = s.unpack(saved);
      return Gradients{elementwise(s, name, backward, {&g.front(), &other}, g.front().dtype)};
    };
  return with(std::move(out), std::move(node));
}

}  // namespace

Tensor mul_number(Session& s, const Tensor& x, double factor) {
  return scaled(s, "mul_number", "mul_gradient", x, factor);
}
Tensor neg(Session& s, const Tensor& x) { return scaled(s, "neg", "neg_gradient", x, -1); }

Tensor tanh(Session& s, const Tensor& x) {
  return activated(s, {"tanh", "tanh_gradient", Operation::Tanh, Operation::TanhBackward, Saves::Output}, x);
}
Tensor silu(Session& s, const Tensor& x) {
  return activated(s, {"silu", "silu_gradient", Operation::Silu, Operation::SiluBackward, Saves::Input}, x);
}
Tensor relu(Session& s, const Tensor& x) {
  return activated(s, {"relu", "relu_gradient", Operation::Relu, Operation::ReluBackward, Saves::Output}, x);
}

Tensor gelu(Session& s, const Tensor& x, Approximate approximate) {
  const Attributes attributes{approximate == Approximate::Tanh ? 1.0 : 0.0};
  auto node = s.node({&x});
  Saved saved;
  if (node) saved = s.save(x);
  const Tensor no_bias;
  Tensor out = laid_out_as(s, "gelu", {&x}, x.dtype);
  s.launch({Operation::Gelu, attributes}, {x, no_bias}, {out});
  if (node)
    node->apply = [&s, saved, no_bias, attributes](const Gradients& g) {
      const Tensor in = s.unpack(saved);
      Tensor made = laid_out_as(s, "gelu_gradient", {&g.front(), &in}, g.front().dtype);
      s.launch({Operation::GeluBackward, attributes}, {g.front(), in, no_bias}, {made});
      return Gradients{std::move(made)};
    };
  return with(std::move(out), std::move(node));
}

Tensor pow_number(Session& s, const Tensor& given, double exponent) {
  const Tensor x = in_fp32(s, given);
  auto node = s.node({&x});
  Saved saved;
  if (node) saved = s.save(x);
  Tensor out = unary(s, "pow", {Operation::Power, {exponent}}, x);
  if (node)
    node->apply = [&s, saved, exponent](const Gradients& g) {
      // pow_backward: gradient * (exponent * self.pow(exponent - 1)).
      const Tensor self = s.unpack(saved);
      const Tensor lower = unary(s, "lower_power", {Operation::Power, {exponent - 1}}, self);
      const Tensor slope = unary(s, "scaled_power", {Operation::Scale, {exponent}}, lower);
      return Gradients{elementwise(s, "pow_gradient", Operation::Multiply, {&g.front(), &slope}, g.front().dtype)};
    };
  return with(std::move(out), std::move(node));
}

Tensor rsqrt(Session& s, const Tensor& given) {
  const Tensor x = in_fp32(s, given);
  auto node = s.node({&x});
  Tensor out = unary(s, "rsqrt", {Operation::Power, {-0.5}}, x);
  Saved saved;
  if (node) saved = s.save(out);
  if (node)
    node->apply = [&s, saved](const Gradients& g) {
      // rsqrt_backward: -0.5 * gradient * result.pow(3).
      const Tensor result = s.unpack(saved);
      const Tensor halved = unary(s, "scaled_gradient", {Operation::Scale, {-0.5}}, g.front());
      const Tensor cubed = unary(s, "cubed", {Operation::Power, {3}}, result);
      return Gradients{elementwise(s, "rsqrt_gradient", Operation::Multiply, {&halved, &cubed}, g.front().dtype)};
    };
  return with(std::move(out), std::move(node));
}

Tensor dropout(Session& s, const Tensor& x, double probability) {
  if (probability == 0) return x;
  auto node = s.node({&x});
  // Dropout.cu dropout_cuda: the mask comes first.
  const Tensor mask = laid_out_as(s, "dropout_mask", {&x}, DType::BOOL);
  Tensor out = laid_out_as(s, "dropout", {&x}, x.dtype);
  const Attributes attributes{probability};
  s.launch({Operation::Dropout, attributes}, {x}, {out, mask});
  Saved saved;
  if (node) saved = s.save(mask);
  if (node)
    node->apply = [&s, saved, attributes](const Gradients& g) {
      const Tensor kept = s.unpack(saved);
      return Gradients{elementwise(s, "dropout_gradient", {Operation::DropoutBackward, attributes}, {&g.front(), &kept},
                                   g.front().dtype)};
    };
  return with(std::move(out), std::move(node));
}

// ---- over the last dimension ---------------------------------------------------------------------------------------

Tensor mean_last(Session& s, const Tensor& x) {
  auto node = s.node({&x});
  Tensor out = s.empty(with_size(x.sizes, -1, 1), x.dtype, "mean");
  s.launch(Operation::Mean, {x}, {out});
  if (node)
    node->apply = [&s, sizes = x.sizes](const Gradients& g) {
      const NoGrad no_grad(s);
      const Tensor repeated = expand(s, g.front(), sizes);
      const Tensor divided = s.empty(sizes, g.front().dtype, "mean_gradient");
      const double count = static_cast<double>(sizes.back());
      s.launch({Operation::Scale, {1 / count}}, {repeated}, {divided});
      return Gradients{divided};
    };
  return with(std::move(out), std::move(node));
}

namespace {

template <typename Kernel>
Tensor softmax_of_rows(Session& s, const Tensor& x, DType dtype, Kernel kernel) {
  auto node = s.node({&x});
  Tensor out = s.empty(x.sizes, dtype, "softmax");
  kernel(out);
  Saved saved;
  if (node) saved = s.save(out);
  if (node)
    node->apply = [&s, saved, narrow = x.dtype](const Gradients& g) {
      const Tensor result = s.unpack(saved);
      const Tensor made = s.empty(result.sizes, narrow, "softmax_gradient");
      // SoftMax.cu softmax_backward_cuda_out: the product of gradient and result, before the kernel.
      Tensor product;
      if (s.behavior().kernel_workspaces) product = s.empty(result.sizes, g.front().dtype, "softmax_gradient_product");
      s.launch({Operation::SoftmaxBackward, {1}}, {g.front(), result}, {made}, product);
      return Gradients{made};
    };
  return with(std::move(out), std::move(node));
}

}  // namespace

Tensor softmax_last(Session& s, const Tensor& x, DType dtype) {
  // SoftMax.cpp softmax: other types are converted first; of fp16 the kernel itself makes fp32.
  if (x.dtype != dtype && x.dtype != DType::FP16) return softmax_last(s, to(s, x, dtype), dtype);
  return softmax_of_rows(s, x, dtype, [&](const Tensor& out) { s.launch({Operation::Softmax, {1}}, {x}, {out}); });
}

Tensor safe_softmax_last(Session& s, const Tensor& x) {
  return softmax_of_rows(s, x, x.dtype, [&](const Tensor& out) {
    const Tensor masked = s.empty(x.sizes, DType::BOOL, "softmax_masked");
    const Tensor rows = s.empty(with_size(x.sizes, -1, 1), DType::BOOL, "softmax_masked_rows");
    const Tensor zero = s.empty({}, x.dtype, "softmax_zero");
    s.launch({Operation::Softmax, {1}}, {x}, {out}, std::vector<Tensor>{masked, rows, zero});
  });
}

Tensor layer_norm(Session& s, const Tensor& given, const Tensor& given_weight, const Tensor& given_bias) {
  // Of several arguments the last is converted first; parameters too, where a wrapper shows them in a narrower type.
  const Tensor bias = in_fp32(s, given_bias), weight = in_fp32(s, given_weight), x = in_fp32(s, given);
  auto node = s.node({&x, &weight, &bias});
  Saved saved_bias, saved_x, saved_weight;
  if (node) saved_bias = s.save(bias), saved_x = s.save(x), saved_weight = s.save(weight);
  Tensor out = s.empty(x.sizes, x.dtype, "layer_norm");
  const Shape rows = with_size(x.sizes, -1, 1);
  const Tensor mean = s.empty(rows, DType::FP32, "layer_norm_mean");
  const Tensor deviation = s.empty(rows, DType::FP32, "layer_norm_rstd");
  s.launch({Operation::LayerNorm, {usual_epsilon}}, {x, weight, bias}, {out, mean, deviation});
  if (node)
    node->apply = [&s, saved_mean = s.save(mean), saved_deviation = s.save(deviation), saved_weight, saved_bias,
                   saved_x, trains = weight.requires_grad()](const Gradients& g) {
      // native_layer_norm_backward is handed the bias too, and needs none of it.
      const Tensor shift = s.unpack(saved_bias), in = s.unpack(saved_x), scale = s.unpack(saved_weight);
      const Tensor centre = s.unpack(saved_mean), rstd = s.unpack(saved_deviation);
      Gradients made(3);
      made[0] = s.empty(in.sizes, in.dtype, "layer_norm_gradient");
      if (trains) {
        made[1] = s.empty(scale.sizes, scale.dtype, "weight_gradient");
        made[2] = s.empty(shift.sizes, scale.dtype, "bias_gradient");
      }
      s.launch(Operation::LayerNormBackward, {g.front(), in, centre, rstd, scale}, made);
      return made;
    };
  return with(std::move(out), std::move(node));
}

namespace {

// layer_norm.cpp rms_norm_composite.
Tensor rms_norm_by_parts(Session& s, const Tensor& x, const Tensor& weight) {
  const Tensor wide = to(s, x, DType::FP32);
  const auto scale = [&] {
    const auto variance = [&] { return mean_last(s, pow_number(s, wide, 2)); };
    return rsqrt(s, add_number(s, variance(), usual_epsilon));
  };
  const Tensor scales = scale();
  Tensor result = mul(s, wide, scales);
  result = mul(s, result, weight);
  return to(s, result, x.dtype);
}

}  // namespace

// layer_norm_kernel.cu rms_norm_cuda, _fused_rms_norm_backward.
Tensor rms_norm(Session& s, const Tensor& given, const Tensor& given_weight) {
  const auto listed = [&](const Tensor& t) { return s.behavior().widens_rms_norm ? in_fp32(s, t) : t; };
  const Tensor x = listed(given), weight = listed(given_weight);
  if (x.dtype != weight.dtype) return rms_norm_by_parts(s, x, weight);
  auto node = s.node({&x, &weight});
  Saved saved_x, saved_weight;
  if (node) saved_x = s.save(x), saved_weight = s.save(weight);
  Tensor out = s.empty(x.sizes, x.dtype, "rms_norm");
  const Tensor deviation = s.empty(with_size(x.sizes, -1, 1), DType::FP32, "rms_norm_rstd");
  s.launch({Operation::RmsNorm, {usual_epsilon}}, {x, weight, Tensor{}}, {out, deviation});
  if (node)
    node->apply = [&s, saved_deviation = s.save(deviation), saved_weight, saved_x,
                   trains = weight.requires_grad()](const Gradients& g) {
      const Tensor in = s.unpack(saved_x), scale = s.unpack(saved_weight), rows = s.unpack(saved_deviation);
      Gradients made(2);
      if (s.asks_for(0)) made[0] = s.empty(in.sizes, in.dtype, "rms_norm_gradient");
      if (trains && s.asks_for(1)) made[1] = s.empty(scale.sizes, scale.dtype, "weight_gradient");
      s.launch(Operation::RmsNormBackward, {g.front(), in, rows, scale, Tensor{}}, made);
      return made;
    };
  return with(std::move(out), std::move(node));
}

namespace {

Tensor reduced(Session& s, Operation what, std::string_view name, const Tensor& x, const Shape& sizes) {
  Tensor made = s.empty(sizes, x.dtype, name);
  std::vector<Tensor> scratch = reduction_scratch(s, x, sizes);
  s.launch(what, {x}, {made}, scratch);
  while (!scratch.empty()) scratch.pop_back();
  return made;
}

}  // namespace

Tensor sum_to(Session& s, const Tensor& x, const Shape& sizes) {
  return x.sizes == sizes ? x : reduced(s, Operation::Sum, "sum", x, sizes);
}

Tensor mean_to(Session& s, const Tensor& x, const Shape& sizes) {
  return reduced(s, Operation::Mean, "mean", x, sizes);
}

Tensor norm_of_all(Session& s, const Tensor& x, std::string_view name) {
  return reduced(s, Operation::Norm, name, x, {1});
}

void ask_for_nan_and_inf(Session& s) {
  for (const std::string_view question : {"isnan", "isinf"}) {
    const Tensor answer = s.empty({}, DType::BOOL, question);
    s.launch({Operation::Fill, {0}}, {}, {answer});  // numbers here are always finite
    s.process.synchronize();
  }
}

// ---- embedding and loss --------------------------------------------------------------------------------------------

// Embedding.cu embedding_dense_backward_cuda, EmbeddingBackwardKernel.cu: many tokens are sorted, and what goes to one
// row is summed in parts of ten tokens. CUB's own space is what it asked for in torch 2.15 (tests/ground_truth).
Tensor embedding_backward(Session& s, const Tensor& gradient, const Tensor& ids, const Shape& sizes, DType dtype) {
  constexpr std::int64_t few = 3072, of_part = 10;
  constexpr std::int64_t histograms = 6655, of_scan = 1279;  // bytes
  const std::int64_t tokens = ids.elements();
  if (tokens <= few || !s.behavior().kernel_workspaces) {
    Tensor made = s.empty(sizes, dtype, "weight_gradient");
    s.launch(Operation::EmbeddingBackward, {gradient, ids}, {made});
    return made;
  }
  const auto indices = [&s](std::int64_t count) { return s.empty({count}, DType::INT64, "embedding_indices"); };
  const auto bytes = [&s](std::int64_t count) { return s.empty({count}, DType::BOOL, "embedding_scratch"); };
  const Tensor sorted = indices(tokens), original = indices(tokens);
  {
    const Tensor range = indices(tokens);
    (void)bytes(2 * tokens * size_of(DType::INT64).count() + histograms);
  }
  Tensor made = s.empty(sizes, dtype, "weight_gradient");
  const Tensor segments = indices(tokens), segment_count = indices(1);
  {
    const Tensor unique = indices(tokens);
    (void)bytes(of_scan);
  }
  const std::int64_t most_segments = std::min(tokens, sizes.front()), most_parts = tokens / of_part + most_segments;
  const Tensor parts = indices(most_segments), offsets = indices(most_segments);
  (void)bytes(of_scan);
  const Tensor part_count = indices(1), part_offsets = indices(most_parts);
  const Tensor sums = s.empty({most_parts, sizes.back()}, DType::FP32, "embedding_part_sums");
  // All that is sorted and counted on the way, as one kernel.
  s.launch(Operation::EmbeddingBackward, {gradient, ids}, {made},
           std::vector{sorted, original, segments, segment_count, parts, offsets, part_count, part_offsets, sums});
  return made;
}

Tensor embedding(Session& s, const Tensor& ids, const Tensor& weight) {
  auto node = s.node({&weight});
  Saved saved;
  if (node) saved = s.save(ids);
  Shape sizes = ids.sizes;
  sizes.push_back(weight.size(-1));
  Tensor out = s.empty(std::move(sizes), weight.dtype, "embedding");
  s.launch(Operation::Embedding, {ids, weight}, {out});
  if (node)
    node->apply = [&s, saved, weight_sizes = weight.sizes, dtype = weight.dtype](const Gradients& g) {
      const Tensor places = s.unpack(saved);
      return Gradients{embedding_backward(s, g.front(), places, weight_sizes, dtype)};
    };
  return with(std::move(out), std::move(node));
}

namespace {

Tensor log_softmax(Session& s, const Tensor& x) {
  auto node = s.node({&x});
  Tensor out = s.empty(x.sizes, x.dtype, "log_softmax");
  s.launch(Operation::LogSoftmax, {x}, {out});
  Saved saved;
  if (node) saved = s.save(out);
  if (node)
    node->apply = [&s, saved](const Gradients& g) {
      const Tensor result = s.unpack(saved);
      const Tensor made = s.empty(result.sizes, result.dtype, "log_softmax_gradient");
      s.launch(Operation::LogSoftmaxBackward, {g.front(), result}, {made});
      return Gradients{made};
    };
  return with(std::move(out), std::move(node));
}

}  // namespace

Tensor cross_entropy(Session& s, const Tensor& logits, const Tensor& labels) {
  const Tensor probabilities = log_softmax(s, in_fp32(s, logits));
  auto node = s.node({&probabilities});
  Saved saved, saved_labels;
  if (node) saved = s.save(probabilities), saved_labels = s.save(labels);
  Tensor out = s.empty({}, probabilities.dtype, "nll_loss");
  const Tensor weight = s.empty({}, probabilities.dtype, "nll_loss_weight");
  s.launch(Operation::NllLoss, {probabilities, labels}, {out, weight});
  if (node)
    node->apply = [&s, saved_weight = s.save(weight), saved_labels, saved](const Gradients& g) {
      const Tensor result = s.unpack(saved), places = s.unpack(saved_labels), total = s.unpack(saved_weight);
      const Tensor made = s.empty(result.sizes, result.dtype, "nll_loss_gradient");
      s.launch(Operation::NllLossBackward, {g.front(), places, total}, {made});
      return Gradients{made};
    };
  return with(std::move(out), std::move(node));
}

}  // namespace tidemark::parallel::torch
