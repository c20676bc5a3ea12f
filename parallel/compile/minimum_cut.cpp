#include "parallel/compile/minimum_cut.hpp"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/edmonds_karp_max_flow.hpp>

namespace tidemark::parallel::compile {
namespace {

using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
struct FlowEdge {
  std::int64_t capacity = 0, residual = 0;
  Traits::edge_descriptor back{};
};
struct FlowVertex {
  Traits::edge_descriptor predecessor{};
  boost::default_color_type colour{};
};
using FlowGraph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, FlowVertex, FlowEdge>;

void add(FlowGraph& graph, const CapacityEdge& edge) {
  const auto there = boost::add_edge(edge.from, edge.to, FlowEdge{edge.capacity}, graph).first;
  const auto back = boost::add_edge(edge.to, edge.from, FlowEdge{}, graph).first;
  graph[there].back = back;
  graph[back].back = there;
}

}  // namespace

std::vector<bool> sink_side(std::size_t vertices, const std::vector<CapacityEdge>& edges, std::size_t source,
                            std::size_t sink) {
  FlowGraph graph(vertices);
  for (const CapacityEdge& edge : edges) add(graph, edge);
  boost::edmonds_karp_max_flow(graph, source, sink, boost::get(&FlowEdge::capacity, graph),
                               boost::get(&FlowEdge::residual, graph), boost::get(&FlowEdge::back, graph),
                               boost::get(&FlowVertex::colour, graph), boost::get(&FlowVertex::predecessor, graph));
  // Whoever can still send something to the sink: backward from there.
  std::vector<bool> found(vertices, false);
  found[sink] = true;
  std::vector<std::size_t> open{sink};
  while (!open.empty()) {
    const std::size_t to = open.back();
    open.pop_back();
    for (const auto edge : boost::make_iterator_range(boost::out_edges(to, graph))) {
      const std::size_t from = boost::target(edge, graph);
      if (found[from] || graph[graph[edge].back].residual == 0) continue;
      found[from] = true;
      open.push_back(from);
    }
  }
  return found;
}

}  // namespace tidemark::parallel::compile
