#include "scenarios/report/text/fabric_text.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "scenarios/formats/format.hpp"
#include "scenarios/report/fabric_loads.hpp"
#include "topology/fabric.hpp"
#include "topology/fabric_graph.hpp"
#include "topology/route/traffic.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::size_t most_rows = 20;

std::string rate(Bandwidth bandwidth) {
  return fmt::format("{:.1f} GB/s", static_cast<double>(bandwidth.count()) / 1e9);
}
std::string micro(Duration duration) { return fmt::format("{:.2f} us", static_cast<double>(duration.count()) / 1e6); }
std::string milli(Duration duration) { return fmt::format("{:.3f} ms", static_cast<double>(duration.count()) / 1e9); }

std::string links_by_type(const Fabric& fabric) {
  std::vector<std::vector<std::string>> rows{{"links", "count", "each", "latency", "together"}};
  for (std::size_t t = 0; t < link_types; ++t) {
    // Links of a type are laid out one after the other, and alike.
    const auto first = static_cast<std::size_t>(fabric.first[t]), last = static_cast<std::size_t>(fabric.first[t + 1]);
    if (first == last) continue;
    Bandwidth sum, least = fabric.links[first].capacity, most = least;
    for (std::size_t l = first; l < last; ++l) {
      sum += fabric.links[l].capacity;
      least = std::min(least, fabric.links[l].capacity);
      most = std::max(most, fabric.links[l].capacity);
    }
    rows.push_back({std::string(link_type_name(static_cast<LinkType>(t))), std::to_string(last - first),
                    least == most ? rate(least) : rate(least) + " to " + rate(most), micro(fabric.links[first].latency),
                    rate(sum)});
  }
  return table(rows);
}

// The lowest rank of each group: ranks of one role at one price.
std::vector<Rank> first_ranks_of(const Job& job) {
  std::vector<Rank> found;
  for (const Role& role : job.roles) {
    std::set<std::int32_t> entries;
    for (const Rank rank : role.ranks)
      if (entries.insert(job.costs.entry_of_rank[rank.index()]).second) found.push_back(rank);
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Where they are neighbours of one pipeline, as its messages go.
Route way_between(const Job& job, const Fabric& fabric, Rank from, Rank to) {
  std::int32_t exit = from.value;
  for (const Communicator& c : job.communicators())
    if (c.name == "pipeline" && is_member(c, from) && is_member(c, to) && group_leader(c, from) == group_leader(c, to))
      exit = message_way(fabric, c, from, to).exit;
  Route way;
  route(fabric, from.value, exit, to.value, way);
  return way;
}

std::string route_line(const Job& job, const Fabric& fabric, Rank from, Rank to) {
  const Route way = way_between(job, fabric, from, to);
  std::int64_t paths = 1;
  std::string hops;
  Bandwidth most;
  for (const LinkShare& share : way.shares) {
    paths = std::max(paths, share.of);
    const Bandwidth through{fabric[share.link].capacity.count() / (share.last - share.first) * share.of};
    if (most == Bandwidth{} || through < most) most = through;
    if (share.first == 0) hops += (hops.empty() ? "" : " -> ") + link_name(fabric, share.link);
  }
  return fmt::format("  rank {} to rank {}: {} path{}, {}, {}\n    {}\n", from.value, to.value, paths,
                     paths == 1 ? "" : "s", rate(most), micro(way.latency), hops);
}

std::string routes(const Job& job, const Fabric& fabric) {
  const std::vector<Rank> firsts = first_ranks_of(job);
  std::string out = "\nequal-cost routes between the first ranks of neighbouring groups\n";
  if (firsts.size() < 2) return out + "  none: all ranks are one group\n";
  for (std::size_t i = 0; i + 1 < firsts.size() && i < most_rows; ++i)
    out += route_line(job, fabric, firsts[i], firsts[i + 1]);
  if (firsts.size() - 1 > most_rows) out += fmt::format("  and {} more\n", firsts.size() - 1 - most_rows);
  return out;
}

std::string busiest_links(const Job& job, const Fabric& fabric, Duration step) {
  const std::vector<LinkUse> uses = loads_of_step(job, fabric);
  std::string out = fmt::format("\nload of one step, which takes {}, busiest links first\n", milli(step));
  if (uses.empty()) return out + "  none: no rank sends anything\n";
  std::vector<std::vector<std::string>> rows{{"link", "bytes", "busy", "of the step"}};
  for (std::size_t i = 0; i < uses.size() && i < most_rows; ++i)
    rows.push_back({link_name(fabric, uses[i].link), std::to_string(uses[i].bytes.count()), milli(uses[i].busy),
                    fmt::format("{:.1f} %", 100.0 * static_cast<double>(uses[i].busy.count()) /
                                                static_cast<double>(step.count()))});
  out += table(rows);
  if (uses.size() > most_rows)
    out += fmt::format("  and {} more links; {} of {} carry nothing\n", uses.size() - most_rows,
                       fabric.links.size() - uses.size(), fabric.links.size());
  return out;
}

}  // namespace

std::string fabric_text(const Job& job, Duration step) {
  const Fabric fabric = fabric_of(job.scenario, job.world_size());
  const auto counted = [](std::int32_t n, std::string_view single, std::string_view many) {
    return fmt::format("{} {}", n, n == 1 ? single : many);
  };
  std::string out = fmt::format("{}: {} on {} of {}, {} a node, {}{}\n\n", job.scenario.cluster.name,
                                counted(fabric.devices, "device", "devices"), counted(fabric.nodes, "node", "nodes"),
                                fabric.node.devices, counted(fabric.nic_slots, "NIC", "NICs"),
                                counted(fabric.leaves, "leaf", "leaves"),
                                fabric.leaves > 1 ? "; all spines count as one of their summed capacity" : "");
  out += links_by_type(fabric);
  out += fmt::format("\nbisection: the lower half of the devices sends the upper half {} at once\n",
                     rate(bisection_bandwidth(fabric)));
  return out + routes(job, fabric) + busiest_links(job, fabric, step);
}

}  // namespace tidemark::scenarios
