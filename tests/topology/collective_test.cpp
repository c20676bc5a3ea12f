#include "topology/collective.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/topology/collective_figures.hpp"

namespace tidemark::tests::collective_test {
namespace {

using namespace literals;
using namespace collective_figures;

TEST(Collective, RingAllReduceOnAnNvSwitch) {
  for (const std::int32_t n : {2, 3, 5, 8}) {
    const Fabric fabric = build_fabric(hgx(), 8);
    EXPECT_EQ(time_of(fabric, devices(n), CollectiveKind::AllReduce, size, Algorithm::Ring),
              2 * (n - 1) * nvlink_step + share_time(size, 2 * (n - 1), n, 400_GBps));
  }
}

TEST(Collective, RingAllGatherAndReduceScatterOnAnNvSwitch) {
  for (const std::int32_t n : {2, 3, 5, 8}) {
    const Fabric fabric = build_fabric(hgx(), 8);
    for (const CollectiveKind kind : {CollectiveKind::AllGather, CollectiveKind::ReduceScatter})
      EXPECT_EQ(time_of(fabric, devices(n), kind, size, Algorithm::Ring),
                (n - 1) * nvlink_step + share_time(size, n - 1, n, 400_GBps));
  }
}

TEST(Collective, BroadcastGoesOnceRoundFromTheFirstMember) {
  const Fabric fabric = build_fabric(hgx(), 8);
  const TransferCost cost = collective_cost(fabric, devices(4), CollectiveKind::Broadcast, size);
  EXPECT_EQ(alone(cost, fabric), 3 * nvlink_step + size / 400_GBps);
  EXPECT_EQ(on(fabric, cost, "node0.gpu0.nvlink_up"), size);
  EXPECT_EQ(on(fabric, cost, "node0.gpu0.nvlink_down"), 0_B);
  EXPECT_EQ(on(fabric, cost, "node0.gpu3.nvlink_up"), 0_B);
}

TEST(Collective, ABroadcastThatIsClosedLoadsAllMembersAlikeAndTakesNoLonger) {
  const Fabric fabric = build_fabric(hgx(), 16);
  CollectiveOptions closed;
  closed.closes_broadcasts = true;
  const TransferCost open = collective_cost(fabric, devices(4), CollectiveKind::Broadcast, size),
                     cost = collective_cost(fabric, devices(4), CollectiveKind::Broadcast, size, closed);
  EXPECT_EQ(alone(cost, fabric), alone(open, fabric));
  for (const char* link : {"node0.gpu0.nvlink_up", "node0.gpu0.nvlink_down", "node0.gpu3.nvlink_up"})
    EXPECT_EQ(on(fabric, cost, link), size) << link;
  // Between nodes nothing is gained by it.
  EXPECT_EQ(collective_cost(fabric, devices(16), CollectiveKind::Broadcast, size, closed),
            collective_cost(fabric, devices(16), CollectiveKind::Broadcast, size));
}

TEST(Collective, AllToAllSendsAPieceToEveryone) {
  // Among two the only message has all 32 channels; among eight a little more than 128 MiB have 16 for each of seven
  // messages, which take four turns.
  const Fabric node = build_fabric(of_32_channels(), 8);
  EXPECT_EQ(time_of(node, devices(2), CollectiveKind::AllToAll, size),
            nvlink_step + chunk + share_time(size, 1, 2, 400_GBps));
  EXPECT_EQ(time_of(node, devices(8), CollectiveKind::AllToAll, size),
            nvlink_step + 4 * chunk + share_time(size, 7, 8, 400_GBps));
  // Two nodes: half of the peers are eight NICs away.
  const Fabric fabric = build_fabric(hgx(), 16);
  const TransferCost cost = collective_cost(fabric, devices(16), CollectiveKind::AllToAll, size);
  EXPECT_EQ(alone(cost, fabric) - cost.latency, share_time(size, 8, 16, 50_GBps));
  EXPECT_GT(cost.latency, network_step);
}

TEST(Collective, AnAllToAllOfMiddlingSizeIsLimitedByItsChannels) {
  // 64 MiB among eight: 8 MiB to each peer by four channels of 21.3 GB/s, which is less than links of 400 GB/s have for
  // seven messages if there are few channels; of 1600 GB/s only channels are left.
  Cluster cluster = of_32_channels();
  cluster.node.bandwidth = 1600_GBps;
  const Fabric fabric = build_fabric(cluster, 8);
  EXPECT_NEAR(static_cast<double>(time_of(fabric, devices(8), CollectiveKind::AllToAll, 64_MiB).count()),
              static_cast<double>((nvlink_step + chunk + 8_MiB / (channel * 4)).count()), 10.0);
}

TEST(Collective, AMessageTakesItsRoute) {
  const Fabric fabric = build_fabric(of_32_channels(), 16);
  EXPECT_EQ(alone(message_cost(fabric, 0, 1, size), fabric), nvlink_step + slice + size / 400_GBps);
  EXPECT_EQ(alone(message_cost(fabric, 0, 8, size), fabric),
            network_step + slice + std::max(size / (channel * 2), size / 50_GBps));
  EXPECT_EQ(message_cost(fabric, 4, 4, size), TransferCost{});
  EXPECT_EQ(message_cost(fabric, 0, 8, 0_B), (TransferCost{network_step, {}}));
}

TEST(Collective, CopyEnginesTakeNoChannels) {
  const Fabric fabric = build_fabric(of_32_channels(), 16);
  const Communicator pair{"pair", {{2, 1, 1}}, MessageRoute::CopyEngines};
  const TransferCost cost =
      message_cost(fabric, 0, 1, size, CollectiveCostModel::Routed, message_way(fabric, pair, Rank{0}, Rank{1}));
  EXPECT_EQ(alone(cost, fabric), step_latency(fabric, 0, 0, 1) + size / 400_GBps);
}

TEST(Collective, TreeAllReduceOnOneNode) {
  // Four members: 0 over 2, 2 over 1 and 3, and the mirror image. Member 1 is a leaf, sending S/2 up, in the one and
  // inner, sending S/2 up and S/2 to each of two children, in the other: 2 S/B. Depth 2, up and down.
  const Fabric fabric = build_fabric(hgx(), 8);
  EXPECT_EQ(time_of(fabric, devices(4), CollectiveKind::AllReduce, size, Algorithm::Tree),
            4 * nvlink_step + share_time(size, 4, 2, 400_GBps));
  // Two members: each is the other's parent once.
  EXPECT_EQ(time_of(fabric, devices(2), CollectiveKind::AllReduce, size, Algorithm::Tree),
            2 * nvlink_step + share_time(size, 2, 2, 400_GBps));
}

Duration rounded_up(Wide time, std::int64_t of) { return Duration{static_cast<std::int64_t>((time + of - 1) / of)}; }

/// Trees reach 92 % of what rings do (NCCL's model).
Duration sagging(Duration wire) { return Duration{(wire.count() * 1087 + 999) / 1000}; }

TEST(Collective, TreeAllReduceBetweenNodes) {
  // One member a node, four nodes: as above over NICs.
  const Fabric fabric = build_fabric(hgx(), 32);
  EXPECT_EQ(time_of(fabric, devices(4, 8), CollectiveKind::AllReduce, size, Algorithm::Tree),
            4 * network_step + sagging(share_time(size, 4, 2, 50_GBps)));
  // Eight a node, two nodes: every NIC carries S/8 each way; the chains' inner members pass on 7/8 of S up and down.
  const TransferCost cost =
      collective_cost(fabric, devices(16), CollectiveKind::AllReduce, size, {.algorithm = Algorithm::Tree});
  EXPECT_EQ(alone(cost, fabric),
            2 * (7 * (nvlink_step + 600_ns) + network_step) + size / Bandwidth{8 * 41'400'000'000 / 2});  // 8 channels
  EXPECT_EQ(on(fabric, cost, "node0.nic3.up"), round_up(size, 8_B) / 8);
  EXPECT_EQ(on(fabric, cost, "node1.gpu5.nvlink_up"), Bytes{(14 * size.count() + 7) / 8});
}

TEST(Collective, RingsBetweenNodesUseEveryNic) {
  // All-gather among 16 on two nodes: each of eight rings carries 15/16 S/8 over its NICs, and 7 of its 8 edges inside.
  const Fabric fabric = build_fabric(hgx(), 16);
  const TransferCost cost =
      collective_cost(fabric, devices(16), CollectiveKind::AllGather, size, {.algorithm = Algorithm::Ring});
  EXPECT_EQ(cost.latency, 14 * nvlink_step + network_step);
  EXPECT_EQ(alone(cost, fabric) - cost.latency, share_time(size, 15, 16 * 8, 50_GBps));
  for (std::int32_t i = 0; i < 8; ++i) {
    const std::string place = std::to_string(i);
    EXPECT_EQ(on(fabric, cost, "node1.nic" + place + ".down"), Bytes{(15 * size.count() + 127) / 128});
    EXPECT_EQ(on(fabric, cost, "node0.gpu" + place + ".nvlink_up"), Bytes{(15 * 7 * size.count() + 127) / 128});
  }
}

TEST(Collective, AGroupOfOneMemberANodeIsLimitedByItsNic) {
  const Fabric fabric = build_fabric(hgx(), 64);
  EXPECT_EQ(time_of(fabric, devices(8, 8, 3), CollectiveKind::AllReduce, size, Algorithm::Ring),
            14 * network_step * 14 / 10 + share_time(size, 14, 8, 50_GBps));  // NCCL's plateau of rings
}

TEST(Collective, UnequalNodesHaveOneRing) {
  const Fabric fabric = build_fabric(hgx(), 16);
  const TransferCost cost =
      collective_cost(fabric, devices(12), CollectiveKind::ReduceScatter, size, {.algorithm = Algorithm::Ring});
  EXPECT_EQ(alone(cost, fabric), 10 * nvlink_step + network_step + share_time(size, 11, 12, 50_GBps));
}

TEST(Collective, HierarchicalIsRingsInsideAndBetween) {
  // m nodes of 8: 2 (l-1)/l S over NVLink, 2 (m-1)/m S/l over each NIC.
  for (const std::int32_t m : {2, 4}) {
    const Fabric fabric = build_fabric(hgx(), 8 * m);
    const TransferCost cost = collective_cost(fabric, devices(8 * m), CollectiveKind::AllReduce, size,
                                              {.algorithm = Algorithm::Hierarchical});
    EXPECT_EQ(cost.latency, 14 * nvlink_step + 2 * (m - 1) * network_step);
    EXPECT_EQ(alone(cost, fabric) - cost.latency,
              std::max(share_time(size, 14, 8, 400_GBps), share_time(size, 2 * (m - 1), 8 * m, 50_GBps)));
    EXPECT_EQ(time_of(fabric, devices(8 * m), CollectiveKind::AllGather, size, Algorithm::Hierarchical),
              7 * nvlink_step + (m - 1) * network_step +
                  std::max(share_time(size, 7, 8, 400_GBps), share_time(size, m - 1, 8 * m, 50_GBps)));
  }
}

TEST(Collective, NvlsReducesInTheSwitch) {
  // (n+1)/n S for an all-reduce, S for the others, at 89 % of a ring's rate on Hopper.
  const Fabric fabric = build_fabric(hgx(), 8);
  // An all-reduce of more than 1 GiB goes by 128 KiB of 16 channels and 8 members at a time, in three stages; here a
  // channel takes longer for 1 MiB than the links for 16.
  const Duration loop = 7'100_ns + 1_MiB / Bandwidth{21'100'000'000};
  EXPECT_EQ(time_of(fabric, devices(8), CollectiveKind::AllReduce, size, Algorithm::Nvls),
            2 * loop + rounded_up(Wide{loop.count()} * size.count(), Bytes{16_MiB}.count()));
  EXPECT_EQ(time_of(fabric, devices(8), CollectiveKind::AllGather, size, Algorithm::Nvls),
            nvls_pass + share_time(size, 100, 89, 400_GBps));
  const TransferCost scatter =
      collective_cost(fabric, devices(8), CollectiveKind::ReduceScatter, 712_B, {.algorithm = Algorithm::Nvls});
  EXPECT_EQ(on(fabric, scatter, "node0.gpu0.nvlink_up"), 800_B);
  EXPECT_EQ(on(fabric, scatter, "node0.gpu0.nvlink_down"), 100_B);
  // Between nodes, double trees: S/8 over each NIC with two nodes, as 78 % of it.
  const Fabric two = build_fabric(hgx(), 16);
  const TransferCost cost =
      collective_cost(two, devices(16), CollectiveKind::AllReduce, size, {.algorithm = Algorithm::Nvls});
  EXPECT_EQ(on(two, cost, "node0.nic0.up"),
            (Bytes{static_cast<std::int64_t>((Wide{size.count()} * 2 * 69 + 2 * 8 * 89 - 1) / (2 * 8 * 89))}));
}

TEST(Collective, TheDefaultIsTheQuickestThatNcclHas) {
  const auto picks = [](const Fabric& fabric, std::int32_t n, CollectiveKind kind, Bytes bytes) {
    const TransferCost chosen = collective_cost(fabric, devices(n), kind, bytes);
    for (const Algorithm a : {Algorithm::Ring, Algorithm::Tree, Algorithm::Nvls, Algorithm::Hierarchical})
      if (collective_cost(fabric, devices(n), kind, bytes, {.algorithm = a}) == chosen) return a;
    return Algorithm::Direct;
  };
  const Fabric hopper = build_fabric(hgx(), 16);
  EXPECT_EQ(picks(hopper, 8, CollectiveKind::AllReduce, 1_GiB), Algorithm::Nvls);
  EXPECT_EQ(picks(hopper, 8, CollectiveKind::AllGather, 1_GiB), Algorithm::Ring);
  EXPECT_EQ(picks(hopper, 8, CollectiveKind::AllReduce, 1_KiB), Algorithm::Ring);  // by LL
  EXPECT_EQ(picks(hopper, 8, CollectiveKind::AllReduce, 4_MiB), Algorithm::Nvls);
  EXPECT_EQ(picks(hopper, 4, CollectiveKind::AllReduce, 1_KiB), Algorithm::Ring);
  EXPECT_EQ(picks(hopper, 16, CollectiveKind::AllReduce, 1_GiB), Algorithm::Nvls);
  // Without NVLS; a hierarchical one would be quicker than a ring between nodes, but NCCL has none.
  const Fabric ampere = build_fabric(hgx(80), 16);
  EXPECT_EQ(picks(ampere, 8, CollectiveKind::AllReduce, 1_GiB), Algorithm::Ring);
  EXPECT_EQ(picks(ampere, 16, CollectiveKind::AllReduce, 1_MiB), Algorithm::Tree);
  EXPECT_EQ(picks(ampere, 16, CollectiveKind::AllReduce, 1_GiB), Algorithm::Ring);
  EXPECT_EQ(picks(ampere, 16, CollectiveKind::AllGather, 1_GiB), Algorithm::Ring);
  EXPECT_LT(time_of(ampere, devices(16), CollectiveKind::AllGather, 1_GiB, Algorithm::Hierarchical),
            time_of(ampere, devices(16), CollectiveKind::AllGather, 1_GiB));
}

TEST(Collective, AnAlgorithmThatCannotRunGivesWayToTheDefault) {
  const Fabric fabric = build_fabric(hgx(80), 16);
  for (const Algorithm a : {Algorithm::Nvls, Algorithm::Direct, Algorithm::Tree})
    EXPECT_EQ(collective_cost(fabric, devices(16), CollectiveKind::AllGather, size, {.algorithm = a}),
              collective_cost(fabric, devices(16), CollectiveKind::AllGather, size));
}

TEST(Collective, AnOversubscribedLeafLimitsWhatCrossesIt) {
  // Two leaves of two nodes at 8:1, so that 16 NICs of 50 GB/s share 100 GB/s. One member a node, in an order that
  // crosses on every edge: two of the four edges leave each leaf.
  const Fabric fabric = build_fabric(leaf_spine(2, one * 8), 32);
  const TransferCost crossing = collective_cost(fabric, std::vector{0, 16, 8, 24}, CollectiveKind::AllGather, size,
                                                {.algorithm = Algorithm::Ring});
  EXPECT_EQ(slowest_link(fabric, crossing).substr(0, 5),
            "node0");  // 2 x 3/4 S over 100 GB/s is as long as 3/4 S over 50
  EXPECT_EQ(on(fabric, crossing, "leaf0.up"), Bytes{(6 * size.count() + 3) / 4});
  // All-to-all among all 32: 16 members each send 16/32 S over leaf 0's uplink.
  const TransferCost all = collective_cost(fabric, devices(32), CollectiveKind::AllToAll, size);
  EXPECT_EQ(slowest_link(fabric, all), "leaf0.up");
  EXPECT_EQ(alone(all, fabric) - all.latency, share_time(size, 16 * 16, 32, 100_GBps));
  EXPECT_GT(all.latency, spine_step);
}

TEST(Collective, OnRailsTheSamePlaceStaysOnOneLeaf) {
  const Fabric fabric = build_fabric(rails(4, one * 4), 32);
  const TransferCost same =
      collective_cost(fabric, devices(4, 8, 5), CollectiveKind::AllReduce, size, {.algorithm = Algorithm::Ring});
  for (const LinkLoad& load : same.loads) EXPECT_NE(fabric[load.link].type, LinkType::LeafUp);
  EXPECT_EQ(alone(same, fabric), 6 * network_step * 14 / 10 + share_time(size, 6, 4, 50_GBps));
  // Nor do the rings of whole nodes leave their rails: each enters a node where it left the one before.
  const TransferCost whole =
      collective_cost(fabric, devices(32), CollectiveKind::AllReduce, size, {.algorithm = Algorithm::Ring});
  for (const LinkLoad& load : whole.loads) EXPECT_NE(fabric[load.link].type, LinkType::LeafUp);
  // Another place of another node is a spine away, at a quarter of the rate of four NICs.
  EXPECT_EQ(alone(message_cost(fabric, 0, 9, size), fabric),
            spine_step + slice + std::max(size / (channel * 2), size / 50_GBps));
}

TEST(Collective, OnRailsMessagesOfAGroupStayOnTheReceiversRail) {
  const Fabric fabric = build_fabric(rails(4, one * 4), 32),
               never = build_fabric(rails(4, one * 4), 32, {.pxn = Pxn::Never});
  const auto leaf = [&](const TransferCost& cost) { return on(fabric, cost, "leaf1.up"); };
  const TransferCost all = collective_cost(fabric, devices(32), CollectiveKind::AllToAll, size);
  const TransferCost crossing = collective_cost(never, devices(32), CollectiveKind::AllToAll, size);
  // Rank 0 hands seven others of its node what is for their like on three nodes, and is handed as much.
  const auto parts = [&](std::int64_t n) { return Bytes{(n * size.count() + 31) / 32}; };
  EXPECT_EQ(leaf(all), 0_B);
  EXPECT_EQ(leaf(crossing), parts(4 * 3 * 7));
  EXPECT_EQ(on(fabric, crossing, "node0.gpu0.nvlink_up"), parts(7));
  EXPECT_EQ(on(fabric, all, "node0.gpu0.nvlink_up"), parts(7 + 21));
  EXPECT_EQ(on(fabric, all, "node0.gpu0.nvlink_down"), parts(7 + 21));
  EXPECT_EQ(on(fabric, all, "node0.nic0.up"), parts(24));
  EXPECT_EQ(on(fabric, crossing, "node0.nic0.up"), parts(24));
  EXPECT_EQ(alone(all, fabric) - all.latency, share_time(size, 24, 32, 50_GBps));
  EXPECT_EQ(alone(crossing, fabric) - crossing.latency, share_time(size, 84, 32, 50_GBps));
  // So does one message, where its communicator has a member to forward it.
  const auto message = [&](const std::vector<std::int32_t>& group) {
    return message_cost(fabric, 0, 9, size, CollectiveCostModel::Routed, message_way(fabric, group, 0, 9));
  };
  EXPECT_EQ(leaf(message({0, 1, 9})), 0_B);
  EXPECT_EQ(on(fabric, message({0, 1, 9}), "node0.nic1.up"), size);
  EXPECT_EQ(on(fabric, message({0, 9}), "node0.nic0.up"), size);
}

TEST(Collective, WithoutNvlinkTheHostBridgeIsShared) {
  // Four cards: every edge of the ring crosses the bridge, 4 x 3/4 S over 64 GB/s; each card's own link carries 3/4 S
  // at 32 GB/s.
  const Fabric fabric = build_fabric(workstation(), 4);
  const TransferCost cost = collective_cost(fabric, devices(4), CollectiveKind::AllGather, size);
  EXPECT_EQ(slowest_link(fabric, cost), "node0.host_bridge");
  EXPECT_EQ(alone(cost, fabric), 3 * pcie_step + share_time(size, 3, 1, 64_GBps));
  // Bridged in pairs, two of the four edges do.
  const Fabric bridged = build_fabric(bridged_workstation(), 4);
  EXPECT_EQ(on(bridged, collective_cost(bridged, devices(4), CollectiveKind::AllGather, size), "node0.host_bridge"),
            Bytes{(6 * size.count() + 3) / 4});
  EXPECT_EQ(time_of(bridged, devices(2), CollectiveKind::AllGather, size),
            nvlink_step + share_time(size, 1, 2, 56_GBps));
}

TEST(Collective, AlphaBetaIsWhatEachTakesAlone) {
  const Fabric fabric = build_fabric(hgx(), 16);
  for (const int ranks : {2, 8, 16})
    for (const CollectiveKind kind :
         {CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter, CollectiveKind::AllToAll,
          CollectiveKind::Broadcast})
      EXPECT_EQ(collective_cost(fabric, devices(ranks), kind, size,
                                {.algorithm = {}, .model = CollectiveCostModel::AlphaBeta}),
                (TransferCost{alone(collective_cost(fabric, devices(ranks), kind, size), fabric), {}}));
  EXPECT_EQ(message_cost(fabric, 0, 8, size, CollectiveCostModel::AlphaBeta),
            (TransferCost{network_step + slice + std::max(size / (channel * 2), size / 50_GBps), {}}));
}

TEST(Collective, NothingToDoCostsNothing) {
  const Fabric fabric = build_fabric(hgx(), 8);
  EXPECT_EQ(collective_cost(fabric, devices(1), CollectiveKind::AllReduce, size), TransferCost{});
  EXPECT_EQ(collective_cost(fabric, devices(2), CollectiveKind::AllGather, 0_B), (TransferCost{600_ns, {}}));
}

TEST(Collective, SharersCountInATransferAlone) {
  const Fabric fabric = build_fabric(hgx(), 8);
  const TransferCost cost{1_us, {{LinkId{0}, 400'000_B, 3}, {LinkId{1}, 800'000_B}}};
  EXPECT_EQ(alone(cost, fabric), 4_us);
  EXPECT_EQ(alone(cost, capacities(fabric)), 4_us);
}

}  // namespace
}  // namespace tidemark::tests::collective_test
