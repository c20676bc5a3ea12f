#include "sim/folding.hpp"

#include <algorithm>
#include <map>
#include <set>
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

using Colours = std::vector<std::int32_t>;  // by rank

// Numbers equal keys alike, in order of the first rank that has them.
template <class Key>
class Numbering {
 public:
  std::int32_t operator()(Key key) {
    return ids_.try_emplace(std::move(key), static_cast<std::int32_t>(ids_.size())).first->second;
  }
  [[nodiscard]] std::size_t size() const { return ids_.size(); }

 private:
  std::map<Key, std::int32_t> ids_;
};

class Refinement {
 public:
  explicit Refinement(const Workload& workload) : workload_(workload) {
    for (const Program& program : workload.programs) ties_.push_back(ties_of(program, workload.communicators.size()));
  }

  [[nodiscard]] const Ties& ties(Rank rank) const {
    return ties_[static_cast<std::size_t>(workload_.program_of_rank[rank.index()])];
  }

  Colours stable(Colours colours) const {
    for (std::size_t before = 0, after = std::set(colours.begin(), colours.end()).size(); before != after;) {
      before = after;
      Numbering<std::vector<std::int32_t>> number;
      const std::vector<Colours> group_colours = colours_of_groups(colours);
      Colours next;
      for (std::int32_t r = 0; r < workload_.world_size(); ++r) {
        const Rank rank{r};
        std::vector<std::int32_t> key{colours[rank.index()]};
        for (std::size_t slot = 0; slot < workload_.communicators.size(); ++slot)
          if (ties(rank).collective[slot]) key.push_back(group_colours[slot][rank.index()]);
        for (const auto& [slot, step] : ties(rank).peers)
          key.push_back(
              colours[group_neighbour(workload_.communicators[static_cast<std::size_t>(slot)], rank, step).index()]);
        next.push_back(number(std::move(key)));
      }
      after = number.size();
      colours = std::move(next);
    }
    return colours;
  }

 private:
  // By slot and rank: a number that equal multisets of members' colours share.
  [[nodiscard]] std::vector<Colours> colours_of_groups(const Colours& colours) const {
    std::vector<Colours> found;
    for (const Communicator& communicator : workload_.communicators) {
      Colours of_rank(colours.size(), -1);
      Numbering<Colours> number;
      for (std::int32_t r = 0; r < workload_.world_size(); ++r) {
        if (of_rank[static_cast<std::size_t>(r)] >= 0 || !is_member(communicator, Rank{r})) continue;
        const std::vector<Rank> members = group_members(communicator, Rank{r});
        Colours multiset;
        for (const Rank member : members) multiset.push_back(colours[member.index()]);
        std::sort(multiset.begin(), multiset.end());
        const std::int32_t id = number(std::move(multiset));
        for (const Rank member : members) of_rank[member.index()] = id;
      }
      found.push_back(std::move(of_rank));
    }
    return found;
  }

  const Workload& workload_;
  std::vector<Ties> ties_;
};

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
  for (std::size_t c = 0; c < folding.classes.size(); ++c) {
    RankClass& its = folding.classes[c];
    for (std::size_t slot = 0; slot < workload.communicators.size(); ++slot) {
      its.groups.push_back(-1);
      if (!refined.ties(its.first).uses(slot)) continue;
      GroupClass group{{static_cast<std::int32_t>(slot)}, {}};
      for (const Rank member : group_members(workload.communicators[slot], its.first))
        group.classes.push_back(folding.class_of_rank[member.index()]);
      std::sort(group.classes.begin(), group.classes.end());
      group.classes.erase(std::unique(group.classes.begin(), group.classes.end()), group.classes.end());
      const auto known = std::find(folding.groups.begin(), folding.groups.end(), group);
      its.groups.back() = static_cast<std::int32_t>(known - folding.groups.begin());
      if (known == folding.groups.end()) folding.groups.push_back(std::move(group));
    }
  }
  return folding;
}

}  // namespace

Folding fold(const Workload& workload, const std::vector<std::int32_t>& price_of_rank) {
  const Refinement refinement(workload);
  Numbering<std::pair<std::int32_t, std::int32_t>> number;
  Colours colours;
  for (std::size_t r = 0; r < price_of_rank.size(); ++r)
    colours.push_back(number({workload.program_of_rank[r], price_of_rank[r]}));
  return folding_of(workload, price_of_rank, refinement, refinement.stable(std::move(colours)));
}

Folding unfolded(const Workload& workload, const std::vector<std::int32_t>& price_of_rank) {
  Colours colours;
  for (std::int32_t r = 0; r < workload.world_size(); ++r) colours.push_back(r);
  return folding_of(workload, price_of_rank, Refinement(workload), std::move(colours));
}

}  // namespace tidemark
