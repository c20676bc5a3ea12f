#include "parallel/graph.hpp"

#include <functional>
#include <queue>

#include <boost/graph/adjacency_list.hpp>
#include <boost/range/iterator_range.hpp>
#include <fmt/format.h>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel {
namespace {

constexpr std::int32_t before_layers = -1;

// Adds operators one by one. What an operator saves for backward is said here, where the operator is made, and
// nowhere else.
class GraphBuilder {
 public:
  GraphBuilder(const Model& model, const GraphOptions& options) : options_(options) {
    graph_.model = model;
    graph_.options = options;
  }

  ModelGraph build() && {
    const Model& m = graph_.model;
    const ParameterId embedding = parameter("embedding.weight", m.vocabulary, m.hidden, WeightCut::Rows);
    graph_.parameters[embedding.index()].vocabulary = true;
    layer_ = before_layers;
    ValueId hidden = embed(embedding);

    for (layer_ = 0; layer_ < m.layers; ++layer_) hidden = layer(hidden);

    hidden = norm("final_norm", hidden);
    const ParameterId head =
        m.tied_embeddings ? embedding : parameter("head.weight", m.vocabulary, m.hidden, WeightCut::Rows);
    graph_.parameters[head.index()].vocabulary = true;
    const ValueId logits = vocabulary_value("head.logits");
    std::vector<ValueId> outputs{logits}, saved{hidden};
    if (m.logit_softcap > 0) {
      outputs.push_back(vocabulary_value("head.logits_tanh"));
      saved.push_back(outputs.back());
    }
    add("head", Head{}, {hidden}, std::move(outputs), {head}, std::move(saved));
    loss(logits);
    return std::move(graph_);
  }

 private:
  ValueId embed(ParameterId table) {
    const Model& m = graph_.model;
    std::vector<ValueId> ids{value("tokens", 1, Placement::Replicated, Precision::Int64)};
    std::vector<ParameterId> tables{table};
    if (m.positions == Positions::Learned) {
      ids.push_back(value("position_ids", 1, Placement::Replicated, Precision::Int64));
      tables.push_back(parameter("positions.weight", m.max_positions, m.hidden, WeightCut::None));
    }
    std::vector<ValueId> outputs{value("embedding.out", m.hidden)}, saved = ids;
    add_dropout("embedding", outputs, saved);
    const ValueId hidden = outputs.front();
    add("embedding", Embedding{}, std::move(ids), std::move(outputs), std::move(tables), std::move(saved));
    return hidden;
  }

  // Dropout keeps a mask of one byte for each element, and neither its input nor its output.
  void add_dropout(const std::string& name, std::vector<ValueId>& outputs, std::vector<ValueId>& saved) {
    if (options_.hidden_dropout == 0) return;
    const ValueId mask = value(name + ".dropout_mask", graph_.model.hidden, Placement::Residual, Precision::Bool);
    outputs.push_back(mask);
    saved.push_back(mask);
  }

  ValueId layer(ValueId hidden) {
    const std::string at = fmt::format("layers.{}.", layer_);
    const ValueId attended = residual(at + "attention.add", hidden, attention(hidden));
    return residual(at + "mlp.add", attended, mlp(graph_.model.parallel_residual ? hidden : attended));
  }

  // What a residual branch ends in: its linear's output, and a bias that is still to be added.
  struct Branch {
    ValueId value;
    std::vector<ParameterId> bias;
  };

  Branch attention(ValueId hidden) {
    const Model& m = graph_.model;
    const std::int64_t q_width = m.heads * m.head_dim;
    const std::int64_t kv_width = m.kv_heads * m.head_dim;
    const std::string at = fmt::format("layers.{}.attention.", layer_);

    const ValueId normed = norm_before(at, hidden);
    const ValueId mixed = linear(at + "qkv", normed, q_width + 2 * kv_width, m.hidden, WeightCut::Rows,
                                 m.qkv_bias ? Bias::InGemm : Bias::None);
    const ValueId q = value(at + "q", q_width, Placement::Tensor);
    const ValueId k = value(at + "k", kv_width, Placement::Tensor);
    const ValueId v = value(at + "v", kv_width, Placement::Tensor);
    if (m.positions == Positions::Rotary)
      add_rotary(at, mixed, {q, k, v});
    else
      add(at + "split", Split{}, {mixed}, {q, k, v}, {}, {});

    ValueId context;
    if (options_.attention == AttentionKernel::Flash) {
      // FlashAttention works batch first: its inputs are copies, and so is what the projection reads.
      const ValueId qb = transpose(q), kb = transpose(k), vb = transpose(v);
      context = transpose(self_attention(at, qb, kb, vb));
    } else if (stores_scores(options_.attention)) {
      context = scored_attention(at, q, k, v);
    } else {
      context = self_attention(at, q, k, v);
    }
    return norm_after(at, row_linear(at + "proj", context, m.hidden, q_width, m.output_bias));
  }

  ValueId norm_before(const std::string& at, ValueId hidden) {
    return graph_.model.norms == NormPlacement::After ? hidden : norm(at + "norm", hidden);
  }
  Branch norm_after(const std::string& at, const Branch& branch) {
    if (graph_.model.norms == NormPlacement::Before) return branch;
    ensure(branch.bias.empty(), "a bias is added before its branch is normalized");
    return {norm(at + "post_norm", branch.value), {}};
  }

  void add_rotary(const std::string& at, ValueId mixed, std::vector<ValueId> outputs) {
    std::vector<ValueId> saved;  // the fused kernel's table of angles is shared by all layers
    if (options_.rotary == RotaryKernel::Unfused) {
      const std::int64_t angles = options_.sequence_length * graph_.model.rotary_dim();
      for (const char* what : {"query_cos", "query_sin", "key_cos", "key_sin"})
        saved.push_back(value(at + what, 0, Placement::Replicated, Precision::Compute, angles));
      outputs.insert(outputs.end(), saved.begin(), saved.end());
    }
    std::vector<ParameterId> norms;
    if (graph_.model.qk_norm != QkNorm::None) {
      const Model& m = graph_.model;
      const bool per_head = m.qk_norm == QkNorm::PerHead;
      const std::int64_t q_width = m.heads * m.head_dim, kv_width = m.kv_heads * m.head_dim;
      const auto weight = [&](const char* what, std::int64_t width) {
        return parameter(at + what + ".weight", per_head ? m.head_dim : width, 1,
                         per_head ? WeightCut::None : WeightCut::Rows);
      };
      norms = {weight("q_norm", q_width), weight("k_norm", kv_width)};
      const auto statistics = [&](const char* what, std::int64_t heads) {
        return value(at + what + ".rstd", per_head ? heads : 1, per_head ? Placement::Tensor : Placement::Replicated,
                     Precision::Fp32);
      };
      for (const ValueId v :
           {value(at + "q_norm.in", q_width, Placement::Tensor), value(at + "k_norm.in", kv_width, Placement::Tensor),
            statistics("q_norm", m.heads), statistics("k_norm", m.kv_heads)}) {
        outputs.push_back(v);
        saved.push_back(v);
      }
    }
    add(at + "rotary", Rotary{}, {mixed}, std::move(outputs), std::move(norms), std::move(saved));
  }

  ValueId scored_attention(const std::string& at, ValueId q, ValueId k, ValueId v) {
    const Model& m = graph_.model;
    const std::int64_t scores = m.heads * options_.sequence_length;  // of one token
    const ValueId out = value(at + "context", m.heads * m.head_dim, Placement::Tensor);
    const ValueId weights = value(at + "softmax", scores, Placement::Tensor, options_.softmax_precision);
    std::vector<ValueId> outputs{out, weights}, saved{q, k, v, weights};
    if (options_.attention_dropout > 0) {
      // The softmax's backward pass reads its output, the weighted sum's what is left of it.
      for (const ValueId made : {value(at + "dropout_mask", scores, Placement::Tensor, Precision::Bool),
                                 value(at + "dropped", scores, Placement::Tensor)}) {
        outputs.push_back(made);
        saved.push_back(made);
      }
    }
    if (m.attention_softcap > 0) {
      outputs.push_back(value(at + "scores_tanh", scores, Placement::Tensor));
      saved.push_back(outputs.back());
    }
    if (m.kv_heads != m.heads) {  // each query head gets keys and values of its own
      for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {
        saved[i] = value(graph_[saved[i]].name + "_repeated", m.heads * m.head_dim, Placement::Tensor);
        outputs.push_back(saved[i]);
      }
    }
    add(at + "core", ScoredAttention{}, {q, k, v}, std::move(outputs), {}, std::move(saved));
    return out;
  }

  ValueId self_attention(const std::string& at, ValueId q, ValueId k, ValueId v) {
    const Model& m = graph_.model;
    const ValueId out = value(at + "context", m.heads * m.head_dim, Placement::Tensor);
    const ValueId lse = value(at + "lse", m.heads, Placement::Tensor, Precision::Fp32);
    const ValueId rng = value(at + "rng_state", 0, Placement::Replicated, Precision::Int64, 2);
    add(at + "core", SelfAttention{}, {q, k, v}, {out, lse, rng}, {}, {q, k, v, out, lse, rng});
    return out;
  }

  Branch mlp(ValueId hidden) {
    const Model& m = graph_.model;
    const std::string at = fmt::format("layers.{}.mlp.", layer_);
    const ValueId normed = norm_before(at, hidden);
    const std::int64_t width = gated(m.activation) ? 2 * m.ffn : m.ffn;
    const ValueId in = linear(at + "fc1", normed, width, m.hidden, WeightCut::Rows, Bias::None);
    std::vector<ParameterId> bias;
    if (m.mlp_bias) bias.push_back(parameter(at + "fc1.bias", width, 1, WeightCut::Rows));
    const std::string name = at + std::string(activation_name(m.activation));
    const ValueId active = value(name, m.ffn, Placement::Tensor);
    std::vector<ValueId> outputs{active}, saved{in};
    if (gated(m.activation) && !options_.fused_gate) {
      outputs.push_back(value(at + "gate", m.ffn, Placement::Tensor));
      saved.push_back(outputs.back());
    }
    add(name, PointwiseActivation{}, {in}, std::move(outputs), std::move(bias), std::move(saved));
    return norm_after(at, row_linear(at + "fc2", active, m.hidden, m.ffn, m.mlp_bias));
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

  ValueId norm(const std::string& name, ValueId in) {
    std::vector<ParameterId> parameters{parameter(name + ".weight", graph_.model.hidden, 1, WeightCut::None)};
    const ValueId out = value(name + ".out", graph_.model.hidden);
    std::vector<ValueId> outputs{out}, saved{in};
    const auto statistic = [&](std::string_view what) {
      const ValueId made = value(fmt::format("{}.{}", name, what), 1, Placement::Residual, Precision::Fp32);
      outputs.push_back(made);
      saved.push_back(made);
    };
    if (graph_.model.normalization == Normalization::Layer) {
      parameters.push_back(parameter(name + ".bias", graph_.model.hidden, 1, WeightCut::None));
      statistic("mean");
    }
    statistic("rstd");
    add(name, Norm{}, {in}, std::move(outputs), std::move(parameters), std::move(saved));
    return out;
  }

  // The GEMM adds a bias, or none; what comes after it may.
  enum class Bias : std::uint8_t { None, InGemm };

  ValueId linear(const std::string& name, ValueId in, std::int64_t rows, std::int64_t columns, WeightCut cut,
                 Bias bias) {
    std::vector<ParameterId> parameters{parameter(name + ".weight", rows, columns, cut)};
    if (bias == Bias::InGemm) parameters.push_back(parameter(name + ".bias", rows, 1, cut));
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

  // The bias is added after the ranks' parts are summed: whole on every rank.
  Branch row_linear(const std::string& name, ValueId in, std::int64_t rows, std::int64_t columns, bool bias) {
    Branch branch{linear(name, in, rows, columns, WeightCut::Columns, Bias::None), {}};
    if (bias) branch.bias.push_back(parameter(name + ".bias", rows, 1, WeightCut::None));
    return branch;
  }

  ValueId residual(const std::string& name, ValueId stream, const Branch& branch) {
    std::vector<ValueId> outputs{value(name + ".out", graph_.model.hidden)}, saved;
    add_dropout(name, outputs, saved);
    const ValueId out = outputs.front();
    add(name, Residual{}, {stream, branch.value}, std::move(outputs), branch.bias, std::move(saved));
    return out;
  }

  void loss(ValueId logits) {
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
        const ValueId softmax = vocabulary_value("loss.softmax", Precision::Fp32);
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

  ValueId vocabulary_value(std::string name, Precision precision = Precision::Compute) {
    const ValueId made = value(std::move(name), graph_.model.vocabulary, Placement::Tensor, precision);
    graph_.values[made.index()].vocabulary = true;
    return made;
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

// Who reads what whom makes: an edge for every value from its maker to each of its readers.
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

GraphOptions graph_options(const Train& train) {
  return {.attention = train.attention,
          .cross_entropy = train.cross_entropy,
          .hidden_dropout = train.hidden_dropout,
          .attention_dropout = train.attention_dropout,
          .sequence_length = train.sequence_length};
}

ModelGraph build_model(const Model& model, const GraphOptions& options) {
  ensure(options.attention != AttentionKernel::Auto, "the attention kernel is settled before the graph is built");
  ensure((!stores_scores(options.attention) && options.rotary == RotaryKernel::Fused) || options.sequence_length > 0,
         "scores, cosines and sines are counted by the sequence");
  return GraphBuilder(model, options).build();
}

std::int64_t parameter_count(const ModelGraph& graph) {
  std::int64_t count = 0;
  for (const Parameter& p : graph.parameters) count += p.rows * p.columns;
  return count;
}

std::vector<OperatorId> topological_order(const ModelGraph& graph) {
  // Of operators that are ready the first comes first: where each comes after what it reads, they are in order.
  const auto listed = edges(graph);
  if (std::all_of(listed.begin(), listed.end(), [](const auto& edge) { return edge.first < edge.second; })) {
    std::vector<OperatorId> order(graph.operators.size());
    for (std::size_t o = 0; o < order.size(); ++o) order[o] = {static_cast<std::int32_t>(o)};
    return order;
  }
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

}  // namespace tidemark::parallel
