#include "topology/route/price.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"
#include "topology/nccl_memory.hpp"

namespace tidemark::topology {
namespace {

// What one program does with one communicator.
struct SlotUse {
  bool reduces = false;
  bool shards = false;
  std::set<std::int32_t> steps;  ///< to peers of messages
};

std::vector<SlotUse> slot_uses(const Program& program, std::size_t slots) {
  std::vector<SlotUse> uses(slots);
  for (const Op& op : program.ops)
    std::visit(Overloaded{
                   [&](const Collective& o) {
                     const bool shards = o.kind == CollectiveKind::AllGather || o.kind == CollectiveKind::ReduceScatter;
                     (shards ? uses[o.comm.index()].shards : uses[o.comm.index()].reduces) = true;
                   },
                   [&](const Exchange& o) {
                     for (const Transfer& t : program[o.transfers]) uses[o.comm.index()].steps.insert(t.step);
                   },
                   // use no communicator
                   Ignored<Alloc, Free, Borrow, Launch, Memcpy, Record, Wait, Sync, CreateDriver, CreateCommunicator,
                           Bind, Unbind, Mark>{},
               },
               op);
  return uses;
}

// How the groups of one communicator lie on nodes.
class GroupPlacement {
 public:
  GroupPlacement(const Communicator& communicator, std::int32_t world_size, std::int32_t devices)
      : communicator_(communicator), devices_(devices) {
    const auto world = static_cast<std::size_t>(world_size);
    leaders_.assign(world, {});
    nodes_.assign(world, 0);
    local_.assign(world, 0);
    std::vector<std::int32_t> on_node(world, -1), count(world, 0);  // by lowest rank: where members were seen last
    for (std::int32_t begin = 0; begin < world_size; begin += devices) {
      const std::int32_t end = std::min(begin + devices, world_size);
      for (Rank rank{begin}; rank.value < end; ++rank.value) {
        if (!is_member(communicator, rank)) continue;
        const Rank leader = leaders_[rank.index()] = group_leader(communicator, rank);
        if (on_node[leader.index()] != begin) {
          on_node[leader.index()] = begin;
          count[leader.index()] = 0;
          ++nodes_[leader.index()];
        }
        ++count[leader.index()];
      }
      for (Rank rank{begin}; rank.value < end; ++rank.value)
        if (leaders_[rank.index()].valid()) local_[rank.index()] = count[leaders_[rank.index()].index()];
    }
  }

  [[nodiscard]] CommunicatorUse use(Rank rank, const SlotUse& asked) {
    ensure(leaders_[rank.index()].valid(), "a group is asked for by one of its members");
    CommunicatorUse use;
    use.ranks = group_size(communicator_);
    use.local = local_[rank.index()];
    use.nodes = nodes_[leaders_[rank.index()].index()];
    use.reduces = asked.reduces;
    use.shards = asked.shards;
    if (asked.steps.empty()) return use;
    peers_.clear();
    for (const std::int32_t step : asked.steps) peers_.push_back(group_neighbour(communicator_, rank, step));
    std::sort(peers_.begin(), peers_.end());
    peers_.erase(std::unique(peers_.begin(), peers_.end()), peers_.end());
    for (const Rank peer : peers_)
      ++(peer.value / devices_ == rank.value / devices_ ? use.local_peers : use.remote_peers);
    if (communicator_.messages == MessageRoute::Pairs) use.pairs = static_cast<std::int32_t>(asked.steps.size());
    return use;
  }

 private:
  const Communicator& communicator_;
  std::int32_t devices_;
  std::vector<Rank> leaders_;        // by rank
  std::vector<std::int32_t> local_;  // by rank: members on its node
  std::vector<std::int32_t> nodes_;  // by lowest rank
  std::vector<Rank> peers_;          // used again and again
};

// How each rank's groups lie and what it does with them, by slot, in the order of ranks; `told` is told, too, where it
// is as that of the rank before.
template <class Told>
void tell_signatures(const Workload& workload, const Cluster& cluster, const Told& told) {
  const std::size_t slots = workload.communicators.size();
  std::vector<std::vector<SlotUse>> uses;
  for (const Program& program : workload.programs) uses.push_back(slot_uses(program, slots));

  std::vector<GroupPlacement> placements;
  for (const Communicator& communicator : workload.communicators)
    placements.emplace_back(communicator, workload.world_size(), cluster.node.devices);
  std::vector<CommunicatorUse> signature(slots), before;
  for (std::int32_t r = 0; r < workload.world_size(); ++r) {
    const Rank rank{r};
    const std::vector<SlotUse>& asked = uses[static_cast<std::size_t>(workload.program_of_rank[rank.index()])];
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const bool used = asked[slot].reduces || asked[slot].shards || !asked[slot].steps.empty();
      signature[slot] = used ? placements[slot].use(rank, asked[slot]) : CommunicatorUse{};
    }
    const bool as_before = r > 0 && signature == before;
    before = signature;
    told(rank, signature, as_before);
  }
}

}  // namespace

Prices price(const Workload& workload, const Cluster& cluster, const NcclSettings& nccl) {
  Prices prices;
  std::map<std::vector<CommunicatorUse>, std::int32_t> known;
  tell_signatures(workload, cluster, [&](Rank, const std::vector<CommunicatorUse>& signature, bool as_before) {
    if (as_before) {
      prices.entry_of_rank.push_back(prices.entry_of_rank.back());
      return;
    }
    const auto [entry, added] = known.try_emplace(signature, static_cast<std::int32_t>(prices.entries.size()));
    if (added) {
      DriverPrices list{cluster.device.context, cluster.device.modules, nccl_kernel_memory(cluster), {}, {}};
      list.blas_handle = cluster.device.blas_handle;
      for (const CommunicatorUse& use : signature)
        list.communicators.push_back(communicator_memory(cluster, nccl, use));
      prices.entries.push_back(std::move(list));
    }
    prices.entry_of_rank.push_back(entry->second);
  });
  return prices;
}

std::vector<Estimate> nccl_on_hosts(const Workload& workload, const Cluster& cluster, const NcclSettings& nccl) {
  const std::int32_t devices = cluster.node.devices;
  std::vector<Estimate> by_node(static_cast<std::size_t>((workload.world_size() + devices - 1) / devices));
  Estimate of_rank;
  tell_signatures(workload, cluster, [&](Rank rank, const std::vector<CommunicatorUse>& signature, bool as_before) {
    if (!as_before) {
      of_rank = {};
      for (const CommunicatorUse& use : signature) {
        if (use == CommunicatorUse{}) continue;  // not one of its groups
        const Estimate its = communicator_host_memory(cluster, nccl, use);
        of_rank.bytes += its.bytes, of_rank.low += its.low, of_rank.high += its.high;
      }
    }
    Estimate& node = by_node[static_cast<std::size_t>(rank.value / devices)];
    node.bytes += of_rank.bytes, node.low += of_rank.low, node.high += of_rank.high;
  });
  return by_node;
}

}  // namespace tidemark::topology
