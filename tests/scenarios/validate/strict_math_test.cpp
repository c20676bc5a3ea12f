// What GPUs are given (tests/gpu/math), on memory that only kernels may touch, as theirs.

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/validate/arithmetic/check_math.hpp"
#include "tests/kernels/strict_calculator.hpp"
#include "tests/kernels/thread_world.hpp"

namespace tidemark::tests::strict_math_test {
namespace {

/// Carries numbers between the memories of calculators. As NCCL has it, a message waits until the other side takes it.
class StagedWorld final : public World {
 public:
  StagedWorld(World& world, math::Calculator& calculator) : world_(world), calculator_(calculator) {}

  [[nodiscard]] Rank rank() const override { return world_.rank(); }
  [[nodiscard]] std::int32_t size() const override { return world_.size(); }
  void report_failure(const std::string& why) override { world_.report_failure(why); }
  void exchange(std::span<const Message> messages, const std::string& doing) override {
    std::vector<std::vector<std::byte>> stages;
    std::vector<Message> staged(messages.begin(), messages.end());
    for (Message& m : staged) {
      std::vector<std::byte>& stage = stages.emplace_back(m.bytes);
      if (m.direction == Direction::Send) calculator_.copy(stage.data(), m.data, m.bytes);
      m.data = stage.data();
    }
    world_.exchange(staged, doing);
    constexpr std::int32_t tag_of_answers = 1 << 20;
    char answer = 0;
    for (Message& m : staged) {
      const Direction back = m.direction == Direction::Send ? Direction::Receive : Direction::Send;
      m = {back, m.peer, m.tag + tag_of_answers, &answer, 1};
    }
    world_.exchange(staged, doing);
    for (std::size_t i = 0; i < messages.size(); ++i)
      if (messages[i].direction == Direction::Receive)
        calculator_.copy(messages[i].data, stages[i].data(), messages[i].bytes);
  }

 private:
  World& world_;
  math::Calculator& calculator_;
};

class StrictMath : public testing::TestWithParam<const char*> {};

TEST_P(StrictMath, ARankLeavesItsNumbersToWhoComputesThem) {
  const std::filesystem::path source = TIDEMARK_SOURCE_DIR;
  const Scenario scenario =
      read_scenario((source / "tests/gpu/math" / GetParam()).string() + ".toml", source / "scenarios");
  ASSERT_EQ(beyond_arithmetic(scenario), "");
  MathCheck check;
  const std::vector<std::string> ends = on_ranks(scenario.gpus, [&](World& world) {
    StrictCalculator strict(std::size_t{1} << 32);
    StagedWorld staged(world, strict);
    MathCheck mine = check_math(scenario, world, math::Storage::Native, {strict, staged});
    if (world.rank().value == 0) check = std::move(mine);
  });
  ASSERT_EQ(ends, all_well(scenario.gpus));
  EXPECT_TRUE(check.agrees());
  EXPECT_GT(check.tensors, 50);
}

INSTANTIATE_TEST_SUITE_P(Jobs, StrictMath, testing::Values("math_one", "math_tp2_pp2"),
                         [](const auto& job) { return std::string(job.param); });

}  // namespace
}  // namespace tidemark::tests::strict_math_test
