#include "sim/clock/folding.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "sim/base/ensure.hpp"
#include "sim/base/hash.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::sim {
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
  for (const Op& op : program.ops)
    std::visit(Overloaded{
                   [&](const Collective& o) { ties.collective[o.comm.index()] = true; },
                   [&](const Exchange& o) {
                     for (const Transfer& t : program[o.transfers]) ties.peers.emplace(o.comm.value, t.step);
                   },
                   // ties to nobody
                   Ignored<Alloc, Free, CrossStreamUse, Launch, Memcpy, Record, Wait, Sync, CreateDriver,
                           CreateCommunicator, Bind, Unbind, Mark>{},
               },
               op);
  return ties;
}

using Colours = std::vector<std::int32_t>;  // numbered in order of their first member
using Hashes = std::vector<std::uint64_t>;

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

// How many of one orbit meet each of another one: one of the two sizes divides the other.
std::uint64_t meets(std::int32_t each, std::int32_t others) {
  return others > each ? static_cast<std::uint64_t>(others / each) : 1;
}

// Works on one rank, flow and link of each orbit; what they meet counts as often as they meet it. Sums are those of all
// ranks, and so are colours.
class Refinement {
 public:
  Refinement(const Workload& workload, const Traffic& traffic)
      : workload_(workload),
        traffic_(traffic),
        symmetry_(traffic.symmetry ? *traffic.symmetry
                                   : no_symmetry(workload.world_size(), workload.communicators.size())) {
    for (const Program& program : workload.programs) ties_.push_back(ties_of(program, workload.communicators.size()));
    std::set<std::pair<std::int32_t, std::int32_t>> ways;
    for (const Ties& ties : ties_) ways.insert(ties.peers.begin(), ties.peers.end());
    for (const auto& way : ways) peers_.emplace(way, peers_of(way));
    for (std::size_t slot = 0; slot < workload.communicators.size(); ++slot) leaders_.push_back(leaders_of(slot));
    for (const Traffic::Flow& flow : traffic_.flows) {
      const std::size_t from = orbit(flow.rank);
      flow_ranks_.push_back(from);
      const bool to_itself = !flow.comm.valid();
      receivers_.push_back(to_itself       ? from
                           : flow.way == 0 ? static_cast<std::size_t>(peers_.at({flow.comm.value, flow.step})[from])
                                           : 0);
    }
  }

  [[nodiscard]] const Symmetry& symmetry() const { return symmetry_; }
  [[nodiscard]] const Ties& ties(Rank rank) const {
    return ties_[static_cast<std::size_t>(workload_.program_of_rank[rank.index()])];
  }

  // By orbit.
  [[nodiscard]] Colours colours_of(const std::vector<std::int32_t>& ranks) const {
    Colours colours;
    for (const Rank rank : symmetry_.ranks) colours.push_back(ranks[rank.index()]);
    for (std::size_t r = 0; r < ranks.size(); ++r)
      ensure(ranks[r] == colours[static_cast<std::size_t>(symmetry_.orbit_of_rank[r])],
             "a symmetry exchanges ranks of one kind");
    return colours;
  }

  // From and to colours of orbits.
  Likeness stable(Colours ranks) const {
    Hashes flows, links;
    for (const Traffic::Flow& flow : traffic_.flows)
      flows.push_back(hash_of(flow.comm.value, flow.step, flow.way, flow.cost));
    for (const Traffic::Link& link : traffic_.links) links.push_back(hash_of(link.capacity.count()));
    Likeness found{std::move(ranks), Numbered(flows).colours, Numbered(links).colours};
    for (std::size_t before = 0, after = 1; before != after;) {
      before = after;
      after = refine(found);
    }
    return found;
  }

 private:
  [[nodiscard]] std::size_t orbit(Rank rank) const { return static_cast<std::size_t>(symmetry_.orbit(rank)); }

  // By orbit: the neighbour there, -1 where the rank's program has no such peer.
  [[nodiscard]] std::vector<std::int32_t> peers_of(const std::pair<std::int32_t, std::int32_t>& way) const {
    std::vector<bool> has;  // by program
    for (const Ties& ties : ties_) has.push_back(ties.peers.contains(way));
    std::vector<std::int32_t> peers;
    for (const Rank rank : symmetry_.ranks) {
      const bool meets = has[static_cast<std::size_t>(workload_.program_of_rank[rank.index()])];
      peers.push_back(meets ? symmetry_.orbit(group_neighbour(
                                  workload_.communicators[static_cast<std::size_t>(way.first)], rank, way.second))
                            : -1);
    }
    return peers;
  }

  // By orbit: the lowest of its group, -1 for those in none.
  [[nodiscard]] std::vector<std::int32_t> leaders_of(std::size_t slot) const {
    const Communicator& communicator = workload_.communicators[slot];
    std::vector<std::int32_t> leaders;
    for (const Rank rank : symmetry_.ranks)
      leaders.push_back(is_member(communicator, rank) ? symmetry_.orbit(group_leader(communicator, rank)) : -1);
    return leaders;
  }

  // One round: everything is told apart by what it meets. Returns how many classes there are then. Sums of hashes stand
  // for multisets.
  std::size_t refine(Likeness& found) const {
    const std::size_t count = found.ranks.size();
    std::vector<Hashes> groups;  // by slot and lowest rank: the members, then the flows as well
    for (std::size_t slot = 0; slot < leaders_.size(); ++slot) {
      const std::vector<std::int32_t>& leaders = leaders_[slot];
      Hashes& sums = groups.emplace_back(count, 0);
      for (std::size_t r = 0; r < count; ++r)
        if (leaders[r] >= 0)
          sums[static_cast<std::size_t>(leaders[r])] +=
              hash_of(found.ranks[r]) * static_cast<std::uint64_t>(symmetry_.spanned[slot] ? symmetry_.sizes[r] : 1);
    }

    Hashes ranks(count), flows(traffic_.flows.size()), links(traffic_.links.size());
    for (std::size_t f = 0; f < flows.size(); ++f) {
      const Traffic::Flow& flow = traffic_.flows[f];
      std::uint64_t loads = 0;
      for (const Traffic::Load& load : traffic_[flow])
        loads += hash_of_pair(static_cast<std::uint64_t>(load.weight), found.links[load.link.index()]) *
                 meets(flow.orbit, traffic_.links[load.link.index()].orbit);
      const std::uint64_t members = flow.way != 0 ? groups[flow.comm.index()][flow_ranks_[f]]
                                                  : hash_of(found.ranks[flow_ranks_[f]], found.ranks[receivers_[f]]);
      flows[f] = hash_of(found.flows[f], loads, members);
    }
    for (std::size_t f = 0; f < flows.size(); ++f) {
      const Traffic::Flow& flow = traffic_.flows[f];
      for (const Traffic::Load& load : traffic_[flow])
        links[load.link.index()] += mixed(flows[f] + static_cast<std::uint64_t>(load.weight)) *
                                    meets(traffic_.links[load.link.index()].orbit, flow.orbit);
      if (flow.way != 0) {
        groups[flow.comm.index()][flow_ranks_[f]] += hash_of(flows[f]);
      } else {
        ranks[flow_ranks_[f]] += hash_of(1, flows[f]);
        ranks[receivers_[f]] += hash_of(2, flows[f]);
      }
    }
    for (std::size_t l = 0; l < links.size(); ++l) links[l] = hash_of(found.links[l], links[l]);
    for (const auto& [way, peers] : peers_)
      for (std::size_t r = 0; r < count; ++r)
        if (peers[r] >= 0)
          ranks[r] += hash_of(3, way.first, way.second, found.ranks[static_cast<std::size_t>(peers[r])]);
    for (std::size_t slot = 0; slot < leaders_.size(); ++slot)
      for (std::size_t r = 0; r < count; ++r)
        if (ties(symmetry_.ranks[r]).collective[slot])
          ranks[r] += hash_of(4, slot, groups[slot][static_cast<std::size_t>(leaders_[slot][r])]);
    for (std::size_t r = 0; r < count; ++r) ranks[r] = hash_of(found.ranks[r], ranks[r]);

    std::size_t classes = 0;
    const auto number = [&](const Hashes& hashes) {
      Numbered numbered(hashes);
      classes += numbered.known.size();
      return std::move(numbered.colours);
    };
    found = {number(ranks), number(flows), number(links)};
    return classes;
  }

  const Workload& workload_;
  const Traffic& traffic_;
  Symmetry symmetry_;
  std::vector<Ties> ties_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int32_t>> peers_;  // by slot and step
  std::vector<std::vector<std::int32_t>> leaders_;                                    // by slot
  std::vector<std::size_t> flow_ranks_, receivers_;                                   // orbits, by flow
};

// The place in `folding.groups` of what a group looks like.
std::int32_t group_class(Folding& folding, const Workload& workload, std::size_t slot, Rank leader) {
  GroupClass group{{static_cast<std::int32_t>(slot)}, {}};
  std::vector<std::int32_t>& classes = group.classes;
  for (const Rank member : group_members(workload.communicators[slot], leader)) {
    const std::int32_t its = folding.class_of_rank[member.index()];
    if (classes.empty() || classes.back() != its) classes.push_back(its);
  }
  std::sort(classes.begin(), classes.end());
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  const auto known = std::find(folding.groups.begin(), folding.groups.end(), group);
  const auto place = static_cast<std::int32_t>(known - folding.groups.begin());
  if (known == folding.groups.end()) folding.groups.push_back(std::move(group));
  return place;
}

// `colours` by orbit.
Folding folding_of(const Workload& workload, const std::vector<std::int32_t>& cost_of_rank, const Refinement& refined,
                   const Colours& colours) {
  const Symmetry& symmetry = refined.symmetry();
  Folding folding;
  for (std::size_t i = 0; i < colours.size(); ++i) {
    const Rank rank = symmetry.ranks[i];
    const auto id = static_cast<std::size_t>(colours[i]);
    if (id == folding.classes.size())
      folding.classes.push_back({rank, 0, workload.program_of_rank[rank.index()], cost_of_rank[rank.index()], {}});
    folding.classes[id].size += symmetry.sizes[i];
  }
  folding.class_of_rank.reserve(symmetry.orbit_of_rank.size());
  for (const std::int32_t orbit : symmetry.orbit_of_rank)
    folding.class_of_rank.push_back(colours[static_cast<std::size_t>(orbit)]);

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
  const Refinement refinement(workload, traffic);
  Likeness found = refinement.stable(refinement.colours_of(ranks));
  const Colours colours = std::move(found.ranks);
  found.ranks.clear();
  for (const std::int32_t orbit : refinement.symmetry().orbit_of_rank)
    found.ranks.push_back(colours[static_cast<std::size_t>(orbit)]);
  return found;
}

Folding fold(const Workload& workload, const std::vector<std::int32_t>& cost_of_rank, const Traffic& traffic) {
  const Refinement refinement(workload, traffic);
  const Colours costs = refinement.colours_of(cost_of_rank), programs = refinement.colours_of(workload.program_of_rank);
  Hashes hashes;
  for (std::size_t r = 0; r < costs.size(); ++r) hashes.push_back(hash_of(programs[r], costs[r]));
  return folding_of(workload, cost_of_rank, refinement, refinement.stable(Numbered(hashes).colours).ranks);
}

Folding unfolded(const Workload& workload, const std::vector<std::int32_t>& cost_of_rank) {
  Colours colours;
  for (std::int32_t r = 0; r < workload.world_size(); ++r) colours.push_back(r);
  const Traffic nothing;
  return folding_of(workload, cost_of_rank, Refinement(workload, nothing), colours);
}

}  // namespace tidemark::sim
