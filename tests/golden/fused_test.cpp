#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/golden/fake_recordings.hpp"

// Fused kernels in place of transformers' modules, over tensors on a device that does nothing
// (tests/ground_truth/fused.py), several sequences in one row (packed.py), and families that transformers alone builds
// here (families.py).

namespace tidemark::tests::golden::fused_test {
namespace {

void expect_equal_peaks(const Recording& recorded) {
  const std::vector<StepPeak> predicted = predicted_peaks(recorded.scenario, true);
  ASSERT_EQ(predicted.size(), recorded.steps.size());
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    EXPECT_EQ(predicted[i].total(), recorded.steps[i].total())
        << fmt::format("step {}: ours {}, theirs {}", i + 1, predicted[i].where, recorded.steps[i].where);
    EXPECT_EQ(predicted[i].after, recorded.steps[i].after) << "after step " << i + 1;
  }
}

// docs/pytorch.md claims this.
class FusedKernels : public testing::TestWithParam<Recording> {};

TEST_P(FusedKernels, TensorsAtThePeakAreEqual) { expect_equal_peaks(GetParam()); }

class PackedSequences : public testing::TestWithParam<Recording> {};

TEST_P(PackedSequences, TensorsAtThePeakAreThoseOfTransformers) { expect_equal_peaks(GetParam()); }

TEST_P(PackedSequences, PlainRunsAllocateAsMuch) {
  const Recording& recorded = GetParam();
  EXPECT_EQ(predicted_plain_run(recorded.scenario).allocated, recorded.plain.allocated);
}

class OtherFamilies : public testing::TestWithParam<Recording> {};

TEST_P(OtherFamilies, TensorsAtThePeakAreThoseOfTransformers) { expect_equal_peaks(GetParam()); }

// Blocks that are not split make up for what few tensors are made in another order.
TEST_P(OtherFamilies, PlainRunsAllocateAsMuchWithinHalfAPercent) {
  const Recording& recorded = GetParam();
  const std::vector<Bytes> allocated = predicted_plain_run(recorded.scenario).allocated;
  ASSERT_EQ(allocated.size(), recorded.plain.allocated.size());
  for (std::size_t i = 0; i < allocated.size(); ++i)
    EXPECT_NEAR(static_cast<double>(allocated[i].count()) / static_cast<double>(recorded.plain.allocated[i].count()), 1,
                0.005)
        << "step " << i + 1;
}

INSTANTIATE_TEST_SUITE_P(Recordings, OtherFamilies, testing::ValuesIn(family_recordings()),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(Recordings, PackedSequences, testing::ValuesIn(packed_recordings()),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(Recordings, FusedKernels, testing::ValuesIn(fused_recordings()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests::golden::fused_test
