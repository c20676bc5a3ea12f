#include "kernels/cost/roofline.hpp"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::roofline_test {
namespace {

using namespace literals;

// One tile takes 2 x 256 x 128 x 1000 operations: 65,536 ns on one of ten multiprocessors at 10 TFLOP/s in all.
Device device() {
  Device d;
  d.compute_capability = 90;
  d.multiprocessors = 10;
  d.peak.bf16 = OperationRate{10'000'000'000'000};
  d.memory_bandwidth = 1'000_GBps;
  d.efficiency.gemm = d.efficiency.attention = d.efficiency.attention_backward = d.efficiency.memory = one;
  d.efficiency.epilogue = {};
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

TEST(Roofline, AWaveThatIsNotFullIsDealtOutAlongTheSumsOrCostsAsMuchAsAFullOne) {
  Device d = device();
  // Six tiles of 128 x 128 on ten multiprocessors: dealt out, with an exchange of ten partial tiles.
  EXPECT_EQ(gemm(768, 128, 1000, d), 32'768_ns * 6 / 10 + 2 * 10 * 128 * 128 * 4_B / 1'000_GBps);
  d.memory_bandwidth = 40_GBps;
  EXPECT_EQ(gemm(256, 128, 1000, d), 32'768_ns) << "an exchange would take longer than the wave";
}

TEST(Roofline, AThinProductIsBoundByItsTraffic) {
  Device slow = device();
  slow.memory_bandwidth = 1_GBps;
  EXPECT_EQ(gemm(1, 1000, 1000, slow), (1000_B + 1'000'000_B + 1000_B) * 2 / 1_GBps);
}

TEST(Roofline, WritingAResultIsNotAllHidden) {
  Device d = device();
  d.efficiency.epilogue = Ratio{500'000};
  const Duration written = 2560 * 128 * 2_B / 1'000_GBps;
  EXPECT_EQ(gemm(2560, 128, 1000, d), 65'536_ns + written / 2);
  const std::string accumulated =
      "matmul(scale=1) b0:bf16[2560x1000] b1:bf16[1000x128] - b2:fp32[2560x128] -> b2:fp32[2560x128]";
  EXPECT_EQ(time_of(accumulated, d), 65'536_ns + 2 * written) << "read and written, four bytes each";
}

TEST(Roofline, WhatIsBoundByItsTrafficHasWrittenItsResultWithIt) {
  Device d = device();
  d.efficiency.epilogue = one;
  d.memory_bandwidth = 1_GBps;
  EXPECT_EQ(gemm(1000, 1000, 1, d), (2 * 1000_B + 1'000'000_B) * 2 / 1_GBps);
}

TEST(Roofline, AFusedKernelTakesItsTrafficAtItsFirstStep) {
  Device d = device();
  d.kernel_latency = 30_us;
  EXPECT_EQ(time_of("fused=5000 silu b0:bf16[1000] -> b1:bf16[1000]", d), 30'005_ns);
  EXPECT_EQ(time_of("fused=- multiply b0:bf16[1000] b1:bf16[1000] -> b2:bf16[1000]", d), 0_ns);
}

TEST(Roofline, EfficienciesScaleThePeaks) {
  Device half = device();
  half.efficiency.gemm = Ratio{500'000};
  half.efficiency.memory = Ratio{250'000};
  EXPECT_EQ(gemm(2560, 128, 1000, half), 2 * 65'536_ns);
  EXPECT_EQ(time_of("copy b0:bool[500] -> b1:bool[500]", half), 4_ns);
  half.kernel_latency = 30_us;
  EXPECT_EQ(gemm(2560, 128, 1000, half), 2 * 65'536_ns + 2'500_ns) << "large kernels start at once";
  EXPECT_EQ(time_of("copy b0:bool[500] -> b1:bool[500]", half), 30'004_ns);
}

TEST(Roofline, PowerLowersTheClockInTheMiddleOfAStep) {
  Device d = device();
  d.efficiency.sustained = Ratio{800'000};
  EXPECT_EQ(gemm(2560, 128, 1000, under_load(d)), 65'536_ns * 10 / 8);
  EXPECT_EQ(gemm(2560, 128, 1000, d), 65'536_ns) << "by itself";
  EXPECT_EQ(time_of("copy b0:bool[500] -> b1:bool[500]", under_load(d)), 1_ns);
  EXPECT_EQ(under_load(under_load(d)), under_load(d));
}

TEST(Roofline, ALimitOnItsPowerLowersItFurther) {
  Device d = device();
  d.efficiency.sustained = Ratio{800'000};
  d.power = PowerLimit{Power{700}, Power{700}, Ratio{500'000}, "a test"};
  Device without = d;
  without.power.reset();
  EXPECT_EQ(under_load(d), under_load(without)) << "measured under that limit";
  d.power->limit = Power{175};  // a quarter: half the clock
  EXPECT_EQ(gemm(2560, 128, 1000, under_load(d)), 65'536_ns * 10 / 4);
  EXPECT_EQ(gemm(2560, 128, 1000, d), 65'536_ns) << "by itself";
  EXPECT_EQ(time_of("copy b0:bool[500] -> b1:bool[500]", under_load(d)), 1_ns) << "memory keeps its rate";
  EXPECT_EQ(under_load(under_load(d)), under_load(d));
}

TEST(Roofline, ProductsHaveASecondWaveWhereTheirBlocksStay) {
  const Program program =
      parse_program("launch s0 matmul(scale=1) b0:bf16[8x8] b1:bf16[8x8] - - -> b2:bf16[8x8]\nlaunch s0 copy ->\n");
  const std::vector<Duration> times{30_ns, 20_ns};
  Device d = device();
  EXPECT_EQ(second_waves(program, d, times), (std::vector{30_ns, Duration{}}));
  d.compute_capability = 80;
  EXPECT_TRUE(second_waves(program, d, times).empty()) << "Ampere's blocks take a tile each";
}

// Ten multiprocessors of which two are spared: a tile each on eight, and no second wave where a collective has the
// others.
TEST(Roofline, ProductsLeaveMultiprocessorsToOthers) {
  const Device d = device();
  const auto time = [&](const char* spared) {
    const Program program = parse_program(fmt::format(
        "launch s0 matmul(scale=1{}) b0:bf16[2048x1024] b1:bf16[1024x1280] - - -> b2:bf16[2048x1280]\n", spared));
    return kernel_times(program, d).front();
  };
  const auto spare = static_cast<std::int64_t>(d.multiprocessors) / 5;
  const Duration all = time(""), fewer = time(fmt::format(",spared={}", spare).c_str());
  EXPECT_GT(100 * fewer, 120 * all);
  EXPECT_LT(100 * fewer, 150 * all);
  const Program program =
      parse_program("launch s0 matmul(scale=1,spared=2) b0:bf16[8x8] b1:bf16[8x8] - - -> b2:bf16[8x8]\n");
  EXPECT_TRUE(second_waves(program, d, {30_ns}).empty());
}

// Five tiles of 128 x 128 each: one product keeps ten multiprocessors for a wave, as two do, and five do for three.
TEST(Roofline, ProductsThatRunAtOnceFillEachOthersWaves) {
  Device d = device();
  d.memory_bandwidth = 300_GBps;  // an exchange of partial sums would take longer
  const auto time = [&](const char* alike) {
    return time_of(fmt::format("matmul(scale=1{}) b0:bf16[640x125] b1:bf16[125x128] - - -> b2:bf16[640x128]", alike),
                   d);
  };
  EXPECT_EQ(time(""), 4'096_ns);
  EXPECT_EQ(time(",alike=2"), 2'048_ns);
  EXPECT_EQ(time(",alike=5"), 4'096_ns * 3 / 5);
}

TEST(Roofline, BeforeHopperProductsTakeWholeWavesOfSmallerTilesWhichReachLess) {
  Device d = device();
  d.compute_capability = 80;
  d.memory_bandwidth = 200_GBps;
  // A tile of 256 x 128 takes 65,536 ns at a depth of 1000, one of 64 x 64 an eighth of it, and more as it loads more.
  const double largest = 256 * 128 + 5 * (256 + 128), smallest = 64 * 64 + 5 * (64 + 64);
  const double us = 65.536 * 1.024;
  const auto microseconds = [](Duration time) { return 1e6 * seconds(time); };
  EXPECT_NEAR(microseconds(gemm(2560, 128, 1024, d)), us, 1e-3) << "a full wave of the largest";
  EXPECT_NEAR(microseconds(gemm(768, 128, 1024, d)), 3 * us * smallest / largest, 1e-3)
      << "24 of the smallest in three waves, rather than six of 128 x 128 in one";
  // Two of 256 x 128 use a fifth of the device. Cut along k, more of it is used, and the sums of all parts are moved.
  d.memory_bandwidth = 1'000_GBps;
  const Duration cut = gemm(128, 256, 65'536, d);
  EXPECT_LT(microseconds(cut), 0.25 * 64 * us);
  EXPECT_GT(microseconds(cut), 0.1 * 64 * us);
}

TEST(Roofline, BatchesOfMatricesAreRows) {
  EXPECT_EQ(time_of("matmul(scale=1) b0:bf16[10x256x1000] b1:bf16[10x1000x128] - - -> b2:bf16[10x256x128]", device()),
            65'536_ns);
}

// So many that the longest block is nothing beside them.
Duration attention(const std::string& kernel, int causal, int width, int heads, const std::string& random = "- -",
                   const Device& on = device()) {
  const std::string q = fmt::format(" b0:bf16[1x1280x{}x{}]", heads, width),
                    kv = fmt::format(" b1:bf16[1x1280x1x{}]", width);
  const bool forward = kernel == "attention";
  return time_of(fmt::format("{}(scale=0.1,causal={},dropout=0){}{}{}", kernel, causal, forward ? "" : q, q + kv + kv,
                             forward ? " - ->" + q + " - " + random
                                     : q + fmt::format(" b2:fp32[1x{}x1280] {} - ->", heads, random) + q + kv + kv),
                 on);
}

TEST(Roofline, AttentionTakesItsOperationsAndWhatSticksOutOfTheLongestBlock) {
  // A hundred heads of 1280 x 1280 scores: 512 operations each in two products of width 128, and an exponential that
  // stands for 4096 / 16, of which half shows. The longest block is 128 x 1280 on one of ten multiprocessors.
  const Duration all{std::int64_t{100} * 1280 * 1280 * 640 / 10};  // ten in a picosecond
  const Duration longest = all / 100;
  // Of the half that is masked, tiles of 128 x 128 on the diagonal are computed: 256 of 1280 more in each row of two.
  const Duration causal = all / 2 + all * 256 / 1280 / 2;
  EXPECT_EQ(attention("attention", 1, 128, 100), causal + longest * 6 / 10);
  EXPECT_EQ(attention("attention", 0, 128, 100), all + longest * 6 / 10);
  EXPECT_EQ(attention("attention", 1, 128, 1), longest * 14 / 10) << "one head";
}

TEST(Roofline, BackwardThroughAttentionIsFiveProductsAndWhatIsAddedUpInMemory) {
  const Duration all{std::int64_t{100} * 1280 * 1280 * 2 * 640 / 10};
  // Results and their gradients are read; gradients of queries are zeros in fp32 first, then read and written in bf16.
  const Bytes beside = 100 * 1280 * 128 * (2 * 2_B + 2 * 4_B + 2_B);
  EXPECT_EQ(attention("attention_backward", 1, 128, 100),
            all / 2 + all * 256 / 1280 / 2 + all / 100 / 4 + beside / 1'000_GBps);
}

// Seed and offset in one tensor of two, as PyTorch's FlashAttention has them.
TEST(Roofline, FlashAttention2HasAmperesInstructionsOnly) {
  const std::string pair = "b7:int64[2] b8:int64[1]", single = "b7:int64[1] b8:int64[1]";
  const Duration own = attention("attention", 0, 128, 100, single);
  EXPECT_EQ(own, attention("attention", 0, 128, 100)) << "who keeps them apart is another";
  EXPECT_NEAR(static_cast<double>(own.count()) / static_cast<double>(attention("attention", 0, 128, 100, pair).count()),
              0.62, 1e-6);
  Device ampere = device();
  ampere.compute_capability = 80;
  EXPECT_EQ(attention("attention", 0, 128, 100, pair, ampere), attention("attention", 0, 128, 100, single, ampere));
  EXPECT_GT(attention("attention_backward", 0, 128, 100, pair), attention("attention_backward", 0, 128, 100, single));
}

TEST(Roofline, AttentionIsBuiltForWidthsOfPowersOfTwo) {
  EXPECT_EQ(attention("attention", 1, 192, 100), attention("attention", 1, 256, 100));
  EXPECT_LT(attention("attention", 1, 128, 100), attention("attention", 1, 192, 100));
}

// What Transformer Engine's kernels were measured at on a B200.
TEST(Roofline, SomeKernelsReachLessOfTheBandwidthThanOrdinaryOnes) {
  Device hopper = device(), blackwell = device();
  blackwell.compute_capability = 100;
  const std::string permuted = "permute_rows b0:bf16[4x1000] b1:int32[4x3] - -> b2:bf16[8x1000] -";
  EXPECT_NEAR(static_cast<double>(time_of(permuted, hopper).count()),
              0.274 * static_cast<double>(time_of(permuted, blackwell).count()), 2);
  for (const char* ordinary : {"copy b0:bf16[1000] -> b1:bf16[1000]", "multiply b0:bf16[9] b1:bf16[9] -> b2:bf16[9]"})
    EXPECT_EQ(time_of(ordinary, hopper), time_of(ordinary, blackwell));
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
}  // namespace tidemark::tests::roofline_test
