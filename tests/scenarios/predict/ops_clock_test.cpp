#include "scenarios/plan/bounds/ops_clock.hpp"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::ops_clock_test {
namespace {

using namespace literals;
using scenarios::TimedOp;  // not that of the engine

constexpr StreamId compute{0}, beside{1};

const Scenario& scenario() {
  static const Scenario its = scenario_of_text(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[layout]
tensor = 8
[train]
sequence_length = 512
micro_batch = 1
global_batch = 1
)");
  return its;
}

TimedOp kernel(Duration takes, StreamId on = compute) { return {.stream = on, .duration = takes, .longer = takes}; }
TimedOp signal(std::int32_t event, StreamId on) {
  return {.kind = TimedOp::Kind::Signal, .stream = on, .event = event};
}
TimedOp await(std::int32_t event, StreamId on) { return {.kind = TimedOp::Kind::Await, .stream = on, .event = event}; }
TimedOp gather(StreamId on) {
  return {.kind = TimedOp::Kind::Transfer, .collective = CollectiveKind::AllGather, .stream = on, .size = 64_MiB};
}

class OpsClock : public testing::Test {
 protected:
  std::optional<Duration> low(const std::vector<TimedOp>& ops) {
    const auto found = low_with_second_waves(ops, costs_of);
    return found ? std::optional(found->low) : std::nullopt;
  }

  const std::shared_ptr<const Fabric> fabric = std::make_shared<const Fabric>(build_fabric(scenario().cluster, 8));
  const GroupCosts costs{GroupPlaces{fabric, {{0, 1, 2, 3, 4, 5, 6, 7}}, 1}};
  const CostsOf costs_of = [this](const TimedOp&) -> const GroupCosts& { return costs; };
  const Duration gathering = costs.alone(CollectiveKind::AllGather, 64_MiB).value();
};

TEST_F(OpsClock, AKernelBesideACollectiveTakesASecondWaveWhileThatLasts) {
  const auto with = [&](Duration takes) {
    return std::vector{signal(0, compute), await(0, beside), gather(beside),
                       signal(1, beside),  kernel(takes),    await(1, compute)};
  };
  const Duration one_long = gathering * 2, one_short = gathering / 4;
  EXPECT_EQ(low(with(one_long)), one_long + gathering);
  EXPECT_EQ(low(with(one_short)), gathering - Duration{1});  // which the wait hides
  std::vector<TimedOp> two = with(one_short);
  two.insert(two.end() - 1, kernel(one_long));
  EXPECT_EQ(low(two), one_short * 2 + one_long + (gathering - one_short * 2));
}

TEST_F(OpsClock, KernelsOfTheStreamThatGathersDoNotMeetIt) {
  EXPECT_EQ(low({gather(compute), kernel(1_ms)}), gathering - Duration{1} + 1_ms);
}

TEST_F(OpsClock, WhatOpsBeforeThemMayMoveIsNotSettled) {
  // On a stream that has not waited for these ops it may have begun before them.
  EXPECT_EQ(low({gather(beside), signal(1, beside), kernel(1_ms), await(1, compute)}), std::nullopt);
  // It goes on beside what comes after them.
  EXPECT_EQ(low({signal(0, compute), await(0, beside), gather(beside)}), std::nullopt);
}

TEST_F(OpsClock, SaysWhoRunsOnAndWhoWaitsForWhatWasBefore) {
  const auto of = [&](const std::vector<TimedOp>& ops) { return low_with_second_waves(ops, costs_of).value(); };
  EXPECT_FALSE(of({kernel(1_ms)}).runs_on);
  EXPECT_TRUE(of({kernel(1_ms), signal(0, compute), await(0, beside), kernel(1_ms, beside)}).runs_on);
  EXPECT_FALSE(of({signal(0, compute), await(0, beside)}).waits_for_before);
  EXPECT_TRUE(of({await(-1, compute)}).waits_for_before);
}

}  // namespace
}  // namespace tidemark::tests::ops_clock_test
