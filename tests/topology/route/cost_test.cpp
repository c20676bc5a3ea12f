#include "topology/route/cost.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"
#include "topology/nccl_memory.hpp"

namespace tidemark::tests::cost_test {
namespace {

using namespace literals;

Cluster cluster(std::int32_t devices_per_node) {
  Cluster made{.name = "test", .device = {}, .node = {}};
  made.device = {.name = "H100",
                 .compute_capability = 90,
                 .capacity = 80_GiB,
                 .context = {.bytes = 500_MiB, .low = 400_MiB, .high = 600_MiB, .source = "context"},
                 .modules = {.bytes = 100_MiB, .low = 50_MiB, .high = 200_MiB, .source = "modules"},
                 .kernel_latency = {}};
  made.node.devices = devices_per_node;
  return made;
}

// One program for `ranks` ranks in one group.
Workload one_group(std::int32_t ranks, const std::string& ops, std::vector<Communicator> more = {}) {
  Workload workload;
  workload.programs.push_back(parse_program("alloc b0 512 temporaries s0 a\nalloc b1 512 temporaries s0 a\n" + ops));
  workload.program_of_rank.assign(static_cast<std::size_t>(ranks), 0);
  workload.communicators.push_back({"all", {{ranks, 1}}});
  workload.communicators.insert(workload.communicators.end(), more.begin(), more.end());
  return workload;
}

Estimate communicator(const Cluster& on, const CommunicatorUse& use) { return communicator_memory(on, {}, use); }

TEST(Cost, DriverResourcesAreThoseOfTheDevice) {
  const Cluster on = cluster(8);
  const Costs costs = cost(one_group(2, ""), on);
  EXPECT_EQ(costs.of(Rank{1}).context, on.device.context);
  EXPECT_EQ(costs.of(Rank{1}).modules, on.device.modules);
  EXPECT_EQ(costs.of(Rank{1}).nccl_kernels, nccl_kernel_memory(on));
}

TEST(Cost, ASlotIsPricedByWhatTheProgramDoesWithIt) {
  const Cluster on = cluster(8);
  const CommunicatorUse idle{.ranks = 8, .local = 8, .nodes = 1};
  CommunicatorUse reduces = idle, shards = idle, both = idle;
  reduces.reduces = shards.shards = both.reduces = both.shards = true;
  const auto priced = [&](const std::string& ops) { return cost(one_group(8, ops), on).of(Rank{3}).of(CommSlot{0}); };
  EXPECT_EQ(priced("collective s0 g0 all_reduce sum bool 512 b0 -> b0\n"), communicator(on, reduces));
  EXPECT_EQ(priced("collective s0 g0 broadcast bool 512 b0 -> b0\n"), communicator(on, reduces));
  EXPECT_EQ(priced("collective s0 g0 all_gather bool 512 b0 -> b1\n"), communicator(on, shards));
  EXPECT_EQ(priced("collective s0 g0 reduce_scatter sum bool 512 b0 -> b1\n"), communicator(on, shards));
  EXPECT_EQ(
      priced(
          "collective s0 g0 reduce_scatter sum bool 512 b0 -> b1\ncollective s0 g0 all_reduce sum bool 512 b0 -> b0\n"),
      communicator(on, both));
}

TEST(Cost, EverySlotHasItsOwnCost) {
  const Cluster on = cluster(4);
  const Costs costs = cost(
      one_group(8, "collective s0 g0 all_reduce sum bool 1 b0 -> b0\ncollective s0 g1 all_gather bool 1 b0 -> b1\n",
                {{"pairs", {{2, 1}}}}),
      on);
  CommunicatorUse use{.ranks = 8, .local = 4, .nodes = 2, .reduces = true, .reduces_little = true};
  EXPECT_EQ(costs.of(Rank{0}).of(CommSlot{0}), communicator(on, use));
  use.reduces_little = false;
  const std::string more_at_once =
      "collective s0 g0 all_reduce sum bool 1 b0 -> b0\ncollective s0 g0 all_reduce sum bool 32769 b0 -> b0\n";
  EXPECT_EQ(cost(one_group(8, more_at_once), on).of(Rank{0}).of(CommSlot{0}), communicator(on, use));
  EXPECT_EQ(costs.of(Rank{0}).of(CommSlot{1}), communicator(on, {.ranks = 2, .local = 2, .nodes = 1, .shards = true}));
}

TEST(Cost, RanksWhoseGroupsLieAlikeShareAnEntry) {
  EXPECT_EQ(cost(one_group(8, "collective s0 g0 all_reduce sum bool 1 b0 -> b0\n"), cluster(8)).entries.size(), 1u);
  EXPECT_EQ(cost(one_group(8, "collective s0 g0 all_reduce sum bool 1 b0 -> b0\n"), cluster(4)).entries.size(), 1u);
}

TEST(Cost, RanksAreSplitWhereTheirGroupsLieDifferently) {
  // Six ranks on nodes of four: four of the group on the first node, two on the second.
  const Cluster on = cluster(4);
  const Costs costs = cost(one_group(6, "collective s0 g0 all_gather bool 1 b0 -> b1\n"), on);
  ASSERT_EQ(costs.entries.size(), 2u);
  EXPECT_EQ(costs.entry_of_rank, (std::vector<std::int32_t>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(costs.of(Rank{5}).of(CommSlot{0}), communicator(on, {.ranks = 6, .local = 2, .nodes = 2, .shards = true}));
}

TEST(Cost, PeersOnOtherNodesAreCountedApart) {
  // A ring of messages over two nodes of four: ranks at a node's edge have a remote neighbour.
  const Cluster on = cluster(4);
  const Costs costs = cost(one_group(8, "exchange s0 g0 send +1 b0 receive -1 b1\n"), on);
  EXPECT_EQ(costs.entry_of_rank, (std::vector<std::int32_t>{0, 1, 1, 0, 0, 1, 1, 0}));
  const CommunicatorUse where{.ranks = 8, .local = 4, .nodes = 2};
  CommunicatorUse edge = where, inner = where;
  edge.local_peers = edge.remote_peers = 1;
  edge.senders = 1;  // what the other edge sends leaves here, and its own there
  inner.local_peers = 2;
  EXPECT_EQ(costs.of(Rank{3}).of(CommSlot{0}), communicator(on, edge));
  EXPECT_EQ(costs.of(Rank{2}).of(CommSlot{0}), communicator(on, inner));
}

TEST(Cost, HostsHoldWhatEachOfTheirRanksHolds) {
  // Ranks at a node's edge hold more than those between them, and both nodes the same.
  const std::vector<Estimate> nodes =
      nccl_host_memory(one_group(8, "exchange s0 g0 send +1 b0 receive -1 b1\n"), cluster(4), {});
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_GT(nodes[0].high, 0_B);
  EXPECT_EQ(nodes[0], nodes[1]);
}

TEST(Cost, AnAllToAllIsAMessageToEveryMember) {
  const Cluster on = cluster(4);
  const Workload workload = one_group(8, "collective s0 g0 all_to_all bool 512 b0 -> b1\n");
  // Every rank sends to each place of the other node by the NIC of the rank at that place of its own.
  CommunicatorUse use{.ranks = 8, .local = 4, .nodes = 2, .local_peers = 3, .remote_peers = 4, .senders = 4};
  const Costs costs = cost(workload, on);
  EXPECT_EQ(costs.entries.size(), 1u);
  EXPECT_EQ(costs.of(Rank{5}).of(CommSlot{0}), communicator(on, use));
  NcclSettings own_nic;
  own_nic.pxn = Pxn::Never;
  use.senders = 1;
  EXPECT_EQ(cost(workload, on, own_nic).of(Rank{5}).of(CommSlot{0}), communicator_memory(on, own_nic, use));
  // Of two that share a NIC the first has all of it.
  Cluster shared = on;
  shared.node.nics = 2;
  const Costs by_first = cost(workload, shared);
  EXPECT_EQ(by_first.entry_of_rank, (std::vector<std::int32_t>{0, 1, 0, 1, 0, 1, 0, 1}));
  use.senders = 0;
  EXPECT_EQ(by_first.of(Rank{1}).of(CommSlot{0}), communicator(shared, use));
}

TEST(Cost, ANeighbourCountsOnceHoweverOftenItIsWrittenTo) {
  const Cluster on = cluster(8);
  const std::string once = "exchange s0 g0 send +1 b0\n";
  EXPECT_EQ(cost(one_group(4, once + once + "exchange s0 g0 receive +1 b0\n"), on).of(Rank{0}).of(CommSlot{0}),
            communicator(on, {.ranks = 4, .local = 4, .nodes = 1, .local_peers = 1}));
}

TEST(Cost, BothNeighboursOfAPairAreOnePeer) {
  // In a group of two, the one after and the one before are the same rank.
  const Cluster on = cluster(8);
  EXPECT_EQ(cost(one_group(2, "exchange s0 g0 send +1 b0 receive -1 b1\n"), on).of(Rank{0}).of(CommSlot{0}),
            communicator(on, {.ranks = 2, .local = 2, .nodes = 1, .local_peers = 1}));
}

TEST(Cost, MessagesThroughPairsAreSeveralCommunicators) {
  const Cluster on = cluster(8);
  Workload workload = one_group(4, "exchange s0 g0 send +1 b0 receive -1 b1\n");
  workload.communicators.front().messages = MessageRoute::Pairs;
  EXPECT_EQ(cost(workload, on).of(Rank{1}).of(CommSlot{0}),
            communicator(on, {.ranks = 4, .local = 4, .nodes = 1, .local_peers = 2, .pairs = 2}));
}

TEST(Cost, VariablesOfNcclCount) {
  const Cluster on = cluster(8);
  const Workload workload = one_group(8, "collective s0 g0 all_gather bool 512 b0 -> b1\n");
  NcclSettings fewer;
  fewer.channels.max_ctas = 2;
  EXPECT_LT(cost(workload, on, fewer).of(Rank{0}).of(CommSlot{0}).bytes,
            cost(workload, on).of(Rank{0}).of(CommSlot{0}).bytes);
}

TEST(Cost, ProgramsThatDoDifferentThingsHaveDifferentCosts) {
  const Cluster on = cluster(8);
  Workload workload = one_group(4, "collective s0 g1 all_gather bool 1 b0 -> b1\n", {{"pairs", {{2, 1}}}});
  workload.programs.push_back(parse_program("alloc b0 512 temporaries s0 a\n"));
  workload.program_of_rank = {0, 0, 1, 1};
  const Costs costs = cost(workload, on);
  EXPECT_EQ(costs.entry_of_rank, (std::vector<std::int32_t>{0, 0, 1, 1}));
}

TEST(Cost, CommunicatorsOfThousandsOfRanksArePricedQuickly) {
  const Costs costs = cost(one_group(16384, "collective s0 g0 all_reduce sum bool 1 b0 -> b0\n"), cluster(8));
  EXPECT_EQ(costs.entries.size(), 1u);
  EXPECT_EQ(costs.entry_of_rank.size(), 16384u);
}

}  // namespace
}  // namespace tidemark::tests::cost_test
