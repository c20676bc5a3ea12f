#include "kernels/price.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "topology/nccl_memory.hpp"

namespace tidemark {
namespace {

// What one program does with one communicator.
struct SlotUse {
  bool reduces = false;
  bool shards = false;
  std::set<std::int32_t> steps;  ///< to peers of messages
};

std::vector<SlotUse> slot_uses(const Program& program, std::size_t slots) {
  std::vector<SlotUse> uses(slots);
  for (const Op& op : program.ops) {
    if (const Collective* collective = std::get_if<Collective>(&op)) {
      const bool shards =
          collective->kind == CollectiveKind::AllGather || collective->kind == CollectiveKind::ReduceScatter;
      SlotUse& use = uses[collective->comm.index()];
      (shards ? use.shards : use.reduces) = true;
    } else if (const Exchange* exchange = std::get_if<Exchange>(&op)) {
      for (const Transfer& t : program[exchange->transfers]) uses[exchange->comm.index()].steps.insert(t.step);
    }
  }
  return uses;
}

// How the ranks of each group lie on nodes; each group is looked at once.
class GroupPlacement {
 public:
  GroupPlacement(const Workload& workload, const Node& node) : workload_(workload), devices_(node.devices) {}

  CommunicatorUse use(CommSlot slot, Rank rank, const SlotUse& asked) {
    const Communicator& communicator = workload_.communicators[slot.index()];
    const Group& group = group_of(slot, rank);
    CommunicatorUse use;
    use.ranks = group_size(communicator);
    use.local = group.ranks_on_node.at(node_of(rank));
    use.nodes = static_cast<std::int32_t>(group.ranks_on_node.size());
    use.reduces = asked.reduces;
    use.shards = asked.shards;
    std::set<Rank> peers;
    for (const std::int32_t step : asked.steps) peers.insert(group_neighbour(communicator, rank, step));
    for (const Rank peer : peers) ++(node_of(peer) == node_of(rank) ? use.local_peers : use.remote_peers);
    return use;
  }

 private:
  struct Group {
    std::map<std::int32_t, std::int32_t> ranks_on_node;
  };

  [[nodiscard]] std::int32_t node_of(Rank rank) const { return rank.value / devices_; }

  const Group& group_of(CommSlot slot, Rank rank) {
    const Rank leader = group_leader(workload_.communicators[slot.index()], rank);
    const auto [entry, added] = groups_.try_emplace({slot, leader});
    if (added)
      for (const Rank member : group_members(workload_.communicators[slot.index()], rank))
        ++entry->second.ranks_on_node[node_of(member)];
    return entry->second;
  }

  const Workload& workload_;
  std::int32_t devices_;
  std::map<std::pair<CommSlot, Rank>, Group> groups_;
};

}  // namespace

Prices price(const Workload& workload, const Cluster& cluster) {
  const std::size_t slots = workload.communicators.size();
  std::vector<std::vector<SlotUse>> uses;
  for (const Program& program : workload.programs) uses.push_back(slot_uses(program, slots));

  GroupPlacement placement(workload, cluster.node);
  Prices prices;
  std::map<std::vector<CommunicatorUse>, std::int32_t> known;
  for (std::int32_t r = 0; r < workload.world_size(); ++r) {
    const Rank rank{r};
    const std::vector<SlotUse>& asked = uses[static_cast<std::size_t>(workload.program_of_rank[rank.index()])];
    std::vector<CommunicatorUse> signature;
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const bool used = asked[slot].reduces || asked[slot].shards || !asked[slot].steps.empty();
      signature.push_back(used ? placement.use({static_cast<std::int32_t>(slot)}, rank, asked[slot])
                               : CommunicatorUse{});
    }
    const auto [entry, added] = known.try_emplace(signature, static_cast<std::int32_t>(prices.entries.size()));
    if (added) {
      DriverPrices list{cluster.device.context, cluster.device.modules, nccl_kernel_memory(cluster.device), {}};
      for (const CommunicatorUse& use : signature)
        list.communicators.push_back(communicator_memory(cluster.device, cluster.node, use));
      prices.entries.push_back(std::move(list));
    }
    prices.entry_of_rank.push_back(entry->second);
  }
  return prices;
}

}  // namespace tidemark
