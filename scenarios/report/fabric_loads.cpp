#include "scenarios/report/fabric_loads.hpp"

#include <map>
#include <optional>
#include <utility>

#include "sim/base/overloaded.hpp"
#include "sim/clock/time_costs.hpp"
#include "topology/collective.hpp"
#include "topology/route/traffic.hpp"

namespace tidemark::scenarios {
namespace {

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
    std::visit(
        Overloaded{
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
            Ignored<Free, CrossStreamUse, Launch, Record, Wait, Sync, CreateDriver, CreateCommunicator, Bind, Unbind>{},
        },
        op);
  }
  return found;
}

// Everything that all ranks put on the links in the last step, as one transfer.
TransferCost traffic_of(const Job& job, const Fabric& fabric) {
  std::vector<StepTraffic> of_program;
  for (std::size_t p = 0; p < job.outline.programs.size(); ++p)
    of_program.push_back(traffic_of(job.program(p), job.scenario.train.steps));
  std::optional<Router> router;  // of what is uneven
  std::map<LinkId, Bytes> sums;
  const auto add = [&](const TransferCost& cost, std::int64_t times) {
    for (const LinkLoad& load : cost.loads) sums[load.link] += load.bytes * times;
  };
  for (std::int32_t r = 0; r < job.world_size(); ++r) {
    const Rank rank{r};
    const StepTraffic& its = of_program[static_cast<std::size_t>(job.outline.program_of_rank[rank.index()])];
    std::map<std::pair<CommSlot, CollectiveKind>, std::vector<CollectivePlan>> plans;
    for (const auto& [key, times] : its.collectives) {
      const Communicator& communicator = job.communicators()[key.comm.index()];
      if (group_leader(communicator, rank) != rank) continue;
      if (key.matrix.valid()) {
        if (!router) router.emplace(job.calls, fabric);
        add(router->uneven(key.comm, rank, key.kind, key.matrix).cost, times);
        continue;
      }
      const auto [entry, added] = plans.try_emplace({key.comm, key.kind});
      if (added) {
        std::vector<std::int32_t> devices;
        for (const Rank member : group_members(communicator, rank)) devices.push_back(member.value);
        entry->second = collective_plans(fabric, devices, key.kind);
      }
      add(cost_of(entry->second, key.size), times);
    }
    for (const auto& [key, times] : its.messages) {
      const Communicator& communicator = job.communicators()[key.comm.index()];
      const Rank peer = group_neighbour(communicator, rank, key.step);
      add(message_cost(fabric, r, peer.value, key.size, CollectiveCostModel::Routed,
                       message_way(fabric, communicator, rank, peer)),
          times);
    }
    for (const auto& [key, times] : its.copies) add(copy_cost(fabric, r, key.from, key.to, key.size), times);
  }
  TransferCost all;
  for (const auto& [link, bytes] : sums) all.loads.push_back({link, bytes});
  return all;
}

}  // namespace

std::vector<LinkUse> loads_of_step(const Job& job, const Fabric& fabric) {
  const std::vector<TransferCost> traffic{traffic_of(job, fabric)};
  return link_uses(fabric, traffic);
}

std::string_view link_type_name(LinkType type) {
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

}  // namespace tidemark::scenarios
