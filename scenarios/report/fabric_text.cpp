#include "scenarios/report/fabric_text.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "scenarios/report/format.hpp"
#include "sim/base/overloaded.hpp"
#include "sim/clock/time_prices.hpp"
#include "topology/collective.hpp"
#include "topology/fabric.hpp"
#include "topology/fabric_graph.hpp"
#include "topology/route/traffic.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::size_t most_rows = 20;

std::string_view name(LinkType type) {
  switch (type) {
    case LinkType::NvLinkUp:
      return "nvlink_up";
    case LinkType::NvLinkDown:
      return "nvlink_down";
    case LinkType::NvLinkPair:
      return "nvlink_pair";
    case LinkType::HostUp:
      return "host_up";
    case LinkType::HostDown:
      return "host_down";
    case LinkType::HostBridge:
      return "host_bridge";
    case LinkType::NicUp:
      return "nic_up";
    case LinkType::NicDown:
      return "nic_down";
    case LinkType::LeafUp:
      return "leaf_up";
    case LinkType::LeafDown:
      return "leaf_down";
  }
  return "?";
}

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
    rows.push_back({std::string(name(static_cast<LinkType>(t))), std::to_string(last - first),
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
      if (entries.insert(job.prices.entry_of_rank[rank.index()]).second) found.push_back(rank);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string route_line(const Fabric& fabric, Rank from, Rank to) {
  const Route way = route(fabric, from.value, to.value);
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
    out += route_line(fabric, firsts[i], firsts[i + 1]);
  if (firsts.size() - 1 > most_rows) out += fmt::format("  and {} more\n", firsts.size() - 1 - most_rows);
  return out;
}

// How often one program meets and sends in its last step.
struct StepTraffic {
  std::map<CollectiveKey, std::int64_t> collectives;
  std::map<MessageKey, std::int64_t> messages;
  std::map<CopyKey, std::int64_t> copies;
};

StepTraffic traffic_of(const Program& program, std::int32_t step) {
  StepTraffic found;
  std::vector<Bytes> sizes(static_cast<std::size_t>(program.buffers));
  std::vector<MemorySpace> spaces(sizes.size());
  bool in_step = false;
  for (const Op& op : program.ops) {
    std::visit(Overloaded{
                   [&](const Alloc& o) {
                     sizes[o.buffer.index()] = o.size;
                     spaces[o.buffer.index()] = o.space;
                   },
                   [&](const Mark& o) { in_step = o.step == step; },
                   [&](const Collective& o) {
                     if (in_step) ++found.collectives[key_of(program, o)];
                   },
                   [&](const Exchange& o) {
                     for (const Transfer& t : program[o.transfers])
                       if (in_step && t.direction == Direction::Send)
                         ++found.messages[{o.comm, t.step, t.size(sizes[t.buffer.index()])}];
                   },
                   [&](const Memcpy& o) {
                     const CopyKey copy{spaces[o.from.buffer.index()], spaces[o.to.buffer.index()], o.size};
                     const bool of_drives = copy.from == MemorySpace::Nvme || copy.to == MemorySpace::Nvme;
                     if (in_step && !of_drives) ++found.copies[copy];
                   },
                   // load no links
                   Ignored<Free, Borrow, Launch, Record, Wait, Sync, CreateDriver, CreateCommunicator, Bind, Unbind>{},
               },
               op);
  }
  return found;
}

// Everything that all ranks put on the links in the last step, as one transfer.
TransferPrice traffic_of(const Job& job, const Fabric& fabric) {
  std::vector<StepTraffic> of_program;
  for (const Program& program : job.timed.programs) of_program.push_back(traffic_of(program, job.scenario.train.steps));
  std::optional<Router> router;  // of what is uneven
  std::map<LinkId, Bytes> sums;
  const auto add = [&](const TransferPrice& price, std::int64_t times) {
    for (const LinkLoad& load : price.loads) sums[load.link] += load.bytes * times;
  };
  for (std::int32_t r = 0; r < job.timed.world_size(); ++r) {
    const Rank rank{r};
    const StepTraffic& its = of_program[static_cast<std::size_t>(job.timed.program_of_rank[rank.index()])];
    std::map<std::pair<CommSlot, CollectiveKind>, std::vector<CollectivePlan>> plans;
    for (const auto& [key, times] : its.collectives) {
      const Communicator& communicator = job.timed.communicators[key.comm.index()];
      if (group_leader(communicator, rank) != rank) continue;
      if (key.matrix.valid()) {
        if (!router) router.emplace(job.timed, job.scenario.cluster);
        add(router->uneven(key.comm, rank, key.kind, key.matrix).price, times);
        continue;
      }
      const auto [entry, added] = plans.try_emplace({key.comm, key.kind});
      if (added) {
        std::vector<std::int32_t> devices;
        for (const Rank member : group_members(communicator, rank)) devices.push_back(member.value);
        entry->second = collective_plans(fabric, devices, key.kind);
      }
      add(price_of(fabric, entry->second, key.size), times);
    }
    for (const auto& [key, times] : its.messages) {
      const Communicator& communicator = job.timed.communicators[key.comm.index()];
      add(message_price(fabric, r, group_neighbour(communicator, rank, key.step).value, key.size), times);
    }
    for (const auto& [key, times] : its.copies) add(copy_price(fabric, r, key.from, key.to, key.size), times);
  }
  TransferPrice all;
  for (const auto& [link, bytes] : sums) all.loads.push_back({link, bytes});
  return all;
}

std::string busiest_links(const Job& job, const Fabric& fabric, Duration step) {
  const std::vector<TransferPrice> traffic{traffic_of(job, fabric)};
  const std::vector<LinkUse> uses = link_uses(fabric, traffic);
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
  const Fabric fabric = build_fabric(job.scenario.cluster, job.timed.world_size());
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
