#include "scenarios/formats/quantity.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::quantity_test {
namespace {

using namespace literals;

std::string why(std::string_view text) { return parse_bytes(text).why; }

TEST(Quantity, ReadsBinaryAndDecimalUnitsExactly) {
  EXPECT_EQ(parse_bytes("80 GiB").bytes, 80_GiB);
  EXPECT_EQ(parse_bytes("81559 MiB").bytes, 81559_MiB);
  EXPECT_EQ(parse_bytes("85520809984 B").bytes, 85520809984_B);
  EXPECT_EQ(parse_bytes("80 GB").bytes, 80000000000_B);
  EXPECT_EQ(parse_bytes("1.5kB").bytes, 1500_B);
  EXPECT_EQ(parse_bytes("0 B").bytes, 0_B);
  EXPECT_EQ(parse_bytes("2\tTiB").bytes, 2048_GiB);
}

TEST(Quantity, ReadsFractionsThatAreWholeBytes) {
  EXPECT_EQ(parse_bytes("79.25 GiB").bytes, 81152_MiB);
  EXPECT_EQ(parse_bytes("0.5 KiB").bytes, 512_B);
  EXPECT_EQ(parse_bytes("1.000000000000000000000000000 B").bytes, 1_B);
  EXPECT_EQ(parse_bytes("0.0009765625 KiB").bytes, 1_B);
}

TEST(Quantity, RefusesWhatIsNotAWholeNumberOfBytes) {
  EXPECT_EQ(why("79.1 GiB"), "\"79.1 GiB\" is not a whole number of bytes");
  EXPECT_EQ(why("0.5 B"), "\"0.5 B\" is not a whole number of bytes");
  EXPECT_EQ(why("0.00000000000000000000000001 GiB"),
            "\"0.00000000000000000000000001 GiB\" is not a whole number of bytes");
}

TEST(Quantity, WhatIsNotAWholeNumberOfBytesIsSaidRoundedDown) {
  EXPECT_EQ(parse_bytes("79.1 GiB").below, Bytes{84'932'978'278});  // 79.1 x 2^30 = 84932978278.4
  EXPECT_EQ(parse_bytes("0.99999999999999999999999999 KiB").below, Bytes{1023});
  EXPECT_EQ(parse_bytes("0.00000000000000000000000001 GiB").below, 0_B);
  EXPECT_EQ(parse_bytes("0.5 B").below, std::nullopt);
  EXPECT_EQ(parse_bytes("8388607.9999999 TiB").below, Bytes{9'223'372'036'854'665'856});
  EXPECT_EQ(parse_bytes("80 GiB").below, std::nullopt);
}

TEST(Quantity, SaysWhatIsWrongWithAText) {
  EXPECT_EQ(why("80"), "\"80\" has no unit");
  EXPECT_EQ(why("80 gib"), "\"80 gib\" has an unknown unit");
  EXPECT_EQ(why("80 GiB "), "\"80 GiB \" has an unknown unit");
  EXPECT_EQ(why("-1 GiB"), "\"-1 GiB\" is not a number and a unit");
  EXPECT_EQ(why(""), "\"\" is not a number and a unit");
  EXPECT_EQ(why("."), "\".\" is not a number and a unit");
  EXPECT_EQ(why("1. GiB"), "\"1. GiB\" is not a number and a unit");
  EXPECT_EQ(why("nan GiB"), "\"nan GiB\" is not a number and a unit");
  EXPECT_EQ(why("8388608 TiB"), "\"8388608 TiB\" is too large");
  EXPECT_EQ(why("99999999999999999999 B"), "\"99999999999999999999 B\" is too large");
  EXPECT_EQ(why("9223372036854775808 B"), "\"9223372036854775808 B\" is too large");
  EXPECT_EQ(parse_bytes("9223372036854775807 B").bytes, Bytes{std::numeric_limits<std::int64_t>::max()});
}

TEST(Quantity, PrintsTheLargestUnitThatDivides) {
  EXPECT_EQ(text(80_GiB), "80 GiB");
  EXPECT_EQ(text(81559_MiB), "81559 MiB");
  EXPECT_EQ(text(1536_B), "1536 B");
  EXPECT_EQ(text(0_B), "0 B");
  EXPECT_EQ(text(-2_GiB), "-2 GiB");
}

TEST(Quantity, PrintedTextReadsBack) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 10'000; ++i) {
    const Bytes bytes{static_cast<std::int64_t>(random() >> (1 + random() % 62))};
    ASSERT_EQ(parse_bytes(text(bytes)).bytes, bytes) << text(bytes);
  }
}

TEST(Quantity, BandwidthIsInBytesOrBits) {
  EXPECT_EQ(parse_bandwidth("450 GB/s").bandwidth, 450_GBps);
  EXPECT_EQ(parse_bandwidth("400 Gb/s").bandwidth, 50_GBps);
  EXPECT_EQ(parse_bandwidth("3.35 TB/s").bandwidth, 3350_GBps);
  EXPECT_EQ(parse_bandwidth("56.25 GB/s").bandwidth, Bandwidth{56'250'000'000});
  EXPECT_EQ(parse_bandwidth("1 GiB/s").bandwidth, Bandwidth{1 << 30});
  EXPECT_EQ(parse_bandwidth("450").why, "\"450\" has no unit");
  EXPECT_EQ(parse_bandwidth("450 GB").why, "\"450 GB\" has an unknown unit");
  EXPECT_EQ(parse_bandwidth("0.5 B/s").why, "\"0.5 B/s\" is not a whole number of bytes per second");
  EXPECT_EQ(parse_bandwidth("0.0001 kb/s").why, "\"0.0001 kb/s\" is not a whole number of bytes per second");
  EXPECT_EQ(parse_bandwidth("9223373 TB/s").why, "\"9223373 TB/s\" is too large");
  EXPECT_EQ(text(50_GBps), "50 GB/s");
  EXPECT_EQ(text(3350_GBps), "3350 GB/s");
  EXPECT_EQ(text(2000_GBps), "2 TB/s");
  EXPECT_EQ(text(Bandwidth{56'250'000'000}), "56250 MB/s");
  EXPECT_EQ(text(Bandwidth{}), "0 B/s");
}

TEST(Quantity, DurationIsInWholePicoseconds) {
  EXPECT_EQ(parse_duration("2 us").duration, 2_us);
  EXPECT_EQ(parse_duration("850 ns").duration, 850_ns);
  EXPECT_EQ(parse_duration("0.5 s").duration, 500_ms);
  EXPECT_EQ(parse_duration("1.001 ns").duration, 1001_ps);
  EXPECT_EQ(parse_duration("0.5 ps").why, "\"0.5 ps\" is not a whole number of picoseconds");
  EXPECT_EQ(parse_duration("2 µs").why, "\"2 µs\" has an unknown unit");
  EXPECT_EQ(parse_duration("-2 us").why, "\"-2 us\" is not a number and a unit");
  EXPECT_EQ(text(2_us), "2 us");
  EXPECT_EQ(text(1500_ns), "1500 ns");
  EXPECT_EQ(text(0_ps), "0 ps");
}

TEST(Quantity, RatesOfArithmeticAreWholeOperations) {
  EXPECT_EQ(parse_operation_rate("989.4 TFLOP/s").rate, OperationRate{989'400'000'000'000});
  EXPECT_EQ(parse_operation_rate("2.25 PFLOP/s").rate, OperationRate{2'250'000'000'000'000});
  EXPECT_EQ(parse_operation_rate("989 TFLOPS").why, "\"989 TFLOPS\" has an unknown unit");
  EXPECT_EQ(parse_operation_rate("0.1 FLOP/s").why, "\"0.1 FLOP/s\" is not a whole number of operations per second");
  EXPECT_EQ(text(OperationRate{989'400'000'000'000}), "989400 GFLOP/s");
  EXPECT_EQ(text(OperationRate{2'000'000'000'000'000}), "2 PFLOP/s");
}

TEST(Quantity, RatiosPrintAsDecimalFractions) {
  EXPECT_EQ(text(one), "1");
  EXPECT_EQ(text(Ratio{850'000}), "0.85");
  EXPECT_EQ(text(Ratio{1}), "0.000001");
  EXPECT_EQ(text(Ratio{2'500'000}), "2.5");
}

TEST(Quantity, PrintedRatesAndDurationsReadBack) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 10'000; ++i) {
    const auto count = static_cast<std::int64_t>(random() >> (1 + random() % 62));
    ASSERT_EQ(parse_bandwidth(text(Bandwidth{count})).bandwidth, Bandwidth{count});
    ASSERT_EQ(parse_duration(text(Duration{count})).duration, Duration{count});
    ASSERT_EQ(parse_operation_rate(text(OperationRate{count})).rate, OperationRate{count});
  }
}

}  // namespace
}  // namespace tidemark::tests::quantity_test
