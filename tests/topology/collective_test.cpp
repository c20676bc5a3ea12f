#include "topology/collective.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sim/program/random_matrix.hpp"
#include "tests/topology/test_clusters.hpp"

namespace tidemark::tests::collective_test {
namespace {

using namespace literals;
__extension__ using Wide = __int128;

// What NCCL takes per step, over the latency of the route (collective.cpp).
constexpr Duration nvlink_step = 600_ns + 2'800_ns;
constexpr Duration pcie_step = 1'000_ns + 4'700_ns;
constexpr Duration network_step = 2'700_ns + 11'300_ns;
constexpr Duration spine_step = network_step + 1'700_ns;
constexpr Duration nvls_pass = 25'000_ns;
// A channel's rate with messages, how much of a lone one goes before its receiver begins, and a chunk on one node.
constexpr Bandwidth channel{21'300'000'000};
const Duration slice = 128_KiB / channel;
const Duration chunk = 512_KiB / channel;

/// With the channels that NCCL opens on eight H100.
Cluster of_32_channels() {
  Cluster cluster = hgx();
  cluster.nccl.one_node = NcclChannels{24, 16, 32, 32};
  return cluster;
}

std::vector<std::int32_t> devices(std::int32_t count, std::int32_t stride = 1, std::int32_t first = 0) {
  std::vector<std::int32_t> all;
  for (std::int32_t i = 0; i < count; ++i) all.push_back(first + i * stride);
  return all;
}

/// parts / of x size / rate, bytes and time rounded up as a link's are.
Duration share_time(Bytes size, std::int64_t parts, std::int64_t of, Bandwidth rate) {
  return Bytes{static_cast<std::int64_t>((Wide{size.count()} * parts + of - 1) / of)} / rate;
}

Duration time_of(const Fabric& fabric, const std::vector<std::int32_t>& group, CollectiveKind kind, Bytes size,
                 std::optional<Algorithm> algorithm = std::nullopt) {
  return alone(collective_cost(fabric, group, kind, size, {.algorithm = algorithm}), fabric);
}

std::string slowest_link(const Fabric& fabric, const TransferCost& cost) {
  return link_name(fabric, link_uses(fabric, std::vector{cost}).front().link);
}

Bytes on(const Fabric& fabric, const TransferCost& cost, std::string_view link) {
  for (const LinkLoad& load : cost.loads)
    if (link_name(fabric, load.link) == link) return load.bytes;
  return Bytes{};
}

constexpr Bytes size = 1_GiB + 7_B;  // no multiple of anything

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

constexpr CollectiveKind all_kinds[] = {CollectiveKind::AllReduce, CollectiveKind::AllGather,
                                        CollectiveKind::ReduceScatter, CollectiveKind::Broadcast,
                                        CollectiveKind::AllToAll};

// Over groups that lie anyhow: links come once and in order, sizes are never rounded down, no part is lost between a
// leaf and its spines, several sizes of one plan agree with prices made one by one.
TEST(Collective, PlansHoldOnGeneratedGroups) {
  std::mt19937 random(11);
  for (const Cluster& cluster : {hgx(), leaf_spine(2, one * 2), rails(2), workstation(), bridged_workstation()}) {
    const Fabric fabric = build_fabric(cluster, 6 * cluster.node.devices);
    const Fabric spread = build_fabric(cluster, 6 * cluster.node.devices, {.spines = 4});
    for (int round = 0; round < 20; ++round) {
      std::vector<std::int32_t> group = devices(fabric.devices);
      std::shuffle(group.begin(), group.end(), random);
      group.resize(2 + random() % 12);
      for (const CollectiveKind kind : all_kinds) {
        const Bytes bytes{1 + static_cast<std::int64_t>(random() % 1'000'000'000)};
        const std::vector<CollectivePlan> plans = collective_plans(fabric, group, kind);
        const std::vector<CollectivePlan> spread_plans = collective_plans(spread, group, kind);
        ASSERT_EQ(plans.size(), spread_plans.size());
        for (std::size_t i = 0; i < plans.size(); ++i) {
          const TransferCost cost = cost_of(plans[i], bytes);
          EXPECT_GT(cost.latency, 0_ps);
          ASSERT_FALSE(cost.loads.empty());
          for (std::size_t k = 0; k < cost.loads.size(); ++k) {
            EXPECT_GT(cost.loads[k].bytes, 0_B);
            EXPECT_EQ(cost.loads[k].sharers, 1);
            EXPECT_TRUE(k == 0 || cost.loads[k - 1].link < cost.loads[k].link);
          }
          // The same with spines one by one, to the rounding of a byte per spine.
          const TransferCost spread_cost = cost_of(spread_plans[i], bytes);
          for (const Duration apart :
               {spread_cost.latency - cost.latency, alone(spread_cost, spread) - alone(cost, fabric)}) {
            EXPECT_LT(apart, 1_ns);
            EXPECT_GT(apart, -1_ns);
          }
        }
        const std::size_t best = best_plan(plans, bytes);
        EXPECT_EQ(cost_of(plans[best], bytes), collective_cost(fabric, group, kind, bytes));
        EXPECT_EQ(cost_of(plans, bytes), collective_cost(fabric, group, kind, bytes));
        for (const CollectivePlan& plan : plans)
          EXPECT_EQ(alone(fabric, plan, bytes), alone(cost_of(plan, bytes), fabric));
      }
    }
  }
}

TEST(Collective, EligiblePlansAreThoseThatOptionsChooseAmong) {
  const auto algorithms = [](const std::vector<CollectivePlan>& plans) {
    std::vector<Algorithm> found;
    for (const CollectivePlan& plan : plans) found.push_back(plan.algorithm);
    return found;
  };
  using enum Algorithm;
  const Fabric fabric = build_fabric(hgx(), 16);
  const std::vector<std::int32_t> two_nodes = devices(16), one_node = devices(8);
  const CollectiveKind kind = CollectiveKind::AllReduce;
  EXPECT_EQ(algorithms(collective_plans(fabric, two_nodes, kind)), (std::vector{Ring, Tree, Hierarchical, Nvls}));
  EXPECT_EQ(algorithms(eligible_plans(fabric, two_nodes, kind)), (std::vector{Ring, Tree, Nvls}));
  EXPECT_EQ(algorithms(eligible_plans(fabric, one_node, kind)), (std::vector{Ring, Nvls}));
  EXPECT_EQ(algorithms(eligible_plans(fabric, two_nodes, kind, {.algorithm = Hierarchical})),
            (std::vector{Ring, Tree, Hierarchical, Nvls}));
}

// NCCL_ALGO, NCCL_NVLS_ENABLE and NCCL_PROTO.
TEST(Collective, PlansAreThoseThatNcclMayTake) {
  const std::vector<std::int32_t> two_nodes = devices(16), one_node = devices(8), apart = {0, 8};
  using enum Algorithm;
  const auto algorithms = [](const NcclSettings& nccl, const std::vector<std::int32_t>& group, CollectiveKind kind) {
    std::vector<Algorithm> found;
    for (const CollectivePlan& plan : eligible_plans(build_fabric(hgx(), 16, fabric_options(nccl)), group, kind))
      found.push_back(plan.algorithm);
    return found;
  };
  const CollectiveKind reduce = CollectiveKind::AllReduce, gather = CollectiveKind::AllGather;
  const NcclSettings no_ring{.algorithms = {.ring = false}},
      trees{.algorithms = {.ring = false, .nvls = false, .nvls_tree = false}};
  EXPECT_EQ(algorithms(no_ring, two_nodes, reduce), (std::vector{Tree, Nvls}));
  EXPECT_EQ(algorithms(no_ring, one_node, gather), (std::vector{Nvls}));
  EXPECT_EQ(algorithms(no_ring, two_nodes, gather), (std::vector{Ring})) << "nothing else is left";
  EXPECT_EQ(algorithms(trees, one_node, reduce), (std::vector{Tree}));
  EXPECT_EQ(algorithms({.nvls = false}, two_nodes, reduce), (std::vector{Ring, Tree}));
  EXPECT_EQ(algorithms({.nvls = false}, one_node, gather), (std::vector{Ring}));
  EXPECT_EQ(algorithms({.protocols = {.simple = false}}, one_node, reduce), (std::vector{Ring})) << "NVLS is Simple";

  const auto protocols = [](const NcclSettings& nccl, const std::vector<std::int32_t>& group, CollectiveKind kind) {
    const auto plans = eligible_plans(build_fabric(hgx(), 16, fabric_options(nccl)), group, kind);
    std::vector<Protocol> found;
    for (const ProtocolTime& way : std::get<std::vector<ProtocolTime>>(plans.front().time))
      found.push_back(way.protocol);
    return found;
  };
  const auto all = std::vector{Protocol::Ll, Protocol::Ll128, Protocol::Simple};
  EXPECT_EQ(protocols({}, two_nodes, reduce), all);
  EXPECT_EQ(protocols({.protocols = {.ll = false}}, two_nodes, reduce),
            (std::vector{Protocol::Ll128, Protocol::Simple}));
  EXPECT_EQ(protocols({.protocols = {.ll = false, .ll128 = false}}, two_nodes, gather),
            (std::vector{Protocol::Simple}));
  EXPECT_EQ(protocols({}, apart, gather).size(), 4U) << "and PAT";
  EXPECT_EQ(protocols({.algorithms = {.pat = false}}, apart, gather), all);
  EXPECT_EQ(protocols({.algorithms = {.ring = false}}, apart, gather).size(), 1U) << "PAT alone";
}

// NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS, NCCL_NVLS_NCHANNELS, NCCL_MAX_P2P_NCHANNELS and NCCL_NCHANNELS_PER_NET_PEER.
TEST(Collective, FewChannelsMoveNoMoreThanEachCan) {
  const std::vector<std::int32_t> one_node = devices(8), two_nodes = devices(16);
  const auto on = [&](const NcclSettings& nccl) { return build_fabric(hgx(), 16, fabric_options(nccl)); };
  const auto gathered = [&](const NcclSettings& nccl) {
    const Fabric fabric = on(nccl);
    return alone(collective_cost(fabric, one_node, CollectiveKind::AllGather, 1_GiB), fabric);
  };
  const auto by_switch = [&](const NcclSettings& nccl, CollectiveKind kind) {
    const Fabric fabric = on(nccl);
    return alone(collective_cost(fabric, one_node, kind, 1_GiB, {.algorithm = Algorithm::Nvls, .model = {}}), fabric);
  };
  const auto reduced = [&](const NcclSettings& nccl, const std::vector<std::int32_t>& group) {
    const Fabric fabric = on(nccl);
    return alone(collective_cost(fabric, group, CollectiveKind::AllReduce, 1_GiB), fabric);
  };
  const auto sent = [&](const NcclSettings& nccl, std::int32_t from, std::int32_t to) {
    const Fabric fabric = on(nccl);
    return alone(message_cost(fabric, from, to, 1_GiB), fabric);
  };
  const NcclSettings no_switch{.nvls = false};
  NcclSettings four = no_switch, many = no_switch, ctas, in_switch, for_messages, for_peers;
  four.channels.max_channels = 4;
  many.channels.min_channels = 32;
  ctas.channels.max_ctas = 4;
  in_switch.channels.nvls_channels = 4;
  for_messages.channels.max_p2p_channels = 2;
  for_peers.channels.channels_per_net_peer = 1;

  // Seven eighths of it go round, by four channels.
  const Duration moving = Bytes{(1_GiB).count() / 8 * 7} / (4 * channel_rate(90));
  EXPECT_GT(gathered(four), moving);
  EXPECT_LT(gathered(four), moving + 200_us);
  EXPECT_LT(3 * gathered(no_switch), gathered(four)) << "24 fill the links";
  EXPECT_EQ(gathered(many), gathered(no_switch)) << "and more are no faster";
  EXPECT_LT(2 * reduced(no_switch, two_nodes), reduced(four, two_nodes));
  EXPECT_LT(2 * reduced({}, one_node), reduced(in_switch, one_node));
  EXPECT_GT(reduced(ctas, one_node), reduced({}, one_node)) << "of both kinds";
  for (const CollectiveKind kind : {CollectiveKind::AllGather, CollectiveKind::ReduceScatter}) {
    EXPECT_LT(2 * by_switch({}, kind), by_switch(in_switch, kind));
    EXPECT_EQ(by_switch(ctas, kind), by_switch(in_switch, kind));
  }
  EXPECT_LT(2 * sent({}, 0, 1), sent(for_messages, 0, 1));
  EXPECT_LT(sent({}, 0, 8), sent(for_peers, 0, 8));
}

// Rings one by one, member by member: the c-th begins at the c-th member, and odd nodes are walked backwards.
TEST(Collective, RingsTogetherAreEachRing) {
  for (const Cluster& cluster : {hgx(), leaf_spine(2), rails(2), workstation()}) {
    const std::int32_t per_node = cluster.node.devices;
    const Fabric fabric = build_fabric(cluster, 7 * per_node);
    for (const std::int32_t local : {2, 3, 4}) {
      for (const std::int32_t nodes : {2, 3, 6, 7}) {
        std::vector<std::int32_t> group;
        for (std::int32_t n = 0; n < nodes; ++n)
          for (std::int32_t k = 0; k < local; ++k) group.push_back(n * per_node + k);
        std::map<LinkId, std::int64_t> parts;
        for (std::int32_t c = 0; c < local; ++c) {
          std::vector<std::int32_t> order;
          for (std::int32_t n = 0; n < nodes; ++n)
            for (std::int32_t k = 0; k < local; ++k)
              order.push_back(n * per_node + (n % 2 == 0 ? c + k : c - 1 - k + 2 * local) % local);
          for (std::size_t i = 0; i < order.size(); ++i)
            for (const LinkShare& share : route(fabric, order[i], order[(i + 1) % order.size()]).shares)
              parts[share.link] += nodes * local - 1;
        }
        const CollectivePlan ring = collective_plans(fabric, group, CollectiveKind::AllGather).front();
        ASSERT_EQ(ring.algorithm, Algorithm::Ring);
        ASSERT_EQ(ring.links.size(), parts.size());
        for (const CollectivePlan::Part& part : ring.links) EXPECT_EQ(part.parts, parts[part.link]);
      }
    }
  }
}

// ---- uneven collectives and copies

TransferCost uneven(const Fabric& fabric, const std::vector<std::int32_t>& group, CollectiveKind kind,
                    const std::vector<MatrixRow>& rows, CollectiveCostModel model = CollectiveCostModel::Routed) {
  std::vector<const MatrixRow*> by_place;
  for (const MatrixRow& row : rows) by_place.push_back(&row);
  return uneven_cost(fabric, group, kind, by_place, model);
}

// Gathers and scatters are broadcasts and reductions then, which NCCL does by Simple only.
TEST(UnevenCollective, OfEqualPartsCostsWhatTheEvenOneDoes) {
  const Fabric fabric = build_fabric(hgx(), 8);
  for (const std::int32_t n : {2, 3, 8}) {
    const auto members = static_cast<std::size_t>(n);
    const std::vector<Bytes> parts(members, 3_MiB);
    const std::vector<MatrixRow> rows(members, {{0}, parts, parts});
    for (const CollectiveKind kind :
         {CollectiveKind::AllToAll, CollectiveKind::AllGather, CollectiveKind::ReduceScatter}) {
      const CollectivePlan even = collective_plans(fabric, devices(n), kind).front();
      const TransferCost its = uneven(fabric, devices(n), kind, rows), like = cost_of(even, 3_MiB * n);
      EXPECT_EQ(its.loads, like.loads) << name(kind) << " of " << n;
      EXPECT_EQ(its.latency, kind == CollectiveKind::AllToAll ? like.latency : (n - 1) * nvlink_step);
    }
  }
}

// Each message by itself: no plan, no ring.
TEST(UnevenCollective, AnAllToAllPutsOnEveryLinkWhatItsMessagesDo) {
  std::mt19937 random(8);
  const Fabric fabric = build_fabric(rails(2), 32);
  for (int seed = 0; seed < 20; ++seed) {
    const std::vector<std::int32_t> group = devices(4, seed % 8 + 1, seed % 8);
    const std::vector<MatrixRow> rows = random_matrix(random, CollectiveKind::AllToAll, group.size(), 1 << 20);
    std::map<LinkId, Bytes> expected;
    for (std::size_t i = 0; i < group.size(); ++i)
      for (std::size_t j = 0; j < group.size(); ++j)
        if (i != j)
          for (const LinkLoad& load :
               message_cost(fabric, group[i], group[j], rows[i].sends[j], CollectiveCostModel::Routed,
                            message_way(fabric, group, group[i], group[j]))
                   .loads)
            expected[load.link] += load.bytes;
    std::map<LinkId, Bytes> found;
    const TransferCost cost = uneven(fabric, group, CollectiveKind::AllToAll, rows);
    for (const LinkLoad& load : cost.loads) found[load.link] += load.bytes;
    EXPECT_EQ(found, expected);
    EXPECT_EQ(alone(uneven(fabric, group, CollectiveKind::AllToAll, rows, CollectiveCostModel::AlphaBeta), fabric),
              alone(cost, fabric));
  }
}

// Round the ring every link carries all parts but the one that ends, or begins, behind it.
TEST(UnevenCollective, GathersAndScattersGoRoundTheRing) {
  const Fabric fabric = build_fabric(hgx(), 8);
  const std::vector<Bytes> parts{1_MiB, 0_B, 5_MiB, 2_MiB};
  std::vector<MatrixRow> gather, scatter;
  for (const Bytes part : parts) {
    gather.push_back({{0}, std::vector<Bytes>(4, part), parts});
    scatter.push_back({{0}, parts, std::vector<Bytes>(4, part)});
  }
  const TransferCost all = uneven(fabric, devices(4), CollectiveKind::AllGather, gather);
  EXPECT_EQ(on(fabric, all, "node0.gpu0.nvlink_up"), 8_MiB);  // nothing to rank 1, which has none of its own
  EXPECT_EQ(on(fabric, all, "node0.gpu1.nvlink_up"), 3_MiB);
  EXPECT_EQ(on(fabric, all, "node0.gpu3.nvlink_down"), 6_MiB);
  EXPECT_EQ(all.latency, 3 * nvlink_step);
  const TransferCost sum = uneven(fabric, devices(4), CollectiveKind::ReduceScatter, scatter);
  EXPECT_EQ(on(fabric, sum, "node0.gpu2.nvlink_up"), 3_MiB);  // its own sum ends there
  EXPECT_EQ(on(fabric, sum, "node0.gpu0.nvlink_down"), 6_MiB);
}

TEST(Copy, GoesOverTheDevicesLinkToItsHostAndTheHost) {
  const Cluster cluster = hgx();
  const Fabric fabric = build_fabric(cluster, 16);
  const TransferCost out = copy_cost(fabric, 9, MemorySpace::Device, MemorySpace::Pinned, 63_MiB);
  EXPECT_EQ(out.latency, cluster.host.latency);
  EXPECT_EQ(on(fabric, out, "node1.gpu1.host_up"), 63_MiB);
  EXPECT_EQ(on(fabric, out, "node1.host_bridge"), 63_MiB);
  EXPECT_EQ(out.loads.size(), 2u);
  const TransferCost in = copy_cost(fabric, 9, MemorySpace::Pageable, MemorySpace::Device, 63_MiB);
  EXPECT_EQ(on(fabric, in, "node1.gpu1.host_down"), 63_MiB);
  EXPECT_EQ(
      copy_cost(fabric, 9, MemorySpace::Device, MemorySpace::Pinned, 63_MiB, CollectiveCostModel::AlphaBeta).latency,
      alone(out, fabric));
}

}  // namespace
}  // namespace tidemark::tests::collective_test
