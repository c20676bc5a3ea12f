#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/experts/moe.hpp"
#include "parallel/torch/ops/indexing.hpp"

namespace tidemark::parallel::megatron {

SequentialMlp::SequentialMlp(Worker& w, Parameters& parameters, const Experts& experts, const std::string& path)
    : w_(w), name_(w.name(path + ".experts")), activation_(w, experts, path + ".activation") {
  const std::int64_t held = experts.count / w.layout.expert;
  const std::int64_t width = gated(w.model.activation) ? 2 * experts.ffn : experts.ffn;
  for (std::int64_t e = 0; e < held; ++e) {
    const auto make = [&](const char* which, std::int64_t rows, std::int64_t columns, WeightCut cut) {
      const std::string name = fmt::format("{}.experts.{}.{}", path, e, which);
      const Weight* const weight = parameters.add({.name = name + ".weight",
                                                   .rows = rows,
                                                   .columns = columns,
                                                   .cut = cut,
                                                   .expert = static_cast<std::int32_t>(e)});
      return Linear{w.name(name), weight, nullptr};
    };
    const Linear fc1 = make("fc1", width, w.model.hidden, WeightCut::Rows);
    experts_.push_back({fc1, make("fc2", w.model.hidden, experts.ffn, WeightCut::Columns)});
  }
}

// core/transformer/mlp.py MLP.forward.
Tensor SequentialMlp::run(const Expert& expert, const Rows& rows) {
  Tensor x = linear(w_, expert.fc1, rows.tokens);
  x = activation_(x, rows.probabilities);
  return linear(w_, expert.fc2, std::move(x));
}

// An expert without rows runs over none of them in Megatron; here it is passed over.
Tensor SequentialMlp::operator()(const Rows& rows, const std::vector<std::int64_t>& rows_of_experts) {
  if (experts_.size() == 1) return run(experts_.front(), rows);
  Session& s = w_.session;
  std::vector<Tensor> tokens, probabilities, out;
  {
    const Session::Scope scope(s, name_());
    tokens = torch::split_rows(s, rows.tokens, rows_of_experts);
    probabilities = torch::split_rows(s, rows.probabilities, rows_of_experts);
  }
  for (std::size_t e = 0; e < experts_.size(); ++e)
    if (rows_of_experts[e] > 0) out.push_back(run(experts_[e], {tokens[e], probabilities[e]}));
  w_.mark(Phase::Forward, name_);
  const Session::Scope scope(s, name_());
  return torch::cat_rows(s, out);
}

}  // namespace tidemark::parallel::megatron
