#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "scenarios/dry_run/dry_run.hpp"
#include "topology/nccl_memory.hpp"

namespace tidemark::scenarios {
namespace {

// Members on the rank's node, and nodes that have members. Ranks fill nodes in their order.
void place(CommunicatorUse& use, const std::vector<std::int64_t>& ranks, std::int64_t rank, const DryWorld& world) {
  std::set<std::int64_t> nodes;
  use.ranks = static_cast<std::int32_t>(ranks.size());
  use.local = 0;
  for (const std::int64_t member : ranks) {
    nodes.insert(member / world.per_node);
    if (member / world.per_node == rank / world.per_node) ++use.local;
  }
  use.local = std::max(use.local, 1);
  use.nodes = static_cast<std::int32_t>(std::max<std::size_t>(nodes.size(), 1));
}

void add_messages(CommunicatorUse& use, const std::vector<std::int64_t>& peers, std::int64_t rank,
                  const DryWorld& world) {
  for (const std::int64_t peer : peers) {
    if (peer == rank) continue;
    ++(peer / world.per_node == rank / world.per_node ? use.local_peers : use.remote_peers);
  }
  if (use.remote_peers > 0) use.senders = 1;
}

std::string group_name(const DryGroup& group) {
  const std::vector<std::int64_t>& ranks = group.ranks;
  const std::int64_t step = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  std::string text = fmt::format("{}", ranks.front());
  if (ranks.size() > 1) text += fmt::format(" to {}", ranks.back());
  if (step != 1) text += fmt::format(" by {}", step);
  return fmt::format("communicator of {} ranks ({})", ranks.size(), text);
}

}  // namespace

std::vector<DryRow> process_rows(const Cluster& cluster) {
  std::vector<DryRow> rows{{"CUDA context", cluster.device.context}, {"loaded code", cluster.device.modules}};
  if (cluster.device.blas_handle.high > Bytes{}) rows.push_back({"cuBLAS handle", cluster.device.blas_handle});
  return rows;
}

std::vector<DryRow> driver_rows(const Cluster& cluster, const NcclSettings& settings, const RankReport& report,
                                const DryWorld& world) {
  std::vector<DryRow> rows = process_rows(cluster);
  bool any = false;
  for (const DryGroup& group : report.groups) {
    const bool used = group.reduces || group.shards || group.exchanges || !group.peers.empty();
    if (!group.on_device || !used || group.ranks.empty()) continue;
    CommunicatorUse use;
    place(use, group.ranks, report.rank, world);
    use.reduces = group.reduces;
    use.shards = group.shards;
    add_messages(use, group.exchanges ? group.ranks : group.peers, report.rank, world);
    if (!any) rows.push_back({"NCCL's kernels", nccl_kernel_memory(cluster)});
    any = true;
    rows.push_back({group_name(group), communicator_memory(cluster, settings, use)});
  }
  return rows;
}

std::vector<DryRow> world_communicator_rows(const Cluster& cluster, const NcclSettings& settings,
                                            const DryWorld& world) {
  std::vector<DryRow> rows = process_rows(cluster);
  if (world.ranks == 1) return rows;
  CommunicatorUse use;
  use.ranks = static_cast<std::int32_t>(world.ranks);
  use.local = static_cast<std::int32_t>(std::min(world.ranks, world.per_node));
  use.nodes = static_cast<std::int32_t>((world.ranks + world.per_node - 1) / world.per_node);
  use.reduces = use.shards = true;
  rows.push_back({"NCCL's kernels", nccl_kernel_memory(cluster)});
  rows.push_back({"communicator of all ranks", communicator_memory(cluster, settings, use)});
  return rows;
}

Estimate sum_of(const std::vector<DryRow>& rows) {
  Estimate sum;
  for (const DryRow& row : rows) {
    sum.bytes += row.cost.bytes;
    sum.low += row.cost.low;
    sum.high += row.cost.high;
  }
  return sum;
}

bool DryRank::ran_out() const {
  if (report.outcome == DryOutcome::OutOfMemory) return true;
  if (!report.ran_out || report.outcome == DryOutcome::Completed) return false;
  return std::cmp_equal(report.steps.size(), report.ran_out->after_steps);
}

bool DryRank::script_failed() const {
  if (ran_out()) return false;
  return report.outcome == DryOutcome::Error ||
         (report.outcome == DryOutcome::Ended && report.steps.empty() && report.exit_status.value_or(0) != 0);
}

DryVerdict DryRunAnswer::verdict() const {
  const auto any = [&](auto&& is) { return std::ranges::any_of(ranks, is); };
  if (any([](const DryRank& rank) { return rank.script_failed(); })) return DryVerdict::ScriptFailed;
  const Bytes capacity = cluster.device.capacity;
  const auto fails_at_best = [&](const DryRank& rank) {
    return rank.ran_out() && (!rank.need || rank.need->peak().reserved + sum_of(rank.rows).low > capacity);
  };
  if (any(fails_at_best)) return DryVerdict::DoesNotFit;
  if (any([&](const DryRank& rank) {
        return rank.ran_out() || rank.report.outcome == DryOutcome::Refused || rank.report.steps.empty() ||
               rank.device_upper() > capacity;
      }))
    return DryVerdict::CannotSay;
  return DryVerdict::Fits;
}

}  // namespace tidemark::scenarios
