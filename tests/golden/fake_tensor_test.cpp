#include <cmath>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/golden/claims.hpp"
#include "tests/golden/fake_recordings.hpp"
#include "tests/golden/recording_errors.hpp"

// Real PyTorch on fake tensors against the programs of runtime "pytorch", category by category; held to what
// docs/accuracy.toml claims.

namespace tidemark::tests::golden::fake_tensor_test {
namespace {

double worst(std::string_view family, std::string_view figure) { return std::abs(claimed(family, figure).worst); }

void expect_near(const Scenario& scenario, const std::vector<StepPeak>& predicted,
                 const std::vector<StepPeak>& recorded, const std::string& how) {
  ASSERT_EQ(predicted.size(), recorded.size());
  const RecordingErrors off = recording_errors(scenario, predicted, recorded);
  std::string all;
  for (std::size_t step = 0; step < recorded.size(); ++step) {
    const StepPeak p = with_shared_gradient(predicted[step], scenario),
                   r = with_shared_gradient(recorded[step], scenario);
    all += fmt::format("step {}: {} at {}, recorded {} at {}; after it {}, recorded {}\n", step + 1, p.total().count(),
                       p.where, r.total().count(), r.where, p.after.count(), r.after.count());
    for (std::size_t k = 0; k < kind_names.size(); ++k)
      all += fmt::format("  {}: {}, recorded {}\n", kind_names[k], p.bytes[k].count(), r.bytes[k].count());
  }
  EXPECT_LE(std::abs(percent(off.peak)), worst("fake_tensor", "tensors at any step's peak" + how)) << all;
  EXPECT_LE(std::abs(percent(off.kind)), worst("fake_tensor", "a category of them" + how)) << all;
  if (off.after) {
    EXPECT_LE(std::abs(percent(*off.after)), worst("fake_tensor", "tensors after a step")) << all;
  }
}

class FakeTensor : public testing::TestWithParam<Recording> {};

TEST_P(FakeTensor, PeaksAreThoseOfARunThatSumsInPlace) {
  expect_near(GetParam().scenario, predicted_peaks(GetParam().scenario, true), GetParam().steps, "");
}

TEST_P(FakeTensor, PeaksAreThoseThatMemTrackerCounted) {
  if (!GetParam().out_of_place.empty())
    expect_near(GetParam().scenario, predicted_peaks(GetParam().scenario, false), GetParam().out_of_place,
                ", summed out of place");
}

// PyTorch's own caching allocator in a plain run, kernels' scratch space included. Reserved follows from the order of
// everything: a tensor of a few MiB in a hole of hundreds makes a new segment (docs/accuracy.md lists all).
TEST_P(FakeTensor, PlainRunsTakeAsMuch) {
  const PlainRun predicted = predicted_plain_run(GetParam().scenario), &recorded = GetParam().plain;
  ASSERT_EQ(predicted.allocated.size(), recorded.allocated.size());
  EXPECT_LE(std::abs(percent(worst_of_steps(predicted, recorded))), worst("plain_runs", "allocated peak of any step"));
  EXPECT_LE(std::abs(percent(share(predicted.allocated.back(), recorded.allocated.back()))),
            worst("plain_runs", "allocated peak of the last step"));
  EXPECT_LE(std::abs(percent(share(predicted.reserved, recorded.reserved))), worst("plain_runs", "reserved peak"));
}

INSTANTIATE_TEST_SUITE_P(Recordings, FakeTensor, testing::ValuesIn(fake_recordings()),
                         [](const testing::TestParamInfo<Recording>& row) { return row.param.name; });

}  // namespace
}  // namespace tidemark::tests::golden::fake_tensor_test
