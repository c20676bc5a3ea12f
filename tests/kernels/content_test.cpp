#include "kernels/execute/content.hpp"

#include <random>

#include <gtest/gtest.h>

#include "tests/kernels/words.hpp"

namespace tidemark::tests::content_test {
namespace {

constexpr std::int64_t most_words = 6000;

// Pieces of stamps, at places of their own.
Content random_content(std::mt19937_64& random) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  Content content;
  for (std::int64_t at = below(600); at < most_words;) {
    // Above 4096 words one in 512 is stamped.
    const Content source = stamped(random(), below(2) == 0 ? 4000 : 40000);
    const std::int64_t from = below(3000), count = 1 + below(1500), shift = below(3) * 512;
    const std::int64_t end = std::min(at + count, most_words);
    append(content, source, from + shift, from + shift + end - at, at);
    at = end + below(2) * below(700);
  }
  return content;
}

TEST(Content, AStampIsInEveryWordOfASmallPayloadAndInEveryPageOfALargeOne) {
  const Words small = words_of(stamped(7, 4096), 4096);
  for (std::size_t i = 0; i + 1 < small.size(); ++i) {
    ASSERT_TRUE(small[i] && small[i + 1]);
    EXPECT_NE(*small[i], *small[i + 1]);
  }
  const Words large = words_of(stamped(7, 4608), 4608);
  for (std::size_t i = 0; i < large.size(); ++i) EXPECT_EQ(large[i].has_value(), i % 512 == 0) << i;
  EXPECT_EQ(stamped(7, 1).front().at(0), 7u);
}

TEST(Content, TheFirstKnownWordOfARunIsOnItsGrid) {
  EXPECT_EQ((ContentRun{0, 9, 4, 3, 0, 1}.first()), 3);
  EXPECT_EQ((ContentRun{3, 9, 4, 3, 0, 1}.first()), 3);
  EXPECT_EQ((ContentRun{4, 9, 4, 3, 0, 1}.first()), 7);
  EXPECT_EQ((ContentRun{4, 9, 1, 0, 0, 1}.first()), 4);
  EXPECT_GE((ContentRun{4, 6, 4, 3, 0, 1}.first()), 6);
}

TEST(Content, AppendingMovesWordsAsTheyAre) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const Content source = random_content(random);
    const auto from = static_cast<std::int64_t>(random() % 5000), at = static_cast<std::int64_t>(random() % 3000);
    const std::int64_t to = from + static_cast<std::int64_t>(random() % (most_words - 5000));
    Content moved;
    append(moved, source, from, to, at);

    const Words before = words_of(source, most_words);
    Words expected(9000);
    for (std::int64_t i = from; i < to; ++i)
      expected[static_cast<std::size_t>(at + i - from)] = before[static_cast<std::size_t>(i)];
    ASSERT_EQ(words_of(moved, 9000), expected) << "round " << round;
  }
}

TEST(Content, SumsAreWordByWordWhereAllAreKnown) {
  std::mt19937_64 random(2);
  int known = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<Content> contents;
    for (std::uint64_t n = 1 + random() % 4; n > 0; --n) contents.push_back(random_content(random));
    Words expected = words_of(contents.front(), most_words);
    for (std::size_t k = 1; k < contents.size(); ++k) {
      const Words next = words_of(contents[k], most_words);
      for (std::size_t i = 0; i < expected.size(); ++i)
        if (expected[i] && next[i])
          *expected[i] += *next[i];
        else
          expected[i].reset();
    }
    ASSERT_EQ(words_of(sum(contents), most_words), expected) << "round " << round;
    for (const auto& word : expected) known += contents.size() > 1 && word ? 1 : 0;
  }
  EXPECT_GT(known, 1000);  // the test has looked at something
  EXPECT_TRUE(sum({}).empty());
}

TEST(Content, PartsAreEvenAndLargeOnesWholePages) {
  EXPECT_EQ(shard_words(1000, 3), 333);
  EXPECT_EQ(shard_words(4096 * 3 + 2, 3), 4096);
  EXPECT_EQ(shard_words(3 * 5000, 3), 4608);  // 9 pages
  EXPECT_EQ(shard_words(2, 3), 0);
}

}  // namespace
}  // namespace tidemark::tests::content_test
