// A program whose meaning was spoiled on purpose does not come to what one rank comes to, and the answer says where.

#include <regex>
#include <string>

#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::math_mutations_test {
namespace {

testing::AssertionResult says(const std::string& text, const std::string& words) {
  if (std::regex_search(text, std::regex(words, std::regex::extended))) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << text << "' does not say '" << words << "'";
}

struct Spoiled {
  Mutation mutation;
  MathCase job;
  std::string_view done;  ///< what was done, as a regular expression
};

class MathMutations : public testing::TestWithParam<Spoiled> {};

TEST_P(MathMutations, AreToldByTensorLayerAndStep) {
  const auto& [mutation, job, done] = GetParam();
  const Scenario scenario = scenario_of(job);
  ASSERT_EQ(beyond_arithmetic(scenario), "");
  for (const math::Storage storage : {math::Storage::Wide, math::Storage::Native}) {
    MathCheck check;
    const std::vector<std::string> ends = on_ranks(scenario.gpus, [&](World& world) {
      MathCheck mine = check_math(scenario, world, storage, mutation);
      if (world.rank().value == 0) check = std::move(mine);
    });
    ASSERT_EQ(ends, all_well(scenario.gpus));
    EXPECT_FALSE(check.agrees());
    EXPECT_TRUE(says(check.spoiled, std::string(done)));
    ASSERT_FALSE(check.worst.empty());
    // Where it shows first: a tensor of a layer, or the loss.
    EXPECT_TRUE(
        says(check.worst.front().what, "^(gradient|parameter) of (layers.[0-9]+.[a-z0-9_.]+|[a-z_]+.weight)$|^loss$"));
    EXPECT_GE(check.worst.front().step, 1);
    if (mutation == Mutation::EarlyFree || mutation == Mutation::TooLittleSaved) {
      ASSERT_FALSE(check.wrong.empty());
      EXPECT_TRUE(says(check.wrong.front(), "^rank [0-9], .* .step 1, .*: layers.[0-9].* is used after it was freed$"));
    }
  }
}

const std::string some_heads = "num_key_value_heads = 2\nhead_dim = 8", as_many = "num_key_value_heads = 2";

MathCase on_two(std::string layout, std::string train = "") {
  return {
      .name = "two", .gpus = 2, .layout = std::move(layout), .train = std::move(train), .override_keys = some_heads};
}

const MathCase tensor = on_two("tensor = 2"), gathers = on_two("tensor = 2\nsequence_parallel = true");
const MathCase replicas{
    .name = "replicas", .gpus = 4, .layout = "pipeline = 2\ndata = 2", .train = "", .override_keys = some_heads};
const MathCase axes{
    .name = "axes", .gpus = 4, .layout = "tensor = 2\ndata = 2", .train = "", .override_keys = some_heads};
const MathCase biases{
    .name = "biases", .gpus = 2, .layout = "tensor = 2", .train = "", .override_keys = as_many, .model = "qwen2.5-7b"};

MathCase of_experts() {
  MathCase made = on_two("expert = 2");
  made.model = "mixtral-8x7b", made.routing = "imbalance = 1.25";
  return made;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, MathMutations,
    testing::Values(Spoiled{Mutation::DropCollective, tensor, "step 1, .*: all_reduce of .* does not happen"},
                    Spoiled{Mutation::SwapRanks, gathers, "step 1, .*: all_gather of .* takes its first two ranks"},
                    Spoiled{Mutation::WrongPeer, replicas, "messages go to another replica's stage"},
                    Spoiled{Mutation::WrongAxis, axes, "a group lies along another axis"},
                    Spoiled{
                        Mutation::WrongCount, of_experts(),
                        "step 1, .*: all_to_all of layers.0.mlp.dispatcher.exchanged hands the second rank a token"},
                    Spoiled{Mutation::EarlyFree, tensor, "step 1, backward.* is freed before .* reads it"},
                    Spoiled{Mutation::TooLittleSaved, on_two("tensor = 2", "recompute = \"full\""), "is freed before"},
                    Spoiled{Mutation::ForgottenOperand, tensor, "step 1, .* a second time, and .* not at all"},
                    Spoiled{Mutation::WrongCut, tensor, "step 1, .* from byte [0-9]+ on, not from byte"},
                    Spoiled{Mutation::MissingBiasGradient, biases, "step 1, .*bias_gradient is nothing"},
                    Spoiled{Mutation::WrongScale, tensor, "step 1, .* goes by a scale of .* instead of"},
                    Spoiled{Mutation::GradientTwice, tensor, "step 1, .* adds to .* twice"}),
    [](const auto& test) {
      std::string text(name(test.param.mutation));
      std::ranges::replace(text, '-', '_');
      return text;
    });

TEST(MathMutation, WhereThereIsNothingToSpoilItSaysSo) {
  const Scenario scenario =
      scenario_of({.name = "one", .gpus = 1, .layout = "", .train = "", .override_keys = some_heads});
  for (const Mutation mutation :
       {Mutation::DropCollective, Mutation::WrongCount, Mutation::MissingBiasGradient, Mutation::TooLittleSaved}) {
    const std::vector<std::string> ends =
        on_ranks(1, [&](World& world) { (void)check_math(scenario, world, math::Storage::Wide, mutation); });
    EXPECT_TRUE(says(ends.front(), std::string(name(mutation)) + " has nothing to change in this job"));
  }
}

}  // namespace
}  // namespace tidemark::tests::math_mutations_test
