#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "parallel/job/built_model.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {

using ValueId = Id<struct ValueKind>;
using OperatorId = Id<struct OperatorKind>;

enum class Does : std::uint8_t {
  LooksUp,        ///< embeddings of tokens, and of learned positions
  Normalizes,     ///< over the hidden dimension
  Multiplies,     ///< y = x W^T
  TurnsAndCuts,   ///< the joint projection into q, k, v, by positions or after norms, which are its parameters
  Cuts,           ///< the same as it lies
  Transposes,     ///< sequence first to batch first, or back
  Attends,        ///< causal self-attention
  Activates,      ///< adds the bias of the linear before it
  AddsResidual,   ///< of a branch, after its linear's bias
  ProjectsWords,  ///< onto the vocabulary
  ComparesWords,  ///< cross-entropy
};

/// One step of the forward pass.
struct Operator {
  std::string name;
  Does does = Does::LooksUp;
  std::int32_t layer = 0;  ///< transformer layer from 0; -1 before the first, their number after the last
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<ParameterId> parameters;
};

/// What a decoder-only model computes, by itself: which step reads what another makes, with which parameters. It is
/// written beside the modules, to hold them to it.
struct ModelGraph {
  Model model;
  std::int32_t values = 0;
  std::vector<Parameter> parameters;
  std::vector<Operator> operators;

  [[nodiscard]] const Parameter& operator[](ParameterId id) const { return parameters[id.index()]; }
  [[nodiscard]] const Operator& operator[](OperatorId id) const { return operators[id.index()]; }
};

class GraphBuilder {
 public:
  /// FlashAttention works on copies.
  GraphBuilder(const Model& model, AttentionKernel attention) : flash_(attention == AttentionKernel::Flash) {
    graph_.model = model;
  }

  ModelGraph build() && {
    const Model& m = graph_.model;
    const ParameterId table = matrix("embedding.weight", m.vocabulary, m.hidden, WeightCut::Rows);
    std::vector<ValueId> ids{value()};
    std::vector<ParameterId> tables{table};
    if (m.positions == Positions::Learned) {
      ids.push_back(value());
      tables.push_back(matrix("positions.weight", m.max_positions, m.hidden, WeightCut::None));
    }
    ValueId hidden = add("embedding", Does::LooksUp, ids, tables);
    for (layer_ = 0; layer_ < m.layers.size(); ++layer_) hidden = layer(hidden);
    hidden = norm("final_norm", hidden);
    const ParameterId head = m.tied_embeddings ? table : matrix("head.weight", m.vocabulary, m.hidden, WeightCut::Rows);
    for (const ParameterId words : {table, head}) graph_.parameters[words.index()].vocabulary = true;
    add("loss", Does::ComparesWords, {add("head", Does::ProjectsWords, {hidden}, {head}), value()});
    return std::move(graph_);
  }

 private:
  // What a residual branch ends in: its linear's output, and a bias that is still to be added.
  struct Branch {
    ValueId value;
    std::vector<ParameterId> bias;
  };

  ValueId layer(ValueId hidden) {
    const std::string at = fmt::format("layers.{}.", layer_);
    const ValueId attended = residual(at + "attention.add", hidden, attention(at + "attention.", hidden));
    return residual(at + "mlp.add", attended, mlp(at + "mlp.", graph_.model.parallel_residual ? hidden : attended));
  }

  Branch attention(const std::string& at, ValueId hidden) {
    const Model& m = graph_.model;
    const std::int64_t q_width = m.heads * m.head_dim, kv_width = m.kv_heads * m.head_dim;
    std::vector<ParameterId> mixing{matrix(at + "qkv.weight", q_width + 2 * kv_width, m.hidden, WeightCut::Rows)};
    if (m.qkv_bias) mixing.push_back(vector(at + "qkv.bias", q_width + 2 * kv_width, WeightCut::Rows));
    const ValueId mixed = add(at + "qkv", Does::Multiplies, {norm_before(at, hidden)}, mixing);
    std::vector<ValueId> qkv{value(), value(), value()};
    const bool turns = m.positions == Positions::Rotary;
    std::vector<ParameterId> norms;
    if (m.qk_norm == QkNorm::PerHead)
      for (const char* which : {"q_norm", "k_norm"}) {
        norms.push_back(vector(at + which + ".weight", m.head_dim));
        if (m.normalization == Normalization::Layer) norms.push_back(vector(at + which + ".bias", m.head_dim));
      }
    if (m.qk_norm == QkNorm::AllHeads)
      norms = {vector(at + "q_norm.weight", q_width, WeightCut::Rows),
               vector(at + "k_norm.weight", kv_width, WeightCut::Rows)};
    const Does cut = turns || !norms.empty() ? Does::TurnsAndCuts : Does::Cuts;
    graph_.operators.push_back({at + (turns ? "rotary" : "split"), cut, layer_, {mixed}, qkv, norms});
    const auto transposed = [&](const char* what, ValueId x) {
      return flash_ ? add(at + what + ".transpose", Does::Transposes, {x}) : x;
    };
    const ValueId q = transposed("q", qkv[0]), k = transposed("k", qkv[1]), v = transposed("v", qkv[2]);
    const ValueId context = transposed("context", add(at + "core", Does::Attends, {q, k, v}));
    return norm_after(at, row_linear(at + "proj", context, q_width, m.output_bias));
  }

  Branch mlp(const std::string& at, ValueId hidden) {
    const Model& m = graph_.model;
    const std::int64_t width = gated(m.activation) ? 2 * m.ffn : m.ffn;
    const ValueId in = add(at + "fc1", Does::Multiplies, {norm_before(at, hidden)},
                           {matrix(at + "fc1.weight", width, m.hidden, WeightCut::Rows)});
    std::vector<ParameterId> bias;
    if (m.mlp_bias) bias.push_back(vector(at + "fc1.bias", width, WeightCut::Rows));
    const ValueId active = add(at + std::string(activation_name(m.activation)), Does::Activates, {in}, bias);
    return norm_after(at, row_linear(at + "fc2", active, m.ffn, m.mlp_bias));
  }

  static std::string_view activation_name(Activation activation) {
    switch (activation) {
      case Activation::SwiGlu:
        return "swiglu";
      case Activation::GeGlu:
        return "geglu";
      case Activation::Gelu:
        return "gelu";
      case Activation::SquaredRelu:
        return "squared_relu";
    }
    return "";
  }

  ValueId norm_before(const std::string& at, ValueId hidden) {
    return graph_.model.norms == NormPlacement::After ? hidden : norm(at + "norm", hidden);
  }
  Branch norm_after(const std::string& at, const Branch& branch) {
    if (graph_.model.norms == NormPlacement::Before) return branch;
    return {norm(at + "post_norm", branch.value), {}};
  }
  ValueId norm(const std::string& name, ValueId in) {
    std::vector<ParameterId> parameters{vector(name + ".weight", graph_.model.hidden)};
    if (graph_.model.normalization == Normalization::Layer)
      parameters.push_back(vector(name + ".bias", graph_.model.hidden));
    return add(name, Does::Normalizes, {in}, parameters);
  }

  // The bias is added after the ranks' parts are summed: whole on every rank.
  Branch row_linear(const std::string& name, ValueId in, std::int64_t columns, bool bias) {
    const ParameterId weight = matrix(name + ".weight", graph_.model.hidden, columns, WeightCut::Columns);
    Branch branch{add(name, Does::Multiplies, {in}, {weight}), {}};
    if (bias) branch.bias.push_back(vector(name + ".bias", graph_.model.hidden));
    return branch;
  }
  ValueId residual(const std::string& name, ValueId stream, const Branch& branch) {
    return add(name, Does::AddsResidual, {stream, branch.value}, branch.bias);
  }

  ValueId value() { return {graph_.values++}; }
  ParameterId matrix(std::string name, std::int64_t rows, std::int64_t columns, WeightCut cut) {
    graph_.parameters.push_back(
        {.name = std::move(name), .rows = rows, .columns = columns, .cut = cut, .layer = layer_});
    return {static_cast<std::int32_t>(graph_.parameters.size()) - 1};
  }
  ParameterId vector(std::string name, std::int64_t rows, WeightCut cut = WeightCut::None) {
    return matrix(std::move(name), rows, 0, cut);  // a vector has no columns
  }
  ValueId add(std::string name, Does does, std::vector<ValueId> inputs, std::vector<ParameterId> parameters = {}) {
    const ValueId out = value();
    graph_.operators.push_back({std::move(name), does, layer_, std::move(inputs), {out}, std::move(parameters)});
    return out;
  }

  bool flash_;
  ModelGraph graph_;
  std::int32_t layer_ = -1;
};

inline ModelGraph model_graph(const Model& model, AttentionKernel attention) {
  return GraphBuilder(model, attention).build();
}

}  // namespace tidemark::tests
