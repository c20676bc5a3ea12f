#include "parallel/frameworks/megatron/experts/expert_biases.hpp"

#include <limits>
#include <utility>

#include "parallel/torch/session.hpp"

namespace tidemark::parallel::megatron {

using torch::with;

namespace {

constexpr double limit = 7;  // GptOssConfig.swiglu_limit

Tensor half_of(const Tensor& x, std::int64_t which) {
  const std::int64_t width = x.size(-1) / 2;
  return narrowed(x.detached(), -1, which * width, width);
}

double least_of(std::int64_t half) { return half == 0 ? -std::numeric_limits<double>::infinity() : -limit; }

}  // namespace

// Each clamp saves its half of x, and lets those gradients through of which the value was within limits.
Tensor clamped_halves(Worker& w, const Name& name, const Tensor& x) {
  const auto node = w.node(name(), {&x});
  Saved saved;
  if (node) saved = w.session.save(x);
  Tensor joined;
  {
    std::vector<Tensor> halves;
    for (const std::int64_t half : {0, 1}) {
      halves.push_back(w.temporary(name("clamped"), half_of(x, half).sizes));
      w.launch({Operation::Clamp, {least_of(half), limit}}, {half_of(x, half)}, {halves.back()});
    }
    joined = w.temporary(name("joined"), x.sizes);
    w.launch(Operation::Copy, halves, {half_of(joined, 0), half_of(joined, 1)});
  }
  if (!node) return joined;
  node->apply = [&w, &name, saved = std::move(saved), clamped = w.session.save(joined)](Gradients& gradients) mutable {
    const Tensor gradient = std::move(gradients.front()), input = w.take(saved), within = w.take(clamped);
    Tensor made = w.like(name("clamp_gradient"), gradient);
    std::vector<Tensor> halves;
    for (const std::int64_t half : {0, 1}) {
      const Tensor outside = w.temporary(name("outside"), half_of(input, half).sizes, DType::BOOL);
      w.launch(Operation::Differs, {half_of(input, half), half_of(within, half)}, {outside});
      halves.push_back(w.like(name("clamped_gradient"), half_of(gradient, half)));
      w.launch({Operation::MaskedFill, {0}}, {half_of(gradient, half), outside}, {halves.back()});
    }
    w.launch(Operation::Copy, halves, {half_of(made, 0), half_of(made, 1)});
    return Gradients{std::move(made)};
  };
  return with(std::move(joined), node);
}

namespace {

// Calls work(expert, rows of x, rows of probabilities).
template <class Work>
void for_each_part(const Tensor& x, const Tensor& probabilities, const std::vector<std::int64_t>& rows, Work work) {
  std::int64_t first = 0;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    if (rows[e] > 0)
      work(e, narrowed(x.detached(), 0, first, rows[e]),
           sized(narrowed(probabilities.detached(), 0, first, rows[e]), {rows[e], 1}));
    first += rows[e];
  }
}

Tensor row_of(const Weight& bias) { return sized(bias.value.detached(), {1, bias.rows}); }

}  // namespace

Tensor with_biases(Worker& w, const Name& name, const Tensor& x, const Tensor& probabilities,
                   const std::vector<const Weight*>& biases, const std::vector<std::int64_t>& rows_of_experts) {
  std::vector<Tensor> inputs{x, probabilities};
  for (const Weight* const bias : biases) inputs.push_back(bias->value);
  const auto node = w.node(name(), inputs);
  const DType type = size_of(probabilities.dtype) > size_of(x.dtype) ? probabilities.dtype : x.dtype;
  Saved saved;
  if (node) saved = w.session.save(probabilities);
  std::vector<Tensor> sums, places;
  Tensor out = w.like(name("biased"), x);
  for_each_part(x, probabilities, rows_of_experts, [&](std::size_t e, const Tensor& part, const Tensor& by) {
    const Tensor product = w.temporary(name("bias_of_rows"), part.sizes, type);
    w.launch(Operation::Multiply, {row_of(*biases[e]), by}, {product});
    sums.push_back(w.temporary(name("sum"), part.sizes, type));
    w.launch(Operation::Add, {part, product}, {sums.back()});
  });
  for_each_part(out, probabilities, rows_of_experts,
                [&](std::size_t, const Tensor& part, const Tensor&) { places.push_back(part); });
  w.launch(Operation::Copy, sums, places);
  if (!node) return out;
  node->apply = [&w, &name, biases, rows = rows_of_experts, type,
                 saved = std::move(saved)](Gradients& gradients) mutable {
    const Tensor gradient = std::move(gradients.front()), by_row = w.take(saved);
    Gradients made(2 + biases.size());
    made[0] = gradient;
    made[1] = w.like(name("probs_gradient"), by_row);
    for_each_part(gradient, made[1], rows, [&](std::size_t e, const Tensor& part, const Tensor& of_probs) {
      const Tensor product = w.temporary(name("bias_of_rows_gradient"), part.sizes, type);
      w.launch(Operation::Multiply, {part, row_of(*biases[e])}, {product});
      w.launch(Operation::Sum, {product}, {of_probs});
    });
    for_each_part(gradient, by_row, rows, [&](std::size_t e, const Tensor& part, const Tensor& by) {
      const Tensor product = w.temporary(name("bias_of_rows_gradient"), part.sizes, type);
      w.launch(Operation::Multiply, {part, by}, {product});
      made[2 + e] = w.temporary(name("bias_gradient"), biases[e]->shape());
      w.launch(Operation::Sum, {product}, {sized(made[2 + e].detached(), {1, biases[e]->rows})});
    });
    return made;
  };
  return with(std::move(out), node);
}

}  // namespace tidemark::parallel::megatron
