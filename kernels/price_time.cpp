#include "kernels/price_time.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "kernels/roofline.hpp"

namespace tidemark {
namespace {

std::vector<std::int32_t> devices_of(const Communicator& communicator, Rank member) {
  std::vector<std::int32_t> devices;
  for (const Rank rank : group_members(communicator, member)) devices.push_back(rank.value);
  return devices;
}

class Pricer {
 public:
  Pricer(const Workload& workload, const Folding& folding, const Cluster& cluster, const CollectiveOptions& options)
      : workload_(workload),
        folding_(folding),
        cluster_(cluster),
        options_(options),
        fabric_(build_fabric(cluster, workload.world_size())),
        ranks_of_class_(folding.classes.size()) {
    for (std::int32_t r = 0; r < workload.world_size(); ++r)
      ranks_of_class_[static_cast<std::size_t>(folding.class_of_rank[static_cast<std::size_t>(r)])].push_back({r});
  }

  TimePrices prices() && {
    TimePrices found;
    found.links = capacities(fabric_);
    for (std::size_t c = 0; c < folding_.classes.size(); ++c) found.classes.push_back(times_of(c));
    return found;
  }

 private:
  OpTimes times_of(std::size_t c) {
    const Program& program = workload_.programs[static_cast<std::size_t>(folding_.classes[c].program)];
    OpTimes times;
    times.launch = cluster_.host.launch;
    for (const Kernel& kernel : program.kernels) times.kernels.push_back(kernel_time(kernel, cluster_.device));
    std::vector<Bytes> sizes(static_cast<std::size_t>(program.buffers));
    for (const Op& op : program.ops) {
      if (const auto* o = std::get_if<Alloc>(&op)) sizes[o->buffer.index()] = o->size;
      if (const auto* o = std::get_if<Collective>(&op)) {
        const auto [entry, added] = times.collectives.try_emplace({o->comm, o->kind, o->size});
        if (added) entry->second = collective(c, *o);
      }
      if (const auto* o = std::get_if<Exchange>(&op)) {
        for (const Transfer& t : program[o->transfers]) {
          if (t.direction != Direction::Send) continue;
          const auto [entry, added] = times.messages.try_emplace({o->comm, t.step, sizes[t.buffer.index()]});
          if (added) entry->second = message(c, o->comm, t.step, sizes[t.buffer.index()]);
        }
      }
    }
    return times;
  }

  const std::vector<CollectivePlan>& plans(CommSlot comm, Rank leader, CollectiveKind kind) {
    const auto [entry, added] = plans_.try_emplace({comm, leader, kind});
    if (added)
      entry->second = collective_plans(fabric_, devices_of(workload_.communicators[comm.index()], leader), kind);
    return entry->second;
  }

  TransferPrice collective(std::size_t c, const Collective& op) {
    const Communicator& communicator = workload_.communicators[op.comm.index()];
    const Rank first = group_leader(communicator, folding_.classes[c].first);
    if (options_.model == PriceModel::AlphaBeta)
      return collective_price(fabric_, devices_of(communicator, first), op.kind, op.size, options_);
    TransferPrice price = price_of(fabric_, plans(op.comm, first, op.kind), op.size, options_);
    std::set<Rank> leaders;
    for (const Rank rank : ranks_of_class_[c]) leaders.insert(group_leader(communicator, rank));
    leaders.erase(first);
    share(price, leaders,
          [&](Rank leader) { return price_of(fabric_, plans(op.comm, leader, op.kind), op.size, options_); });
    return price;
  }

  TransferPrice message(std::size_t c, CommSlot comm, std::int32_t step, Bytes size) {
    const Communicator& communicator = workload_.communicators[comm.index()];
    const auto of = [&](Rank rank) {
      return message_price(fabric_, rank.value, group_neighbour(communicator, rank, step).value, size, options_.model);
    };
    TransferPrice price = of(folding_.classes[c].first);
    std::set<Rank> others(ranks_of_class_[c].begin(), ranks_of_class_[c].end());
    others.erase(folding_.classes[c].first);
    share(price, others, of);
    return price;
  }

  // Equal transfers of the class's other groups run at the same time: count those that load the same links.
  template <class PriceOf>
  static void share(TransferPrice& price, const std::set<Rank>& others, const PriceOf& price_of_other) {
    if (price.loads.empty() || others.empty()) return;
    std::unordered_map<std::int32_t, std::size_t> place;
    for (std::size_t i = 0; i < price.loads.size(); ++i) place[price.loads[i].link.value] = i;
    for (const Rank other : others)
      for (const LinkLoad& load : price_of_other(other).loads)
        if (const auto found = place.find(load.link.value); found != place.end()) ++price.loads[found->second].sharers;
  }

  const Workload& workload_;
  const Folding& folding_;
  const Cluster& cluster_;
  CollectiveOptions options_;
  Fabric fabric_;
  std::vector<std::vector<Rank>> ranks_of_class_;
  std::map<std::tuple<CommSlot, Rank, CollectiveKind>, std::vector<CollectivePlan>> plans_;
};

}  // namespace

TimePrices price_time(const Workload& workload, const Folding& folding, const Cluster& cluster,
                      const CollectiveOptions& options) {
  return Pricer(workload, folding, cluster, options).prices();
}

}  // namespace tidemark
