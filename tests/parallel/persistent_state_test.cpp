// Closed forms that nobody wrote into the lowering and that must fall out of its programs. T: tokens of a micro-batch,
// h: hidden, a and k: query and key-value heads, d: head dimension, f: feed-forward width, V: padded vocabulary,
// t: tensor-parallel degree, N: parameters of a rank, D: data-parallel ranks that share optimizer state.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "sim/memory/flat.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::persistent_state_test {
namespace {

using namespace literals;

std::int64_t parameters_of(const TestJob& job) {  // of a rank, one pipeline stage
  const Model& m = job.model;
  const std::int64_t t = job.layout.tensor, h = m.hidden;
  const std::int64_t padded = round_up(m.vocabulary + m.vocabulary_extra, 128 * t);
  const std::int64_t layer = h * (m.heads + 2 * m.kv_heads) * m.head_dim / t + m.heads * m.head_dim * h / t +
                             3 * m.ffn * h / t + 2 * h + (m.qkv_bias ? (m.heads + 2 * m.kv_heads) * m.head_dim / t : 0);
  return m.layers.size() * layer + h + padded / t * h * (m.tied_embeddings ? 1 : 2);
}

// Bytes per element of what a rank has after a step.
struct StateBytes {
  const char* name;
  DType precision, gradient_dtype;
  Optimizer optimizer;
  std::int64_t parameter, gradient, gradient_copy, master, moments;
};
const StateBytes kinds_of_state[] = {
    {"bf16_adamw", DType::BF16, DType::FP32, Optimizer::AdamW, 2, 4, 0, 4, 8},
    {"bf16_bf16_gradients", DType::BF16, DType::BF16, Optimizer::AdamW, 2, 2, 4, 4, 8},
    {"bf16_sgd", DType::BF16, DType::FP32, Optimizer::Sgd, 2, 4, 0, 4, 0},
    {"bf16_sgd_momentum", DType::BF16, DType::FP32, Optimizer::SgdMomentum, 2, 4, 0, 4, 4},
    {"fp16_adamw", DType::FP16, DType::FP16, Optimizer::AdamW, 2, 2, 4, 4, 8},
    {"fp32_adamw", DType::FP32, DType::FP32, Optimizer::AdamW, 4, 4, 0, 0, 8},
    {"fp32_sgd", DType::FP32, DType::FP32, Optimizer::Sgd, 4, 4, 0, 0, 0},
    {"fp32_sgd_momentum", DType::FP32, DType::FP32, Optimizer::SgdMomentum, 4, 4, 0, 0, 4},
};

class PersistentState : public testing::TestWithParam<StateBytes> {
 protected:
  static TestJob job(std::int32_t data, Sharding sharding) {
    TestJob made;
    made.layout.tensor = 2;
    made.layout.sequence_parallel = true;
    made.layout.data = data;
    made.layout.sharding = sharding;
    made.train.global_batch = 2 * data;
    made.train.precision = GetParam().precision;
    made.train.gradient_dtype = GetParam().gradient_dtype;
    made.train.optimizer = GetParam().optimizer;
    return made;
  }
  static std::int64_t copies(const std::vector<LiveTensor>& tensors) {
    return sum(tensors, [](const LiveTensor& t) { return t.label.ends_with(".main_gradient"); });
  }
};

TEST_P(PersistentState, IsNBytesTimesTheSumWithoutSharding) {
  const StateBytes& each = GetParam();
  const TestJob requested = job(2, Sharding::None);
  const Lowered lowered(requested);
  ASSERT_EQ(lowered.roles.size(), 1u);  // all ranks alike
  const std::vector<LiveTensor> tensors = live_at_end(lowered.stage(0));
  const std::int64_t N = parameters_of(requested);
  EXPECT_EQ(sum(tensors, Category::Parameters), each.parameter * N);
  EXPECT_EQ(sum(tensors, Category::Gradients), (each.gradient + each.gradient_copy) * N);
  EXPECT_EQ(copies(tensors), each.gradient_copy * N);
  EXPECT_EQ(sum(tensors, Category::OptimizerMaster), each.master * N);
  EXPECT_EQ(sum(tensors, Category::OptimizerMoments), each.moments * N);
}

TEST_P(PersistentState, SharesOptimizerStateOutUnderSharding) {
  const StateBytes& each = GetParam();
  constexpr std::int32_t D = 5;
  TestJob requested = job(D, Sharding::Zero1);
  requested.model.vocabulary = 3000;
  const Lowered lowered(requested);
  const std::int64_t N = parameters_of(requested);
  const std::int64_t padded = round_up(N, 640);  // lcm(128, D); every parameter is a multiple of 64 already
  ASSERT_NE(padded, N);
  ASSERT_EQ(lowered.roles.size(), 5u);
  for (const Role& role : lowered.roles) {
    const std::vector<LiveTensor> tensors = live_at_end(lower_role(lowered.input, role));
    const std::int64_t share = padded / D, begin = role.first.data * share;
    const std::int64_t owned = std::min(N, begin + share) - begin;
    EXPECT_EQ(sum(tensors, Category::Parameters), each.parameter * padded);
    EXPECT_EQ(sum(tensors, Category::Gradients), each.gradient * padded + each.gradient_copy * owned);
    EXPECT_EQ(sum(tensors, Category::OptimizerMaster), each.master * owned);
    EXPECT_EQ(sum(tensors, Category::OptimizerMoments), each.moments * owned);
  }
}

TEST_P(PersistentState, IsSharedOutWithinAnInstanceOfTheOptimizer) {
  TestJob requested = job(4, Sharding::Zero1), alone = job(2, Sharding::Zero1);
  requested.layout.shard_group = 2;
  const Lowered instances(requested), one(alone);
  ASSERT_EQ(instances.roles.size(), one.roles.size());
  for (std::size_t r = 0; r < one.roles.size(); ++r) {
    EXPECT_EQ(instances.roles[r].ranks.size(), 2 * one.roles[r].ranks.size());
    const std::vector<LiveTensor> theirs = live_at_end(lower_role(one.input, one.roles[r])),
                                  its = live_at_end(lower_role(instances.input, instances.roles[r]));
    for (const Category category :
         {Category::Parameters, Category::Gradients, Category::OptimizerMaster, Category::OptimizerMoments})
      EXPECT_EQ(sum(its, category), sum(theirs, category));
  }
}

TEST_P(PersistentState, GradientCopiesStayFromTheStepToTheNext) {
  const Lowered lowered(job(2, Sharding::Zero1));
  const Program program = lowered.stage(0);
  for (const std::string place : {"embedding", "head"})
    EXPECT_EQ(copies(live(program, first_mark(program, Phase::Forward, place, 2))), 0);
  EXPECT_EQ(copies(live(program, first_mark(program, Phase::OptimizerStep, "zero_gradients", 2))),
            copies(live_at_end(program)));
}

TEST_P(PersistentState, MomentsComeWithTheFirstUpdate) {
  const Lowered lowered(job(2, Sharding::Zero1));
  const Program program = lowered.stage(0);
  const auto moments = [&](std::size_t op) { return sum(live(program, op), Category::OptimizerMoments); };
  EXPECT_EQ(moments(first_mark(program, Phase::OptimizerStep, "optimizer_step", 1)), 0);
  EXPECT_EQ(moments(first_mark(program, Phase::OptimizerStep, "zero_gradients", 2)), moments(program.ops.size() - 1));
}

INSTANTIATE_TEST_SUITE_P(Kinds, PersistentState, testing::ValuesIn(kinds_of_state),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(State, BuildingItHoldsTheModelTwice) {
  // Old parameter storages, the parameter buffer and the gradient buffer: 2N + 2N + 4N, before parameters move.
  TestJob job;
  job.layout.sharding = Sharding::Zero1;
  const Lowered lowered(job);
  const Program program = lowered.stage(0);
  const std::int64_t N = parameters_of(job);
  const auto of_model = [](const std::string&, Category category) {
    return category == Category::Parameters || category == Category::Gradients;
  };
  EXPECT_EQ(highest(program, of_model), 8 * N);
}

TEST(State, BiasesAndTiedEmbeddingsCount) {
  for (const bool tied : {false, true}) {
    TestJob job = job_cut({2, true});
    job.model.qkv_bias = true;
    job.model.tied_embeddings = tied;
    const Lowered lowered(job);
    EXPECT_EQ(sum(live_at_end(lowered.stage(0)), Category::Parameters), 2 * parameters_of(job));
  }
}

TEST(State, TiedEmbeddingsAreHeldTwiceOnTwoStages) {
  TestJob job;
  job.layout.pipeline = 2;
  const auto parameters = [&](std::int32_t stage) {
    return sum(live_at_end(Lowered(job).stage(stage)), Category::Parameters);
  };
  const std::int64_t first = parameters(0), last = parameters(1);
  job.model.tied_embeddings = true;
  EXPECT_EQ(parameters(0), first);
  EXPECT_EQ(parameters(1), last);
}

TEST(State, StagesSumToTheModel) {
  TestJob job;
  job.layout.pipeline = 4;
  const Lowered lowered(job);
  std::int64_t all = 0;
  for (std::int32_t stage = 0; stage < 4; ++stage) all += sum(live_at_end(lowered.stage(stage)), Category::Parameters);
  EXPECT_EQ(all, 2 * parameters_of(job));
}

// ---- steps ---------------------------------------------------------------------------------------------------------

// Losses of the step before, reduced and for the log, a block each.
constexpr Bytes losses_of_last_step = 2 * 512_B;

TEST(Steps, TheFirstLacksExactlyTheAdamMoments) {
  for (const Sharding sharding : {Sharding::None, Sharding::Zero1}) {
    TestJob job = job_cut({2, true});
    job.layout.data = 2;
    job.layout.sharding = sharding;
    job.train.sequence_length = 4096;  // activations outweigh what the update adds
    job.train.global_batch = 8;
    job.train.steps = 3;
    const Lowered lowered(job);
    const Program program = lowered.stage(0);
    Bytes moments;
    for (const LiveTensor& t : live_at_end(program))
      if (t.category == Category::OptimizerMoments) moments += block_size(Bytes{t.bytes});
    const std::vector<Bytes> peaks = flat_peaks_by_step(program);
    ASSERT_EQ(peaks.size(), 4u);
    EXPECT_GT(moments, 0_B);
    EXPECT_EQ(peaks[2] - peaks[1], moments + losses_of_last_step);
    EXPECT_EQ(peaks[3], peaks[2]);
    // Blocks are up to 1 MiB larger than requests.
    const MemoryRecord record = replay(program, no_driver_memory(), {});
    const Bytes slack = record.peak_allocated_by_step[2] - record.peak_allocated_by_step[1] - moments;
    EXPECT_LT(std::abs(slack.count()), (20_MiB).count());
  }
}

TEST(Steps, WithoutMomentsTheFirstIsLikeTheOthers) {
  TestJob job = job_cut({2, true});
  job.train.optimizer = Optimizer::Sgd;
  job.train.sequence_length = 4096;
  const Lowered lowered(job);
  const std::vector<Bytes> peaks = flat_peaks_by_step(lowered.stage(0));
  EXPECT_EQ(peaks[1] + losses_of_last_step, peaks[2]);
}

TEST(Steps, MoreMicroBatchesOnOneStageAddToAPeakWhatTheyReport) {
  std::vector<Bytes> peaks;
  for (const std::int64_t global_batch : {2, 4, 9}) {
    TestJob job = job_cut({2, true});
    job.train.global_batch = global_batch;
    peaks.push_back(replay(Lowered(job).stage(0), no_driver_memory(), {}).allocated.bytes);
  }
  EXPECT_EQ(peaks[1] - peaks[0], 2 * 512_B);
  EXPECT_EQ(peaks[2] - peaks[1], 5 * 512_B);
}

}  // namespace
}  // namespace tidemark::tests::persistent_state_test
