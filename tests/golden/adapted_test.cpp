#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/golden/claims.hpp"
#include "tests/golden/fake_recordings.hpp"
#include "tests/golden/recording_errors.hpp"

// Models that PEFT adapts (tests/ground_truth/adapted.py), category by category; held to what docs/accuracy.toml
// claims.

namespace tidemark::tests::golden::adapted_test {
namespace {

class Adapted : public testing::TestWithParam<Recording> {};

TEST_P(Adapted, PeaksAreThoseOfPeft) {
  const Recording& recording = GetParam();
  const std::vector<StepPeak> predicted = predicted_peaks(recording.scenario, true);
  ASSERT_EQ(predicted.size(), recording.steps.size());
  std::string all;
  Bytes off;
  for (std::size_t step = 0; step < predicted.size(); ++step) {
    const StepPeak &p = predicted[step], &r = recording.steps[step];
    all += fmt::format("step {}: {} at {}, recorded {} at {}; after it {}, recorded {}\n", step + 1, p.total().count(),
                       p.where, r.total().count(), r.where, p.after.count(), r.after.count());
    for (std::size_t k = 0; k < kind_names.size(); ++k)
      all += fmt::format("  {}: {}, recorded {}\n", kind_names[k], p.bytes[k].count(), r.bytes[k].count());
    EXPECT_EQ(p.after, r.after) << all;
  }
  const RecordingErrors errors = recording_errors(recording.scenario, predicted, recording.steps);
  EXPECT_LE(std::abs(percent(errors.peak)), std::abs(claimed("adapted", "tensors at the peak").worst)) << all;
  constexpr double one_in_a_hundred = 0.01;
  EXPECT_LE(std::abs(errors.kind), one_in_a_hundred) << all;
}

TEST_P(Adapted, PlainRunsTakeAsMuch) {
  const PlainRun predicted = predicted_plain_run(GetParam().scenario), &recorded = GetParam().plain;
  ASSERT_EQ(predicted.allocated.size(), recorded.allocated.size());
  EXPECT_LE(std::abs(percent(worst_of_steps(predicted, recorded))),
            std::abs(claimed("adapted", "allocated peak of any step").worst));
  EXPECT_LE(std::abs(percent(share(predicted.reserved, recorded.reserved))),
            std::abs(claimed("adapted", "reserved peak").worst));
}

INSTANTIATE_TEST_SUITE_P(Recordings, Adapted, testing::ValuesIn(adapted_recordings()),
                         [](const testing::TestParamInfo<Recording>& row) { return row.param.name; });

}  // namespace
}  // namespace tidemark::tests::golden::adapted_test
