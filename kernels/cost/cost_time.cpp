#include "kernels/cost/cost_time.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "kernels/cost/roofline.hpp"
#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"
#include "topology/route/traffic.hpp"

namespace tidemark::kernels {
namespace {

// Links seen through classes: what one flow puts on them, and how many equal flows every link of a class carries.
class FoldedLinks {
 public:
  FoldedLinks(const Workload& workload, const Folding& folding, const Traffic& traffic)
      : traffic_(traffic), folds_(folding.classes.size() < folding.class_of_rank.size()) {
    if (!folds_) {
      ensure(!traffic_.symmetry || traffic_.symmetry->ranks.size() == folding.class_of_rank.size(),
             "a folding respects what the router's symmetry exchanges");
      for (const Traffic::Link& link : traffic_.links) capacities_.push_back(link.capacity);
      return;
    }
    alike_ = likeness(workload, traffic_, folding.class_of_rank);
    std::vector<bool> is_first(traffic_.links.size(), false);
    for (std::size_t l = 0; l < traffic_.links.size(); ++l) {
      if (static_cast<std::size_t>(alike_.links[l]) < capacities_.size()) continue;
      capacities_.push_back(traffic_.links[l].capacity);
      is_first[l] = true;
    }
    for (std::size_t f = 0; f < traffic_.flows.size(); ++f) {
      const Traffic::Flow& flow = traffic_.flows[f];
      for (const Traffic::Load& load : traffic_[flow])
        if (is_first[load.link.index()])
          sharers_[{alike_.flows[f], alike_.links[load.link.index()], load.weight}] +=
              std::max(flow.orbit / traffic_.links[load.link.index()].orbit, 1);
    }
  }

  struct Load {
    LinkId link;  // or a class of links
    std::int64_t weight = 1;
    std::int32_t sharers = 1;
  };
  // Of the flow with that communicator, step, rank and way.
  const std::vector<Load>& loads(CommSlot comm, std::int32_t step, Rank rank, std::int32_t way) {
    const auto key = [](const Traffic::Flow& f) { return std::tuple(f.comm, f.step, f.rank, f.way); };
    const auto found = std::partition_point(traffic_.flows.begin(), traffic_.flows.end(), [&](const Traffic::Flow& f) {
      return key(f) < std::tuple(comm, step, rank, way);
    });
    ensure(found != traffic_.flows.end() && key(*found) == std::tuple(comm, step, rank, way),
           "members of a group make the same calls: verify() holds it");
    const auto place = static_cast<std::size_t>(found - traffic_.flows.begin());
    const auto [entry, added] = loads_.try_emplace(folds_ ? alike_.flows[place] : static_cast<std::int32_t>(place));
    if (added) entry->second = folds_ ? folded(*found, entry->first) : plain(*found);
    return entry->second;
  }

  [[nodiscard]] const std::vector<Bandwidth>& capacities() const { return capacities_; }

 private:
  [[nodiscard]] std::vector<Load> plain(const Traffic::Flow& flow) const {
    std::vector<Load> loads;
    for (const Traffic::Load& load : traffic_[flow]) loads.push_back({load.link, load.weight, 1});
    return loads;
  }

  // Each class of links once, or once for each weight.
  [[nodiscard]] std::vector<Load> folded(const Traffic::Flow& flow, std::int32_t flow_class) const {
    std::vector<std::pair<std::int32_t, std::int64_t>> keys;
    for (const Traffic::Load& load : traffic_[flow]) keys.emplace_back(alike_.links[load.link.index()], load.weight);
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    std::vector<Load> loads;
    for (const auto& [link, weight] : keys) loads.push_back({{link}, weight, sharers_.at({flow_class, link, weight})});
    return loads;
  }

  const Traffic& traffic_;
  bool folds_;
  Likeness alike_;
  std::vector<Bandwidth> capacities_;  // by class of links
  // By classes of flows and links, and weight: how many such flows each such link carries.
  std::map<std::tuple<std::int32_t, std::int32_t, std::int64_t>, std::int32_t> sharers_;
  std::map<std::int32_t, std::vector<Load>> loads_;  // by class of flows, or flow
};

class Pricer {
 public:
  Pricer(const Workload& workload, const Folding& folding, const Cluster& cluster, Router& router)
      : workload_(workload),
        folding_(folding),
        cluster_(cluster),
        router_(router),
        calibration_(cluster.calibration),
        links_(workload, folding, router.traffic()) {}

  TimeCosts costs() && {
    TimeCosts found;
    found.links = links_.capacities();
    found.collectives.resize(folding_.groups.size());
    for (const RankClass& its : folding_.classes) found.classes.push_back(times_of(its, found));
    return found;
  }

 private:
  OpTimes times_of(const RankClass& its, TimeCosts& found) {
    const Program& program = workload_.programs[static_cast<std::size_t>(its.program)];
    OpTimes times;
    times.host.launch = cluster_.host.launch;
    times.kernels = kernel_times(program, cluster_);
    times.second_waves = second_waves(program, cluster_.device, times.kernels);
    std::vector<Bytes> sizes(static_cast<std::size_t>(program.buffers));
    std::vector<MemorySpace> spaces(sizes.size());
    for (const Op& op : program.ops)
      std::visit(Overloaded{
                     [&](const Alloc& o) {
                       sizes[o.buffer.index()] = o.size;
                       spaces[o.buffer.index()] = o.space;
                     },
                     [&](const Collective& o) {
                       const auto group = static_cast<std::size_t>(its.groups[o.comm.index()]);
                       const CollectiveKey key = key_of(program, o);
                       const auto [entry, added] = found.collectives[group].try_emplace(key);
                       if (added) entry->second = collective(its.first, key);
                     },
                     [&](const Exchange& o) {
                       for (const Transfer& t : program[o.transfers]) {
                         if (t.direction != Direction::Send) continue;
                         const Bytes size = t.size(sizes[t.buffer.index()]);
                         const auto [entry, added] = times.messages.try_emplace({o.comm, t.step, size});
                         if (added) entry->second = message(its.first, o.comm, t.step, size);
                       }
                     },
                     [&](const Memcpy& o) {
                       const CopyKey key{spaces[o.from.buffer.index()], spaces[o.to.buffer.index()], o.size};
                       const auto [entry, added] = times.copies.try_emplace(key);
                       if (added) entry->second = copy(its.first, key);
                     },
                     // of kernels, above; the others take no time of a stream
                     Ignored<Launch, Free, CrossStreamUse, Record, Wait, Sync, CreateDriver, CreateCommunicator, Bind,
                             Unbind, Mark>{},
                 },
                 op);
    return times;
  }

  TransferCost collective(Rank rank, const CollectiveKey& call) {
    const Rank leader = group_leader(workload_.communicators[call.comm.index()], rank);
    if (call.matrix.valid()) {
      const auto [way, alone] = router_.uneven(call.comm, leader, call.kind, call.matrix);
      TransferCost cost{alone.latency, {}};
      for (const FoldedLinks::Load& load : links_.loads(call.comm, 0, leader, way))
        cost.loads.push_back({load.link, Bytes{load.weight}, load.sharers});
      return cost;
    }
    const Router::Way way = router_.collective(call.comm, leader, call.kind, call.size);
    CollectivePlan plan{.algorithm = way.algorithm, .time = way.latency, .of = way.of};
    const std::vector<FoldedLinks::Load>& loads = links_.loads(call.comm, 0, leader, way.number);
    for (const FoldedLinks::Load& load : loads) plan.links.push_back({load.link, load.weight});
    TransferCost cost = cost_of(plan, call.size);
    for (std::size_t i = 0; i < cost.loads.size(); ++i) cost.loads[i].sharers = loads[i].sharers;
    if (!calibration_.there()) return cost;
    const std::vector<Rank> members = group_members(workload_.communicators[call.comm.index()], rank);
    return as_measured(std::move(cost),
                       measured_time(*calibration_.get(), call.kind, static_cast<std::int32_t>(members.size()),
                                     nodes_of(members), call.size));
  }

  [[nodiscard]] std::int32_t nodes_of(const std::vector<Rank>& members) const {
    std::set<std::int32_t> nodes;
    for (const Rank member : members) nodes.insert(router_.fabric().node_of(member.value));
    return static_cast<std::int32_t>(nodes.size());
  }

  [[nodiscard]] TransferCost as_measured(TransferCost cost, const std::optional<TimeByPoints>& time) const {
    if (!time) return cost;
    const Duration modelled = lone(cost, links_.capacities());
    return stretched(std::move(cost), modelled, time->time);
  }

  TransferCost copy(Rank rank, const CopyKey& copy) {
    if (copy.from == MemorySpace::Nvme) return of_drives(copy.size, cluster_.host.nvme_read_bandwidth);
    if (copy.to == MemorySpace::Nvme) return of_drives(copy.size, cluster_.host.nvme_write_bandwidth);
    TransferCost cost = copy_cost(router_.fabric(), rank.value, copy.from, copy.to, copy.size, router_.options().model);
    if (cost.loads.empty()) return cost;
    cost.loads.clear();
    for (const FoldedLinks::Load& load : links_.loads({}, copy.to == MemorySpace::Device ? 1 : 0, rank, 0))
      cost.loads.push_back({load.link, copy.size, load.sharers});
    if (!calibration_.there()) return cost;
    return as_measured(std::move(cost), measured_copy(*calibration_.get(), copy.to == MemorySpace::Device, copy.size));
  }

  // Of a node's drives, of which each of its ranks has as much.
  TransferCost of_drives(Bytes size, const std::optional<Bandwidth>& bandwidth) const {
    ensure(bandwidth.has_value(), "who swaps with drives knows how fast they are");
    return {size / Bandwidth{bandwidth->count() / cluster_.node.devices}, {}};
  }

  TransferCost message(Rank sender, CommSlot comm, std::int32_t step, Bytes size) {
    const Rank peer = group_neighbour(workload_.communicators[comm.index()], sender, step);
    TransferCost cost =
        message_cost(router_.fabric(), sender.value, peer.value, size, router_.options().model,
                     message_way(router_.fabric(), workload_.communicators[comm.index()], sender, peer));
    if (cost.loads.empty()) return cost;
    cost.loads.clear();
    // All ways together are one link of their summed capacity: each link of the route carries the whole.
    for (const FoldedLinks::Load& load : links_.loads(comm, step, sender, 0))
      cost.loads.push_back({load.link, size, load.sharers});
    if (!calibration_.there()) return cost;
    const Fabric& fabric = router_.fabric();
    const bool between = fabric.node_of(sender.value) != fabric.node_of(peer.value);
    return as_measured(std::move(cost), measured_message(*calibration_.get(), between, size));
  }

  const Workload& workload_;
  const Folding& folding_;
  const Cluster& cluster_;
  Router& router_;
  const SharedCalibration& calibration_;
  FoldedLinks links_;
};

}  // namespace

TimeCosts cost_time(const Workload& workload, const Folding& folding, const Cluster& cluster,
                    const CollectiveOptions& options) {
  Router router(workload, cluster, folding.class_of_rank, options);
  return cost_time(workload, folding, cluster, router);
}

TimeCosts cost_time(const Workload& workload, const Folding& folding, const Cluster& cluster, Router& router) {
  return Pricer(workload, folding, cluster, router).costs();
}

}  // namespace tidemark::kernels
