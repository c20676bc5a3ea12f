#include "scenarios/plan/largest.hpp"

#include <string>

#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::largest_test {
namespace {

// A job for each value that `is_job` takes; it fits up to `room`.
template <class IsJob>
Largest largest_of(std::int64_t begin, std::int64_t step, std::int64_t room, IsJob is_job) {
  LargestQuestion question;
  question.begin = begin;
  question.step = step;
  question.refusal = [=](std::int64_t value) { return is_job(value) ? std::string() : "no job"; };
  question.fits = [=](std::int64_t value) { return value <= room; };
  return largest_value(question);
}

TEST(Largest, IsTheLastThatFitsAndTellsTheNext) {
  for (const std::int64_t room : {1, 2, 3, 7, 8, 100, 1023}) {
    const Largest found = largest_of(1, 1, room, [](std::int64_t) { return true; });
    EXPECT_EQ(found.value, room);
    EXPECT_EQ(found.next, room + 1);
    EXPECT_TRUE(found.refused.empty());
    EXPECT_LE(found.simulated, 22) << room;
  }
}

TEST(Largest, IsFoundBelowWhatTheJobHas) {
  const Largest found = largest_of(65'536, 1024, 20'000, [](std::int64_t) { return true; });
  EXPECT_EQ(found.value, 19'456);
  EXPECT_EQ(found.next, 20'480);
}

TEST(Largest, LeavesOutWhatIsNoJob) {
  // Divisors of 96.
  const Largest found = largest_of(1, 1, 40, [](std::int64_t n) { return 96 % n == 0; });
  EXPECT_EQ(found.value, 32);
  EXPECT_EQ(found.next, 48);
}

TEST(Largest, SaysWhyNoLargerOneIsAJob) {
  const Largest found = largest_of(2, 1, 1000, [](std::int64_t n) { return 64 % n == 0; });
  EXPECT_EQ(found.value, 64);
  EXPECT_FALSE(found.next.has_value());
  EXPECT_EQ(found.refused, "no job");
}

TEST(Largest, IsNothingWhereNotEvenTheSmallestFits) {
  const Largest found = largest_of(8, 1, 0, [](std::int64_t) { return true; });
  EXPECT_FALSE(found.value.has_value());
  EXPECT_EQ(found.next, 1);
}

TEST(Largest, EndsWhereNothingLimitsIt) {
  const Largest found = largest_of(1, 1, std::int64_t{1} << 62, [](std::int64_t) { return true; });
  EXPECT_GE(found.value.value_or(0), std::int64_t{1} << 50);
  EXPECT_FALSE(found.next.has_value());
  EXPECT_TRUE(found.refused.empty());
}

TEST(Largest, EndsAtWhatIsMoreThanCanBeSimulated) {
  LargestQuestion question;
  question.begin = 8;
  question.refusal = [](std::int64_t) { return std::string(); };
  question.fits = [](std::int64_t value) {
    if (value > 100) throw InputError(Problem{.file = "", .message = "too long a program", .hint = ""});
    return true;
  };
  const Largest found = largest_value(question);
  EXPECT_EQ(found.value, 64);
  EXPECT_FALSE(found.next.has_value());
  EXPECT_EQ(found.beyond, 128);
  EXPECT_EQ(found.refused, "too long a program");
}

}  // namespace
}  // namespace tidemark::tests::largest_test
