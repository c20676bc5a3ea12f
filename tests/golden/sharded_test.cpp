#include <cmath>

#include <gtest/gtest.h>

#include "tests/golden/claims.hpp"
#include "tests/golden/fake_recordings.hpp"
#include "tests/golden/recording_errors.hpp"

// One rank of trainings under fully_shard and under DeepSpeed's ZeRO against the programs of runtimes "fsdp2" and
// "deepspeed"; held to what docs/accuracy.toml claims.

namespace tidemark::tests::golden {
namespace {

void expect_as_much(const Recording& recording, std::string_view family) {
  const PlainRun predicted = predicted_plain_run(recording.scenario, recording.rank), &recorded = recording.plain;
  const auto worst = [&](std::string_view figure) { return std::abs(claimed(family, figure).worst); };
  ASSERT_EQ(predicted.allocated.size(), recorded.allocated.size());
  EXPECT_LE(std::abs(percent(worst_of_steps(predicted, recorded))), worst("allocated peak of any step"));
  EXPECT_LE(std::abs(percent(share(predicted.reserved, recorded.reserved))), worst("reserved peak"));
}

class Sharded : public testing::TestWithParam<Recording> {};
class Zero : public testing::TestWithParam<Recording> {};

TEST_P(Sharded, RunsTakeAsMuch) { expect_as_much(GetParam(), "sharded"); }
TEST_P(Zero, RunsTakeAsMuch) { expect_as_much(GetParam(), "zero"); }

INSTANTIATE_TEST_SUITE_P(Recordings, Sharded, testing::ValuesIn(sharded_recordings()),
                         [](const testing::TestParamInfo<Recording>& row) { return row.param.name; });
INSTANTIATE_TEST_SUITE_P(Recordings, Zero, testing::ValuesIn(zero_recordings()),
                         [](const testing::TestParamInfo<Recording>& row) { return row.param.name; });

}  // namespace
}  // namespace tidemark::tests::golden
