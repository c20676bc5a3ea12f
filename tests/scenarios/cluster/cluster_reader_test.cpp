#include "scenarios/cluster/cluster_reader.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "tests/namespace.hpp"
#include "topology/collective.hpp"
#include "topology/fabric.hpp"

namespace tidemark::tests::cluster_reader_test {
namespace {

using namespace literals;

constexpr std::string_view complete = R"([device]
name = "NVIDIA Test"
compute_capability = "9.0"
capacity = "79.25 GiB"
multiprocessors = 100
memory_bandwidth = "3.35 TB/s"
[device.peak]
bf16 = "989.4 TFLOP/s"
fp16 = "990 TFLOP/s"
tf32 = "495 TFLOP/s"
fp32 = "67 TFLOP/s"
[device.efficiency]
gemm = 0.75
memory = 0.9
communication = 1
source = "a test"
[device.context]
bytes = "500 MiB"
low = "400 MiB"
high = "600 MiB"
source = "a test"
[device.modules]
bytes = "100 MiB"
low = "20 MiB"
high = "200 MiB"
source = "a test"
[host]
bandwidth = "32 GB/s"
latency = "500 ns"
bridge_bandwidth = "64 GB/s"
launch = "4 us"
[node]
devices = 4
link = "nvlink"
nvlink_group = 2
bandwidth = "56.25 GB/s"
latency = "600 ns"
nics = 1
nic_bandwidth = "100 Gb/s"
[fabric]
kind = "leaf_spine"
rail_optimised = true
nodes_per_leaf = 16
oversubscription = 1.5
latency = "1 us"
gpu_direct_rdma = false
)";

std::string problems(std::string_view text) {
  try {
    parse_cluster(text, "test.toml");
    return "no problem";
  } catch (const InputError& error) {
    return error.what();
  }
}

/// Of the complete file with `old` replaced.
std::string problems(std::string_view old, std::string_view replacement) {
  std::string text(complete);
  return problems(text.replace(text.find(old), old.size(), replacement));
}

TEST(ClusterReader, ConstantsOfTimeMayBeLeftOut) {
  const Cluster usual = parse_cluster(complete, "test.toml");
  EXPECT_EQ(usual.device.kernel_latency, Duration{30'000'000});
  EXPECT_EQ(usual.node.collective_start, Duration{8'400'000});
  EXPECT_EQ(usual.node.collective_step, Duration{2'800'000});
  EXPECT_EQ(usual.device.efficiency.sustained, one);
  std::string text(complete);
  const auto put = [&](std::string_view before, std::string_view line) { text.insert(text.find(before), line); };
  put("gemm = 0.75", "attention = 0.7\nattention_backward = 0.5\nsustained = 0.9\nepilogue = 0\nkernel_error = 0.1\n");
  put("[device.peak]", "kernel_latency = \"3 us\"\n");
  put("[device.efficiency]", "fp64 = \"34 TFLOP/s\"\n");
  put("nics = 1", "collective_start = \"20 us\"\ncollective_step = \"5 us\"\n");
  const Cluster given = parse_cluster(text, "test.toml");
  EXPECT_EQ(usual.device.peak.fp64, OperationRate{});
  EXPECT_EQ(given.device.peak.fp64, OperationRate{34'000'000'000'000});
  EXPECT_EQ(given.device.kernel_latency, Duration{3'000'000});
  EXPECT_EQ(given.device.efficiency.attention, Ratio{700'000});
  EXPECT_EQ(given.device.efficiency.attention_backward, Ratio{500'000});
  EXPECT_EQ(given.device.efficiency.sustained, Ratio{900'000});
  EXPECT_EQ(given.device.efficiency.epilogue, Ratio{});
  EXPECT_EQ(given.device.efficiency.kernel_error, Ratio{100'000});
  EXPECT_EQ(given.node.collective_start, Duration{20'000'000});
  EXPECT_EQ(given.node.collective_step, Duration{5'000'000});
}

TEST(ClusterReader, ReadsEveryKey) {
  Cluster expected;
  expected.name = "test";
  expected.device = {
      "NVIDIA Test",
      90,
      81152_MiB,
      {500_MiB, 400_MiB, 600_MiB, "a test"},
      {100_MiB, 20_MiB, 200_MiB, "a test"},
      100,
      {OperationRate{989'400'000'000'000}, OperationRate{990'000'000'000'000}, OperationRate{495'000'000'000'000},
       OperationRate{67'000'000'000'000}, OperationRate{}},
      3350_GBps,
      30_us,
      {},
      {16_MiB, 0_B, 32_MiB, "between nothing and cuBLAS's default workspace (documentation of cublasSetWorkspace)"}};
  expected.device.efficiency.gemm = Ratio{750'000};
  expected.device.efficiency.memory = Ratio{900'000};
  expected.device.efficiency.communication = one;
  expected.device.efficiency.source = "a test";
  expected.host = {32_GBps, 500_ns, 64_GBps, 4_us, one, 128_GBps, 0_B};
  expected.node = {4, NodeLink::NvLink,          1,        false,   Bandwidth{56'250'000'000}, 600_ns,
                   2, Bandwidth{12'500'000'000}, 8'400_ns, 2'800_ns};
  expected.fabric = {FabricKind::LeafSpine, true, 16, Ratio{1'500'000}, 1_us};
  EXPECT_EQ(parse_cluster(complete, "clusters/test.toml"), expected);
}

TEST(ClusterReader, PowerMayBeLimited) {
  EXPECT_FALSE(parse_cluster(complete, "clusters/test.toml").device.power);
  constexpr std::string_view table =
      "[device.power]\nlimit = \"500 W\"\nsustained_at = \"0.7 kW\"\nexponent = 0.6\nsource = \"a test\"\n";
  std::string text(complete);
  text.insert(text.find("[device.context]"), table);
  const Cluster cluster = parse_cluster(text, "clusters/test.toml");
  EXPECT_EQ(cluster.device.power, (PowerLimit{Power{500}, Power{700}, Ratio{600'000}, "a test"}));
  const std::string too_much = std::string(table).replace(table.find("500"), 3, "701");
  EXPECT_EQ(problems("[device.context]", too_much + "[device.context]"),
            "test.toml:18:9: error: limit is more than the 700 W of sustained_at\n"
            "  hint: sustained_at is the limit under which [device.efficiency] sustained was measured; there is no "
            "data for higher ones");
}

TEST(ClusterReader, MemoryOfTheHostIsAsLargeAndAsFastAsTheFileSays) {
  std::string text(complete);
  text.insert(text.find("[node]"), "memory = \"512 GiB\"\nmemory_bandwidth = \"100 GB/s\"\n");
  const Host host = parse_cluster(text, "clusters/test.toml").host;
  EXPECT_EQ(host.memory, 512_GiB);
  EXPECT_EQ(host.memory_bandwidth, 100_GBps);
  EXPECT_FALSE(host.nvme_read_bandwidth);
  text.insert(text.find("[node]"), "nvme_read_bandwidth = \"40 GB/s\"\nnvme_write_bandwidth = \"20 GB/s\"\n");
  EXPECT_EQ(parse_cluster(text, "clusters/test.toml").host.nvme_read_bandwidth, 40_GBps);
  EXPECT_EQ(parse_cluster(text, "clusters/test.toml").host.nvme_write_bandwidth, 20_GBps);
}

TEST(ClusterReader, ReadsEveryShippedCluster) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TIDEMARK_SOURCE_DIR "/scenarios/clusters")) {
    const Cluster cluster = read_cluster(entry.path());
    names.push_back(cluster.name);
    EXPECT_LT(cluster.device.context.low, cluster.device.context.high) << cluster.name;
    EXPECT_GE(cluster.device.peak.bf16, cluster.device.peak.tf32) << cluster.name;
    EXPECT_GE(cluster.device.peak.tf32, cluster.device.peak.fp32) << cluster.name;
    EXPECT_GE(cluster.device.peak.fp32, cluster.device.peak.fp64) << cluster.name;
    EXPECT_GT(cluster.device.peak.fp64, OperationRate{}) << cluster.name;
    EXPECT_FALSE(cluster.device.efficiency.source.empty()) << cluster.name;
    const Fabric fabric = build_fabric(cluster, 3 * cluster.node.devices);
    EXPECT_GT(alone(message_cost(fabric, 0, fabric.devices - 1, 1_MiB), fabric), 0_ps) << cluster.name;
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"a10-24g",       "a100-pcie-40g",
                                             "a100-pcie-80g", "a100-sxm-40g",
                                             "a100-sxm-80g",  "a10g-24g",
                                             "a30-24g",       "a40-48g",
                                             "b200-sxm-180g", "b300-sxm-288g",
                                             "gb200-nvl72",   "gb300-nvl72",
                                             "gh200-96g",     "h100-nvl-94g",
                                             "h100-pcie-80g", "h100-sxm-80g",
                                             "h20-sxm-96g",   "h200-nvl-141g",
                                             "h200-sxm-141g", "h800-sxm-80g",
                                             "l4-24g",        "l40-48g",
                                             "l40s-48g",      "rtx-3080-10g",
                                             "rtx-3090-24g",  "rtx-3090-24g-nvlink",
                                             "rtx-4090-24g",  "rtx-6000-ada-48g",
                                             "rtx-a6000-48g"}));
}

TEST(ClusterReader, TheShippedHopperAndBlackwell) {
  const Cluster h100 = read_cluster(TIDEMARK_SOURCE_DIR "/scenarios/clusters/h100-sxm-80g.toml");
  EXPECT_EQ(h100.device.compute_capability, 90);
  EXPECT_EQ(h100.device.capacity, 84929347584_B);
  EXPECT_EQ(h100.device.context.bytes, 523_MiB);
  EXPECT_EQ(h100.node, (Node{8, NodeLink::NvSwitch, 8, true, 450_GBps, 600_ns, 2, 50_GBps, 8'400_ns, 2'800_ns}));

  const Cluster b200 = read_cluster(TIDEMARK_SOURCE_DIR "/scenarios/clusters/b200-sxm-180g.toml");
  EXPECT_EQ(b200.device.compute_capability, 100);
  EXPECT_EQ(b200.device.capacity, 182631_MiB);
  EXPECT_EQ(b200.node, (Node{8, NodeLink::NvSwitch, 8, true, 900_GBps, 600_ns, 2, 50_GBps, 31'500_ns, 2'800_ns}));
}

TEST(ClusterReader, SizesCarryAUnit) {
  EXPECT_EQ(problems("\"79.25 GiB\"", "80"),
            "test.toml:4:12: error: capacity takes a text with a unit, not 80\n"
            "  hint: such as \"80 GiB\", \"512 MiB\" or \"8519680 B\"");
  EXPECT_EQ(problems("79.25 GiB", "80"),
            "test.toml:4:12: error: capacity = \"80\" has no unit\n"
            "  hint: such as \"80 GiB\", \"512 MiB\" or \"8519680 B\"");
  EXPECT_EQ(problems("79.25 GiB", "0 B"),
            "test.toml:4:12: error: capacity is zero\n  hint: what cudaMemGetInfo calls total");
  EXPECT_EQ(problems("79.25 GiB", "8388607 TiB"),
            "test.toml:4:12: error: capacity is more than any device has\n  hint: up to 64 TiB would do");
}

TEST(ClusterReader, ASizeThatIsNoWholeNumberOfBytesComesWithOneThatIs) {
  EXPECT_EQ(problems("79.25 GiB", "79.1 GiB"),
            "test.toml:4:12: error: capacity = \"79.1 GiB\" is not a whole number of bytes\n"
            "  hint: such as \"84932978278 B\"");
  EXPECT_EQ(problems("79.25 GiB", "84932978278 B"), "no problem");
}

TEST(ClusterReader, RatesCarryAUnitAndAreInRange) {
  EXPECT_EQ(problems("\"3.35 TB/s\"", "3350"),
            "test.toml:6:20: error: memory_bandwidth takes a text with a unit, not 3350\n"
            "  hint: such as \"450 GB/s\" or \"400 Gb/s\"");
  EXPECT_EQ(problems("3.35 TB/s", "3.35 TB"),
            "test.toml:6:20: error: memory_bandwidth = \"3.35 TB\" has an unknown unit\n"
            "  hint: such as \"450 GB/s\" or \"400 Gb/s\"");
  EXPECT_EQ(problems("3.35 TB/s", "0 B/s"),
            "test.toml:6:20: error: memory_bandwidth = 0 B/s is out of range\n  hint: 1 MB/s to 100 TB/s would do");
  EXPECT_EQ(problems("100 Gb/s", "10 TB/s"),
            "test.toml:39:17: error: nic_bandwidth = 10 TB/s is out of range\n  hint: 1 MB/s to 1 TB/s would do");
  EXPECT_EQ(problems("500 ns", "500"),
            "test.toml:29:11: error: latency = \"500\" has no unit\n  hint: such as \"2 us\" or \"850 ns\"");
  EXPECT_EQ(problems("500 ns", "2 s"), "test.toml:29:11: error: latency is more than 1 s\n  hint: 0 s to 1 s would do");
  EXPECT_EQ(problems("990 TFLOP/s", "990 TFLOPS"),
            "test.toml:9:8: error: fp16 = \"990 TFLOPS\" has an unknown unit\n  hint: such as \"989 TFLOP/s\"");
  EXPECT_EQ(problems("990 TFLOP/s", "0 FLOP/s"),
            "test.toml:9:8: error: fp16 = 0 FLOP/s is out of range\n  hint: 1 MFLOP/s to 1000 PFLOP/s would do");
}

TEST(ClusterReader, EfficienciesAreFractionsAndHaveDefaults) {
  EXPECT_EQ(problems("0.75", "1.5"),
            "test.toml:13:8: error: gemm = 1.5 is out of range\n  hint: 0.000001 to 1 would do");
  EXPECT_EQ(problems("0.75", "nan"),
            "test.toml:13:8: error: gemm = nan is out of range\n  hint: 0.000001 to 1 would do");
  EXPECT_EQ(problems("0.75", "\"75 %\""),
            "test.toml:13:8: error: gemm takes a number, not \"75 %\"\n  hint: 0.000001 to 1 would do");
  EXPECT_EQ(problems("0.75", "0.7500001"),
            "test.toml:13:8: error: gemm = 0.7500001 has more than six decimals\n  hint: such as 0.75");
  EXPECT_EQ(problems("oversubscription = 1.5", "oversubscription = 0.5"),
            "test.toml:44:20: error: oversubscription = 0.5 is out of range\n  hint: 1 to 1000 would do");
  std::string text(complete);
  text.erase(text.find("[device.efficiency]"), text.find("[device.context]") - text.find("[device.efficiency]"));
  EXPECT_EQ(parse_cluster(text, "test.toml").device.efficiency, Efficiency{});
}

TEST(ClusterReader, KeysWithoutMeaningAreRefused) {
  EXPECT_EQ(problems("link = \"nvlink\"", "link = \"nvswitch\""),
            "test.toml:35:16: error: nvlink_group has no meaning with link = \"nvswitch\"\n  hint: leave it out");
  EXPECT_EQ(problems("link = \"nvlink\"", "link = \"pcie\""),
            "test.toml:35:16: error: nvlink_group has no meaning with link = \"pcie\"\n  hint: leave it out\n"
            "test.toml:36:13: error: bandwidth has no meaning with link = \"pcie\"\n  hint: leave it out\n"
            "test.toml:37:11: error: latency has no meaning with link = \"pcie\"\n  hint: leave it out");
  EXPECT_EQ(problems("leaf_spine", "single"),
            "test.toml:42:18: error: rail_optimised has no meaning with kind = \"single\"\n  hint: leave it out\n"
            "test.toml:43:18: error: nodes_per_leaf has no meaning with kind = \"single\"\n  hint: leave it out\n"
            "test.toml:44:20: error: oversubscription has no meaning with kind = \"single\"\n  hint: leave it out");
  EXPECT_EQ(problems("nvlink_group = 2", "nvlink_group = 3"),
            "test.toml:35:16: error: nvlink_group = 3 does not divide 4 devices");
}

TEST(ClusterReader, AnEstimateLiesWithinItsBounds) {
  EXPECT_EQ(problems("bytes = \"500 MiB\"", "bytes = \"700 MiB\""),
            "test.toml:18:9: error: bytes has to lie between low and high\n  hint: low is 400 MiB, high is 600 MiB");
}

TEST(ClusterReader, ACublasHandleThatWasNotMeasuredHasTheBoundsOfItsWorkspace) {
  EXPECT_EQ(parse_cluster(complete, "test.toml").device.blas_handle.low, 0_B);
  EXPECT_EQ(parse_cluster(complete, "test.toml").device.blas_handle.high, 32_MiB);
  const std::string measured = std::string(complete) +
                               "[device.blas_handle]\nbytes = \"8 MiB\"\nlow = \"8 MiB\"\n"
                               "high = \"8 MiB\"\nsource = \"a test\"\n";
  EXPECT_EQ(parse_cluster(measured, "test.toml").device.blas_handle, (Estimate{8_MiB, 8_MiB, 8_MiB, "a test"}));
}

constexpr std::string_view nccl = R"([nccl]
peer_access = "nvlink"
[nccl.channels]
source = "a log"
one_node = { collective = 24, nvls = 16, p2p = 32, per_peer = 32 }
one_rank_a_node = { collective = 4, nvls = 0, p2p = 4, per_peer = 2 }
[nccl.kernels]
bytes = "80 MiB"
low = "70 MiB"
high = "90 MiB"
source = "a test"
[nccl.communicators.tensor]
ranks = 4
shards = true
local_peers = 1
bytes = "770 MiB"
low = "760 MiB"
high = "780 MiB"
source = "a test"
[nccl.communicators.data]
ranks = 16
nodes = 2
reduces = true
bytes = "1 GiB"
low = "1 GiB"
high = "1 GiB"
source = "a test"
)";

TEST(ClusterReader, ReadsWhatWasMeasuredOfNccl) {
  const NcclProfile read = parse_cluster(std::string(complete) + std::string(nccl), "test.toml").nccl;
  NcclProfile expected;
  expected.peer_access = PeerAccess::NvLink;
  expected.channels_source = "a log";
  expected.one_node = NcclChannels{24, 16, 32, 32};
  expected.one_rank_a_node = NcclChannels{4, 0, 4, 2};
  expected.kernels = Estimate{80_MiB, 70_MiB, 90_MiB, "a test"};
  expected.communicators = {
      {{.ranks = 16, .local = 8, .nodes = 2, .reduces = true}, {1_GiB, 1_GiB, 1_GiB, "a test"}},
      {{.ranks = 4, .local = 4, .nodes = 1, .shards = true, .local_peers = 1}, {770_MiB, 760_MiB, 780_MiB, "a test"}}};
  EXPECT_EQ(read, expected);
  EXPECT_EQ(parse_cluster(complete, "test.toml").nccl, NcclProfile{});
}

TEST(ClusterReader, MeasurementsOfNcclHaveToMakeSense) {
  const auto with = [](std::string_view old, std::string_view replacement) {
    std::string text = std::string(complete) + std::string(nccl);
    return problems(text.replace(text.find(old), old.size(), replacement));
  };
  EXPECT_EQ(with("peer_access = \"nvlink\"", "peer_access = \"some\""),
            "test.toml:48:15: error: peer_access = \"some\" is not known\n"
            "  hint: \"everywhere\", \"nvlink\" or \"nowhere\" would do");
  EXPECT_EQ(with("collective = 24", "collective = 0"),
            "test.toml:51:27: error: collective = 0 is out of range\n  hint: 1 to 64 would do");
  EXPECT_EQ(with("local_peers = 1", "local_peers = 4"),
            "test.toml:61:15: error: local_peers = 4 is out of range\n  hint: 0 to 3 would do");
  EXPECT_EQ(with("nodes = 2", "nodes = 17"), "test.toml:68:9: error: 16 ranks do not fill 17 nodes evenly");
  EXPECT_EQ(with("source = \"a log\"\n", ""),
            "test.toml:49:1: error: source is missing in [nccl.channels]\n  hint: give a text between quotes");
  EXPECT_EQ(with("shards = true", "shard = true"),
            "test.toml:60:1: error: unknown key \"shard\" in [nccl.communicators.tensor]\n"
            "  hint: did you mean shards?");
}

TEST(ClusterReader, UnknownKeysComeWithASuggestion) {
  EXPECT_EQ(problems("devices = 4", "device = 4"),
            "test.toml:32:1: error: devices is missing in [node]\n  hint: give a whole number\n"
            "test.toml:33:1: error: unknown key \"device\" in [node]\n  hint: did you mean devices?");
  EXPECT_EQ(problems("[fabric]", "[fabrics]"),
            "test.toml: error: fabric is missing\n  hint: begin the table with its name between brackets\n"
            "test.toml:40:2: error: unknown key \"fabrics\"\n  hint: did you mean fabric?");
  EXPECT_EQ(problems("tf32 = ", "tf3 = "),
            "test.toml:7:1: error: tf32 is missing in [device.peak]\n  hint: such as \"989 TFLOP/s\"\n"
            "test.toml:10:1: error: unknown key \"tf3\" in [device.peak]\n  hint: did you mean tf32?");
}

TEST(ClusterReader, ValuesHaveToMakeSense) {
  EXPECT_EQ(
      problems("\"9.0\"", "\"sm90\""),
      "test.toml:3:22: error: compute_capability = \"sm90\" is not a compute capability\n  hint: such as \"9.0\"");
  EXPECT_EQ(
      problems("\"nvlink\"", "\"pci\""),
      "test.toml:34:8: error: link = \"pci\" is not known\n  hint: \"nvswitch\", \"nvlink\" or \"pcie\" would do");
  EXPECT_EQ(problems("leaf_spine", "torus"),
            "test.toml:41:8: error: kind = \"torus\" is not known\n  hint: \"single\" or \"leaf_spine\" would do");
  EXPECT_EQ(problems("devices = 4", "devices = 0"),
            "test.toml:33:11: error: devices = 0 is out of range\n  hint: 1 to 1024 would do");
  EXPECT_EQ(problems("nics = 1", "nics = 0"),
            "test.toml:38:8: error: nics = 0 is out of range\n  hint: 1 to 1024 would do");
  EXPECT_EQ(problems("devices = 4", "devices = nan"),
            "test.toml:33:11: error: devices takes a whole number, not nan\n  hint: 1 to 1024 would do");
}

TEST(ClusterReader, GarbageIsAnInputError) {
  const std::string hint = " is missing\n  hint: begin the table with its name between brackets";
  EXPECT_EQ(problems(""), "test.toml: error: device" + hint + "\ntest.toml: error: host" + hint +
                              "\ntest.toml: error: node" + hint + "\ntest.toml: error: fabric" + hint);
  EXPECT_NE(problems(std::string("\0\xff\x01", 3)), "no problem");
  EXPECT_EQ(problems("a = " + std::string(100000, '[')).substr(0, 14), "test.toml:1:37");
  std::string deep = "a";
  for (int i = 0; i < 100000; ++i) deep += ".a";
  EXPECT_EQ(problems(deep + " = 1"), "test.toml:1: error: more than 64 dots on one line: no key is that deep");
}

}  // namespace
}  // namespace tidemark::tests::cluster_reader_test
