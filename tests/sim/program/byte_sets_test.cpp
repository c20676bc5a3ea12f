#include "sim/program/byte_sets.hpp"

#include <random>
#include <set>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::byte_sets_test {
namespace {

std::set<std::int64_t> bytes(const ByteSets& sets, ByteSets::Id id) {
  std::set<std::int64_t> all;
  for (const Stretch& s : sets[id])
    for (Bytes b = s.begin; b < s.end; b += Bytes{1}) all.insert(b.count());
  return all;
}

// Element by element.
std::set<std::int64_t> bytes(const View& view, std::int64_t from) {
  std::set<std::int64_t> all;
  const std::int64_t elements = elements_of(view.sizes), width = size_of(view.dtype).count();
  for (std::int64_t e = 0; e < elements; ++e) {
    std::int64_t rest = e, place = 0;
    for (std::size_t d = view.sizes.size(); d-- > 0;) {
      place += rest % view.sizes[d] * view.strides[d];
      rest /= view.sizes[d];
    }
    for (std::int64_t b = 0; b < width; ++b) all.insert(from + place * width + b);
  }
  return all;
}

View random_view(std::mt19937_64& random) {
  const auto pick = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  View view{pick(0, 1) == 0 ? DType::FP32 : DType::BF16, {}, {}};
  const std::int64_t dimensions = pick(0, 4);
  for (std::int64_t d = 0; d < dimensions; ++d) {
    view.sizes.push_back(pick(1, 4));
    view.strides.push_back(pick(0, 2) == 0 ? pick(0, 3) : pick(1, 24));
  }
  return view;
}

TEST(ByteSets, AViewIsWhatItsElementsAre) {
  std::mt19937_64 random(1);
  ByteSets sets;
  for (int i = 0; i < 2000; ++i) {
    const View view = random_view(random);
    EXPECT_EQ(bytes(sets, sets.seen(view, Bytes{i % 7})), bytes(view, i % 7));
  }
}

TEST(ByteSets, UnionsAndDifferencesAreThoseOfTheirBytes) {
  std::mt19937_64 random(2);
  ByteSets sets;
  for (int i = 0; i < 2000; ++i) {
    const ByteSets::Id a = sets.seen(random_view(random), Bytes{i % 11}), b = sets.seen(random_view(random), Bytes{});
    std::set<std::int64_t> united = bytes(sets, a), left, common;
    for (const std::int64_t byte : bytes(sets, a)) (bytes(sets, b).contains(byte) ? common : left).insert(byte);
    united.merge(bytes(sets, b));
    EXPECT_EQ(bytes(sets, sets.united(a, b)), united);
    EXPECT_EQ(bytes(sets, sets.without(a, b)), left);
    EXPECT_EQ(bytes(sets, sets.common(a, b)), common);
    EXPECT_EQ(sets.size(a).count(), static_cast<std::int64_t>(bytes(sets, a).size()));
    // One set has one number, however it was made.
    EXPECT_EQ(sets.united(sets.without(a, b), sets.common(a, b)), a);
  }
}

TEST(ByteSets, WhatFillsABufferIsOneStretch) {
  ByteSets sets;
  const ByteSets::Id left = sets.seen({DType::BF16, {3, 4}, {8, 1}}, Bytes{}),
                     right = sets.seen({DType::BF16, {3, 4}, {8, 1}}, Bytes{8});
  EXPECT_EQ(sets[left].size(), 3u);
  EXPECT_EQ(sets.united(left, right), sets.stretch({}, Bytes{48}));
  EXPECT_EQ(sets.seen({DType::BF16, {4, 6}, {1, 4}}, {}), sets.stretch({}, Bytes{48})) << "transposed";
  EXPECT_EQ(sets.seen({DType::BF16, {4, 0}, {1, 4}}, {}), ByteSets::empty);
}

}  // namespace
}  // namespace tidemark::tests::byte_sets_test
