#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/experts/expert_biases.hpp"
#include "parallel/frameworks/megatron/experts/moe.hpp"
#include "parallel/frameworks/megatron/module_offload.hpp"
#include "parallel/frameworks/megatron/recompute.hpp"

namespace tidemark::parallel::megatron {

using torch::with;

GroupedMlp::GroupedMlp(Worker& w, Parameters& parameters, const Experts& experts, const std::string& path)
    : w_(w), path_(path + ".experts"), activation_(w, experts, path_ + ".activation") {
  const std::int64_t held = experts.count / w.layout.expert;
  const std::int64_t width = gated(w.model.activation) ? 2 * experts.ffn : experts.ffn;
  const auto make = [&](const char* which, std::int64_t rows, std::int64_t columns, WeightCut cut) {
    Linear linear{w.name(fmt::format("{}.{}", path_, which)), {}, {}};
    for (std::int64_t e = 0; e < held; ++e) {
      const std::string name = fmt::format("{}.{}.{}", path_, e, which);
      const auto expert = static_cast<std::int32_t>(e);
      linear.weights.push_back(
          parameters.add({.name = name + ".weight", .rows = rows, .columns = columns, .cut = cut, .expert = expert}));
      if (!experts.biases) continue;
      const WeightCut of_bias = cut == WeightCut::Rows ? cut : WeightCut::None;
      linear.biases.push_back(parameters.add({.name = name + ".bias", .rows = rows, .cut = of_bias, .expert = expert}));
    }
    return linear;
  };
  fc1_ = make("fc1", width, w.model.hidden, WeightCut::Rows);
  fc2_ = make("fc2", w.model.hidden, experts.ffn, WeightCut::Columns);
}

namespace {

// Calls work(expert, first row, rows) for each expert that has any.
template <class Work>
void for_each_expert(const std::vector<std::int64_t>& rows, Work work) {
  std::int64_t first = 0;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    if (rows[e] > 0) work(e, first, rows[e]);
    first += rows[e];
  }
}

// One for each of the library's streams, which have no order among them (TransformerEngine 2.11, gemm/cublaslt_gemm.cu
// multi_stream_cublas_gemm).
ConcurrentKernels at_once(const std::vector<std::int64_t>& rows) {
  const auto products = std::ranges::count_if(rows, [](std::int64_t count) { return count > 0; });
  return {.alike = static_cast<double>(std::min<std::ptrdiff_t>(products, Worker::grouped_streams))};
}

}  // namespace

// TransformerEngine 2.11, module/grouped_linear.py _GroupedLinear.
Tensor GroupedMlp::linear(const Linear& linear, Biases biases, const Tensor& x, const std::vector<std::int64_t>& rows) {
  w_.mark(Phase::Forward, linear.name);
  std::vector<Tensor> inputs{x};
  for (const Weight* weight : linear.weights) inputs.push_back(weight->value);
  const bool added = biases == Biases::Added && !linear.biases.empty();
  if (added)
    for (const Weight* bias : linear.biases) inputs.push_back(bias->value);
  const auto node = w_.node(linear.name(), inputs);
  Saved saved;
  if (node) saved = w_.session.save(x);
  Tensor out = w_.temporary(linear.name("out"), {x.size(0), linear.weights.front()->rows});
  const ConcurrentKernels concurrent = at_once(rows);
  for_each_expert(rows, [&](std::size_t e, std::int64_t first, std::int64_t count) {
    forward_product(w_, *linear.weights[e], added ? linear.biases[e] : nullptr, narrowed(x, 0, first, count),
                    narrowed(out, 0, first, count), w_.grouped_workspace(e), concurrent);
  });
  if (!node) return out;
  node->apply = [this, &linear, rows, concurrent, added, saved = std::move(saved)](Gradients& gradients) mutable {
    const Tensor gradient = std::move(gradients.front());
    Tensor input = w_.take(saved);
    Tensor dgrad = w_.temporary(linear.name("input_gradient"), input.sizes);
    for_each_expert(rows, [&](std::size_t e, std::int64_t first, std::int64_t count) {
      data_gradient_product(w_, *linear.weights[e], narrowed(gradient, 0, first, count),
                            narrowed(dgrad, 0, first, count), w_.grouped_workspace(e), concurrent);
    });
    const std::size_t experts = linear.weights.size();
    Gradients made((added ? 2 : 1) * experts + 1);
    made[0] = std::move(dgrad);
    for_each_expert(rows, [&](std::size_t e, std::int64_t first, std::int64_t count) {
      made[e + 1] = weight_gradient(w_, linear.name, *linear.weights[e], narrowed(input, 0, first, count),
                                    narrowed(gradient, 0, first, count), w_.grouped_workspace(e), concurrent);
      if (!added) return;
      made[experts + e + 1] = w_.temporary(linear.name("bias_gradient"), linear.biases[e]->shape());
      w_.launch(Operation::Sum, {narrowed(gradient, 0, first, count)}, {made[experts + e + 1]});
    });
    return made;
  };
  return with(std::move(out), node);
}

Tensor GroupedMlp::operator()(const Rows& rows, const std::vector<std::int64_t>& rows_of_experts) {
  Tensor tokens = rows.tokens;
  OffloadedRegion of_fc1(w_, OffloadedModule::ExpertFc1, tokens);
  Tensor x = of_fc1.commit(linear(fc1_, Biases::Added, tokens, rows_of_experts), {&tokens});
  OffloadedRegion of_activation(w_, OffloadedModule::ExpertActivation, x);
  std::optional<CheckpointWithoutOutput> again;
  if (w_.train.recompute.selects(RecomputedModule::ExpertActivation)) again.emplace(w_);
  const auto run = [this](const Tensors& of) { return Tensors{activation_(of[0], of[1])}; };
  const Tensor active = again ? (*again)(run, {x, rows.probabilities}).front() : activation_(x, rows.probabilities);
  of_activation.close(active);
  Tensor out = linear(fc2_, Biases::Left, active, rows_of_experts);
  if (again) again->discard_outputs(out);
  out = of_activation.commit(std::move(out), {&x});
  if (fc2_.biases.empty()) return out;
  return with_biases(w_, fc2_.name, out, rows.probabilities, fc2_.biases, rows_of_experts);
}

}  // namespace tidemark::parallel::megatron
