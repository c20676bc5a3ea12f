#include <cmath>

#include <gtest/gtest.h>

#include "tests/golden/claims.hpp"
#include "tests/golden/fake_recordings.hpp"
#include "tests/golden/recording_errors.hpp"

// One rank of trainings under fully_shard against the programs of runtime "fsdp2"; held to what docs/accuracy.toml
// claims.

namespace tidemark::tests::golden {
namespace {

class Sharded : public testing::TestWithParam<Recording> {
 protected:
  static double worst(std::string_view figure) { return std::abs(claimed("sharded", figure).worst); }
};

TEST_P(Sharded, RunsTakeAsMuch) {
  const PlainRun predicted = predicted_plain_run(GetParam().scenario, GetParam().rank), &recorded = GetParam().plain;
  ASSERT_EQ(predicted.allocated.size(), recorded.allocated.size());
  EXPECT_LE(std::abs(percent(worst_of_steps(predicted, recorded))), worst("allocated peak of any step"));
  EXPECT_LE(std::abs(percent(share(predicted.reserved, recorded.reserved))), worst("reserved peak"));
}

INSTANTIATE_TEST_SUITE_P(Recordings, Sharded, testing::ValuesIn(sharded_recordings()),
                         [](const testing::TestParamInfo<Recording>& row) { return row.param.name; });

}  // namespace
}  // namespace tidemark::tests::golden
