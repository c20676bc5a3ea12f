#include <algorithm>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "parallel/frameworks/megatron/training.hpp"
#include "parallel/lowering/lower.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::roles_test {
namespace {

TEST(Roles, WithoutShardingAStageIsOneRole) {
  TestJob job;
  job.layout = {.tensor = 2, .pipeline = 2, .data = 3};
  job.train.global_batch = 6;
  const Lowered lowered(job);
  ASSERT_EQ(lowered.roles.size(), 2u);
  EXPECT_EQ(lowered.roles[0].ranks.size(), 6u);
  EXPECT_EQ(lowered.roles[1].ranks.front(), Rank{6});
}

constexpr std::string_view digits = "0123456789";

// Of " b12+34" what is left is " b12".
std::string without_offsets(std::string_view line) {
  std::string kept;
  while (!line.empty()) {
    const std::size_t at = std::min(line.find(" b"), line.size());
    const std::size_t end = std::min(line.find_first_not_of(digits, at + 2), line.size());
    kept += line.substr(0, end);
    line.remove_prefix(end);
    if (!line.starts_with('+')) continue;
    line.remove_prefix(std::min(line.find_first_not_of(digits, 1), line.size()));
  }
  return kept;
}

// A program without what is said for one rank: which tokens its rows of the vocabulary are, and where its shards lie.
std::string without_places(const Program& program) {
  std::string all;
  for (const Op& op : program.ops) {
    std::string line = text(program, op);
    if (std::holds_alternative<Launch>(op))
      line.resize(line.find_first_of("( ", line.find(' ', line.find(' ') + 1) + 1));
    all += without_offsets(line) + '\n';
  }
  return all;
}

TEST(Roles, RanksOfARoleDifferOnlyInTheirPlace) {
  TestJob job;
  job.layout = {.tensor = 2, .data = 4, .sharding = Sharding::Zero1};
  const Lowered lowered(job);
  for (const Role& role : lowered.roles) {
    const std::string once = without_places(lower_role(lowered.input, role));
    for (const Rank rank : role.ranks)
      EXPECT_EQ(without_places(lower_role(lowered.input, {coordinates(job.layout, rank), {rank}})), once);
  }
}

// A framework whose data-parallel ranks run passes of their own, as those do that hold unlike experts.
std::vector<Role> one_by_one(const LoweringInput& input) {
  std::vector<Role> found;
  for (Rank rank{0}; rank.value < input.layout.world_size(); ++rank.value)
    found.push_back({coordinates(input.layout, rank), {rank}, rank.value});
  return found;
}
Program with_a_mark_more(const LoweringInput& input, const Coordinates& place, const StepSizes& micro_batches,
                         TrainingState* state) {
  Program program = megatron::lower_training(input, place, micro_batches, state);
  if (place.data > 0) program.ops.push_back(Mark{Phase::Communication, input.train.steps, -1, LabelId{0}});
  return program;
}

TEST(Roles, AreThoseThatTheFrameworkSays) {
  TestJob job;
  job.layout = {.pipeline = 2, .data = 2};
  const Lowered lowered(job);
  constexpr Framework framework{one_by_one, with_a_mark_more, megatron::record_forward};
  Runtime runtime = lowered.runtime;
  runtime.framework = &framework;
  const LoweringInput input{lowered.built, lowered.job.layout, lowered.job.train, runtime};
  const Workload as_megatron = lower(lowered.input), by_rank = lower(input);
  ASSERT_EQ(by_rank.programs.size(), 4u);
  EXPECT_EQ(by_rank.program_of_rank, (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(lower_passes(input).programs, by_rank.programs);
  for (std::int32_t r = 0; r < 4; ++r) {
    const std::size_t more = coordinates(job.layout, {r}).data > 0 ? 1 : 0;
    EXPECT_EQ(by_rank.program({r}).ops.size(), as_megatron.program({r}).ops.size() + more) << r;
  }
}

Target device(std::int32_t compute_capability) {
  return {.compute_capability = compute_capability, .devices_per_node = 8, .capacity = {}};
}

TEST(Roles, AttentionIsSettledByTheDeviceAndTheModel) {
  Model model;
  model.head_dim = 128;
  const auto resolved_scenario = [&](std::int32_t capability, AttentionKernel requested = AttentionKernel::Auto) {
    return resolved_attention(requested, model, device(capability));
  };
  EXPECT_EQ(resolved_scenario(80), AttentionKernel::Flash);
  EXPECT_EQ(resolved_scenario(90), AttentionKernel::Fused);
  EXPECT_EQ(resolved_scenario(100), AttentionKernel::Fused);
  EXPECT_EQ(resolved_scenario(100, AttentionKernel::Flash), AttentionKernel::Flash);
  model.head_dim = 256;
  EXPECT_EQ(resolved_scenario(90), AttentionKernel::Fused);
  EXPECT_EQ(resolved_scenario(100), AttentionKernel::Flash);
  model.attention_softcap = 50;
  for (const std::int32_t capability : {80, 90, 100})
    EXPECT_EQ(resolved_scenario(capability), AttentionKernel::Unfused);
}

}  // namespace
}  // namespace tidemark::tests::roles_test
