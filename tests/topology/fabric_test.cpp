#include "topology/fabric.hpp"

#include <array>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/topology/test_clusters.hpp"
#include "topology/fabric_graph.hpp"

namespace tidemark::tests::fabric_test {
namespace {

using namespace literals;

/// The links of a route, one per line, then its latency in ns.
std::string text(const Fabric& fabric, const Route& way) {
  std::string out;
  for (const LinkShare& share : way.shares) {
    out += link_name(fabric, share.link);
    if (share.of > 1) out += " " + std::to_string(share.last - share.first) + "/" + std::to_string(share.of);
    out += "\n";
  }
  return out + std::to_string(way.latency / 1_ns) + " ns";
}
std::string text(const Fabric& fabric, std::int32_t from, std::int32_t to) {
  return text(fabric, route(fabric, from, to));
}

TEST(Fabric, InsideANodeAnNvSwitchIsTwoLinksAway) {
  EXPECT_EQ(text(build_fabric(hgx(), 16), 9, 14),
            "node1.gpu1.nvlink_up\n"
            "node1.gpu6.nvlink_down\n"
            "600 ns");
  EXPECT_EQ(text(build_fabric(hgx(), 16), 3, 3), "0 ns");
}

// NCCL_P2P_DISABLE, or a driver that gives no access.
TEST(Fabric, DevicesThatDoNotReachEachOtherGoByTheirHost) {
  const std::string by_host =
      "node1.gpu1.host_up\n"
      "node1.host_bridge\n"
      "node1.gpu6.host_down\n";
  NcclSettings off;
  off.peer_access = PeerAccess::Nowhere;
  EXPECT_TRUE(text(build_fabric(hgx(), 16, fabric_options(off)), 9, 14).starts_with(by_host));
  Cluster refused = hgx();
  refused.nccl.peer_access = PeerAccess::Nowhere;
  EXPECT_TRUE(text(build_fabric(refused, 16), 9, 14).starts_with(by_host));
  NcclSettings over_nvlink;
  over_nvlink.peer_access = PeerAccess::NvLink;
  EXPECT_FALSE(text(build_fabric(hgx(), 16, fabric_options(over_nvlink)), 9, 14).starts_with(by_host));
}

TEST(Fabric, BetweenNodesEveryDeviceUsesItsOwnNic) {
  EXPECT_EQ(text(build_fabric(hgx(), 16), 1, 14),
            "node0.gpu1.host_up\n"
            "node0.nic1.up\n"
            "node1.nic6.down\n"
            "node1.gpu6.host_down\n"
            "2700 ns");
}

TEST(Fabric, DevicesShareTheNicsOfTheirNodeEvenly) {
  Cluster cluster = hgx();
  cluster.node.nics = 4;
  EXPECT_EQ(text(build_fabric(cluster, 16), 5, 8),
            "node0.gpu5.host_up\n"
            "node0.nic2.up\n"
            "node1.nic0.down\n"
            "node1.gpu0.host_down\n"
            "2700 ns");
  // Two NICs for each device count as one that is twice as fast.
  cluster.node.nics = 16;
  const Fabric fabric = build_fabric(cluster, 16);
  EXPECT_EQ(fabric.nic_slots, 8);
  EXPECT_EQ(fabric[route(fabric, 5, 8).shares[1].link].capacity, 100_GBps);
}

TEST(Fabric, PcieGoesThroughTheHostBridge) {
  EXPECT_EQ(text(build_fabric(workstation(), 8), 0, 3),
            "node0.gpu0.host_up\n"
            "node0.host_bridge\n"
            "node0.gpu3.host_down\n"
            "1000 ns");
  // Without GPUDirect RDMA so does what leaves the node.
  EXPECT_EQ(text(build_fabric(workstation(), 8), 0, 7),
            "node0.gpu0.host_up\n"
            "node0.host_bridge\n"
            "node0.nic0.up\n"
            "node1.nic0.down\n"
            "node1.host_bridge\n"
            "node1.gpu3.host_down\n"
            "2700 ns");
}

TEST(Fabric, BridgesJoinPairsAndTheHostJoinsTheRest) {
  const Fabric fabric = build_fabric(bridged_workstation(), 4);
  EXPECT_EQ(text(fabric, 2, 3), "node0.gpu2.nvlink_to_gpu3\n600 ns");
  EXPECT_EQ(text(fabric, 3, 2), "node0.gpu3.nvlink_to_gpu2\n600 ns");
  EXPECT_EQ(text(fabric, 1, 2),
            "node0.gpu1.host_up\n"
            "node0.host_bridge\n"
            "node0.gpu2.host_down\n"
            "1000 ns");
}

TEST(Fabric, AnNvlinkGroupSharesOutADevicesLinks) {
  Cluster cluster = bridged_workstation();
  cluster.node.nvlink_group = 4;
  cluster.node.bandwidth = 300_GBps;
  const Fabric fabric = build_fabric(cluster, 4);
  EXPECT_EQ(text(fabric, 0, 3), "node0.gpu0.nvlink_to_gpu3\n600 ns");
  EXPECT_EQ(fabric[route(fabric, 2, 1).shares[0].link].capacity, 100_GBps);
}

TEST(Fabric, ALeafTakesWhatItsNicsBringOverTheOversubscription) {
  const Fabric fabric = build_fabric(leaf_spine(4, one * 2), 128);
  EXPECT_EQ(fabric.leaves, 4);
  EXPECT_EQ(text(fabric, 0, 31),
            "node0.gpu0.host_up\n"
            "node0.nic0.up\n"
            "node3.nic7.down\n"
            "node3.gpu7.host_down\n"
            "2700 ns");
  EXPECT_EQ(text(fabric, 0, 127),
            "node0.gpu0.host_up\n"
            "node0.nic0.up\n"
            "leaf0.up\n"
            "leaf3.down\n"
            "node15.nic7.down\n"
            "node15.gpu7.host_down\n"
            "4400 ns");
  // 4 nodes x 8 NICs x 50 GB/s / 2
  EXPECT_EQ(fabric[route(fabric, 0, 127).shares[2].link].capacity, 800_GBps);
}

TEST(Fabric, OnRailsTheSamePlaceOfSeveralNodesStaysOnOneLeaf) {
  const Fabric fabric = build_fabric(rails(4), 128);
  EXPECT_EQ(fabric.leaves, 32);
  EXPECT_EQ(text(fabric, 3, 27),
            "node0.gpu3.host_up\n"
            "node0.nic3.up\n"
            "node3.nic3.down\n"
            "node3.gpu3.host_down\n"
            "2700 ns");
  EXPECT_EQ(text(fabric, 3, 28),
            "node0.gpu3.host_up\n"
            "node0.nic3.up\n"
            "leaf3.up\n"
            "leaf4.down\n"
            "node3.nic4.down\n"
            "node3.gpu4.host_down\n"
            "4400 ns");
  // 4 nodes x 1 NIC x 50 GB/s
  EXPECT_EQ(fabric[route(fabric, 3, 28).shares[2].link].capacity, 200_GBps);
}

TEST(Fabric, TrafficSpreadsEvenlyOverSpines) {
  const Fabric fabric = build_fabric(leaf_spine(1), 16, {.spines = 3});
  EXPECT_EQ(text(fabric, 0, 8),
            "node0.gpu0.host_up\n"
            "node0.nic0.up\n"
            "leaf0.spine0.up 1/3\n"
            "leaf0.spine1.up 1/3\n"
            "leaf0.spine2.up 1/3\n"
            "leaf1.spine0.down 1/3\n"
            "leaf1.spine1.down 1/3\n"
            "leaf1.spine2.down 1/3\n"
            "node1.nic0.down\n"
            "node1.gpu0.host_down\n"
            "4400 ns");
  std::vector<std::int64_t> bytes;
  for (const LinkLoad& load : loads(route(fabric, 0, 8), 100_B)) bytes.push_back(load.bytes.count());
  EXPECT_EQ(bytes, (std::vector<std::int64_t>{100, 100, 33, 33, 34, 33, 33, 34, 100, 100}));
}

TEST(Fabric, EfficiencyScalesEveryLink) {
  Cluster cluster = rails(2, one * 4);
  const Fabric peak = build_fabric(cluster, 64);
  cluster.device.efficiency.communication = Ratio{750'000};
  const Fabric usable = build_fabric(cluster, 64);
  ASSERT_EQ(peak.links.size(), usable.links.size());
  for (std::size_t i = 0; i < peak.links.size(); ++i)
    EXPECT_EQ(usable.links[i].capacity.count() * 4, peak.links[i].capacity.count() * 3);
  EXPECT_EQ(capacities(usable).size(), usable.links.size());
}

TEST(Fabric, OneNodeHasNoNetwork) {
  const Fabric fabric = build_fabric(rails(32), 8);
  for (const Link& link : fabric.links) EXPECT_NE(link.type, LinkType::NicUp);
  EXPECT_EQ(fabric.links.size(), 8U * 4 + 1);
}

/// What searching the graph finds, as shares of the same form.
void expect_found_by_search(const Fabric& fabric, std::int32_t from, std::int32_t to) {
  const Route built = route(fabric, from, to);
  const Route searched = searched_route(fabric, from, to);
  EXPECT_EQ(built.latency, searched.latency) << from << " -> " << to;
  ASSERT_EQ(built.shares.size(), searched.shares.size()) << from << " -> " << to;
  for (const LinkShare& share : built.shares) {
    bool found = false;
    for (const LinkShare& other : searched.shares)
      found = found || (other.link == share.link &&
                        (share.last - share.first) * other.of == (other.last - other.first) * share.of);
    EXPECT_TRUE(found) << link_name(fabric, share.link);
  }
}

TEST(Fabric, WhatGoesToAnotherRailLeavesByTheDeviceThatSitsThere) {
  const Fabric fabric = build_fabric(rails(4), 32);
  const auto all = [](std::int32_t) { return true; };
  EXPECT_EQ(exit_of(fabric, 3, 28, all), 4);
  Route way;
  route(fabric, 3, 4, 28, way);
  EXPECT_EQ(text(fabric, way),
            "node0.gpu3.nvlink_up\n"
            "node0.gpu4.nvlink_down\n"
            "node0.gpu4.host_up\n"
            "node0.nic4.up\n"
            "node3.nic4.down\n"
            "node3.gpu4.host_down\n"
            "3300 ns");
  EXPECT_EQ(exit_of(fabric, 3, 27, all), 3);                                        // its own rail
  EXPECT_EQ(exit_of(fabric, 3, 4, all), 3);                                         // its own node
  EXPECT_EQ(exit_of(fabric, 3, 28, [](std::int32_t d) { return d % 8 == 3; }), 3);  // nobody there to forward
  EXPECT_EQ(exit_of(build_fabric(hgx(), 32), 13, 31, all), 15);                     // no rails: the same
  EXPECT_EQ(exit_of(build_fabric(rails(4), 32, {.pxn = Pxn::Never}), 3, 28, all), 3);
  EXPECT_EQ(exit_of(build_fabric(workstation(), 8), 0, 7, all), 0);
  Cluster by_host = rails(4);
  by_host.node.gpu_direct_rdma = false;
  EXPECT_EQ(exit_of(build_fabric(by_host, 32), 3, 28, all), 3);
}

TEST(Fabric, OfDevicesThatShareANicTheFirstMemberForwards) {
  Cluster cluster = rails(4);
  cluster.node.nics = 4;
  const Fabric fabric = build_fabric(cluster, 32);
  const auto all = [](std::int32_t) { return true; };
  EXPECT_EQ(exit_of(fabric, 0, 29, all), 4);
  EXPECT_EQ(exit_of(fabric, 13, 29, all), 12);  // even what goes to its own place
  EXPECT_EQ(exit_of(fabric, 0, 29, [](std::int32_t d) { return d != 4; }), 5);
  EXPECT_EQ(exit_of(fabric, 0, 29, [](std::int32_t d) { return d != 5; }), 0);  // nobody at the receiver's place
  const Fabric as_needed = build_fabric(cluster, 32, {.pxn = Pxn::OverOtherNics});
  EXPECT_EQ(exit_of(as_needed, 13, 29, all), 13);
  EXPECT_EQ(exit_of(as_needed, 8, 29, all), 12);
  // Only over NVLink.
  cluster.node.link = NodeLink::NvLink;
  const Fabric bridged = build_fabric(cluster, 32);
  EXPECT_EQ(exit_of(bridged, 13, 29, all), 12);
  EXPECT_EQ(exit_of(bridged, 8, 29, all), 8);
}

TEST(Fabric, RoutesAreTheEqualCostShortestPathsOfTheGraph) {
  std::mt19937 random(5);
  for (const Cluster& cluster : {hgx(), leaf_spine(2), rails(2), workstation(), bridged_workstation()}) {
    for (const std::int32_t spines : {1, 4}) {
      const Fabric fabric = build_fabric(cluster, 5 * cluster.node.devices, {.spines = spines});
      for (int i = 0; i < 40; ++i) {
        const auto from = static_cast<std::int32_t>(random()) & 0x7fffffff;
        const auto to = static_cast<std::int32_t>(random()) & 0x7fffffff;
        if (from % fabric.devices != to % fabric.devices)
          expect_found_by_search(fabric, from % fabric.devices, to % fabric.devices);
      }
    }
  }
}

TEST(Fabric, RoutesSoManyNodesOnTakeLinksAsFarOn) {
  for (const Cluster& cluster : {hgx(), leaf_spine(2), rails(2), workstation(), bridged_workstation()}) {
    const Fabric fabric = build_fabric(cluster, 12 * cluster.node.devices, {.spines = 3});
    const std::int32_t nodes = 4;  // whole leaves
    const std::array<std::int32_t, link_types> shifts = link_id_strides(fabric, nodes);
    for (std::int32_t from = 0; from < 8 * cluster.node.devices; ++from) {
      for (std::int32_t to = 0; to < 8 * cluster.node.devices; to += 3) {
        const std::int32_t on = nodes * cluster.node.devices;
        Route way = route(fabric, from, to);
        for (LinkShare& share : way.shares)
          share.link.value += shifts[static_cast<std::size_t>(fabric[share.link].type)];
        EXPECT_EQ(way, route(fabric, from + on, to + on));
      }
    }
  }
}

TEST(Fabric, BisectionIsWhatTheNarrowestCutTakes) {
  // One node: four devices send over their NVLinks, and over the host's bridge, which is one for both directions.
  EXPECT_EQ(bisection_bandwidth(build_fabric(hgx(), 8)), (4 * 400_GBps) + 256_GBps);
  // Two nodes of eight NICs each way.
  EXPECT_EQ(bisection_bandwidth(build_fabric(hgx(), 16)), 8 * 50_GBps);
  // Four leaves of two nodes: what two leaves' uplinks take, at 1:1 and 4:1.
  EXPECT_EQ(bisection_bandwidth(build_fabric(leaf_spine(2), 64)), 2 * 16 * 50_GBps);
  EXPECT_EQ(bisection_bandwidth(build_fabric(leaf_spine(2, one * 4), 64)), 2 * 4 * 50_GBps);
  EXPECT_EQ(bisection_bandwidth(build_fabric(leaf_spine(2, one * 4), 64, {.spines = 4})), 2 * 4 * 50_GBps);
  EXPECT_EQ(bisection_bandwidth(build_fabric(workstation(), 4)), 64_GBps);
  EXPECT_EQ(bisection_bandwidth(build_fabric(hgx(), 1)), 0_GBps);
}

TEST(Fabric, LinkUsesPutTheBusiestFirst) {
  const Fabric fabric = build_fabric(workstation(), 4);
  const TransferCost a{{}, loads(route(fabric, 0, 1), 64000_B)};
  const TransferCost b{{}, loads(route(fabric, 2, 1), 32000_B)};
  const std::vector<LinkUse> uses = link_uses(fabric, std::vector{a, b});
  ASSERT_EQ(uses.size(), 4U);
  EXPECT_EQ(link_name(fabric, uses[0].link), "node0.gpu1.host_down");
  EXPECT_EQ(uses[0].bytes, 96000_B);
  EXPECT_EQ(uses[0].busy, 3_us);
  EXPECT_EQ(link_name(fabric, uses[1].link), "node0.gpu0.host_up");
  EXPECT_EQ(link_name(fabric, uses[2].link), "node0.host_bridge");
  EXPECT_EQ(uses[2].busy, 1500_ns);
}

TEST(Fabric, SixteenThousandDevicesAreBuiltAndRouted) {
  const Fabric fabric = build_fabric(rails(32), 16384);
  std::int64_t hops = 0;
  for (std::int32_t d = 0; d < 16384; ++d) hops += static_cast<std::int64_t>(route(fabric, d, 16383 - d).shares.size());
  EXPECT_EQ(fabric.nodes, 2048);
  EXPECT_EQ(fabric.leaves, 64 * 8);
  EXPECT_EQ(hops, 16384 * 6);
}

}  // namespace
}  // namespace tidemark::tests::fabric_test
