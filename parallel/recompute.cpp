#include "parallel/recompute.hpp"

#include <algorithm>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dominator_tree.hpp>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel {
namespace {

using Flow = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;

// Vertex 0 comes before all operators that read nobody; operator o is vertex o + 1.
Flow flow_of(const ModelGraph& graph, bool backwards) {
  Flow flow(graph.operators.size() + 1);
  std::vector<bool> entered(graph.operators.size(), false);
  for (const auto& [maker, reader] : edges(graph)) {
    const std::size_t from = (backwards ? reader : maker).index(), to = (backwards ? maker : reader).index();
    boost::add_edge(from + 1, to + 1, flow);
    entered[to] = true;
  }
  for (std::size_t o = 0; o < entered.size(); ++o)
    if (!entered[o]) boost::add_edge(0, o + 1, flow);
  return flow;
}

// By vertex: the one through which all ways to it lead last.
std::vector<std::size_t> dominators(const Flow& flow) {
  std::vector<std::size_t> above(boost::num_vertices(flow), 0);
  boost::lengauer_tarjan_dominator_tree(
      flow, std::size_t{0}, boost::make_iterator_property_map(above.begin(), boost::get(boost::vertex_index, flow)));
  return above;
}

class Between {
 public:
  explicit Between(const ModelGraph& graph)
      : graph_(graph),
        order_(topological_order(graph)),
        before_(dominators(flow_of(graph, false))),
        behind_(dominators(flow_of(graph, true))) {}

  [[nodiscard]] std::vector<OperatorId> operator()(OperatorId after, OperatorId upto) const {
    const std::int32_t from = graph_[after].layer, to = graph_[upto].layer;
    std::vector<OperatorId> found;
    for (const OperatorId id : order_) {
      const std::int32_t layer = graph_[id].layer;
      if (id != after && from <= layer && layer <= to && leads_through(before_, id, after) &&
          leads_through(behind_, id, upto))
        found.push_back(id);
    }
    return found;
  }

 private:
  [[nodiscard]] static bool leads_through(const std::vector<std::size_t>& above, OperatorId id, OperatorId through) {
    for (std::size_t v = id.index() + 1; v != 0; v = above[v])
      if (v == through.index() + 1) return true;
    return false;
  }

  const ModelGraph& graph_;
  std::vector<OperatorId> order_;
  std::vector<std::size_t> before_, behind_;
};

Segment segment_of(const ModelGraph& graph, std::vector<OperatorId> operators) {
  Segment segment{std::move(operators), {}, {}};
  std::vector<int> made(graph.values.size(), 0);  // 1: inside
  for (const OperatorId id : segment.operators)
    for (const ValueId v : graph[id].outputs) made[v.index()] = 1;
  const auto add = [](std::vector<ValueId>& list, ValueId v) {
    if (std::find(list.begin(), list.end(), v) == list.end()) list.push_back(v);
  };
  for (const OperatorId id : segment.operators)
    for (const ValueId v : graph[id].inputs)
      if (made[v.index()] == 0) add(segment.inputs, v);
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    const OperatorId id{static_cast<std::int32_t>(o)};
    if (std::find(segment.operators.begin(), segment.operators.end(), id) != segment.operators.end()) continue;
    for (const ValueId v : graph.operators[o].inputs)
      if (made[v.index()] == 1) add(segment.outputs, v);
  }
  return segment;
}

// By layer, from the one before the first on: its last operator.
std::vector<OperatorId> last_operators(const ModelGraph& graph) {
  std::vector<OperatorId> last;
  for (const OperatorId id : topological_order(graph)) {
    const auto place = static_cast<std::size_t>(graph[id].layer + 1);
    if (last.size() <= place) last.resize(place + 1);
    last[place] = id;
  }
  return last;
}

// The first of the endings that an operator of the layer has.
OperatorId named(const ModelGraph& graph, std::int32_t layer, std::initializer_list<std::string_view> endings) {
  for (const std::string_view ending : endings)
    for (std::size_t o = 0; o < graph.operators.size(); ++o)
      if (graph.operators[o].layer == layer && graph.operators[o].name.ends_with(ending))
        return {static_cast<std::int32_t>(o)};
  ensure(false, "the model's layers have the modules that recompute_modules names");
  return {};
}

OperatorId maker_of(const ModelGraph& graph, ValueId value) {
  for (std::size_t o = 0; o < graph.operators.size(); ++o)
    if (std::find(graph.operators[o].outputs.begin(), graph.operators[o].outputs.end(), value) !=
        graph.operators[o].outputs.end())
      return {static_cast<std::int32_t>(o)};
  return {};
}

OperatorId reader_of(const ModelGraph& graph, ValueId value) {
  for (std::size_t o = 0; o < graph.operators.size(); ++o)
    if (std::find(graph.operators[o].inputs.begin(), graph.operators[o].inputs.end(), value) !=
        graph.operators[o].inputs.end())
      return {static_cast<std::int32_t>(o)};
  return {};
}

// What lies between queries, keys, values and the output projection; the MLP with the norms at its ends.
std::vector<Segment> of_modules(const ModelGraph& graph, const Stage& stage, const Recomputation& asked) {
  const Between between(graph);
  std::vector<Segment> segments;
  for (std::int32_t layer = stage.first; layer < stage.last; ++layer) {
    if (asked.core_attention) {
      const OperatorId split = reader_of(graph, graph[named(graph, layer, {"attention.qkv"})].outputs.front());
      const OperatorId last = maker_of(graph, graph[named(graph, layer, {"attention.proj"})].inputs.front());
      segments.push_back(segment_of(graph, between(split, last)));
    }
    if (asked.mlp)
      segments.push_back(
          segment_of(graph, between(maker_of(graph, graph[named(graph, layer, {"mlp.norm", "mlp.fc1"})].inputs.front()),
                                    named(graph, layer, {"mlp.post_norm", "mlp.fc2"}))));
  }
  return segments;
}

}  // namespace

std::vector<OperatorId> operators_between(const ModelGraph& graph, OperatorId after, OperatorId upto) {
  return Between(graph)(after, upto);
}

std::vector<Segment> recomputed_segments(const ModelGraph& graph, const Stage& stage, const Recomputation& asked) {
  if (asked.kind == Recompute::None) return {};
  if (asked.kind == Recompute::Selective) return of_modules(graph, stage, asked);
  const Between between(graph);
  const std::vector<OperatorId> last = last_operators(graph);
  const auto end_of = [&](std::int32_t layer) { return last[static_cast<std::size_t>(layer + 1)]; };
  std::vector<Segment> segments;
  const bool block = asked.method == RecomputeMethod::Block;
  // Uniform: groups of so many layers, all of them. Block: so many layers, one by one, and the rest saves.
  const std::int32_t group = block ? 1 : asked.layers;
  const std::int32_t end = block ? std::min(stage.last, stage.first + asked.layers) : stage.last;
  for (std::int32_t from = stage.first; from < end; from += group) {
    const std::int32_t to = std::min(from + group, end);
    segments.push_back(segment_of(graph, between(end_of(from - 1), end_of(to - 1))));
  }
  return segments;
}

}  // namespace tidemark::parallel
