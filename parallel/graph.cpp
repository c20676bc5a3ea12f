#include "parallel/graph.hpp"

#include <functional>
#include <queue>

#include <boost/graph/adjacency_list.hpp>
#include <boost/range/iterator_range.hpp>
#include <fmt/format.h>

#include "sim/ensure.hpp"

namespace tidemark {
namespace {

constexpr std::int32_t before_layers = -1;

// Adds operators one by one. What an operator saves for backward is said here, where the operator is made, and
// nowhere else.
class GraphBuilder {
 public:
  GraphBuilder(const Model& model, const GraphOptions& options) : options_(options) { graph_.model = model; }

  ModelGraph build() && {
    const Model& m = graph_.model;
    const ValueId tokens = value("tokens", 1, Placement::Replicated, Precision::Int64);
    const ParameterId embedding = parameter("embedding.weight", m.vocabulary, m.hidden, WeightCut::Rows);
    graph_.parameters[embedding.index()].vocabulary = true;
    layer_ = before_layers;
    ValueId hidden = value("embedding.out", m.hidden);
    add("embedding", Embedding{}, {tokens}, {hidden}, {embedding}, {tokens});

    for (layer_ = 0; layer_ < m.layers; ++layer_) hidden = mlp(attention(hidden));

    hidden = norm("final_norm", hidden);
    const ParameterId head =
        m.tied_embeddings ? embedding : parameter("head.weight", m.vocabulary, m.hidden, WeightCut::Rows);
    graph_.parameters[head.index()].vocabulary = true;
    const ValueId logits = value("head.logits", m.vocabulary, Placement::Tensor);
    graph_.values[logits.index()].vocabulary = true;
    add("head", Head{}, {hidden}, {logits}, {head}, {hidden});
    loss(logits);
    return std::move(graph_);
  }

 private:
  ValueId attention(ValueId hidden) {
    const Model& m = graph_.model;
    const std::int64_t q_width = m.heads * m.head_dim;
    const std::int64_t kv_width = m.kv_heads * m.head_dim;
    const std::string at = fmt::format("layers.{}.attention.", layer_);

    const ValueId normed = norm(at + "norm", hidden);
    const ValueId mixed = linear(at + "qkv", normed, q_width + 2 * kv_width, m.hidden, WeightCut::Rows, m.qkv_bias);
    const ValueId q = value(at + "q", q_width, Placement::Tensor);
    const ValueId k = value(at + "k", kv_width, Placement::Tensor);
    const ValueId v = value(at + "v", kv_width, Placement::Tensor);
    add(at + "rotary", Rotary{}, {mixed}, {q, k, v}, {}, {});  // the table of angles is shared by all layers

    ValueId context;
    if (options_.attention == AttentionKernel::Flash) {
      // FlashAttention works batch first: its inputs are copies, and so is what the projection reads.
      const ValueId qb = transpose(q), kb = transpose(k), vb = transpose(v);
      context = transpose(self_attention(at, qb, kb, vb));
    } else {
      context = self_attention(at, q, k, v);
    }
    const ValueId projected = linear(at + "proj", context, m.hidden, q_width, WeightCut::Columns, m.output_bias);
    return residual(at + "add", hidden, projected);
  }

  ValueId self_attention(const std::string& at, ValueId q, ValueId k, ValueId v) {
    const Model& m = graph_.model;
    const ValueId out = value(at + "context", m.heads * m.head_dim, Placement::Tensor);
    const ValueId lse = value(at + "lse", m.heads, Placement::Tensor, Precision::Fp32);
    const ValueId rng = value(at + "rng_state", 0, Placement::Replicated, Precision::Int64, 2);
    add(at + "core", SelfAttention{}, {q, k, v}, {out, lse, rng}, {}, {q, k, v, out, lse, rng});
    return out;
  }

  ValueId mlp(ValueId hidden) {
    const Model& m = graph_.model;
    const std::string at = fmt::format("layers.{}.mlp.", layer_);
    const ValueId normed = norm(at + "norm", hidden);
    const ValueId branches = linear(at + "fc1", normed, 2 * m.ffn, m.hidden, WeightCut::Rows, m.mlp_bias);
    const ValueId gated = value(at + "swiglu", m.ffn, Placement::Tensor);
    add(at + "swiglu", GatedActivation{}, {branches}, {gated}, {}, {branches});
    const ValueId out = linear(at + "fc2", gated, m.hidden, m.ffn, WeightCut::Columns, m.mlp_bias);
    return residual(at + "add", hidden, out);
  }

  ValueId norm(const std::string& name, ValueId in) {
    const ParameterId weight = parameter(name + ".weight", graph_.model.hidden, 1, WeightCut::None);
    const ValueId out = value(name + ".out", graph_.model.hidden);
    const ValueId rstd = value(name + ".rstd", 1, Placement::Residual, Precision::Fp32);
    add(name, Norm{}, {in}, {out, rstd}, {weight}, {in, rstd});
    return out;
  }

  ValueId linear(const std::string& name, ValueId in, std::int64_t rows, std::int64_t columns, WeightCut cut,
                 bool bias) {
    std::vector<ParameterId> parameters{parameter(name + ".weight", rows, columns, cut)};
    // The bias of a row-parallel linear is added after the ranks' parts are summed: whole on every rank.
    if (bias) parameters.push_back(parameter(name + ".bias", rows, 1, cut == WeightCut::Rows ? cut : WeightCut::None));
    const ValueId out = value(name + ".out", rows, cut == WeightCut::Rows ? Placement::Tensor : Placement::Residual);
    add(name, Linear{}, {in}, {out}, std::move(parameters), {in});
    return out;
  }

  ValueId transpose(ValueId in) {
    const Value source = graph_[in];
    const ValueId out = value(source.name + ".transposed", source.per_token, source.placement);
    add(source.name + ".transpose", Transpose{}, {in}, {out}, {}, {});
    return out;
  }

  ValueId residual(const std::string& name, ValueId stream, ValueId branch) {
    const ValueId out = value(name + ".out", graph_.model.hidden);
    add(name, Residual{}, {stream, branch}, {out}, {}, {});
    return out;
  }

  void loss(ValueId logits) {
    const Model& m = graph_.model;
    const ValueId labels = value("labels", 1, Placement::Replicated, Precision::Int64);
    const ValueId out = value("loss.out", 1, Placement::Replicated, Precision::Fp32);
    switch (options_.cross_entropy) {
      case CrossEntropy::TransformerEngine: {
        // The forward kernel writes the gradient over the logits; backward only scales it.
        add("loss", Loss{options_.cross_entropy}, {logits, labels}, {out}, {}, {logits});
        return;
      }
      case CrossEntropy::Unfused:
      case CrossEntropy::Fused: {
        const ValueId softmax = value("loss.softmax", m.vocabulary, Placement::Tensor, Precision::Fp32);
        graph_.values[softmax.index()].vocabulary = true;
        const ValueId target = value("loss.masked_target", 1, Placement::Replicated, Precision::Int64);
        const ValueId mask = value("loss.target_mask", 1, Placement::Replicated, Precision::Bool);
        add("loss", Loss{options_.cross_entropy}, {logits, labels}, {out, softmax, target, mask}, {},
            {softmax, target, mask});
        return;
      }
    }
  }

  ValueId value(std::string name, std::int64_t per_token, Placement placement = Placement::Residual,
                Precision precision = Precision::Compute, std::int64_t fixed = 0) {
    graph_.values.push_back({std::move(name), per_token, fixed, placement, precision, false});
    return {static_cast<std::int32_t>(graph_.values.size()) - 1};
  }

  ParameterId parameter(std::string name, std::int64_t rows, std::int64_t columns, WeightCut cut) {
    graph_.parameters.push_back({std::move(name), rows, columns, cut, false});
    return {static_cast<std::int32_t>(graph_.parameters.size()) - 1};
  }

  void add(std::string name, OperatorType type, std::vector<ValueId> inputs, std::vector<ValueId> outputs,
           std::vector<ParameterId> parameters, std::vector<ValueId> saved) {
    graph_.operators.push_back({std::move(name), type, layer_, std::move(inputs), std::move(outputs),
                                std::move(parameters), std::move(saved)});
  }

  GraphOptions options_;
  ModelGraph graph_;
  std::int32_t layer_ = 0;
};

using Dependencies = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;

Dependencies dependencies(const ModelGraph& graph) {
  Dependencies found(graph.operators.size());
  for (const auto& [maker, reader] : edges(graph)) boost::add_edge(maker.index(), reader.index(), found);
  return found;
}

template <class Ids, class Table>
std::string names(const Ids& ids, const Table& table) {
  std::vector<std::string_view> parts;
  for (const auto id : ids) parts.push_back(table[id.index()].name);
  return fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace

ModelGraph build_model(const Model& model, const GraphOptions& options) {
  ensure(options.attention != AttentionKernel::Auto, "the attention kernel is settled before the graph is built");
  return GraphBuilder(model, options).build();
}

std::int64_t parameter_count(const ModelGraph& graph) {
  std::int64_t count = 0;
  for (const Parameter& p : graph.parameters) count += p.rows * p.columns;
  return count;
}

std::vector<std::pair<OperatorId, OperatorId>> edges(const ModelGraph& graph) {
  std::vector<OperatorId> maker(graph.values.size());
  for (std::size_t o = 0; o < graph.operators.size(); ++o)
    for (const ValueId v : graph.operators[o].outputs) maker[v.index()] = {static_cast<std::int32_t>(o)};
  std::vector<std::pair<OperatorId, OperatorId>> found;
  for (std::size_t o = 0; o < graph.operators.size(); ++o)
    for (const ValueId v : graph.operators[o].inputs)
      if (maker[v.index()].valid()) found.emplace_back(maker[v.index()], OperatorId{static_cast<std::int32_t>(o)});
  return found;
}

std::vector<OperatorId> topological_order(const ModelGraph& graph) {
  const Dependencies all = dependencies(graph);
  std::vector<std::size_t> waiting(graph.operators.size());
  for (const std::size_t o : boost::make_iterator_range(boost::vertices(all))) waiting[o] = boost::in_degree(o, all);

  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t o = 0; o < waiting.size(); ++o)
    if (waiting[o] == 0) ready.push(o);
  std::vector<OperatorId> order;
  for (; !ready.empty();) {
    const std::size_t next = ready.top();
    ready.pop();
    order.push_back({static_cast<std::int32_t>(next)});
    for (const std::size_t reader : boost::make_iterator_range(boost::adjacent_vertices(next, all)))
      if (--waiting[reader] == 0) ready.push(reader);
  }
  ensure(order.size() == graph.operators.size(), "the layer graph has no cycle");
  return order;
}

std::vector<ValueId> values_across(const ModelGraph& graph, std::int32_t layer) {
  std::vector<bool> made_before(graph.values.size(), false), crosses(graph.values.size(), false);
  for (const Operator& op : graph.operators)
    for (const ValueId v : op.outputs) made_before[v.index()] = op.layer < layer;
  for (const Operator& op : graph.operators)
    for (const ValueId v : op.inputs)
      if (op.layer >= layer && made_before[v.index()]) crosses[v.index()] = true;
  std::vector<ValueId> found;
  for (std::size_t v = 0; v < crosses.size(); ++v)
    if (crosses[v]) found.push_back({static_cast<std::int32_t>(v)});
  return found;
}

std::string text(const ModelGraph& graph) {
  std::string out = fmt::format("{}: {} operators, {} parameters with {} elements\n", graph.model.name,
                                graph.operators.size(), graph.parameters.size(), parameter_count(graph));
  for (const OperatorId id : topological_order(graph)) {
    const Operator& op = graph[id];
    out += fmt::format("{}: {} -> {}", op.name, names(op.inputs, graph.values), names(op.outputs, graph.values));
    for (const ParameterId p : op.parameters)
      out += fmt::format("  [{} {}x{}]", graph[p].name, graph[p].rows, graph[p].columns);
    if (!op.saved.empty()) out += fmt::format("  saves {}", names(op.saved, graph.values));
    out += '\n';
  }
  return out;
}

}  // namespace tidemark
