#include <algorithm>
#include <utility>

#include "parallel/frameworks/transformers/fused.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/products.hpp"

namespace tidemark::parallel::transformers::foak {

Tensor rms_norm(Session& s, const Tensor& x, const Tensor& weight) {
  auto node = s.node({&x, &weight});
  Saved saved_x, saved_weight;
  if (node) saved_x = s.save(x), saved_weight = s.save(weight);
  Tensor out = s.empty(x.sizes, x.dtype, "rms_norm");
  const Tensor deviation = s.empty(with_size(x.sizes, -1, 1), DType::FP32, "rms_norm_rstd");
  s.launch({Operation::RmsNorm, {usual_epsilon}}, {x, weight.detached(), Tensor{}}, {out, deviation});
  if (node)
    node->apply = [&s, saved_deviation = s.save(deviation), saved_weight, saved_x,
                   of_weight = weight.requires_grad() ? weight.gradient.node->stream : StreamId{}](const Gradients& g) {
      const Tensor in = s.unpack(saved_x), scale = s.unpack(saved_weight), rows = s.unpack(saved_deviation);
      const Tensor& given = g.front();
      s.launch(Operation::RmsNormBackward, {given, in, rows, scale, Tensor{}}, {given, Tensor{}});
      // No gradient makes the stream wait that gives a gathered weight up: PyTorch leaves it to luck.
      if (of_weight.valid() && of_weight != s.stream()) s.process.wait(of_weight, s.process.record(s.stream()));
      return Gradients{given, Tensor{}};
    };
  return with(std::move(out), std::move(node));
}

// Queries, then keys, each by a function of its own, which keeps the tables as they are.
std::pair<Tensor, Tensor> rope(Session& s, const Tensor& query, const Tensor& key, const Tensor& cosine,
                               const Tensor& sine) {
  const auto table = [](const Tensor& x) { return sized(x, {x.size(0), 1, x.size(-2), x.size(-1)}); };
  const auto turned = [&](const Tensor& x) {
    auto node = s.node({&x});
    Tensor made = x.detached();
    made.view = true;
    fused::turn(s, made, table(cosine), table(sine), fused::Direction::Forward);
    if (node)
      node->apply = [&s, its_cosine = table(cosine), its_sine = table(sine)](const Gradients& g) {
        // dY.reshape(rows, heads * width), of [batch, sequence, heads, width].
        const Tensor rows = transpose(s, contiguous(s, transpose(s, g.front().detached(), 1, 2)), 1, 2);
        fused::turn(s, rows, its_cosine, its_sine, fused::Direction::Backward);
        return Gradients{rows};
      };
    return with(std::move(made), std::move(node));
  };
  Tensor q = turned(query);
  return {std::move(q), turned(key)};
}

// The gradients are written over the logits, which were saved; a mean of losses that are not ignored.
Tensor cross_entropy(Session& s, const Tensor& logits, const Tensor& labels, std::int64_t counted) {
  auto node = s.node({&logits});
  Saved saved, saved_labels;
  if (node) saved = s.save(logits), saved_labels = s.save(labels);
  const std::int64_t rows = logits.size(0);
  const auto held = [&s](const Tensor& of) {
    return s.in_registers(of.sizes, contiguous_strides(of.sizes), of.dtype, "gradients");
  };
  const Tensor losses = s.empty({rows}, DType::FP32, "losses");
  constexpr std::int64_t widest = 65536;  // MAX_FUSED_SIZE: wider ones are summed in parts
  const std::int64_t chunks = (logits.size(-1) + widest - 1) / widest;
  Tensor sums = s.empty(chunks == 1 ? Shape{rows} : Shape{rows, chunks}, DType::FP32, "logsumexp");
  fused::losses_and_gradients(s, logits.detached(), labels, held(logits), losses);
  s.launch({Operation::Fill, {0}}, {}, {sums});  // what backward makes of the logits again here
  if (chunks > 1) sums = sum_to(s, sums, {rows, 1});
  const double share = 1 / static_cast<double>(counted);
  Tensor loss = fused::sum_of(s, losses);
  loss = elementwise(s, "mean", {Operation::Scale, {share}}, {&loss}, loss.dtype);
  if (node)
    node->apply = [&s, held, share, saved, saved_labels, saved_sums = s.save(sums)](const Gradients& g) {
      const Tensor made = s.unpack(saved), places = s.unpack(saved_labels), its_sums = s.unpack(saved_sums);
      const Tensor losses_again = s.in_registers({made.size(0)}, {1}, DType::FP32, "losses");
      fused::losses_and_gradients(s, made, places, made, losses_again);
      const Tensor of_loss = elementwise(s, "mul_number", {Operation::Scale, {share}}, {&g.front()}, g.front().dtype);
      s.launch(Operation::Multiply, {made, of_loss}, {made});
      return Gradients{made};
    };
  return with(std::move(loss), std::move(node));
}

// fused_ops/liger_ce: logits in fp32, whose gradients are in the head's type again. Variables live until the next chunk
// has its own.
Tensor linear_cross_entropy(Session& s, const Tensor& hidden, const Tensor& weight, const Tensor& labels,
                            std::int64_t counted) {
  auto node = s.node({&hidden, &weight});
  const bool trains = node && weight.requires_grad();
  const std::int64_t rows = hidden.size(0), chunk = fused::rows_of_chunk(rows, hidden.size(1), weight.size(0));
  const DType computed = s.autocast.value_or(hidden.dtype);
  const NoGrad no_grad(s);
  Tensor of_weight;
  if (trains) of_weight = fused::zeros(s, weight.sizes, weight.dtype, "weight_gradient");
  const Tensor of_hidden = fused::zeros(s, hidden.sizes, hidden.dtype, "hidden_gradient");
  const Tensor losses = fused::zeros(s, {rows}, DType::FP32, "losses");
  const double share = 1 / static_cast<double>(counted);
  const auto in_type = [&](const Tensor& x) { return to(s, x.detached(), computed); };
  Tensor logits, gradients;
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t count = std::min(chunk, rows - begin);
    const Tensor input = narrowed(hidden.detached(), 0, begin, count), targets = narrowed(labels, 0, begin, count);
    const Tensor its_losses = narrowed(losses, 0, begin, count);
    logits = linear(s, in_type(input), in_type(weight), {});
    logits = to(s, logits, DType::FP32);
    fused::losses_and_gradients(s, logits, targets, logits, its_losses);
    logits = to(s, logits, computed);
    s.launch({Operation::Scale, {share}}, {its_losses}, {its_losses});
    gradients = elementwise(s, "grad_logits", {Operation::Scale, {share}}, {&logits}, computed);
    {
      const Tensor back = conv1d(s, gradients, in_type(weight), {});
      s.launch(Operation::Copy, {back}, {narrowed(of_hidden, 0, begin, count)});
    }
    // addmm(alpha=...), which takes what was not scaled.
    if (trains) add_mm_into(s, swapped(gradients, 0, 1), in_type(input), of_weight);
  }
  gradients = {}, logits = {};
  return fused::with_gradients(s, fused::sum_of(s, losses), std::move(node), of_hidden, of_weight);
}

}  // namespace tidemark::parallel::transformers::foak
