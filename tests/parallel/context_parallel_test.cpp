// Closed forms of context parallelism that fall out of its programs. T: tokens of a rank, a and k: query and key-value
// heads, d: head dimension, c: context-parallel degree.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "sim/program/verify.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::context_parallel_test {
namespace {

struct Cut {
  ContextKind kind = ContextKind::Ring;
  std::int32_t context = 4, inner = 1;
  AttentionKernel attention = AttentionKernel::Fused;
  std::int64_t micro_batch = 1;
};

TestJob job_cut(const Cut& cut) {
  TestJob job;
  job.layout.context = cut.context;
  job.layout.context_kind = cut.kind;
  job.layout.context_inner = cut.inner;
  job.train.sequence_length = 256;
  job.train.micro_batch = cut.micro_batch;
  job.train.global_batch = 4 * cut.micro_batch;
  job.train.attention = cut.attention;
  return job;
}

// The same tokens on a rank that sees no others.
TestJob one_rank_of(TestJob job) {
  job.train.sequence_length /= job.layout.context;
  job.layout.context = 1;
  return job;
}

std::int64_t saved_by_a_layer(const TestJob& job) {
  const Program program = Lowered(job).stage(0);
  const std::size_t next = first_mark(program, Phase::Forward, "layers.1.attention.norm");
  return sum(live(program, next), [](const LiveTensor& t) {
    return t.category == Category::SavedActivations && t.label.starts_with("layers.0.");
  });
}

// Of a rank's tokens, with all heads.
std::int64_t attention_output(const TestJob& job) {
  return 2 * job.train.tokens() / job.layout.context * job.model.heads * job.model.head_dim;
}

std::vector<Cut> all_cuts() {
  std::vector<Cut> cuts;
  for (const AttentionKernel attention : {AttentionKernel::Fused, AttentionKernel::Flash})
    for (const std::int64_t micro_batch : {1, 3})
      for (const auto& [kind, context, inner] :
           {std::tuple{ContextKind::Ring, 2, 1}, std::tuple{ContextKind::Ring, 4, 1},
            std::tuple{ContextKind::AllGather, 4, 1}, std::tuple{ContextKind::AllToAll, 4, 1},
            std::tuple{ContextKind::AllToAllAndRing, 4, 2}})
        cuts.push_back({kind, context, inner, attention, micro_batch});
  return cuts;
}

class ContextParallel : public testing::TestWithParam<Cut> {};
INSTANTIATE_TEST_SUITE_P(Kinds, ContextParallel, testing::ValuesIn(all_cuts()));

TEST_P(ContextParallel, SavesTheRanksTokensAndWhatItsKindKeepsBeside) {
  const TestJob job = job_cut(GetParam());
  // Random states, one of each kernel, and where what is saved is not what the projection reads, the output twice. As
  // FlashAttention's output is turned, it is not.
  constexpr std::int64_t random_state = 16;
  const bool turned = GetParam().attention == AttentionKernel::Flash && GetParam().micro_batch > 1;
  const std::int64_t twice = turned ? 0 : attention_output(job);
  std::int64_t beside = 0;
  switch (GetParam().kind) {
    case ContextKind::Ring:
    case ContextKind::AllToAllAndRing:
      beside = (GetParam().context / GetParam().inner - 1) * random_state;
      break;
    case ContextKind::AllGather:
      beside = twice + random_state;
      break;
    case ContextKind::AllToAll:
      beside = twice;
      break;
  }
  EXPECT_EQ(saved_by_a_layer(job), saved_by_a_layer(one_rank_of(job)) + beside);
}

TEST_P(ContextParallel, ProgramsOfAllRanksGoTogether) {
  const Lowered lowered(job_cut(GetParam()));
  for (const std::string& finding : verify(lower(lowered.input))) ADD_FAILURE() << finding;
}

// Keys and values of all ranks, and what every step makes: whole for keys before the rank's own, half for those after.
TEST(ContextParallel, ARingHoldsEveryStepUntilAllAreMerged) {
  const TestJob job = job_cut({});
  const Lowered lowered(job);
  const std::int64_t output = attention_output(job), kv = output * 2 * job.model.kv_heads / job.model.heads;
  ASSERT_EQ(lowered.roles.size(), 4U);
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    const Role& role = lowered.roles[static_cast<std::size_t>(rank)];
    EXPECT_EQ(role.first.context, rank);
    const Program program = lower_role(lowered.input, role);
    const auto of = [&](const std::string& tensor) {
      return highest(program, [&](const auto& label, Category) { return label == "layers.0.attention." + tensor; });
    };
    EXPECT_EQ(of("kv"), 4 * kv);
    EXPECT_EQ(of("context"), output * (rank + 1) + output * (3 - rank) / 2 + output);  // and the merged one
  }
}

TEST(ContextParallel, RanksShareProgramsWhereAttentionDoesAlike) {
  const auto roles_of = [](ContextKind kind, std::int32_t inner) {
    TestJob job = job_cut({kind, 4, inner});
    job.layout.tensor = 2;
    std::string text;
    for (const Role& role : Lowered(job).roles) {
      for (const Rank rank : role.ranks) text += fmt::format("{} ", rank.value);
      text += "| ";
    }
    return text;
  };
  EXPECT_EQ(roles_of(ContextKind::Ring, 1), "0 1 | 2 3 | 4 5 | 6 7 | ");
  EXPECT_EQ(roles_of(ContextKind::AllToAll, 1), "0 1 2 3 4 5 6 7 | ");
  EXPECT_EQ(roles_of(ContextKind::AllToAllAndRing, 2), "0 1 2 3 | 4 5 6 7 | ");
}

TEST(ContextParallel, OptimizerStateIsCutOverDataAndContext) {
  TestJob job = job_cut({});
  job.layout.data = 2;
  job.layout.sharding = Sharding::Zero1;
  TestJob data = job;
  data.layout.context = 1;
  data.layout.data = 8;
  data.train.global_batch = 8;
  const auto state = [](const TestJob& its) {
    return sum(live_at_end(Lowered(its).stage(0)), Category::OptimizerMoments);
  };
  EXPECT_EQ(state(job), state(data));
}

// core/utils.py get_batch_on_this_cp_rank: whole sequences go as soon as the parts are there.
TEST(ContextParallel, ABatchIsThereWholeOneTensorAtATime) {
  const Program program = Lowered(job_cut({})).stage(0);
  const auto whole = [](const auto& label, Category) { return label == "batch.tokens" || label == "batch.labels"; };
  EXPECT_EQ(highest(program, whole), 2 * 8 * 256);
  EXPECT_EQ(sum(live(program, first_mark(program, Phase::Forward, "embedding")), "batch.tokens"), 0);
  EXPECT_EQ(sum(live(program, first_mark(program, Phase::Forward, "embedding")), "batch.tokens.own"), 8 * 64);
}

}  // namespace
}  // namespace tidemark::tests::context_parallel_test
