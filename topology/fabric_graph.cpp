#include "topology/fabric_graph.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/push_relabel_max_flow.hpp>

namespace tidemark::topology {
namespace {

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max() / 4;
constexpr std::int32_t no_link = -1;

/// Where links begin and end. A device is two vertices, one that sends and one that receives: none forwards. So is a
/// root complex: what goes down to a device has come across the bridge or from a NIC.
class Vertices {
 public:
  explicit Vertices(const Fabric& fabric) : fabric_(fabric), devices_(fabric.nodes * fabric.node.devices) {
    const std::int32_t nics = fabric.nodes * fabric.nic_slots;
    std::int32_t next = 2 * devices_;
    for (auto [base, count] : {std::pair{&nvswitch_, fabric.nodes},
                               {&root_in_, nics},
                               {&root_out_, nics},
                               {&bridge_in_, fabric.nodes},
                               {&bridge_out_, fabric.nodes},
                               {&leaf_, fabric.leaves},
                               {&spine_, fabric.spines}}) {
      *base = next;
      next += count;
    }
    count_ = next;
  }

  [[nodiscard]] std::int32_t count() const { return count_; }
  [[nodiscard]] std::int32_t sender(std::int32_t device) const { return device; }
  [[nodiscard]] std::int32_t receiver(std::int32_t device) const { return devices_ + device; }

  [[nodiscard]] std::pair<std::int32_t, std::int32_t> ends(const Link& link) const {
    const std::int32_t at = link.at;
    const bool direct = fabric_.node.gpu_direct_rdma;
    switch (link.type) {
      case LinkType::NvLinkUp:
        return {sender(at), nvswitch_ + fabric_.node_of(at)};
      case LinkType::NvLinkDown:
        return {nvswitch_ + fabric_.node_of(at), receiver(at)};
      case LinkType::NvLinkPair:
        return {sender(at), receiver(link.peer)};
      case LinkType::HostUp:
        return {sender(at), root_in_ + fabric_.nic_of(at)};
      case LinkType::HostDown:
        return {root_out_ + fabric_.nic_of(at), receiver(at)};
      case LinkType::HostBridge:
        return {bridge_in_ + at, bridge_out_ + at};
      case LinkType::NicUp:
        return {direct ? root_in_ + at : bridge_out_ + at / fabric_.nic_slots, leaf_ + fabric_.leaf_of_nic(at)};
      case LinkType::NicDown:
        return {leaf_ + fabric_.leaf_of_nic(at), direct ? root_out_ + at : bridge_in_ + at / fabric_.nic_slots};
      case LinkType::LeafUp:
        return {leaf_ + at, spine_ + link.peer};
      case LinkType::LeafDown:
        return {spine_ + link.peer, leaf_ + at};
    }
    return {0, 0};
  }

  /// Where a root complex meets the host's bridge: no links, nothing limits them.
  template <class Join>
  void for_each_junction(Join&& join) const {
    for (std::int32_t nic = 0; nic < fabric_.nodes * fabric_.nic_slots; ++nic) {
      join(root_in_ + nic, bridge_in_ + nic / fabric_.nic_slots);
      join(bridge_out_ + nic / fabric_.nic_slots, root_out_ + nic);
    }
  }

 private:
  const Fabric& fabric_;
  std::int32_t devices_;
  std::int32_t nvswitch_ = 0, root_in_ = 0, root_out_ = 0, bridge_in_ = 0, bridge_out_ = 0, leaf_ = 0, spine_ = 0;
  std::int32_t count_ = 0;
};

}  // namespace

Bandwidth max_flow(const Fabric& fabric, std::span<const std::int32_t> from, std::span<const std::int32_t> to) {
  using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
  struct Edge {
    std::int64_t capacity = 0;
    std::int64_t residual = 0;
    Traits::edge_descriptor reverse;
  };
  using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, Edge>;

  const Vertices vertices(fabric);
  const auto source = static_cast<std::size_t>(vertices.count());
  const std::size_t sink = source + 1;
  Graph graph(sink + 1);
  const auto join = [&](std::size_t u, std::size_t v, std::int64_t capacity) {
    const auto forward = boost::add_edge(u, v, {.capacity = capacity, .residual = 0, .reverse = {}}, graph).first;
    const auto back = boost::add_edge(v, u, {.capacity = 0, .residual = 0, .reverse = forward}, graph).first;
    graph[forward].reverse = back;
  };
  // What a device's links take together bounds what it can send; without a bound the algorithm's sums would overflow.
  std::vector<std::int64_t> leaving(source, 0);
  for (const Link& link : fabric.links) {
    const auto [u, v] = vertices.ends(link);
    join(static_cast<std::size_t>(u), static_cast<std::size_t>(v), link.capacity.count());
    leaving[static_cast<std::size_t>(u)] += link.capacity.count();
  }
  vertices.for_each_junction([&](std::int32_t u, std::int32_t v) {
    join(static_cast<std::size_t>(u), static_cast<std::size_t>(v), unlimited);
  });
  for (const std::int32_t device : from) {
    const auto sender = static_cast<std::size_t>(vertices.sender(device));
    join(source, sender, leaving[sender]);
  }
  for (const std::int32_t device : to) join(static_cast<std::size_t>(vertices.receiver(device)), sink, unlimited);
  const std::int64_t flow = boost::push_relabel_max_flow(
      graph, source, sink, boost::get(&Edge::capacity, graph), boost::get(&Edge::residual, graph),
      boost::get(&Edge::reverse, graph), boost::get(boost::vertex_index, graph));
  return Bandwidth{flow};
}

Bandwidth bisection_bandwidth(const Fabric& fabric) {
  std::vector<std::int32_t> devices(static_cast<std::size_t>(fabric.devices));
  std::iota(devices.begin(), devices.end(), 0);
  const std::span<const std::int32_t> all(devices);
  return max_flow(fabric, all.first(all.size() / 2), all.last(all.size() / 2));
}

Route searched_route(const Fabric& fabric, std::int32_t from, std::int32_t to) {
  struct Edge {
    std::int32_t link = no_link;
  };
  using Graph = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, Edge>;
  const Vertices vertices(fabric);
  std::vector<std::pair<std::int32_t, std::int32_t>> ends;
  std::vector<Edge> edges;
  for (std::size_t i = 0; i < fabric.links.size(); ++i) {
    ends.push_back(vertices.ends(fabric.links[i]));
    edges.push_back({static_cast<std::int32_t>(i)});
  }
  vertices.for_each_junction([&](std::int32_t u, std::int32_t v) {
    ends.emplace_back(u, v);
    edges.emplace_back();
  });
  const Graph graph(boost::edges_are_unsorted_multi_pass, ends.begin(), ends.end(), edges.begin(),
                    static_cast<std::size_t>(vertices.count()));

  // Hops and paths from the sender, vertices in the order of their distance.
  std::vector<std::size_t> order;
  std::vector<std::int32_t> hops(static_cast<std::size_t>(vertices.count()), 0);
  const auto source = static_cast<std::size_t>(vertices.sender(from));
  const auto target = static_cast<std::size_t>(vertices.receiver(to));
  struct Visitor : boost::default_bfs_visitor {
    explicit Visitor(std::vector<std::size_t>& order_, std::vector<std::int32_t>& hops_) : order(order_), hops(hops_) {}
    void discover_vertex(std::size_t v, const Graph&) const { order.push_back(v); }
    void tree_edge(const Graph::edge_descriptor& e, const Graph& g) const {
      hops[boost::target(e, g)] = hops[boost::source(e, g)] + 1;
    }
    std::vector<std::size_t>& order;
    std::vector<std::int32_t>& hops;
  };
  boost::breadth_first_search(graph, source, boost::visitor(Visitor(order, hops)));

  const auto on_shortest = [&](const Graph::edge_descriptor& e) {
    return hops[boost::target(e, graph)] == hops[boost::source(e, graph)] + 1;
  };
  std::vector<std::int64_t> paths_from(hops.size(), 0), paths_to(hops.size(), 0);
  paths_from[source] = 1;
  paths_to[target] = 1;
  for (const std::size_t v : order)
    for (const auto& e : boost::make_iterator_range(boost::out_edges(v, graph)))
      if (on_shortest(e)) paths_from[boost::target(e, graph)] += paths_from[v];
  for (auto v = order.rbegin(); v != order.rend(); ++v)
    for (const auto& e : boost::make_iterator_range(boost::out_edges(*v, graph)))
      if (on_shortest(e)) paths_to[*v] += paths_to[boost::target(e, graph)];

  Route found;
  std::int32_t last_hop = 0;
  for (const std::size_t v : order) {
    for (const auto& e : boost::make_iterator_range(boost::out_edges(v, graph))) {
      const std::int64_t paths = on_shortest(e) ? paths_from[v] * paths_to[boost::target(e, graph)] : 0;
      if (paths == 0 || graph[e].link == no_link) continue;
      found.shares.push_back({LinkId{graph[e].link}, 0, paths, paths_to[source]});
      if (hops[v] + 1 == last_hop) continue;  // another path's link at this distance: latencies are equal
      last_hop = hops[v] + 1;
      found.latency += fabric.links[static_cast<std::size_t>(graph[e].link)].latency;
    }
  }
  return found;
}

}  // namespace tidemark::topology
