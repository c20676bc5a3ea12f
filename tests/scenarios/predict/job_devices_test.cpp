#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/cluster/cluster_reader.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// Racks of 72 GB200, of which jobs take 64 each (job_devices).

namespace tidemark::tests::job_devices_test {
namespace {

Node node_of(int gpus) {
  const std::string text = fmt::format(
      "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/gb200-nvl72.toml\"\ngpus = {}\n"
      "[train]\nsequence_length = 256\nmicro_batch = 1\n",
      gpus);
  return parse_scenario(text, "job.toml", folders).cluster.node;
}

TEST(JobDevices, AreTakenOfEachRackByJobsOfSeveral) {
  for (const int gpus : {128, 192, 1024, 2048}) {
    EXPECT_EQ(node_of(gpus).devices, 64) << gpus;
    EXPECT_EQ(node_of(gpus).nics, 64) << gpus;
  }
  EXPECT_EQ(node_of(72).devices, 72);
  EXPECT_EQ(node_of(8).devices, 72);
  EXPECT_EQ(node_of(144).devices, 72) << "whole racks";
}

TEST(JobDevices, AreNoMoreThanThereAre) {
  std::string text = read_text(source / "scenarios/clusters/gb200-nvl72.toml");
  text.replace(text.find("job_devices = 64"), 16, "job_devices = 80");
  try {
    (void)parse_cluster(text, "rack.toml");
    FAIL() << "80 of 72";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("job_devices = 80 of devices = 72"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tidemark::tests::job_devices_test
