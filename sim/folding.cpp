#include "sim/folding.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "sim/ensure.hpp"

namespace tidemark {
namespace {

// What a program does with each communicator: takes part in collectives, and sends to or receives from steps away.
struct Ties {
  std::vector<bool> collective;                           // by slot
  std::set<std::pair<std::int32_t, std::int32_t>> peers;  // slot, step

  [[nodiscard]] bool uses(std::size_t slot) const {
    return collective[slot] || std::any_of(peers.begin(), peers.end(), [&](const auto& peer) {
             return peer.first == static_cast<std::int32_t>(slot);
           });
  }
};

Ties ties_of(const Program& program, std::size_t slots) {
  Ties ties{std::vector<bool>(slots, false), {}};
  for (const Op& op : program.ops) {
    if (const Collective* collective = std::get_if<Collective>(&op)) {
      ties.collective[collective->comm.index()] = true;
    } else if (const Exchange* exchange = std::get_if<Exchange>(&op)) {
      for (const Transfer& t : program[exchange->transfers]) ties.peers.emplace(exchange->comm.value, t.step);
    }
  }
  return ties;
}

using Colours = std::vector<std::int32_t>;  // numbered in order of their first member
using Hashes = std::vector<std::uint64_t>;

// Steele, Lea & Flood, Fast splittable pseudorandom number generators, 2014: the finalizer of SplitMix64.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

template <class... Parts>
std::uint64_t hash_of(Parts... parts) {
  std::uint64_t hash = 0;
  ((hash = mixed(hash ^ static_cast<std::uint64_t>(parts))), ...);
  return hash;
}

// One of its parts may be anything; the other is small, such as a colour.
std::uint64_t hash_of_pair(std::uint64_t any, std::int32_t small) {
  return mixed(any ^ (static_cast<std::uint64_t>(small) * 0xd1342543de82ef95));
}

// Colours for hashes, and how many there are.
struct Numbered {
  explicit Numbered(const Hashes& hashes) {
    colours.reserve(hashes.size());
    for (const std::uint64_t hash : hashes)
      colours.push_back(known.try_emplace(hash, static_cast<std::int32_t>(known.size())).first->second);
  }
  std::unordered_map<std::uint64_t, std::int32_t> known;
  Colours colours;
};

class Refinement {
 public:
  Refinement(const Workload& workload, const Traffic& traffic) : workload_(workload), traffic_(traffic) {
    for (const Program& program : workload.programs) ties_.push_back(ties_of(program, workload.communicators.size()));
    std::set<std::pair<std::int32_t, std::int32_t>> ways;
    for (const Ties& ties : ties_) ways.insert(ties.peers.begin(), ties.peers.end());
    for (const auto& way : ways) peers_.emplace(way, peers_of(way.first, way.second));
    for (std::size_t slot = 0; slot < workload.communicators.size(); ++slot) leaders_.push_back(leaders_of(slot));
  }

  [[nodiscard]] const Ties& ties(Rank rank) const {
    return ties_[static_cast<std::size_t>(workload_.program_of_rank[rank.index()])];
  }

  Likeness stable(Colours ranks) const {
    Hashes flows, links;
    for (const Traffic::Flow& flow : traffic_.flows)
      flows.push_back(hash_of(flow.comm.value, flow.step, flow.way, flow.cost));
    for (const Bandwidth capacity : traffic_.links) links.push_back(hash_of(capacity.count()));
    Likeness found{std::move(ranks), Numbered(flows).colours, Numbered(links).colours};
    for (std::size_t before = 0, after = 1; before != after;) {
      before = after;
      after = refine(found);
    }
    return found;
  }

 private:
  // By rank: the neighbour there, -1 where the rank's program has no such peer.
  [[nodiscard]] std::vector<std::int32_t> peers_of(std::int32_t slot, std::int32_t step) const {
    std::vector<std::int32_t> peers(workload_.program_of_rank.size(), -1);
    for (std::size_t r = 0; r < peers.size(); ++r) {
      const Rank rank{static_cast<std::int32_t>(r)};
      if (ties(rank).peers.contains({slot, step}))
        peers[r] = group_neighbour(workload_.communicators[static_cast<std::size_t>(slot)], rank, step).value;
    }
    return peers;
  }

  // By rank: the lowest of its group, -1 for those in none.
  [[nodiscard]] std::vector<std::int32_t> leaders_of(std::size_t slot) const {
    const Communicator& communicator = workload_.communicators[slot];
    std::vector<std::int32_t> leaders(workload_.program_of_rank.size(), -1);
    for (std::size_t r = 0; r < leaders.size(); ++r) {
      const Rank rank{static_cast<std::int32_t>(r)};
      if (is_member(communicator, rank)) leaders[r] = group_leader(communicator, rank).value;
    }
    return leaders;
  }

  // One round: everything is told apart by what it meets. Returns how many classes there are then. Sums of hashes stand
  // for multisets.
  std::size_t refine(Likeness& found) const {
    const std::size_t world = found.ranks.size();
    std::vector<Hashes> groups;  // by slot and lowest rank: the members, then the flows as well
    for (const std::vector<std::int32_t>& leaders : leaders_) {
      Hashes& sums = groups.emplace_back(world, 0);
      for (std::size_t r = 0; r < world; ++r)
        if (leaders[r] >= 0) sums[static_cast<std::size_t>(leaders[r])] += hash_of(found.ranks[r]);
    }

    Hashes ranks(world), flows(traffic_.flows.size()), links(traffic_.links.size());
    for (std::size_t f = 0; f < flows.size(); ++f) {
      const Traffic::Flow& flow = traffic_.flows[f];
      std::uint64_t loads = 0;
      for (const Traffic::Load& load : traffic_[flow])
        loads += hash_of_pair(static_cast<std::uint64_t>(load.weight), found.links[load.link.index()]);
      flows[f] = hash_of(found.flows[f], loads, members(flow, found.ranks, groups));
    }
    for (std::size_t f = 0; f < flows.size(); ++f) {
      const Traffic::Flow& flow = traffic_.flows[f];
      for (const Traffic::Load& load : traffic_[flow])
        links[load.link.index()] += mixed(flows[f] + static_cast<std::uint64_t>(load.weight));
      if (flow.way != 0) {
        groups[flow.comm.index()][flow.rank.index()] += hash_of(flows[f]);
      } else {
        ranks[flow.rank.index()] += hash_of(1, flows[f]);
        ranks[receiver(flow)] += hash_of(2, flows[f]);
      }
    }
    for (std::size_t l = 0; l < links.size(); ++l) links[l] = hash_of(found.links[l], links[l]);
    for (const auto& [way, peers] : peers_)
      for (std::size_t r = 0; r < world; ++r)
        if (peers[r] >= 0)
          ranks[r] += hash_of(3, way.first, way.second, found.ranks[static_cast<std::size_t>(peers[r])]);
    for (std::size_t slot = 0; slot < leaders_.size(); ++slot)
      for (std::size_t r = 0; r < world; ++r)
        if (ties({static_cast<std::int32_t>(r)}).collective[slot])
          ranks[r] += hash_of(4, slot, groups[slot][static_cast<std::size_t>(leaders_[slot][r])]);
    for (std::size_t r = 0; r < world; ++r) ranks[r] = hash_of(found.ranks[r], ranks[r]);

    std::size_t classes = 0;
    const auto number = [&](const Hashes& hashes) {
      Numbered numbered(hashes);
      classes += numbered.known.size();
      return std::move(numbered.colours);
    };
    found = {number(ranks), number(flows), number(links)};
    return classes;
  }

  [[nodiscard]] std::size_t receiver(const Traffic::Flow& flow) const {
    return static_cast<std::size_t>(peers_.at({flow.comm.value, flow.step})[flow.rank.index()]);
  }

  [[nodiscard]] std::uint64_t members(const Traffic::Flow& flow, const Colours& ranks,
                                      const std::vector<Hashes>& groups) const {
    if (flow.way != 0) return groups[flow.comm.index()][flow.rank.index()];
    return hash_of(ranks[flow.rank.index()], ranks[receiver(flow)]);
  }

  const Workload& workload_;
  const Traffic& traffic_;
  std::vector<Ties> ties_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int32_t>> peers_;  // by slot and step
  std::vector<std::vector<std::int32_t>> leaders_;                                    // by slot
};

// The place in `folding.groups` of what a group looks like.
std::int32_t group_class(Folding& folding, const Workload& workload, std::size_t slot, Rank leader) {
  GroupClass group{{static_cast<std::int32_t>(slot)}, {}};
  for (const Rank member : group_members(workload.communicators[slot], leader))
    group.classes.push_back(folding.class_of_rank[member.index()]);
  std::sort(group.classes.begin(), group.classes.end());
  group.classes.erase(std::unique(group.classes.begin(), group.classes.end()), group.classes.end());
  const auto known = std::find(folding.groups.begin(), folding.groups.end(), group);
  const auto place = static_cast<std::int32_t>(known - folding.groups.begin());
  if (known == folding.groups.end()) folding.groups.push_back(std::move(group));
  return place;
}

Folding folding_of(const Workload& workload, const std::vector<std::int32_t>& price_of_rank, const Refinement& refined,
                   Colours colours) {
  Folding folding;
  folding.class_of_rank = std::move(colours);
  for (std::int32_t r = 0; r < workload.world_size(); ++r) {
    const Rank rank{r};
    const auto id = static_cast<std::size_t>(folding.class_of_rank[rank.index()]);
    if (id == folding.classes.size())
      folding.classes.push_back({rank, 0, workload.program_of_rank[rank.index()], price_of_rank[rank.index()], {}});
    ++folding.classes[id].size;
  }
  std::map<std::pair<std::size_t, Rank>, std::int32_t> known;  // groups, by slot and lowest rank
  for (RankClass& its : folding.classes) {
    for (std::size_t slot = 0; slot < workload.communicators.size(); ++slot) {
      its.groups.push_back(-1);
      if (!refined.ties(its.first).uses(slot)) continue;
      const Rank leader = group_leader(workload.communicators[slot], its.first);
      const auto [entry, added] = known.try_emplace({slot, leader}, -1);
      if (added) entry->second = group_class(folding, workload, slot, leader);
      its.groups.back() = entry->second;
    }
  }
  return folding;
}

}  // namespace

Likeness likeness(const Workload& workload, const Traffic& traffic, const std::vector<std::int32_t>& ranks) {
  return Refinement(workload, traffic).stable(ranks);
}

Folding fold(const Workload& workload, const std::vector<std::int32_t>& price_of_rank, const Traffic& traffic) {
  const Refinement refinement(workload, traffic);
  Hashes hashes;
  for (std::size_t r = 0; r < price_of_rank.size(); ++r)
    hashes.push_back(hash_of(workload.program_of_rank[r], price_of_rank[r]));
  return folding_of(workload, price_of_rank, refinement, refinement.stable(Numbered(hashes).colours).ranks);
}

Folding unfolded(const Workload& workload, const std::vector<std::int32_t>& price_of_rank) {
  Colours colours;
  for (std::int32_t r = 0; r < workload.world_size(); ++r) colours.push_back(r);
  const Traffic nothing;
  return folding_of(workload, price_of_rank, Refinement(workload, nothing), std::move(colours));
}

}  // namespace tidemark
