#include "scenarios/recordings/pickle/pickle_writer.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/recordings/pickle/pickle.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::pickle_writer_test {
namespace {

using namespace std::string_literals;

template <class Write>
std::string pickled(Write write) {
  std::ostringstream out;
  PickleWriter pickle(out);
  write(pickle);
  pickle.finish();
  return std::move(out).str();
}

std::string pickled_integer(std::int64_t n) {
  return pickled([&](PickleWriter& p) { p.integer(n); });
}

// As pickle.dumps(value, protocol=4) writes them, but for the frame and what it does not share.
TEST(PickleWriter, WritesThePlainValues) {
  EXPECT_EQ(pickled([](PickleWriter& p) { p.none(); }), "\x80\x04N."s);
  EXPECT_EQ(pickled([](PickleWriter& p) { p.boolean(true); }), "\x80\x04\x88."s);
  EXPECT_EQ(pickled([](PickleWriter& p) { p.boolean(false); }), "\x80\x04\x89."s);
  EXPECT_EQ(pickled([](PickleWriter& p) { p.number(0.5); }), "\x80\x04G\x3f\xe0\0\0\0\0\0\0."s);
  EXPECT_EQ(pickled([](PickleWriter& p) { p.text("ab"); }),
            "\x80\x04\x8c\x02"
            "abq\0."s);
}

TEST(PickleWriter, IntegersTakeAsLittleAsHoldsTheirSign) {
  EXPECT_EQ(pickled_integer(255), "\x80\x04K\xff."s);
  EXPECT_EQ(pickled_integer(256), "\x80\x04M\0\x01."s);
  EXPECT_EQ(pickled_integer(65536), "\x80\x04J\0\0\x01\0."s);
  EXPECT_EQ(pickled_integer(-1), "\x80\x04J\xff\xff\xff\xff."s);
  EXPECT_EQ(pickled_integer(0x80000000), "\x80\x04\x8a\x05\0\0\0\x80\0."s);  // one more byte, for the sign
  EXPECT_EQ(pickled_integer(-0x80000001LL), "\x80\x04\x8a\x05\xff\xff\xff\x7f\xff."s);
  EXPECT_EQ(pickled_integer(0x7f0000000000), "\x80\x04\x8a\x06\0\0\0\0\0\x7f."s);
}

TEST(PickleWriter, EveryIntegerIsReadBack) {
  std::vector<std::int64_t> numbers{0, std::numeric_limits<std::int64_t>::max(),
                                    std::numeric_limits<std::int64_t>::min()};
  for (int bit = 0; bit < 63; ++bit)
    for (const std::int64_t near : {-1, 0, 1})
      for (const std::int64_t sign : {-1, 1}) numbers.push_back(sign * ((std::int64_t{1} << bit) + near));
  for (const std::int64_t n : numbers) EXPECT_EQ(read_pickle(pickled_integer(n)).root(), PickleValue{n}) << n;
}

TEST(PickleWriter, ContainersHoldWhatIsBetween) {
  const Pickle pickle = read_pickle(pickled([](PickleWriter& p) {
    p.begin_dict();
    p.key("list");
    p.begin_list();
    p.integer(1);
    p.begin_tuple();
    p.integer(2);
    p.none();
    p.end_tuple();
    p.end_list();
    p.key("empty");
    p.begin_list();
    p.end_list();
    p.end_dict();
  }));
  const auto root = std::get<PickleDict>(pickle.root());
  const auto list = pickle.items(std::get<PickleList>(*pickle.find(root, "list")));
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0], PickleValue{std::int64_t{1}});
  EXPECT_EQ(pickle.items(std::get<PickleTuple>(list[1])).size(), 2u);
  EXPECT_TRUE(pickle.items(std::get<PickleList>(*pickle.find(root, "empty"))).empty());
}

// The viewer passes a batch as the arguments of one call.
TEST(PickleWriter, LongListsGoInBatches) {
  const std::string bytes = pickled([](PickleWriter& p) {
    p.begin_list();
    for (int i = 0; i < 2500; ++i) p.integer(i % 100);
    p.end_list();
  });
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), '('), 3 + 25);  // 40, a value, is a mark's byte too
  const Pickle pickle = read_pickle(bytes);
  const auto items = pickle.items(std::get<PickleList>(pickle.root()));
  ASSERT_EQ(items.size(), 2500u);
  for (std::size_t i = 0; i < items.size(); ++i)
    ASSERT_EQ(items[i], PickleValue{static_cast<std::int64_t>(i % 100)}) << i;
}

TEST(PickleWriter, WhatIsRememberedIsShared) {
  const Pickle pickle = read_pickle(pickled([](PickleWriter& p) {
    p.begin_list();
    p.begin_list();
    const PickleWriter::Place place = p.remember();
    p.text("x");
    p.end_list();
    for (int i = 0; i < 300; ++i) p.text("text " + std::to_string(i));  // beyond a byte's memo
    p.again(place);
    p.text("text 299");
    p.end_list();
  }));
  const auto items = pickle.items(std::get<PickleList>(pickle.root()));
  ASSERT_EQ(items.size(), 303u);
  EXPECT_EQ(items[301], items[0]);  // one place, not an equal list
  EXPECT_EQ(pickle.text(std::get<PickleText>(items[302])), "text 299");
  EXPECT_EQ(items[302], items[300]);
}

TEST(PickleWriter, LongTextsAreReadBack) {
  const std::string words(70'000, 'x');
  const Pickle pickle = read_pickle(pickled([&](PickleWriter& p) { p.text(words); }));
  EXPECT_EQ(pickle.text(std::get<PickleText>(pickle.root())), words);
}

}  // namespace
}  // namespace tidemark::tests::pickle_writer_test
