// What `validate` shows of small jobs under mpirun, with ranks as threads: losses and gradients are those of one rank.

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"
#include "tests/seeds.hpp"

namespace tidemark::tests::validated_jobs_test {
namespace {

namespace fs = std::filesystem;

const fs::path source = TIDEMARK_SOURCE_DIR;

// By push, those of parts that no other test of real numbers has.
std::vector<std::string> jobs() {
  if (!every_case())
    return {"math_ddp2_lora",           "math_flat2_lora",       "math_fsdp2_lora",     "math_fsdp2_lora_experts",
            "math_dp2_precision_aware", "math_dp4_hybrid",       "math_tp2_dp2_hybrid", "math_tp2_dp2_layers_offload",
            "math_tp2_dp2_muon",        "math_tp4_user_buffers", "math_fsdp2_litgpt"};
  std::vector<std::string> all;
  for (const fs::directory_entry& entry : fs::directory_iterator(source / "tests/validate"))
    if (const std::string name = entry.path().stem().string(); name.starts_with("math_") && !name.ends_with("_nvme"))
      all.push_back(name);
  std::ranges::sort(all);
  return all;
}

class ValidatedJobs : public testing::TestWithParam<std::string> {};

TEST_P(ValidatedJobs, ComputeWhatOneRankDoes) {
  const Scenario scenario = read_scenario(source / "tests/validate" / (GetParam() + ".toml"), source / "scenarios");
  ASSERT_EQ(beyond_arithmetic(scenario), "");
  MathCheck check;
  const std::vector<std::string> ends = on_ranks(scenario.gpus, [&](World& world) {
    MathCheck mine = check_math(scenario, world, math::Storage::Native);
    if (world.rank().value == 0) check = std::move(mine);
  });
  ASSERT_EQ(ends, all_well(scenario.gpus));
  EXPECT_TRUE(check.agrees()) << text(check);
  EXPECT_FALSE(check.losses.empty());
}

INSTANTIATE_TEST_SUITE_P(Jobs, ValidatedJobs, testing::ValuesIn(jobs()),
                         [](const auto& its) { return its.param.substr(std::string("math_").size()); });

}  // namespace
}  // namespace tidemark::tests::validated_jobs_test
