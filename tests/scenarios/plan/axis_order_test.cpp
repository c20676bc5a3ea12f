#include "scenarios/scenario/axis_order.hpp"

#include <string>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::axis_order_test {
namespace {

std::string read(const std::string& order) {
  const auto parsed = parse_axis_order(order);
  return parsed ? text(*parsed) : "none";
}

TEST(AxisOrder, IsRepeatedAsItWasWritten) {
  for (const std::string order : {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "ep-dp-cp-tp-pp", "pp-ep-dp-cp-tp"})
    EXPECT_EQ(read(order), order);
  EXPECT_EQ(text(Layout{}.order), "tp-cp-ep-dp-pp");
}

TEST(AxisOrder, WhatIsLeftOutComesAfterTensor) {
  EXPECT_EQ(read("tp-dp-pp"), "tp-cp-ep-dp-pp");
  EXPECT_EQ(read("pp-tp-dp"), "pp-tp-cp-ep-dp");
  EXPECT_EQ(read("cp-tp-pp-dp"), "cp-tp-ep-pp-dp");
  EXPECT_EQ(read("dp-tp-ep-pp"), "dp-tp-cp-ep-pp");
}

TEST(AxisOrder, NamesEveryAxisOnceAndNoOther) {
  for (const std::string order : {"", "tp-dp", "tp-tp-pp", "tp-dp-pp-", "tp-dp-pp-edp", "TP-DP-PP", "tp-cp-cp-dp-pp"})
    EXPECT_EQ(read(order), "none") << order;
}

}  // namespace
}  // namespace tidemark::tests::axis_order_test
