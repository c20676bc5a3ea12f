#include "topology/route/cost.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"
#include "topology/fabric.hpp"
#include "topology/nccl_memory.hpp"

namespace tidemark::topology {
namespace {

// What one program does with one communicator.
struct SlotUse {
  bool reduces = false;
  bool shards = false;
  Bytes most_reduced;            ///< by one all-reduce or broadcast
  bool with_all = false;         ///< all-to-all: a message to every member
  std::set<std::int32_t> steps;  ///< to peers of messages
  [[nodiscard]] bool anything() const { return reduces || shards || with_all || !steps.empty(); }
};

std::vector<SlotUse> slot_uses(const Program& program, std::size_t slots) {
  std::vector<SlotUse> uses(slots);
  for (const Op& op : program.ops)
    std::visit(Overloaded{
                   [&](const Collective& o) {
                     SlotUse& use = uses[o.comm.index()];
                     switch (o.kind) {
                       case CollectiveKind::AllGather:
                       case CollectiveKind::ReduceScatter:
                         use.shards = true;
                         break;
                       case CollectiveKind::AllReduce:
                       case CollectiveKind::Broadcast:
                         use.reduces = true;
                         use.most_reduced = std::max(use.most_reduced, o.size);
                         break;
                       case CollectiveKind::AllToAll:
                         use.with_all = true;
                     }
                   },
                   [&](const Exchange& o) {
                     for (const Transfer& t : program[o.transfers]) uses[o.comm.index()].steps.insert(t.step);
                   },
                   // use no communicator
                   Ignored<Alloc, Free, CrossStreamUse, Launch, Memcpy, Record, Wait, Sync, CreateDriver,
                           CreateCommunicator, Bind, Unbind, Mark>{},
               },
               op);
  return uses;
}

// How the groups of one communicator lie on nodes.
class GroupPlacement {
 public:
  GroupPlacement(const Communicator& communicator, std::int32_t world_size, const Fabric& fabric)
      : communicator_(communicator), fabric_(fabric), devices_(fabric.node.devices) {
    const std::int32_t devices = devices_;
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

  /// Ranks in their order; `requested_of(rank)` is what a member does.
  template <class RequestOf>
  [[nodiscard]] CommunicatorUse use(Rank rank, const RequestOf& requested_of) {
    ensure(leaders_[rank.index()].valid(), "a group is asked for by one of its members");
    const SlotUse& requested = requested_of(rank);
    CommunicatorUse use;
    use.ranks = group_size(communicator_);
    use.local = local_[rank.index()];
    use.nodes = nodes_[leaders_[rank.index()].index()];
    use.reduces = requested.reduces;
    use.reduces_little = requested.reduces && requested.most_reduced <= little;
    use.shards = requested.shards;
    const bool in_pairs = communicator_.messages == MessageRoute::Pairs && !requested.with_all;
    if (use.nodes > 1 && !in_pairs) use.senders = senders(rank, requested_of);
    if (requested.with_all) {
      use.local_peers = use.local - 1;
      use.remote_peers = use.ranks - use.local;
      return use;
    }
    if (requested.steps.empty()) return use;
    peers_.clear();
    for (const std::int32_t step : requested.steps) peers_.push_back(group_neighbour(communicator_, rank, step));
    std::sort(peers_.begin(), peers_.end());
    peers_.erase(std::unique(peers_.begin(), peers_.end()), peers_.end());
    for (const Rank peer : peers_)
      ++(peer.value / devices_ == rank.value / devices_ ? use.local_peers : use.remote_peers);
    if (in_pairs) use.pairs = static_cast<std::int32_t>(requested.steps.size());
    return use;
  }

 private:
  /// How many members of the rank's node send to other nodes by its NIC.
  template <class RequestOf>
  std::int32_t senders(Rank rank, const RequestOf& requested_of) {
    const std::int32_t node = rank.value / devices_;
    if (node != counted_node_) counted_.clear();
    counted_node_ = node;
    const Rank leader = leaders_[rank.index()];
    const auto [entry, added] = counted_.try_emplace(leader.value);
    if (added) entry->second = senders_of_node(leader, node, requested_of);
    return entry->second[static_cast<std::size_t>(rank.value - node * devices_)];
  }

  /// By place in the node.
  template <class RequestOf>
  std::vector<std::int32_t> senders_of_node(Rank leader, std::int32_t node, const RequestOf& requested_of) {
    const auto is_of_group = [&](std::int32_t device) {
      const auto r = static_cast<std::size_t>(device);
      return r < leaders_.size() && leaders_[r] == leader;
    };
    const std::int32_t begin = node * devices_;
    std::vector<std::int32_t> counts(static_cast<std::size_t>(devices_), 0);
    for (std::int32_t from = begin; from < begin + devices_; ++from) {
      if (!is_of_group(from)) continue;
      std::set<std::int32_t> exits;
      const SlotUse& requested = requested_of(Rank{from});
      for (const std::int32_t to : requested.with_all ? one_of_each_place(leader, node) : peers(Rank{from}, requested))
        if (to / devices_ != node) exits.insert(exit_of(fabric_, from, to, is_of_group));
      for (const std::int32_t exit : exits) ++counts[static_cast<std::size_t>(exit - begin)];
    }
    return counts;
  }

  std::vector<std::int32_t> peers(Rank rank, const SlotUse& requested) const {
    std::vector<std::int32_t> all;
    for (const std::int32_t step : requested.steps) all.push_back(group_neighbour(communicator_, rank, step).value);
    return all;
  }

  /// Of the group's members on other nodes: by whose NIC one writes to them is settled by their places alone.
  const std::vector<std::int32_t>& one_of_each_place(Rank leader, std::int32_t node) {
    if (of_places_.first == std::pair(leader, node)) return of_places_.second;
    std::map<std::int32_t, std::int32_t> by_place;
    for (const Rank member : group_members(communicator_, leader))
      if (member.value / devices_ != node) by_place.emplace(member.value % devices_, member.value);
    of_places_ = {{leader, node}, {}};
    for (const auto& [place, device] : by_place) of_places_.second.push_back(device);
    return of_places_.second;
  }

  const Communicator& communicator_;
  const Fabric& fabric_;
  std::int32_t devices_;
  std::vector<Rank> leaders_;        // by rank
  std::vector<std::int32_t> local_;  // by rank: members on its node
  std::vector<std::int32_t> nodes_;  // by lowest rank
  std::vector<Rank> peers_;          // used again and again
  std::int32_t counted_node_ = -1;
  std::map<std::int32_t, std::vector<std::int32_t>> counted_;  // on that node: senders, by lowest rank and place
  std::pair<std::pair<Rank, std::int32_t>, std::vector<std::int32_t>> of_places_{{{}, -1}, {}};  // the last ones
};

// How each rank's groups lie and what it does with them, by slot, in the order of ranks; `report` learns, too, where it
// is as that of the rank before.
template <class Report>
void tell_signatures(const Workload& workload, const Cluster& cluster, const NcclSettings& nccl, const Report& report) {
  const std::size_t slots = workload.communicators.size();
  std::vector<std::vector<SlotUse>> uses;
  for (const Program& program : workload.programs) uses.push_back(slot_uses(program, slots));

  const Fabric node = build_fabric(cluster, 1, fabric_options(nccl));  // whose NIC is whose is the same in all
  std::vector<GroupPlacement> placements;
  for (const Communicator& communicator : workload.communicators)
    placements.emplace_back(communicator, workload.world_size(), node);
  std::vector<CommunicatorUse> signature(slots), before;
  for (std::int32_t r = 0; r < workload.world_size(); ++r) {
    const Rank rank{r};
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const auto requested_of = [&](Rank member) -> const SlotUse& {
        return uses[static_cast<std::size_t>(workload.program_of_rank[member.index()])][slot];
      };
      signature[slot] = requested_of(rank).anything() ? placements[slot].use(rank, requested_of) : CommunicatorUse{};
    }
    const bool as_before = r > 0 && signature == before;
    before = signature;
    report(rank, signature, as_before);
  }
}

}  // namespace

Costs cost(const Workload& workload, const Cluster& cluster, const NcclSettings& nccl) {
  Costs costs;
  std::map<std::vector<CommunicatorUse>, std::int32_t> known;
  tell_signatures(workload, cluster, nccl, [&](Rank, const std::vector<CommunicatorUse>& signature, bool as_before) {
    if (as_before) {
      costs.entry_of_rank.push_back(costs.entry_of_rank.back());
      return;
    }
    const auto [entry, added] = known.try_emplace(signature, static_cast<std::int32_t>(costs.entries.size()));
    if (added) {
      DriverCosts list{cluster.device.context, cluster.device.modules, nccl_kernel_memory(cluster), {}, {}};
      list.blas_handle = cluster.device.blas_handle;
      for (const CommunicatorUse& use : signature)
        list.communicators.push_back(communicator_memory(cluster, nccl, use));
      costs.entries.push_back(std::move(list));
    }
    costs.entry_of_rank.push_back(entry->second);
  });
  return costs;
}

std::vector<Estimate> nccl_host_memory(const Workload& workload, const Cluster& cluster, const NcclSettings& nccl) {
  const std::int32_t devices = cluster.node.devices;
  std::vector<Estimate> by_node(static_cast<std::size_t>((workload.world_size() + devices - 1) / devices));
  Estimate of_rank;
  tell_signatures(workload, cluster, nccl,
                  [&](Rank rank, const std::vector<CommunicatorUse>& signature, bool as_before) {
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
