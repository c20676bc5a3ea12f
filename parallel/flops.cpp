#include "parallel/flops.hpp"

#include "sim/base/overloaded.hpp"

namespace tidemark::parallel {

double forward_operations(const ModelGraph& graph, std::int64_t sequence) {
  const double tokens = static_cast<double>(sequence);
  const double nothing = 0;
  double operations = 0;
  for (const Operator& op : graph.operators) {
    const auto product = [&] {
      const Parameter& weight = graph[op.parameters.front()];
      return 2 * tokens * static_cast<double>(weight.rows * weight.columns);
    };
    // Two products of queries, keys and values, half of each masked.
    const auto attention = [&] {
      return 2 * tokens * tokens * static_cast<double>(graph.model.heads * graph.model.head_dim);
    };
    operations += std::visit(Overloaded{
                                 [&](const Embedding&) { return nothing; },
                                 [&](const Norm&) { return nothing; },
                                 [&](const Linear&) { return product(); },
                                 [&](const Rotary&) { return nothing; },
                                 [&](const Split&) { return nothing; },
                                 [&](const Transpose&) { return nothing; },
                                 [&](const SelfAttention&) { return attention(); },
                                 [&](const ScoredAttention&) { return attention(); },
                                 [&](const PointwiseActivation&) { return nothing; },
                                 [&](const Residual&) { return nothing; },
                                 [&](const Head&) { return product(); },
                                 [&](const Loss&) { return nothing; },
                             },
                             op.type);
  }
  return operations;
}

}  // namespace tidemark::parallel
