#include "kernels/roofline.hpp"

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests {
namespace {

using namespace literals;

// One tile takes 2 x 256 x 128 x 1000 operations: 65,536 ns on one of ten multiprocessors at 10 TFLOP/s in all.
Device device() {
  Device d;
  d.compute_capability = 90;
  d.multiprocessors = 10;
  d.peak.bf16 = OperationRate{10'000'000'000'000};
  d.memory_bandwidth = 1'000_GBps;
  d.efficiency = {.gemm = one, .memory = one, .communication = one, .source = "test"};
  return d;
}

TEST(Roofline, AFullWaveOfTilesRunsAtThePeak) {
  EXPECT_EQ(kernel_time(Gemm{2560, 128, 1000, DType::BF16}, device()), 65'536_ns);
}

TEST(Roofline, AWaveThatIsNotFullCostsAsMuchAsAFullOne) {
  EXPECT_EQ(kernel_time(Gemm{256, 128, 1000, DType::BF16}, device()),
            kernel_time(Gemm{1280, 128, 1000, DType::BF16}, device()));
  // Eleven tiles take two waves; 22 of half the size take three, and are chosen.
  EXPECT_EQ(kernel_time(Gemm{2816, 128, 1000, DType::BF16}, device()), 3 * 32'768_ns);
}

TEST(Roofline, AThinProductIsBoundByItsTraffic) {
  Device slow = device();
  slow.memory_bandwidth = 1_GBps;
  EXPECT_EQ(kernel_time(Gemm{1, 1000, 1000, DType::BF16}, slow), (1000_B + 1'000'000_B + 1000_B) * 2 / 1_GBps);
}

TEST(Roofline, EfficienciesScaleThePeaks) {
  Device half = device();
  half.efficiency.gemm = Ratio{500'000};
  half.efficiency.memory = Ratio{250'000};
  EXPECT_EQ(kernel_time(Gemm{2560, 128, 1000, DType::BF16}, half), 2 * 65'536_ns);
  EXPECT_EQ(kernel_time(Stream{Streaming::Copy, 500_B, 500_B}, half), 4_ns);
}

TEST(Roofline, BackwardAttentionIsTwoAndAHalfTimesTheProductsButNotTheExponentials) {
  const Attention forward{Pass::Forward, 1, 1000, 2, 1, 100, DType::BF16};
  Attention backward = forward;
  backward.pass = Pass::Backward;
  // A million scores, 200 operations each in a product; an exponential stands for 4096 / 16 of them.
  EXPECT_EQ(kernel_time(forward, device()), 40'000_ns + 25'600_ns);
  EXPECT_EQ(kernel_time(backward, device()), 100'000_ns + 25'600_ns);
}

}  // namespace
}  // namespace tidemark::tests
