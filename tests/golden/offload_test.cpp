#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/golden/claims.hpp"
#include "tests/golden/fake_recordings.hpp"
#include "tests/golden/recording_errors.hpp"

// One rank of trainings with tensors on the host, recorded from PyTorch: what its device and its host hold.

namespace tidemark::tests::golden::offload_test {
namespace {

constexpr double of_device = 0.1, of_host = 1;  // percent

class Offloaded : public testing::TestWithParam<Recording> {};

TEST_P(Offloaded, DevicesHoldAsMuch) {
  const std::vector<Bytes> predicted = requested_by_step(GetParam().scenario, GetParam().rank);
  ASSERT_EQ(predicted.size(), GetParam().requested.size());
  for (std::size_t step = 0; step < predicted.size(); ++step)
    EXPECT_LE(std::abs(percent(share(predicted[step], GetParam().requested[step]))), of_device)
        << predicted[step].count() << " and not " << GetParam().requested[step].count();
}

// Of all that the host holds. What is not here: tables of pointers that copies of many tensors take to the device
// (ATen/native/cuda/TensorShape.cu), scalars that the host reads, and that shards without rows make the optimizer give
// its last temporary up.
TEST_P(Offloaded, HostsHoldAsMuch) {
  if (GetParam().name == "zero3_qlora_8") GTEST_SKIP() << "weights come by way of the host in the recording";
  const HostPeaks predicted = predicted_host_peaks(GetParam().scenario, GetParam().rank), &recorded = GetParam().host;
  const auto close = [&](Bytes ours, Bytes theirs, const char* what) {
    const double off = static_cast<double>((ours - theirs).count()) / static_cast<double>(recorded.both.count());
    EXPECT_LE(std::abs(percent(off)), of_host) << what << ": " << ours.count() << " and not " << theirs.count();
  };
  close(predicted.pinned, recorded.pinned, "pinned");
  close(predicted.pageable, recorded.pageable, "pageable");
  close(predicted.both, recorded.both, "both");
}

// What tensors ask for in every part of the run, of the most that is held then, or of a page.
TEST_P(Offloaded, HostsHoldAsMuchInEachStep) {
  if (GetParam().name == "zero3_gpt2_4") GTEST_SKIP() << "a weight that was tied waits for Python's garbage collection";
  if (GetParam().name == "fsdp2_48_uneven") GTEST_SKIP() << "pages of shards without rows, while they are made";
  const std::vector<HostPeaks> predicted = predicted_host_by_step(GetParam().scenario, GetParam().rank);
  const std::vector<HostPeaks>& recorded = GetParam().host_by_step;
  ASSERT_EQ(predicted.size(), recorded.size());
  constexpr Bytes page{4096};
  // Weights come by way of the host in recordings of quantized bases.
  for (std::size_t step = GetParam().scenario.train.quantization ? 1 : 0; step < predicted.size(); ++step)
    for (Bytes HostPeaks::*const what : {&HostPeaks::pinned, &HostPeaks::pageable, &HostPeaks::both}) {
      const Bytes ours = predicted[step].*what, theirs = recorded[step].*what;
      const double off = static_cast<double>((ours - theirs).count()) /
                         static_cast<double>(std::max(recorded[step].both, page).count());
      EXPECT_LE(std::abs(percent(off)), of_host)
          << "step " << step << ": " << ours.count() << " and not " << theirs.count();
    }
}

constexpr auto name_of = [](const testing::TestParamInfo<Recording>& row) { return row.param.name; };
INSTANTIATE_TEST_SUITE_P(Recordings, Offloaded, testing::ValuesIn(offload_recordings()), name_of);
INSTANTIATE_TEST_SUITE_P(ByDeepSpeed, Offloaded, testing::ValuesIn(offloaded_zero_recordings()), name_of);
INSTANTIATE_TEST_SUITE_P(OfFlatParameters, Offloaded, testing::ValuesIn(offloaded_flat_recordings()), name_of);
INSTANTIATE_TEST_SUITE_P(OfSavedTensors, Offloaded, testing::ValuesIn(saved_on_cpu_recordings()), name_of);
INSTANTIATE_TEST_SUITE_P(OfTorchtitan, Offloaded, testing::ValuesIn(offloaded_titan_recordings()), name_of);

}  // namespace
}  // namespace tidemark::tests::golden::offload_test
