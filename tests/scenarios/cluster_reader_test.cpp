#include "scenarios/io/cluster_reader.hpp"

#include <string>

#include <gtest/gtest.h>

#include "scenarios/io/input_error.hpp"

namespace tidemark {
namespace {

using namespace literals;

constexpr std::string_view complete = R"([device]
name = "NVIDIA Test"
compute_capability = "9.0"
capacity = "79.25 GiB"
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
[node]
devices = 4
link = "pcie"
nics = 1
[fabric]
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

TEST(ClusterReader, ReadsEveryKey) {
  Cluster expected;
  expected.name = "test";
  expected.device = {
      "NVIDIA Test", 90, 81152_MiB, {500_MiB, 400_MiB, 600_MiB, "a test"}, {100_MiB, 20_MiB, 200_MiB, "a test"}};
  expected.node = {4, NodeLink::Pcie, 1, false};
  EXPECT_EQ(parse_cluster(complete, "clusters/test.toml"), expected);
}

TEST(ClusterReader, ReadsTheShippedClusters) {
  const Cluster h100 = read_cluster(TIDEMARK_SOURCE_DIR "/scenarios/clusters/h100-sxm-80g.toml");
  EXPECT_EQ(h100.device.compute_capability, 90);
  EXPECT_EQ(h100.device.capacity, 84929347584_B);
  EXPECT_EQ(h100.device.context.bytes, 532_MiB);
  EXPECT_EQ(h100.node, (Node{8, NodeLink::NvSwitch, 8, true}));

  const Cluster b200 = read_cluster(TIDEMARK_SOURCE_DIR "/scenarios/clusters/b200-sxm-180g.toml");
  EXPECT_EQ(b200.device.compute_capability, 100);
  EXPECT_EQ(b200.device.capacity, 182631_MiB);
  EXPECT_EQ(b200.node, (Node{8, NodeLink::NvSwitch, 8, true}));
}

TEST(ClusterReader, SizesCarryAUnit) {
  EXPECT_EQ(problems("\"79.25 GiB\"", "80"),
            "test.toml:4:12: error: capacity takes a text with a unit, not 80\n"
            "  hint: such as \"80 GiB\", \"512 MiB\" or \"8519680 B\"");
  EXPECT_EQ(problems("79.25 GiB", "80"),
            "test.toml:4:12: error: capacity = \"80\" has no unit\n"
            "  hint: such as \"80 GiB\", \"512 MiB\" or \"8519680 B\"");
  EXPECT_EQ(problems("79.25 GiB", "0 B"), "test.toml:4:12: error: capacity is nothing at all");
  EXPECT_EQ(problems("79.25 GiB", "8388607 TiB"), "test.toml:4:12: error: capacity is more than any device has");
}

TEST(ClusterReader, AnEstimateLiesWithinItsBounds) {
  EXPECT_EQ(problems("bytes = \"500 MiB\"", "bytes = \"700 MiB\""),
            "test.toml:6:9: error: bytes has to lie between low and high");
}

TEST(ClusterReader, UnknownKeysComeWithASuggestion) {
  EXPECT_EQ(problems("devices = 4", "device = 4"),
            "test.toml:15:1: error: devices is missing in [node]\n"
            "test.toml:16:1: error: unknown key \"device\" in [node]\n  hint: did you mean devices?");
  EXPECT_EQ(problems("[fabric]", "[fabrics]"),
            "test.toml: error: fabric is missing\n"
            "test.toml:19:2: error: unknown key \"fabrics\"\n  hint: did you mean fabric?");
}

TEST(ClusterReader, ValuesHaveToMakeSense) {
  EXPECT_EQ(problems("\"9.0\"", "\"sm90\""),
            "test.toml:3:22: error: compute_capability = \"sm90\" is no compute capability\n  hint: such as \"9.0\"");
  EXPECT_EQ(
      problems("\"pcie\"", "\"pci\""),
      "test.toml:17:8: error: link = \"pci\" is not known\n  hint: \"nvswitch\", \"nvlink\" or \"pcie\" would do");
  EXPECT_EQ(problems("devices = 4", "devices = 0"),
            "test.toml:16:11: error: devices = 0 is out of range\n  hint: 1 to 1024 would do");
  EXPECT_EQ(problems("devices = 4", "devices = nan"), "test.toml:16:11: error: devices takes a whole number, not nan");
}

TEST(ClusterReader, GarbageIsAnInputError) {
  EXPECT_EQ(
      problems(""),
      "test.toml: error: device is missing\ntest.toml: error: node is missing\ntest.toml: error: fabric is missing");
  EXPECT_NE(problems(std::string("\0\xff\x01", 3)), "no problem");
  EXPECT_EQ(problems("a = " + std::string(100000, '[')).substr(0, 14), "test.toml:1:37");
  std::string deep = "a";
  for (int i = 0; i < 100000; ++i) deep += ".a";
  EXPECT_EQ(problems(deep + " = 1"), "test.toml:1: error: more than 64 dots on one line: no key is that deep");
}

}  // namespace
}  // namespace tidemark
