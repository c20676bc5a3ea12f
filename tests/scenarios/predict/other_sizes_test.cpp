// Ranks that get other numbers of tokens are not lowered whole: what is made for them is what lowering writes.
#include "sim/program/structure/other_sizes.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/predict/upper_ends/worst_case_routing.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/scenarios/folders.hpp"
#include "tests/seeds.hpp"

namespace tidemark::tests::other_sizes_test {
namespace {

// Four layers with experts in two stages, on four ranks which all get other numbers of tokens; two replicas of each
// hold other pieces of the optimizer's state.
Scenario drawn(const std::string& rest) {
  return scenario_of_text(R"(model = "models/qwen3-30b-a3b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 16
[model_override]
num_hidden_layers = 4
[layout]
pipeline = 2
expert = 4
sharding = "zero1"
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 128
)" + rest + R"([moe]
imbalance = { dirichlet = 20, seed = 1 }
)");
}

// What two long texts first differ in: GoogleTest compares all of their lines.
std::string first_difference(std::string_view a, std::string_view b) {
  const auto [in_a, in_b] = std::ranges::mismatch(a, b);
  if (in_a == a.end() && in_b == b.end()) return "";
  const auto line = [](std::string_view whole, std::size_t at) {
    const std::size_t begin = at == 0 ? 0 : whole.rfind('\n', at - 1) + 1;
    return std::string(whole.substr(begin, whole.find('\n', at) - begin));
  };
  return line(a, static_cast<std::size_t>(in_a - a.begin())) + " is not " +
         line(b, static_cast<std::size_t>(in_b - b.begin()));
}

// Of every role with other tokens or other state than the first of its stage.
void expect_as_lowered(const Scenario& scenario, const Train& of_others) {
  const PricedJob job(scenario);
  const LoweringInput input = job.lowering(), others{job.built, job.scenario.layout, of_others, job.runtime};
  std::optional<OtherSizes> sizes;
  std::int32_t stage = -1;
  std::uint32_t place = 0;
  for (const Role& role : job.roles) {
    if (std::exchange(stage, role.first.pipeline) != role.first.pipeline)
      sizes = OtherSizes::of(std::make_shared<const RepeatingProgram>(lower_repeating(input, role)),
                             lower_shortest(input, role));
    ASSERT_TRUE(sizes);
    if (place++ % seed_step() != 0) continue;
    const std::optional<RepeatingProgram> its = sizes->as(lower_shortest(others, role));
    ASSERT_TRUE(its);
    EXPECT_FALSE(its->repeats.empty());
    EXPECT_EQ(first_difference(text(unrolled(*its)), text(lower_role(others, role))), "");
  }
}

TEST(OtherSizes, AreThoseOfLowering) {
  const Scenario scenario = drawn("");
  expect_as_lowered(scenario, scenario.train);
}

TEST(OtherSizes, AreThoseOfLoweringWherePassesRunAgain) {
  const Scenario scenario = drawn("recompute = \"full\"\nrecompute_method = \"uniform\"\nrecompute_layers = 1\n");
  expect_as_lowered(scenario, scenario.train);
}

TEST(OtherSizes, AreThoseOfLoweringWhereMoreTokensCome) {
  const Scenario scenario = drawn("");
  const std::optional<Train> train = worst_case(scenario);
  ASSERT_TRUE(train);
  expect_as_lowered(scenario, *train);
}

// Eight stages of a layer, of which early ones run so far ahead that 20 micro-batches show no body that repeats.
TEST(OtherSizes, ProgramsOfAJobAreMadeOfThemWhenAskedFor) {
  const Job job(scenario_of_text(R"(model = "models/qwen3-30b-a3b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 32
[model_override]
num_hidden_layers = 8
[layout]
pipeline = 8
expert = 4
sharding = "zero1"
[train]
sequence_length = 512
micro_batch = 1
global_batch = 80
[moe]
imbalance = { dirichlet = 20, seed = 1 }
)"));
  std::size_t held = 0;
  for (std::size_t p = 0; p < job.outline.programs.size(); ++p) {
    held += job.outline.programs[p].is_held() ? 1U : 0U;
    const Role& role = job.roles[job.role_of_program[p]];
    if (p % 4 == 1) {
      EXPECT_EQ(first_difference(text(job.program(p)), text(lower_role(job.lowering(), role))), "");
    }
  }
  EXPECT_EQ(job.outline.programs.size(), 32U);
  EXPECT_LT(held, 20U) << "one of each stage, and all of those in which few micro-batches are not much shorter";
}

TEST(OtherSizes, AreNothingWhereFewMicroBatchesDoNotShowThem) {
  const PricedJob job(drawn(""));
  const Role& role = job.roles.front();
  const RepeatingProgram whole = lower_repeating(job.lowering(), role);
  const Program few = lower_shortest(job.lowering(), role);
  const auto in_last_pass = [](const Program& program) {
    const auto mark = std::find_if(program.ops.rbegin(), program.ops.rend(), [](const Op& op) {
      const auto* its = std::get_if<Mark>(&op);
      return its != nullptr && its->micro_batch >= 0;
    });
    return program.ops.rend() - mark;
  };
  const auto with_one_more = [&](Program program) {
    const auto at = in_last_pass(program);
    const BufferId buffer{program.buffers++};
    program.ops.insert(program.ops.begin() + at, Alloc{buffer, Bytes{12345}, Category::Temporaries, {0}, LabelId{0}});
    program.ops.insert(program.ops.begin() + at + 1, Free{buffer});
    return program;
  };
  const std::optional<OtherSizes> sizes = OtherSizes::of(std::make_shared<const RepeatingProgram>(whole), few);
  ASSERT_TRUE(sizes);
  EXPECT_TRUE(sizes->as(few));
  EXPECT_TRUE(sizes->fits(few));
  EXPECT_FALSE(sizes->fits(with_one_more(few)));
  EXPECT_FALSE(sizes->as(with_one_more(few))) << "it does something else";
  EXPECT_FALSE(
      OtherSizes::of(std::make_shared<const RepeatingProgram>(RepeatingProgram{with_one_more(whole.rolled), {}}), few))
      << "it does what is not there";
}

}  // namespace
}  // namespace tidemark::tests::other_sizes_test
