#include "scenarios/io/input_error.hpp"

#include <gtest/gtest.h>

#include "scenarios/io/suggestion.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {
namespace {

TEST(InputError, ShowsEveryProblemAsCompilersDo) {
  const InputError error({{"job.toml", 14, 10, "tensor = 6 does not divide 64 attention heads", "1, 2, 4 or 8 would"},
                          {"job.toml", 3, 0, "no column", ""},
                          {"config.json", 0, 0, "hidden_size: is missing", ""},
                          {"", 0, 0, "no file", ""}});
  EXPECT_STREQ(error.what(),
               "job.toml:14:10: error: tensor = 6 does not divide 64 attention heads\n"
               "  hint: 1, 2, 4 or 8 would\n"
               "job.toml:3: error: no column\n"
               "config.json: error: hidden_size: is missing\n"
               "error: no file");
  EXPECT_EQ(error.problems().size(), 4U);
}

TEST(Suggestion, FindsTheNearestWord) {
  EXPECT_EQ(nearest("micro_batchs", {"global_batch", "micro_batch"}), "micro_batch");
  EXPECT_EQ(nearest("tensro", {"tensor", "data"}), "tensor");
  EXPECT_EQ(nearest("xyzzy", {"tensor", "data"}), "");
  EXPECT_EQ(nearest("", {"a"}), "");
}

TEST(Suggestion, ListsAlternatives) {
  EXPECT_EQ(one_of({}), "");
  EXPECT_EQ(one_of({"1"}), "1");
  EXPECT_EQ(one_of({"1", "2"}), "1 or 2");
  EXPECT_EQ(one_of({"1", "2", "4", "8"}), "1, 2, 4 or 8");
}

TEST(Suggestion, QuotesForATerminal) {
  EXPECT_EQ(in_quotes("a\"b\\"), "\"a\\\"b\\\\\"");
  EXPECT_EQ(in_quotes("\x1b[31m\n"), "\"\\x1b[31m\\x0a\"");
  EXPECT_EQ(in_quotes(std::string(100, 'x')), "\"" + std::string(80, 'x') + "...\"");
  // A character of two bytes is not cut in half.
  EXPECT_EQ(in_quotes(std::string(79, 'x') + "\u00e9"), "\"" + std::string(79, 'x') + "...\"");
}

}  // namespace
}  // namespace tidemark::tests
