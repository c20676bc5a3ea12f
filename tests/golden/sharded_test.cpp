#include <cmath>

#include <gtest/gtest.h>

#include "tests/golden/claims.hpp"
#include "tests/golden/fake_recordings.hpp"
#include "tests/golden/recording_errors.hpp"

// One rank of trainings under fully_shard against the programs of runtime "fsdp2", and under FullyShardedDataParallel
// against those of "fsdp"; held to what docs/accuracy.toml claims.

namespace tidemark::tests::golden {
namespace {

void expect_as_much(std::string_view family, const Recording& recording) {
  const auto worst = [&](std::string_view figure) { return std::abs(claimed(family, figure).worst); };
  const PlainRun predicted = predicted_plain_run(recording.scenario, recording.rank), &recorded = recording.plain;
  ASSERT_EQ(predicted.allocated.size(), recorded.allocated.size());
  EXPECT_LE(std::abs(percent(worst_of_steps(predicted, recorded))), worst("allocated peak of any step"));
  EXPECT_LE(std::abs(percent(share(predicted.reserved, recorded.reserved))), worst("reserved peak"));
}

std::string name_of(const testing::TestParamInfo<Recording>& row) { return row.param.name; }

class Sharded : public testing::TestWithParam<Recording> {};
TEST_P(Sharded, RunsTakeAsMuch) { expect_as_much("sharded", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Recordings, Sharded, testing::ValuesIn(sharded_recordings()), name_of);

class Flat : public testing::TestWithParam<Recording> {};
TEST_P(Flat, RunsTakeAsMuch) { expect_as_much("flat", GetParam()); }
TEST_P(Flat, TensorsTakeAsMuch) {
  EXPECT_EQ(requested_by_step(GetParam().scenario, GetParam().rank), GetParam().requested);
}
INSTANTIATE_TEST_SUITE_P(Recordings, Flat, testing::ValuesIn(flat_recordings()), name_of);

}  // namespace
}  // namespace tidemark::tests::golden
