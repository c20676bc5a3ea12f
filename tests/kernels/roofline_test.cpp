#include "kernels/roofline.hpp"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/program/program_text.hpp"
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

Duration time_of(const std::string& kernel, const Device& device) {
  const Program program = parse_program("launch s0 " + kernel + "\n");
  return kernel_time(program, program.kernels.front(), device);
}

Duration gemm(int m, int n, int k, const Device& device) {
  return time_of(fmt::format("matmul(scale=1) b0:bf16[{0}x{2}] b1:bf16[{2}x{1}] - - -> b2:bf16[{0}x{1}]", m, n, k),
                 device);
}

TEST(Roofline, AFullWaveOfTilesRunsAtThePeak) { EXPECT_EQ(gemm(2560, 128, 1000, device()), 65'536_ns); }

TEST(Roofline, AWaveThatIsNotFullCostsAsMuchAsAFullOne) {
  EXPECT_EQ(gemm(256, 128, 1000, device()), gemm(1280, 128, 1000, device()));
  // Eleven tiles take two waves; 22 of half the size take three, and are chosen.
  EXPECT_EQ(gemm(2816, 128, 1000, device()), 3 * 32'768_ns);
}

TEST(Roofline, AThinProductIsBoundByItsTraffic) {
  Device slow = device();
  slow.memory_bandwidth = 1_GBps;
  EXPECT_EQ(gemm(1, 1000, 1000, slow), (1000_B + 1'000'000_B + 1000_B) * 2 / 1_GBps);
}

TEST(Roofline, EfficienciesScaleThePeaks) {
  Device half = device();
  half.efficiency.gemm = Ratio{500'000};
  half.efficiency.memory = Ratio{250'000};
  EXPECT_EQ(gemm(2560, 128, 1000, half), 2 * 65'536_ns);
  EXPECT_EQ(time_of("copy b0:bool[500] -> b1:bool[500]", half), 4_ns);
}

TEST(Roofline, BatchesOfMatricesAreRows) {
  EXPECT_EQ(time_of("matmul(scale=1) b0:bf16[10x256x1000] b1:bf16[10x1000x128] - - -> b2:bf16[10x256x128]", device()),
            65'536_ns);
}

TEST(Roofline, BackwardAttentionIsTwoAndAHalfTimesTheProductsButNotTheExponentials) {
  const auto attention = [](const std::string& kernel, int causal) {
    const std::string q = " b0:bf16[1x1000x2x100]", kv = " b1:bf16[1x1000x1x100]";
    const bool forward = kernel == "attention";
    return time_of(fmt::format("{}(scale=0.1,causal={},dropout=0){}{}{}", kernel, causal, forward ? "" : q, q + kv + kv,
                               forward ? " - ->" + q + " - - -" : q + " b2:fp32[1x2x1000] - - - ->" + q + kv + kv),
                   device());
  };
  // A million scores, 200 operations each in a product; an exponential stands for 4096 / 16 of them.
  EXPECT_EQ(attention("attention", 1), 40'000_ns + 25'600_ns);
  EXPECT_EQ(attention("attention", 0), 2 * (40'000_ns + 25'600_ns));
  EXPECT_EQ(attention("attention_backward", 1), 100'000_ns + 25'600_ns);
}

// What a kernel moves follows from its views.
TEST(Roofline, BytesAreThoseOfTheViews) {
  Device d = device();
  d.memory_bandwidth = 1_GBps;
  EXPECT_EQ(time_of("copy b0:bf16[100] -> b1:fp32[100]", d), 600_ns);
  EXPECT_EQ(time_of("copy b0:bf16[100/0] -> b1:bf16[100]", d), 202_ns) << "one element is behind all places";
  EXPECT_EQ(time_of("multiply b0:bf16[8x4] b1:bf16[8x4/1x8] -> b2:bf16[8x4]", d), 192_ns);
  EXPECT_EQ(time_of("embedding b0:int64[3] b1:bf16[50000x16] -> b2:bf16[3x16]", d), 24_ns + 96_ns + 96_ns);
  EXPECT_EQ(time_of("scatter(number=1) b0:bool[50x64] b1:int64[50x2] - -> b0:bool[50x64]", d), 800_ns + 100_ns)
      << "in place, where elements are written";
  EXPECT_EQ(time_of("scatter(number=1) - b1:int64[50x2] - -> b0:bool[50x64]", d), 800_ns + 3200_ns);
}

}  // namespace
}  // namespace tidemark::tests
