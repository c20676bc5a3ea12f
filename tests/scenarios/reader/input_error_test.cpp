#include "scenarios/formats/input_error.hpp"

#include <gtest/gtest.h>

#include "scenarios/formats/suggestion.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::input_error_test {
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

TEST(Suggestion, FindsNamesThatAreGivenInPartOrOtherwise) {
  using Names = std::vector<std::string>;
  const Names models{"gpt-oss-20b",   "gpt2",         "gpt2-xl",      "llama-2-70b",
                     "llama-3.1-70b", "llama-3.1-8b", "mixtral-8x7b", "qwen3-8b"};
  EXPECT_EQ(near_names("Llama_3.1_8B", models), Names{"llama-3.1-8b"});
  EXPECT_EQ(near_names("GPT-2", models), Names{"gpt2"}) << "the word itself, and not all that begin with it";
  EXPECT_EQ(near_names("llama3", models), (Names{"llama-3.1-70b", "llama-3.1-8b"}));
  EXPECT_EQ(near_names("llama-3.1-8b-instruct", models), Names{"llama-3.1-8b"});
  EXPECT_EQ(near_names("8x7b", models), Names{"mixtral-8x7b"});
  EXPECT_EQ(near_names("lama-3.1-70b", models), Names{"llama-3.1-70b"});
  EXPECT_EQ(near_names("gpt-neo-1t", models), (Names{"gpt-oss-20b", "gpt2", "gpt2-xl"})) << "others of the name";
  EXPECT_EQ(near_names("banana", models), Names{});
  EXPECT_EQ(near_names("70", models), Names{}) << "two letters are in many names";
  EXPECT_EQ(near_names("", models), Names{});
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
}  // namespace tidemark::tests::input_error_test
