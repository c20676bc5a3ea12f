#include "topology/nccl_memory.hpp"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::nccl_memory_test {
namespace {

using namespace literals;

Cluster hgx(std::int32_t compute_capability, Bandwidth nvlink, Bandwidth nic = Bandwidth{50'000'000'000}) {
  Cluster made;
  made.device.compute_capability = compute_capability;
  made.node.bandwidth = nvlink;
  made.node.nic_bandwidth = nic;
  if (compute_capability < 90) made.host.bandwidth = Bandwidth{31'500'000'000};
  return made;
}
const Cluster a100 = hgx(80, Bandwidth{300'000'000'000}, Bandwidth{25'000'000'000});
const Cluster h100 = hgx(90, Bandwidth{450'000'000'000});
const Cluster b200 = hgx(100, Bandwidth{900'000'000'000});

Cluster linked(NodeLink link) {
  Cluster made = hgx(86, Bandwidth{56'250'000'000}, Bandwidth{3'125'000'000});
  made.node.link = link;
  made.node.devices = 4;
  made.node.nics = 1;
  return made;
}

NcclSettings release(std::int32_t number) {
  NcclSettings settings;
  settings.release = number;
  return settings;
}

CommunicatorUse inside_a_node(std::int32_t ranks) { return {.ranks = ranks, .local = ranks, .nodes = 1}; }
CommunicatorUse one_per_node(std::int32_t nodes) { return {.ranks = nodes, .local = 1, .nodes = nodes}; }
CommunicatorUse reducing(CommunicatorUse use) {
  use.reduces = true;
  return use;
}
CommunicatorUse sharding(CommunicatorUse use) {
  use.shards = true;
  return use;
}
CommunicatorUse messaging(CommunicatorUse use, std::int32_t local_peers, std::int32_t remote_peers) {
  use.local_peers = local_peers;
  use.remote_peers = remote_peers;
  use.senders = remote_peers > 0 ? 1 : 0;
  return use;
}

// "low central high" in MiB
std::string mib(const Cluster& on, const CommunicatorUse& use, const NcclSettings& settings = {}) {
  const Estimate e = communicator_memory(on, settings, use);
  return fmt::format("{} {} {}", e.low / 1_MiB, e.bytes / 1_MiB, e.high / 1_MiB);
}

// "collective nvls p2p per-peer"
std::string channels(const Cluster& on, const CommunicatorUse& use, const NcclSettings& settings = {}) {
  const NcclChannels c = nccl_channels(on, settings, use);
  return fmt::format("{} {} {} {}", c.collective, c.nvls, c.p2p, c.per_peer);
}

// ---- channels -----------------------------------------------------------------------------------------------------

// "24 coll channels, 16 nvls channels, 32 p2p channels" in logs of eight H100; 24 and 32 in those of eight A100.
TEST(NcclChannels, AreThoseOfLogsBehindNvSwitch) {
  EXPECT_EQ(channels(a100, inside_a_node(8)), "24 0 32 32");
  EXPECT_EQ(channels(h100, inside_a_node(8)), "24 16 32 32");
  EXPECT_EQ(channels(h100, inside_a_node(2)), "24 16 32 32");
  EXPECT_EQ(channels(b200, inside_a_node(8)), "32 24 32 32");
  EXPECT_EQ(channels(b200, inside_a_node(8), release(226)), "32 32 32 32");  // the smaller number is 2.27's
  EXPECT_EQ(channels(b200, inside_a_node(8), release(224)), "32 16 32 32");
}

// "16 coll channels, 16 collnet channels, 16 nvls channels, 16 p2p channels, 2 p2p channels per peer" in logs of two
// nodes.
TEST(NcclChannels, OfWholeNodesAreThoseOfLogsToo) {
  const auto bounds = [](const Cluster& on, const CommunicatorUse& use) {
    return fmt::format("{} {}", nccl_channels(on, {}, use, Bound::Low).collective,
                       nccl_channels(on, {}, use, Bound::High).collective);
  };
  EXPECT_EQ(bounds(h100, {.ranks = 16, .local = 8, .nodes = 2}), "16 16");
  EXPECT_EQ(bounds(h100, {.ranks = 16, .local = 4, .nodes = 4}), "8 32");  // no logs
  EXPECT_EQ(bounds(b200, {.ranks = 16, .local = 8, .nodes = 2}), "8 32");
}

TEST(NcclChannels, OneRemoteRankLowersThoseToEveryPeer) {
  EXPECT_EQ(channels(h100, {.ranks = 16, .local = 8, .nodes = 2}), "16 16 16 2");
  EXPECT_EQ(channels(h100, {.ranks = 64, .local = 8, .nodes = 8}), "16 16 16 1");
  EXPECT_EQ(channels(a100, {.ranks = 16, .local = 8, .nodes = 2}), "16 0 16 2");
}

TEST(NcclChannels, OneRankANodeHasAsManyAsItsNicIsFast) {
  EXPECT_EQ(channels(h100, one_per_node(4)), "4 0 4 2");
  EXPECT_EQ(channels(a100, one_per_node(4)), "2 0 2 2");
  EXPECT_EQ(channels(h100, one_per_node(64)), "4 0 4 1");
}

TEST(NcclChannels, WorkstationsHaveFew) {
  EXPECT_EQ(channels(linked(NodeLink::NvLink), inside_a_node(2)), "4 0 4 4");  // four links
  EXPECT_EQ(channels(linked(NodeLink::NvLink), inside_a_node(4)), "2 0 2 2");  // between pairs, by the host
  EXPECT_EQ(channels(linked(NodeLink::Pcie), inside_a_node(4)), "2 0 2 2");
}

TEST(NcclChannels, ALoneRankOpensAllThereAre) {
  EXPECT_EQ(channels(h100, inside_a_node(1)), "64 0 64 64");
  EXPECT_EQ(channels(h100, inside_a_node(1), release(224)), "32 0 32 32");
}

TEST(NcclChannels, VariablesLimitThem) {
  NcclSettings settings;
  settings.channels.max_channels = 8;
  EXPECT_EQ(channels(h100, inside_a_node(8), settings), "8 16 8 8");
  settings = {};
  settings.channels.max_ctas = 4;
  EXPECT_EQ(channels(h100, inside_a_node(8), settings), "4 4 4 4");
  settings = {};
  settings.channels.min_ctas = 32;
  EXPECT_EQ(channels(h100, inside_a_node(8), settings), "32 32 32 32");
  settings = {};
  settings.channels.max_p2p_channels = 2;
  settings.channels.nvls_channels = 8;
  EXPECT_EQ(channels(h100, inside_a_node(8), settings), "24 8 2 2");
  settings = {};
  settings.channels.channels_per_net_peer = 8;
  EXPECT_EQ(channels(h100, one_per_node(8), settings), "4 0 4 4");
}

// ---- published figures ------------------------------------------------------------------------------------------

// What others measured of communicators, and what formulas give for them with the channels that their logs show.
struct Published {
  std::string name;
  Cluster cluster;
  std::int32_t release = 0;
  CommunicatorUse use;
  Connected connected;
  NcclChannels channels;
  Bytes measured;    ///< what the report says the communicator took
  double tolerance;  ///< of what was measured
};

std::vector<Published> published() {
  const Connected eager{.ring = true, .tree = true, .network_pool = true, .chain = ChainPlace::SendingEnd};
  return {
      // NVIDIA/nccl#964: 544 MB for a communicator of two A100s: 24 x 12 MiB and a pool of 32 x 16 x 512 KiB.
      {"TwoA100", a100, 218, inside_a_node(2), eager, {24, 0, 32, 24}, 544_MiB, 0},
      // The same report: 688 MB with four, 24 x 6 MiB more for the end of a chain that is read from.
      {"FourA100", a100, 218, inside_a_node(4), eager, {24, 0, 32, 24}, 688_MiB, 0},
      // NVIDIA/nccl#864: about 1.6 GB a communicator of eight H100s with 2.18, whose NVLS buffers are 4 MiB each.
      {"EightH100WithNvls",
       h100,
       218,
       inside_a_node(8),
       {.ring = true, .nvls = true, .network_pool = true},
       {24, 16, 32, 32},
       Bytes{1'600'000'000},
       0.04},
  };
}

class PublishedCommunicator : public testing::TestWithParam<Published> {};

TEST_P(PublishedCommunicator, TookWhatTheFormulasGive) {
  const Published& p = GetParam();
  const CommunicatorParts parts = communicator_parts(p.cluster, release(p.release), p.use, p.channels, p.connected);
  const Bytes buffers = parts.total() - parts.fixed;
  EXPECT_NEAR(static_cast<double>(buffers.count()), static_cast<double>(p.measured.count()),
              p.tolerance * static_cast<double>(p.measured.count()));
  EXPECT_LE(parts.fixed, 4_MiB);  // cudaMalloc shares a chunk among small structures
}

INSTANTIATE_TEST_SUITE_P(Figures, PublishedCommunicator, testing::ValuesIn(published()),
                         [](const auto& figure) { return figure.param.name; });

// NVIDIA/nccl#1685: all-to-all among eight H100s, 32 channels a pair, buffers of 10,485,760 and 2,097,152 B; 3.28 GB
// more than before.
TEST(PublishedFigures, AllToAllAmongEightH100) {
  const CommunicatorUse use = messaging(inside_a_node(8), 7, 0);
  const CommunicatorParts parts = communicator_parts(h100, {}, use, nccl_channels(h100, {}, use), {});
  EXPECT_EQ(parts.messages, 7 * 32 * (Bytes{10'485'760} + Bytes{2'097'152}));
  const Bytes all = communicator_memory(h100, {}, use).bytes + nccl_kernel_memory(h100).bytes;
  EXPECT_NEAR(static_cast<double>(all.count()), 3.28e9, 0.08 * 3.28e9);
}

// ---- parts --------------------------------------------------------------------------------------------------------

// Channels of 8 H100: 24 for collectives, 16 for NVLink SHARP, 32 for messages.
// fixed 6 x 32 + 2 x 16 + 6 = 230, ring 12 x 24 = 288, NVLS 16 x 2 x 8 = 256, tree up to 12 x 24 = 288.
TEST(NcclMemory, TensorParallelismOnEightH100) {
  EXPECT_EQ(mib(h100, sharding(inside_a_node(8))), "518 774 774");
  EXPECT_EQ(mib(h100, reducing(inside_a_node(8))), "518 806 1062");
  EXPECT_EQ(mib(h100, reducing(sharding(inside_a_node(8)))), "518 1062 1062");
}

TEST(NcclMemory, EightA100HaveNoNvlinkSharp) {
  EXPECT_EQ(mib(a100, sharding(inside_a_node(8))), "484 484 484");
  EXPECT_EQ(mib(a100, reducing(inside_a_node(8))), "484 772 772");
}

TEST(NcclMemory, ATreeOfTwoUsesTheRingsConnections) {
  EXPECT_EQ(mib(h100, reducing(sharding(inside_a_node(2)))), "518 582 582");
  EXPECT_EQ(mib(h100, reducing(inside_a_node(2))), "518 518 582");
}

TEST(NcclMemory, BlackwellsSwitchTakesMore) {
  // 24 NVLS channels: 24 x 2 x 8 = 384, and 6 x 32 + 2 x 24 + 6 = 246 of structures; a ring of 32 channels 384
  EXPECT_EQ(mib(b200, sharding(inside_a_node(8))), "390 1014 1014");
}

TEST(NcclMemory, MessagesInsideANode) {
  // 12 MiB x 32 channels for each neighbour
  EXPECT_EQ(mib(h100, messaging(inside_a_node(2), 1, 0)), fmt::format("{0} {0} {0}", 384 + 230));
  EXPECT_EQ(mib(h100, messaging(inside_a_node(4), 2, 0)), fmt::format("{0} {0} {0}", 768 + 230));
  EXPECT_EQ(mib(a100, messaging(inside_a_node(4), 2, 0)), fmt::format("{0} {0} {0}", 768 + 196));
}

TEST(NcclMemory, MessagesThroughPairsHaveStructuresForEach) {
  CommunicatorUse middle = messaging(inside_a_node(4), 2, 0);
  middle.pairs = 2;
  EXPECT_EQ(mib(h100, middle), fmt::format("{0} {0} {0}", 2 * (384 + 230)));
  // Two stages: both communicators are with the same peer.
  CommunicatorUse of_two = messaging(inside_a_node(2), 1, 0);
  of_two.pairs = 2;
  EXPECT_EQ(mib(h100, of_two), fmt::format("{0} {0} {0}", 384 + 2 * 230));
}

TEST(NcclMemory, MessagesBetweenNodesShareTheirBuffers) {
  // 4 channels: fixed 28, and 16 slots of 128 KiB for each direction
  EXPECT_EQ(communicator_memory(h100, {}, messaging(one_per_node(4), 0, 1)).bytes, 44_MiB);
  EXPECT_EQ(communicator_memory(h100, {}, messaging(one_per_node(4), 0, 2)).bytes, 44_MiB);
  CommunicatorUse forwarding = messaging(one_per_node(4), 0, 2);
  forwarding.senders = 4;  // 4 channels x 16 x 128 KiB each
  EXPECT_EQ(communicator_memory(h100, {}, forwarding).bytes, 44_MiB + 3 * 8_MiB);
  Cluster through_host = h100;
  through_host.node.gpu_direct_rdma = false;
  EXPECT_EQ(communicator_memory(through_host, {}, messaging(one_per_node(4), 0, 2)).bytes, 28_MiB);
}

TEST(NcclMemory, DataParallelismWithOneRankANode) {
  EXPECT_EQ(communicator_memory(h100, {}, sharding(one_per_node(8))).bytes, 28_MiB + 80_MiB);  // 4 channels
  EXPECT_EQ(communicator_memory(h100, {}, reducing(one_per_node(8))).bytes, 28_MiB + 80_MiB + 160_MiB);
  EXPECT_EQ(communicator_memory(h100, {}, reducing(one_per_node(8))).low, 2 * 20_MiB + 16_MiB);  // 2 channels
}

// Peers at distances of powers of two, both ways: 2 x 3 - 1 for 8 nodes, 2 x 6 - 1 for 64.
TEST(NcclMemory, PatConnectsManyPeers) {
  const NcclChannels four{4, 0, 4, 2};
  const Connected with_pat{.ring = true, .pat = true};
  const auto connections = [&](std::int32_t nodes) {
    const CommunicatorParts p = communicator_parts(h100, {}, one_per_node(nodes), four, with_pat);
    return p.ring + p.pat;
  };
  EXPECT_EQ(connections(8), 4 * 20_MiB * 5);
  EXPECT_EQ(connections(64), 4 * 20_MiB * 11);
  EXPECT_EQ(connections(6), 4 * 20_MiB * 6);
}

TEST(NcclMemory, TreesBetweenNodesHaveTwoNeighboursOnAverage) {
  const NcclChannels sixteen{16, 0, 16, 2};
  const auto tree = [&](std::int32_t neighbours, const CommunicatorUse& use) {
    return communicator_parts(h100, {}, use, sixteen, {.tree = true, .tree_neighbours = neighbours}).tree;
  };
  EXPECT_EQ(tree(2, one_per_node(8)), 16 * 2 * 20_MiB);
  EXPECT_EQ(tree(3, one_per_node(8)), 16 * 3 * 20_MiB);
  // Eight a node: the chain inside, and its share of what leaves the node.
  EXPECT_EQ(tree(2, {.ranks = 32, .local = 8, .nodes = 4}), 16 * 12_MiB + 2 * 2 * 20_MiB);
}

TEST(NcclMemory, WithoutDirectRdmaTheNetworkNeedsOnlyHostMemory) {
  Cluster through_host = h100;
  through_host.node.gpu_direct_rdma = false;
  EXPECT_EQ(communicator_memory(through_host, {}, reducing(one_per_node(8))).bytes, 28_MiB);
  NcclSettings sockets;
  sockets.gpu_direct = false;
  EXPECT_EQ(communicator_memory(h100, sockets, reducing(one_per_node(8))).bytes, 28_MiB);
}

TEST(NcclMemory, ACommunicatorThatOnlyExistsTakesItsStructures) {
  EXPECT_EQ(communicator_memory(a100, {}, inside_a_node(8)).bytes, 196_MiB);
  EXPECT_EQ(communicator_memory(h100, {}, inside_a_node(8)).bytes, 230_MiB);  // NVLS is set up, not connected
  EXPECT_EQ(communicator_memory(h100, {}, one_per_node(8)).bytes, 28_MiB);
  EXPECT_EQ(communicator_memory(h100, {}, inside_a_node(1)).bytes, 388_MiB);  // 64 channels
}

// Every rank has 608 B on every channel: 16,384 ranks need 10 MiB of each.
TEST(NcclMemory, StructuresGrowWithTheNumberOfRanks) {
  const CommunicatorUse huge{.ranks = 16384, .local = 8, .nodes = 2048};
  const CommunicatorParts parts = communicator_parts(a100, {}, huge, {16, 0, 16, 1}, {});
  EXPECT_EQ(parts.fixed, 16 * (10_MiB + 2_MiB + 2_MiB) + 4_MiB);
}

// ---- variables ----------------------------------------------------------------------------------------------------

TEST(NcclMemory, VariablesChangeWhatConnectionsTake) {
  const CommunicatorUse use = sharding(inside_a_node(8));
  const auto ring = [&](const NcclSettings& s) {
    return communicator_parts(h100, s, use, {24, 0, 32, 32}, {.ring = true}).ring / 24;
  };
  EXPECT_EQ(ring({}), 12_MiB);
  NcclSettings s;
  s.simple_buffer = 8_MiB;
  EXPECT_EQ(ring(s), 16_MiB);
  s = {};
  s.simple_buffer = 1_MiB;
  s.ll128_buffer = 1_MiB;
  EXPECT_EQ(ring(s), 2_MiB + 4_MiB);
  s = {};
  s.peer_read = true;
  EXPECT_EQ(ring(s), 6_MiB + 6_MiB);
  s = {};
  s.peer_access = PeerAccess::Nowhere;
  EXPECT_EQ(ring(s), 0_MiB);  // through host memory
  s.shared_memory = false;
  EXPECT_EQ(ring(s), 20_MiB);  // through the network
}

TEST(NcclMemory, VariablesChangeWhatConnects) {
  NcclSettings s;
  s.nvls = false;
  EXPECT_EQ(mib(h100, sharding(inside_a_node(8)), s), "484 484 484");
  s = {};
  s.algorithms = {.ring = true, .tree = false, .nvls = false, .nvls_tree = false, .pat = false};
  EXPECT_EQ(mib(h100, reducing(sharding(inside_a_node(8))), s), "518 518 518");
  s = {};
  s.algorithms.pat = false;
  EXPECT_LT(communicator_memory(h100, s, sharding(one_per_node(64))).high,
            communicator_memory(h100, {}, sharding(one_per_node(64))).high);
}

// Without runtime connection everything is there at once, whatever it is for: ring, tree, NVLS and the pool.
TEST(NcclMemory, EagerCommunicatorsConnectEverything) {
  NcclSettings s;
  s.connect_at_use = false;
  const Estimate idle = communicator_memory(h100, s, inside_a_node(8));
  EXPECT_EQ(idle.bytes, 230_MiB + 288_MiB + 288_MiB + 256_MiB + 256_MiB);
  EXPECT_EQ(idle.low, 230_MiB + 288_MiB + 48_MiB + 256_MiB + 256_MiB);
  EXPECT_EQ(communicator_memory(h100, s, reducing(inside_a_node(8))).bytes, idle.bytes);
  EXPECT_EQ(communicator_memory(h100, release(221), inside_a_node(8)).bytes, idle.bytes);
  // Of several nodes a sending pool of every rank of the node: 16 channels x 16 x 128 KiB.
  NcclSettings own_nic = s;
  own_nic.pxn = Pxn::Never;
  const CommunicatorUse two_nodes{.ranks = 16, .local = 8, .nodes = 2};
  EXPECT_EQ(communicator_memory(h100, s, two_nodes).bytes,
            communicator_memory(h100, own_nic, two_nodes).bytes + 7 * 32_MiB);
  s = {};
  s.virtual_memory = false;  // which takes runtime connection with it, and the rounding of small structures
  EXPECT_EQ(communicator_memory(h100, s, inside_a_node(8)).bytes, idle.bytes - 228_MiB);
}

TEST(NcclMemory, WithoutPeerAccessOverPcieRanksMeetInHostMemory) {
  Cluster geforce = linked(NodeLink::Pcie);
  EXPECT_EQ(mib(geforce, sharding(inside_a_node(4))), "40 40 76");
  geforce.nccl.peer_access = PeerAccess::NvLink;
  EXPECT_EQ(mib(geforce, sharding(inside_a_node(4))), "16 16 28");
  Cluster bridged = linked(NodeLink::NvLink);
  bridged.nccl.peer_access = PeerAccess::NvLink;
  EXPECT_EQ(communicator_memory(bridged, {}, sharding(inside_a_node(2))).bytes, 28_MiB + 48_MiB);
}

// ---- what was measured --------------------------------------------------------------------------------------------

TEST(NcclMemory, WhatWasMeasuredCountsWhereSettingsAreNcclsOwn) {
  Cluster known = h100;
  const Estimate seen{700_MiB, 690_MiB, 710_MiB, "a measurement"};
  known.nccl.communicators.push_back({sharding(inside_a_node(8)), seen});
  EXPECT_EQ(communicator_memory(known, {}, sharding(inside_a_node(8))), seen);
  EXPECT_EQ(communicator_memory(known, {}, sharding(inside_a_node(4))),
            communicator_memory(h100, {}, sharding(inside_a_node(4))));
  NcclSettings s;
  s.channels.max_ctas = 8;
  EXPECT_EQ(communicator_memory(known, s, sharding(inside_a_node(8))),
            communicator_memory(h100, s, sharding(inside_a_node(8))));
  known.nccl.kernels = Estimate{80_MiB, 80_MiB, 80_MiB, "a measurement"};
  EXPECT_EQ(nccl_kernel_memory(known).bytes, 80_MiB);
}

TEST(NcclMemory, ChannelsFromALogHaveNoBounds) {
  Cluster known = b200;
  known.nccl.one_node = NcclChannels{24, 24, 32, 32};
  known.nccl.channels_source = "a log";
  // fixed 246, ring 288
  EXPECT_EQ(communicator_memory(known, {}, sharding(inside_a_node(8))).low, 246_MiB + 288_MiB);
  EXPECT_EQ(communicator_memory(known, {}, sharding(inside_a_node(8))).bytes, 246_MiB + 288_MiB + 384_MiB);
  EXPECT_EQ(channels(known, inside_a_node(8)), "24 24 32 32");
  NcclSettings s;
  s.channels.max_ctas = 8;
  EXPECT_EQ(nccl_channels(known, s, inside_a_node(8)).collective, 8);
}

// graph/tuning.cc of 2.28.9: without SHARP, switches of several nodes work together in all-reduces only, by a tree of
// their own, which little never takes.
TEST(NcclMemory, SwitchesOfSeveralNodesServeLargeAllReducesOnly) {
  const CommunicatorUse of_four_nodes{.ranks = 32, .local = 8, .nodes = 4};
  CommunicatorUse little_reduced = reducing(of_four_nodes);
  little_reduced.reduces_little = true;
  const auto high = [](const CommunicatorUse& use, const NcclSettings& settings = {}) {
    return communicator_memory(h100, settings, use).high;
  };
  // NVLS 16 x 2 x 8 = 256, and its tree 16 x 20 x 3 = 960
  EXPECT_EQ(high(reducing(of_four_nodes)) - high(little_reduced), 256_MiB + 960_MiB);
  EXPECT_EQ(high(sharding(little_reduced)), high(little_reduced));
  EXPECT_LT(high(sharding(of_four_nodes)), high(little_reduced));  // no tree
  NcclSettings s;
  s.protocols.ll = false;
  EXPECT_EQ(high(little_reduced, s), high(reducing(of_four_nodes)));
  // On one node a switch may serve anything.
  CommunicatorUse on_one_node = reducing(inside_a_node(8));
  on_one_node.reduces_little = true;
  EXPECT_EQ(mib(h100, on_one_node), mib(h100, reducing(inside_a_node(8))));
}

// ---- properties ---------------------------------------------------------------------------------------------------

TEST(NcclMemory, BoundsAreInOrderWhateverTheUse) {
  for (const Cluster& on : {a100, h100, b200, linked(NodeLink::Pcie), linked(NodeLink::NvLink)})
    for (const std::int32_t number : {218, 221, 224, 228})
      for (const bool rdma : {false, true})
        for (const std::int32_t nodes : {1, 2, 3, 8, 64})
          for (const std::int32_t local : {1, 2, 3, 8})
            for (const int requested : {0, 1, 2, 3, 5, 7})
              for (const std::int32_t peers : {0, 1, 2}) {
                Cluster cluster = on;
                cluster.node.gpu_direct_rdma = rdma;
                const CommunicatorUse use{.ranks = nodes * local,
                                          .local = local,
                                          .nodes = nodes,
                                          .reduces = (requested & 1) != 0,
                                          .shards = (requested & 2) != 0,
                                          .local_peers = std::min(peers, local - 1),
                                          .remote_peers = nodes > 1 ? peers : 0,
                                          .reduces_little = (requested & 4) != 0};
                const Estimate e = communicator_memory(cluster, release(number), use);
                EXPECT_GT(e.low, 0_B);
                EXPECT_LE(e.low, e.bytes) << e.source;
                EXPECT_LE(e.bytes, e.high) << e.source;
                EXPECT_EQ(e.bytes % 2_MiB, 0_B) << e.source;  // the driver's granularity
                EXPECT_FALSE(e.source.empty());
              }
}

TEST(NcclMemory, MoreUseNeverTakesLess) {
  for (const std::int32_t local : {2, 8})
    for (const CommunicatorUse& use : {inside_a_node(local), one_per_node(local)}) {
      const Bytes idle = communicator_memory(h100, {}, use).bytes;
      const Bytes shards = communicator_memory(h100, {}, sharding(use)).bytes;
      const Bytes both = communicator_memory(h100, {}, sharding(reducing(use))).bytes;
      EXPECT_LT(idle, shards);
      EXPECT_LE(shards, both);
    }
}

TEST(NcclMemory, KernelsAreThoseOfTheArchitecture) {
  EXPECT_EQ(nccl_kernel_memory(a100).high, 48_MiB);
  EXPECT_EQ(nccl_kernel_memory(h100).high, 101_MiB);
  EXPECT_EQ(nccl_kernel_memory(b200).high, 129_MiB);
  EXPECT_EQ(nccl_kernel_memory(hgx(120, Bandwidth{1})).high, 114_MiB);
  for (const Cluster& on : {a100, h100, b200}) {
    EXPECT_LT(nccl_kernel_memory(on).low, nccl_kernel_memory(on).bytes);
    EXPECT_LT(nccl_kernel_memory(on).bytes, nccl_kernel_memory(on).high);
  }
}

// init.cc: a list of work of 1 MiB, and what profilers count.
constexpr Bytes fixed_on_host = 1_MiB + 128_KiB;
constexpr Bytes three_buffers = 512_KiB + 4800_KiB + 4_MiB;

TEST(NcclOnHosts, IsLittleWhereDevicesReachEachOther) {
  const Estimate one = communicator_host_memory(h100, {}, sharding(inside_a_node(8)));
  EXPECT_EQ(one.low, fixed_on_host);
  EXPECT_EQ(one.high, fixed_on_host);
}

TEST(NcclOnHosts, HoldsWhatTheNetworkReadsThere) {
  // A ring of one rank a node: to each neighbour counters, and what is sent by LL.
  const CommunicatorUse ring = sharding(one_per_node(2));
  const std::int64_t channels = nccl_channels(h100, {}, ring, Bound::Low).collective;
  EXPECT_EQ(communicator_host_memory(h100, {}, ring).low, fixed_on_host + channels * (2 * 8_KiB + 512_KiB));
  Cluster without = h100;
  without.node.gpu_direct_rdma = false;
  const std::int64_t all = nccl_channels(without, {}, ring, Bound::Low).collective;
  EXPECT_EQ(communicator_host_memory(without, {}, ring).low, fixed_on_host + all * 2 * (8_KiB + three_buffers));
}

TEST(NcclOnHosts, HoldsAllBuffersOfRanksThatMeetThere) {
  NcclSettings apart;
  apart.peer_access = PeerAccess::Nowhere;
  const CommunicatorUse use = sharding(inside_a_node(8));
  const std::int64_t channels = nccl_channels(h100, apart, use, Bound::Low).collective;
  EXPECT_EQ(communicator_host_memory(h100, apart, use).low, fixed_on_host + channels * (4_KiB + 4_KiB + three_buffers));
}

}  // namespace
}  // namespace tidemark::tests::nccl_memory_test
