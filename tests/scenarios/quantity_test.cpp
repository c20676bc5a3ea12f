#include "scenarios/io/quantity.hpp"

#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace tidemark {
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

}  // namespace
}  // namespace tidemark
