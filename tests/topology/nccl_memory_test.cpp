#include "topology/nccl_memory.hpp"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tidemark {
namespace {

using namespace literals;

Device device(std::int32_t compute_capability) {
  return {
      .name = "a device", .compute_capability = compute_capability, .capacity = 80_GiB, .context = {}, .modules = {}};
}
const Device a100 = device(80), h100 = device(90), b200 = device(100);
const Node hgx{.devices = 8, .link = NodeLink::NvSwitch, .nics = 8, .gpu_direct_rdma = true};

Node linked(NodeLink link) {
  Node node = hgx;
  node.link = link;
  return node;
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
  return use;
}

// "low central high" in MiB
std::string mib(const Device& on, const CommunicatorUse& use, const Node& node = hgx) {
  const Estimate e = communicator_memory(on, node, use);
  return fmt::format("{} {} {}", e.low / 1_MiB, e.bytes / 1_MiB, e.high / 1_MiB);
}

// Channels of 8 H100: 24 for collectives, 16 for NVLink SHARP, 32 for messages.
// fixed 6 x 32 + 2 x 16 + 4 = 228, ring 12 x 24 = 288, NVLS 16 x 2 x 8 + 2 = 258, tree up to 12 x 24 = 288.
TEST(NcclMemory, TensorParallelismOnEightH100) {
  EXPECT_EQ(mib(h100, sharding(inside_a_node(8))), "516 774 1062");
  EXPECT_EQ(mib(h100, reducing(inside_a_node(8))), "516 804 1062");
  EXPECT_EQ(mib(h100, reducing(sharding(inside_a_node(8)))), "516 1062 1062");
}

TEST(NcclMemory, EightA100HaveNoNvlinkSharp) {
  EXPECT_EQ(mib(a100, sharding(inside_a_node(8))), "484 484 772");
  EXPECT_EQ(mib(a100, reducing(inside_a_node(8))), "484 772 772");
}

TEST(NcclMemory, ATreeOfTwoUsesTheRingsConnections) {
  EXPECT_EQ(mib(h100, reducing(sharding(inside_a_node(2)))), "516 582 582");
  EXPECT_EQ(mib(h100, reducing(inside_a_node(2))), "516 516 582");
}

TEST(NcclMemory, BlackwellsSwitchTakesMore) {
  // 24 NVLS channels: 24 x 2 x 8 + 2 = 386, and 48 of the fixed part
  EXPECT_EQ(mib(b200, sharding(inside_a_node(8))), "532 918 1206");
}

TEST(NcclMemory, MessagesInsideANode) {
  // 12 MiB x 32 channels for each neighbour; NVLink SHARP has no part in them, so the fixed part is 196.
  EXPECT_EQ(mib(h100, messaging(inside_a_node(2), 1, 0)), fmt::format("{0} {0} {0}", 384 + 196));
  EXPECT_EQ(mib(h100, messaging(inside_a_node(4), 2, 0)), fmt::format("{0} {0} {0}", 768 + 196));
}

TEST(NcclMemory, MessagesBetweenNodesShareTheirBuffers) {
  // 4 channels: fixed 28, and 16 slots of 128 KiB for each direction
  EXPECT_EQ(communicator_memory(h100, hgx, messaging(one_per_node(4), 0, 1)).bytes, 44_MiB);
  EXPECT_EQ(communicator_memory(h100, hgx, messaging(one_per_node(4), 0, 2)).bytes, 44_MiB);
  Node through_host = hgx;
  through_host.gpu_direct_rdma = false;
  EXPECT_EQ(communicator_memory(h100, through_host, messaging(one_per_node(4), 0, 2)).bytes, 28_MiB);
}

TEST(NcclMemory, DataParallelismWithOneRankANode) {
  const Estimate shards = communicator_memory(h100, hgx, sharding(one_per_node(8)));
  EXPECT_EQ(shards.bytes, 28_MiB + 80_MiB);  // 4 channels
  const Estimate reduces = communicator_memory(h100, hgx, reducing(one_per_node(8)));
  EXPECT_EQ(reduces.bytes, 28_MiB + 80_MiB + 160_MiB);
  // 16 channels: fixed 100, PAT with the ring 16 x 20 x (2 x 6 - 1) = 3520, at least
  EXPECT_GE(communicator_memory(h100, hgx, sharding(one_per_node(64))).high, 3620_MiB);
  EXPECT_EQ(communicator_memory(h100, hgx, reducing(one_per_node(8))).low, 2 * 20_MiB + 16_MiB);  // 2 channels
}

TEST(NcclMemory, WithoutDirectRdmaTheNetworkNeedsOnlyHostMemory) {
  Node through_host = hgx;
  through_host.gpu_direct_rdma = false;
  EXPECT_EQ(communicator_memory(h100, through_host, reducing(one_per_node(8))).bytes, 28_MiB);
}

TEST(NcclMemory, ACommunicatorThatOnlyExistsTakesItsFixedPart) {
  EXPECT_EQ(communicator_memory(a100, hgx, inside_a_node(8)).bytes, 196_MiB);
  EXPECT_EQ(communicator_memory(h100, hgx, one_per_node(8)).bytes, 28_MiB);
}

TEST(NcclMemory, BoundsAreInOrderWhateverTheUse) {
  for (const Device& on : {a100, h100, b200, device(120)})
    for (const NodeLink link : {NodeLink::Pcie, NodeLink::NvLink, NodeLink::NvSwitch})
      for (const bool rdma : {false, true})
        for (const std::int32_t nodes : {1, 2, 3, 8, 64})
          for (const std::int32_t local : {1, 2, 3, 8})
            for (const int asked : {0, 1, 2, 3})
              for (const std::int32_t peers : {0, 1, 2}) {
                if (nodes * local < 2) continue;
                Node node = linked(link);
                node.gpu_direct_rdma = rdma;
                const CommunicatorUse use{.ranks = nodes * local,
                                          .local = local,
                                          .nodes = nodes,
                                          .reduces = (asked & 1) != 0,
                                          .shards = (asked & 2) != 0,
                                          .local_peers = local > 1 ? peers : 0,
                                          .remote_peers = nodes > 1 ? peers : 0};
                const Estimate e = communicator_memory(on, node, use);
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
      const Bytes idle = communicator_memory(h100, hgx, use).bytes;
      const Bytes shards = communicator_memory(h100, hgx, sharding(use)).bytes;
      const Bytes both = communicator_memory(h100, hgx, sharding(reducing(use))).bytes;
      EXPECT_LT(idle, shards);
      EXPECT_LE(shards, both);
    }
}

TEST(NcclMemory, KernelsAreThoseOfTheArchitecture) {
  EXPECT_EQ(nccl_kernel_memory(a100).high, 48_MiB);
  EXPECT_EQ(nccl_kernel_memory(h100).high, 101_MiB);
  EXPECT_EQ(nccl_kernel_memory(b200).high, 129_MiB);
  EXPECT_EQ(nccl_kernel_memory(device(120)).high, 114_MiB);
  for (const Device& on : {a100, h100, b200}) {
    EXPECT_LT(nccl_kernel_memory(on).low, nccl_kernel_memory(on).bytes);
    EXPECT_LT(nccl_kernel_memory(on).bytes, nccl_kernel_memory(on).high);
  }
}

}  // namespace
}  // namespace tidemark
