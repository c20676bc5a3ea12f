#include <string>

#include <gtest/gtest.h>

#include "scenarios/environment/environment.hpp"
#include "scenarios/formats/input_error.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::nccl_environment_test {
namespace {

using namespace literals;

Environment read(const std::string& text) {
  const TomlTable table = parse_toml(text, "test.toml");
  Problems problems("test.toml");
  Environment found = read_environment(TomlReader(&table, {}, "runtime.environment", problems));
  problems.raise_if_any();
  return found;
}
NcclSettings settings(const std::string& text) { return read(text).nccl; }

std::string problem(const std::string& text) {
  try {
    read(text);
    return "no problem";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(NcclEnvironment, NumbersHaveTheirEffect) {
  const NcclSettings s = settings(R"(
NCCL_BUFFSIZE = 8388608
NCCL_LL_BUFFSIZE = "0x10000"
NCCL_LL128_BUFFSIZE = "02000000"
NCCL_MAX_CTAS = "8"
NCCL_MIN_NCHANNELS = 4
NCCL_MAX_P2P_NCHANNELS = 2
NCCL_NCHANNELS_PER_NET_PEER = 4
NCCL_NVLS_NCHANNELS = 24
NCCL_NVLS_CHUNKSIZE = 65536
NCCL_P2P_NVL_CHUNKSIZE = 262144
)");
  EXPECT_EQ(s.simple_buffer, 8_MiB);
  EXPECT_EQ(s.ll_buffer, 64_KiB);
  EXPECT_EQ(s.ll128_buffer, 512_KiB);  // octal, as strtoll reads it
  EXPECT_EQ(s.channels.max_ctas, 8);
  EXPECT_EQ(s.channels.min_channels, 4);
  EXPECT_EQ(s.channels.max_p2p_channels, 2);
  EXPECT_EQ(s.channels.channels_per_net_peer, 4);
  EXPECT_EQ(s.channels.nvls_channels, 24);
  EXPECT_EQ(s.nvls_chunk, 64_KiB);
  EXPECT_EQ(s.p2p_nvl_chunk, 256_KiB);
  EXPECT_EQ(settings("NCCL_BUFFSIZE = \"\""), NcclSettings{});  // as if unset
}

TEST(NcclEnvironment, SwitchesHaveTheirEffect) {
  EXPECT_FALSE(settings("NCCL_NVLS_ENABLE = 0").nvls);
  EXPECT_TRUE(settings("NCCL_NVLS_ENABLE = 2").nvls);
  EXPECT_EQ(settings("NCCL_P2P_DISABLE = 1").peer_access, PeerAccess::Nowhere);
  EXPECT_EQ(settings("NCCL_P2P_LEVEL = \"LOC\"").peer_access, PeerAccess::Nowhere);
  EXPECT_EQ(settings("NCCL_P2P_LEVEL = \"NVL\"").peer_access, PeerAccess::NvLink);
  EXPECT_EQ(settings("NCCL_P2P_LEVEL = \"PHB\""), NcclSettings{});
  EXPECT_FALSE(settings("NCCL_SHM_DISABLE = 1").shared_memory);
  EXPECT_EQ(settings("NCCL_P2P_READ_ENABLE = 1").peer_read, true);
  EXPECT_EQ(settings("NCCL_CUMEM_ENABLE = 0").virtual_memory, false);
  EXPECT_FALSE(settings("NCCL_RUNTIME_CONNECT = 0").connect_at_use);
  EXPECT_FALSE(settings("NCCL_NET_GDR_LEVEL = \"LOC\"").gpu_direct);
  EXPECT_TRUE(settings("NCCL_NET_GDR_LEVEL = \"PHB\"").gpu_direct);
  EXPECT_FALSE(settings("NCCL_NET_GDR_LEVEL = 0").gpu_direct);
  EXPECT_FALSE(settings("NCCL_NET_GDR_READ = 0").gpu_direct_send);
  EXPECT_FALSE(settings("NCCL_IB_DISABLE = 1").gpu_direct);
  EXPECT_TRUE(settings("NCCL_IB_DISABLE = 1").sockets);
  EXPECT_EQ(settings("NCCL_IB_DISABLE = 0"), NcclSettings{});
  EXPECT_FALSE(settings("NCCL_NET = \"Socket\"").gpu_direct);
  EXPECT_TRUE(settings("NCCL_NET = \"Socket\"").sockets);
  EXPECT_TRUE(settings("NCCL_NET = \"IB\"").gpu_direct);
  EXPECT_EQ(settings("NCCL_PXN_DISABLE = 0").pxn, Pxn::Always);
  EXPECT_EQ(settings("NCCL_PXN_DISABLE = 1").pxn, Pxn::Never);
  EXPECT_EQ(settings("NCCL_P2P_PXN_LEVEL = 1").pxn, Pxn::OverOtherNics);
  EXPECT_EQ(settings("NCCL_PXN_DISABLE = 1\nNCCL_P2P_PXN_LEVEL = 2").pxn, Pxn::Never);
}

TEST(NcclEnvironment, AlgorithmsAreAListOrAllButAList) {
  const NcclAlgorithms ring = settings("NCCL_ALGO = \"Ring\"").algorithms;
  EXPECT_EQ(ring, (NcclAlgorithms{.ring = true, .tree = false, .nvls = false, .nvls_tree = false, .pat = false}));
  const NcclAlgorithms others = settings("NCCL_ALGO = \"^NVLS,NVLSTree\"").algorithms;
  EXPECT_EQ(others, (NcclAlgorithms{.ring = true, .tree = true, .nvls = false, .nvls_tree = false, .pat = true}));
  EXPECT_FALSE(settings("NCCL_ALGO = \"^ring\"\nNCCL_PAT_ENABLE = 0").algorithms.pat);
  EXPECT_EQ(settings("NCCL_ALGO = \"\"").algorithms, NcclAlgorithms{});
  EXPECT_EQ(problem("NCCL_ALGO = \"rings\""),
            "test.toml:1:13: error: NCCL_ALGO = \"rings\" names an algorithm that NCCL does not have\n"
            "  hint: tree, ring, collnetdirect, collnetchain, nvls, nvlstree, pat would do");
  EXPECT_NE(problem("NCCL_ALGO = \"allreduce:tree\""), "no problem");
}

TEST(NcclEnvironment, ProtocolsAreThoseThatCollectivesMayTake) {
  EXPECT_EQ(settings("NCCL_PROTO = \"^LL128\"").protocols, (NcclProtocols{.ll128 = false}));
  EXPECT_EQ(settings("NCCL_PROTO = \"Simple\"").protocols, (NcclProtocols{.ll = false, .ll128 = false}));
  EXPECT_EQ(settings("NCCL_PROTO = \"LL,LL128\"").protocols, (NcclProtocols{.ll128 = true, .simple = false}));
  EXPECT_EQ(settings("NCCL_PROTO = \"\""), NcclSettings{});
  EXPECT_NE(problem("NCCL_PROTO = \"allreduce:LL\""), "no problem");
  EXPECT_EQ(problem("NCCL_PROTO = \"LL256\""),
            "test.toml:1:14: error: NCCL_PROTO = \"LL256\" names a protocol that NCCL does not have\n"
            "  hint: ll, ll128, simple would do");
}

TEST(NcclEnvironment, VariablesThatDoNotMatterPass) {
  EXPECT_EQ(settings("NCCL_DEBUG = \"INFO\"\nNCCL_IB_HCA = \"mlx5\"\nNCCL_SOCKET_IFNAME = \"eth0\""), NcclSettings{});
  EXPECT_EQ(read("NCCL_DEBUG = \"INFO\"").nccl_variables.at("NCCL_DEBUG"), "INFO");
}

TEST(NcclEnvironment, WhatIsNotModelledIsRefused) {
  EXPECT_EQ(problem("NCCL_COLLNET_ENABLE = 1"),
            "test.toml:1:23: error: NCCL_COLLNET_ENABLE = \"1\" is not modelled: SHARP has buffers of its own\n"
            "  hint: leave it out, or set \"0\"");
  EXPECT_EQ(problem("NCCL_COLLNET_ENABLE = 0"), "no problem");
  EXPECT_NE(problem("NCCL_TOPO_FILE = \"/topo.xml\""), "no problem");
}

TEST(NcclEnvironment, BadValuesAndUnknownNamesAreErrors) {
  EXPECT_EQ(problem("NCCL_BUFFSIZE = \"4MB\""),
            "test.toml:1:17: error: NCCL_BUFFSIZE = \"4MB\" is out of range\n  hint: 1024 to 1073741824 would do");
  EXPECT_EQ(problem("NCCL_MAX_CTAS = -1"),
            "test.toml:1:17: error: NCCL_MAX_CTAS = \"-1\" is out of range\n  hint: 1 to 64 would do");
  EXPECT_EQ(problem("NCCL_BUFSIZE = 4194304"),
            "test.toml:1:16: error: \"NCCL_BUFSIZE\" is not a variable of NCCL 2.30 or older that is known here\n"
            "  hint: did you mean NCCL_BUFFSIZE?");
  EXPECT_NE(problem("NCCL_NET_GDR_LEVEL = \"FAR\""), "no problem");
  EXPECT_NE(problem("NCCL_BUFFSIZE = 99999999999999999999"), "no problem");
}

}  // namespace
}  // namespace tidemark::tests::nccl_environment_test
