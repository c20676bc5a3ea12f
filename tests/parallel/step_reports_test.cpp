// What a step of Megatron-LM's keeps besides its tensors, by release: reports of losses, batches, the stream of
// DistributedDataParallel.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::step_reports_test {
namespace {

TestJob of_release(Version megatron) {
  TestJob job;
  job.versions.megatron = megatron;
  return job;
}

// Op by op: how many tensors of a label are live after it.
std::vector<int> live_of(const Program& program, std::string_view label) {
  std::set<std::int32_t> live;
  std::vector<int> counts;
  for (const Op& op : program.ops) {
    const auto* alloc = std::get_if<Alloc>(&op);
    if (alloc != nullptr && program[alloc->label] == label) live.insert(alloc->buffer.value);
    if (const auto* free = std::get_if<Free>(&op)) live.erase(free->buffer.value);
    counts.push_back(static_cast<int>(live.size()));
  }
  return counts;
}

std::size_t last_alloc(const Program& program, std::string_view label) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i)
    if (const auto* alloc = std::get_if<Alloc>(&program.ops[i]); alloc != nullptr && program[alloc->label] == label)
      found = i;
  return found;
}

const Role& last_stage(const Lowered& lowered) { return lowered.roles.back(); }

// pretrain_gpt.py loss_func hands a report to the schedule's forward_data_store, which lives until train_step returns.
TEST(LossReports, AreAsManyAsMicroBatchesHoweverManyThereAre) {
  for (const std::int32_t pipeline : {1, 2})
    for (const std::int64_t micro_batches : {1, 4, 24}) {
      TestJob job;
      job.layout.pipeline = pipeline;
      job.train.global_batch = micro_batches;
      const Lowered lowered(job);
      const Program program = lower_every_pass(lowered.input, last_stage(lowered));
      const std::vector<int> reports = live_of(program, "loss.report");
      EXPECT_EQ(reports[last_alloc(program, "loss.stacked")], micro_batches);
      EXPECT_EQ(reports[last_alloc(program, "loss.report")], micro_batches);
      EXPECT_EQ(reports[last_alloc(program, "loss.sum")], micro_batches - 1) << "the last one has none yet";
      EXPECT_EQ(reports[last_alloc(program, "loss.gradient")], micro_batches);
      EXPECT_EQ(*std::max_element(reports.begin(), reports.end()), micro_batches);
      EXPECT_EQ(reports.back(), 0) << "none outlives its step";
      if (pipeline > 1) {
        EXPECT_EQ(last_alloc(lowered.stage(0), "loss.report"), 0U) << "it has no loss";
      }
    }
}

TEST(LossReports, LeaveLongStepsOfOneBody) {
  TestJob job;
  job.layout.pipeline = 2;
  job.train.global_batch = 64;
  const Lowered lowered(job);
  EXPECT_FALSE(lower_repeating(lowered.input, last_stage(lowered)).repeats.empty());
}

// training.py train_step: sums are made one after the other until core 0.12, and of what is stacked from 0.13 on.
TEST(LossReports, AreStackedFromCore13On) {
  for (const std::int32_t minor : {12, 13}) {
    const Lowered lowered(of_release({0, minor}));
    const Program program = lowered.stage(0);
    EXPECT_EQ(last_alloc(program, "loss.stacked") > 0, minor >= 13);
    EXPECT_EQ(last_alloc(program, "loss.reported_tokens") > 0, minor < 13);
  }
}

// core/utils.py get_batch_on_this_tp_rank drops on the first tensor-parallel rank what the last stage does not need.
TEST(Batches, KeepWhatTheLastStageNeedsFromCore18On) {
  for (const std::int32_t minor : {17, 18}) {
    TestJob job = of_release({0, minor});
    job.layout.pipeline = 2;
    const Lowered lowered(job);
    const Program program = lowered.stage(1);
    const std::size_t head = last_alloc(program, "head.logits");
    EXPECT_EQ(live_of(program, "batch.tokens")[head], minor < 18 ? 1 : 0);
    EXPECT_EQ(live_of(program, "batch.position_ids")[head], minor < 18 ? 1 : 0);
    EXPECT_EQ(live_of(program, "batch.labels")[head], 1);
  }
}

// training.py get_model. AccumulateGrad's stream is the one that it is made on.
struct OnWrapperStream {
  int buffers = 0, additions = 0, lent = 0, waits = 0;
  bool operator==(const OnWrapperStream&) const = default;
};

OnWrapperStream on_wrapper_stream(const TestJob& job) {
  const StreamId aside{14};
  const Program program = Lowered(job).stage(0);
  OnWrapperStream found;
  for (const Op& op : program.ops) {
    if (const auto* alloc = std::get_if<Alloc>(&op))
      found.buffers += alloc->stream == aside && program[alloc->label].ends_with("_buffer") ? 1 : 0;
    if (const auto* launch = std::get_if<Launch>(&op)) found.additions += launch->stream == aside ? 1 : 0;
    if (const auto* use = std::get_if<CrossStreamUse>(&op)) found.lent += use->stream == aside && use->recorded ? 1 : 0;
    if (const auto* wait = std::get_if<Wait>(&op)) found.waits += wait->stream == aside ? 1 : 0;
  }
  return found;
}

TEST(WrapperStream, HasBuffersAndAdditionsFromCore14On) {
  EXPECT_EQ(on_wrapper_stream(of_release({0, 13})), OnWrapperStream{});
  TestJob job = of_release({0, 14});
  const OnWrapperStream found = on_wrapper_stream(job);
  // Of four layers: two norms each, the last one, and the embedding; two steps of four micro-batches.
  const int passes = 2 * 4, gradients = (4 * 2 + 1 + 1) * passes;
  EXPECT_GE(found.buffers, 1);
  EXPECT_EQ(found.additions, gradients);
  EXPECT_EQ(found.lent, 0) << "none has 10 MiB";
  EXPECT_EQ(found.waits, gradients);
  job.model.vocabulary = 10 * 1024 * 1024 / (2 * job.model.hidden) + 128;
  EXPECT_EQ(on_wrapper_stream(job).lent, passes) << "the embedding's alone are large enough for anybody to wait";
}

// TransformerEngine module/base.py get_dummy_wgrad: before 2.3 each fused GEMM makes a dummy, which autograd hands
// over.
TEST(WrapperStream, BorrowsDummiesThatNobodyKeeps) {
  TestJob job = of_release({0, 14});
  const OnWrapperStream kept = on_wrapper_stream(job);
  job.versions.transformer_engine = {2, 2};
  const OnWrapperStream found = on_wrapper_stream(job);
  const int gemms = (4 * 4 + 1) * 2 * 4;  // four of a layer, and the head's
  EXPECT_EQ(found.lent, kept.lent + gemms);
  EXPECT_EQ(found.waits, kept.waits + gemms);
  EXPECT_EQ(found.additions, kept.additions);
}

}  // namespace
}  // namespace tidemark::tests::step_reports_test
