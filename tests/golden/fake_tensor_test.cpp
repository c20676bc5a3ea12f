#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/golden/fake_recordings.hpp"

// Real PyTorch on fake tensors against the programs of runtime "pytorch", category by category.

namespace tidemark::tests::golden {
namespace {

constexpr double tolerance = 0.01;  // of the peak

// The gradient of a weight that two modules share is one once both have come; a program says so from the first on.
StepPeak with_shared_gradient(StepPeak peak, const Scenario& scenario) {
  if (scenario.model.tied_embeddings) peak[Kind::Gradient] += std::exchange(peak[Kind::Temporary], Bytes{});
  return peak;
}

void expect_near(const Scenario& scenario, const std::vector<StepPeak>& predicted,
                 const std::vector<StepPeak>& recorded) {
  ASSERT_EQ(predicted.size(), recorded.size());
  for (std::size_t step = 0; step < recorded.size(); ++step) {
    const StepPeak p = with_shared_gradient(predicted[step], scenario),
                   r = with_shared_gradient(recorded[step], scenario);
    const double peak = static_cast<double>(r.total().count());
    const auto off = [&](Bytes a, Bytes b) { return static_cast<double>((a - b).count()) / peak; };
    EXPECT_NEAR(off(p.total(), r.total()), 0, tolerance) << fmt::format(
        "step {}: {} at {}, recorded {} at {}", step + 1, p.total().count(), p.where, r.total().count(), r.where);
    for (std::size_t k = 0; k < kind_names.size(); ++k)
      EXPECT_NEAR(off(p.bytes[k], r.bytes[k]), 0, tolerance)
          << fmt::format("step {}, {}: {}, recorded {} (at {}, recorded {})", step + 1, kind_names[k],
                         p.bytes[k].count(), r.bytes[k].count(), p.where, r.where);
    if (r.after > Bytes{}) {
      EXPECT_NEAR(off(p.after, r.after), 0, tolerance) << "after step " << step + 1;
    }
  }
}

class FakeTensor : public testing::TestWithParam<Recording> {};

TEST_P(FakeTensor, PeaksAreThoseOfARunThatSumsInPlace) {
  expect_near(GetParam().scenario, predicted_peaks(GetParam().scenario, true), GetParam().steps);
}

TEST_P(FakeTensor, PeaksAreThoseThatMemTrackerCounted) {
  if (!GetParam().out_of_place.empty())
    expect_near(GetParam().scenario, predicted_peaks(GetParam().scenario, false), GetParam().out_of_place);
}

// PyTorch's own caching allocator in a plain run, kernels' scratch space included. Reserved follows from the order of
// everything: a tensor of a few MiB in a hole of hundreds makes a new segment (docs/accuracy.md lists all).
TEST_P(FakeTensor, PlainRunsTakeAsMuch) {
  constexpr double of_allocated = 0.008, of_reserved = 0.035;
  const PlainRun predicted = predicted_plain_run(GetParam().scenario), &recorded = GetParam().plain;
  const auto off = [](Bytes a, Bytes b) {
    return static_cast<double>((a - b).count()) / static_cast<double>(b.count());
  };
  ASSERT_EQ(predicted.allocated.size(), recorded.allocated.size());
  for (std::size_t step = 0; step < recorded.allocated.size(); ++step)
    EXPECT_NEAR(off(predicted.allocated[step], recorded.allocated[step]), 0, of_allocated) << "step " << step + 1;
  EXPECT_NEAR(off(predicted.reserved, recorded.reserved), 0, of_reserved);
}

INSTANTIATE_TEST_SUITE_P(Recordings, FakeTensor, testing::ValuesIn(fake_recordings()),
                         [](const testing::TestParamInfo<Recording>& row) { return row.param.name; });

}  // namespace
}  // namespace tidemark::tests::golden
