// Closed forms that nobody wrote into the lowering and that must fall out of its programs. T: tokens of a micro-batch,
// h: hidden, a and k: query and key-value heads, d: head dimension, f: feed-forward width, V: padded vocabulary,
// t: tensor-parallel degree, N: parameters of a rank, D: data-parallel ranks that share optimizer state.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::caches_test {
namespace {

// ---- loss ----------------------------------------------------------------------------------------------------------

std::int64_t highest_of_logits(CrossEntropy variant, std::int32_t tensor, DType precision = DType::BF16) {
  TestJob job = job_cut({tensor, true});
  job.train.cross_entropy = variant;
  job.train.precision = precision;
  // tensors of the vocabulary's width; what is as long as the tokens only does not count
  return highest(Lowered(job).stage(0), [](const std::string& label, Category category) {
    return category == Category::LogitsLoss && (label == "head.logits" || label == "loss.softmax" ||
                                                label == "loss.logits_fp32" || label == "loss.logits_gradient");
  });
}

TEST(Loss, ItsPeakIsThatOfItsVariant) {
  for (const std::int32_t t : {1, 2, 4, 8}) {
    const std::int64_t TVt = 128 * 1024 / t;  // 1000 tokens of vocabulary, padded
    EXPECT_EQ(highest_of_logits(CrossEntropy::Unfused, t), 6 * TVt);
    EXPECT_EQ(highest_of_logits(CrossEntropy::Fused, t), 10 * TVt);
    EXPECT_EQ(highest_of_logits(CrossEntropy::TransformerEngine, t), 2 * TVt);
  }
}

TEST(Loss, InFp32LogitsNeedNoSecondCopy) {
  const std::int64_t TV = 128 * 1024;
  EXPECT_EQ(highest_of_logits(CrossEntropy::Unfused, 1, DType::FP32), 4 * TV);
  EXPECT_EQ(highest_of_logits(CrossEntropy::TransformerEngine, 1, DType::FP32), 4 * TV);
}

TEST(Loss, LogitsOutliveOnlyTheForwardFrame) {
  TestJob job;
  job.train.cross_entropy = CrossEntropy::Unfused;
  const Program program = Lowered(job).stage(0);
  const std::vector<LiveTensor> tensors = live(program, first_mark(program, Phase::Backward, "loss"));
  EXPECT_EQ(sum(tensors, "head.logits"), 0);
  EXPECT_EQ(sum(tensors, "loss.softmax"), 4 * 128 * 1024);
  EXPECT_EQ(sum(tensors, "loss.masked_target") + sum(tensors, "loss.target_mask"), (8 + 1) * 128);
}

// ---- caches --------------------------------------------------------------------------------------------------------

std::vector<std::string> live_labels(const Program& program, const std::string& prefix) {
  std::vector<std::string> labels;
  for (const LiveTensor& t : live_at_end(program))
    if (t.label.starts_with(prefix)) labels.push_back(fmt::format("{} {}", t.label, t.bytes));
  std::sort(labels.begin(), labels.end());
  return labels;
}

TEST(Caches, OneDummyGradientForEachShape) {
  TestJob job = job_cut({2, true});
  job.model.vocabulary = 3000;
  EXPECT_EQ(live_labels(Lowered(job).stage(0), "dummy_gradient."),
            (std::vector<std::string>{"dummy_gradient.1024x768 1572864", "dummy_gradient.1536x768 2359296",
                                      "dummy_gradient.512x768 786432", "dummy_gradient.768x256 393216",
                                      "dummy_gradient.768x512 786432"}));
  job.model.vocabulary = 1000;  // the head's shape is now that of the QKV projection
  EXPECT_EQ(live_labels(Lowered(job).stage(0), "dummy_gradient.").size(), 4u);
  job.layout.pipeline = 2;  // no head on the first stage, no embedding's gradient among them either
  job.model.vocabulary = 3000;
  EXPECT_EQ(live_labels(Lowered(job).stage(0), "dummy_gradient.").size(), 4u);
}

TEST(Caches, OldTransformerEnginesDummiesAreTemporary) {
  TestJob job = job_cut({2, true});
  job.versions.transformer_engine = {2, 2};
  const Program program = Lowered(job).stage(0);
  EXPECT_EQ(live_labels(program, "dummy_gradient.").size(), 0u);
  EXPECT_EQ(most_at_once(program, "dummy_gradient.768x256"), 1);
}

TEST(Caches, WorkspacesAreWhereTheirGemmsAre) {
  TestJob job = job_cut({2, true});
  job.layout.pipeline = 2;
  const Lowered lowered(job);
  const Program first = lowered.stage(0), last = lowered.stage(1);
  const std::string gemm = fmt::format("workspace.gemm {}", (32 << 20) + 1024);
  EXPECT_EQ(live_labels(first, "workspace."), std::vector<std::string>{gemm});
  EXPECT_EQ(live_labels(last, "workspace."),
            (std::vector<std::string>{"workspace.cublas.autograd_thread 33554432",
                                      "workspace.cublas.forward_thread 33554432", gemm}));
  EXPECT_EQ(live_labels(first, "global_memory_buffer").size(), 0u);
  EXPECT_EQ(live_labels(last, "global_memory_buffer"),
            std::vector<std::string>{fmt::format("global_memory_buffer.mpu {}", 2 * 128 * 768)});
  for (const Program* program : {&first, &last})
    EXPECT_EQ(
        live_labels(*program, "rotary."),
        (std::vector<std::string>{"rotary.inverse_frequencies 64", fmt::format("rotary.table {}", 4 * 128 * 32)}));
}

// 3,584 bytes stay on public runs: blocks of 512 of a flag, a scale, when the run began, lengths of sequences, rotary
// frequencies, and the last step's loss, reduced and for the log.
TEST(Caches, SevenSmallBlocksStay) {
  const Program program = Lowered(job_cut({1, false})).stage(0);
  EXPECT_EQ(live_labels(program, "runtime.scalar").size() + live_labels(program, "rotary.inverse_frequencies").size() +
                live_labels(program, "loss.logged").size(),
            7U);
}

TEST(Caches, WithoutSequenceParallelismTheHeadGathersNothing) {
  EXPECT_EQ(live_labels(Lowered(job_cut({2, false})).stage(0), "global_memory_buffer").size(), 0u);
}

TEST(Caches, TheAutogradThreadsWorkspaceComesWithTheFirstBackward) {
  const Program program = Lowered(job_cut({1, false})).stage(0);
  const std::size_t before = first_mark(program, Phase::Backward, "loss");
  EXPECT_GT(sum(live(program, before), "workspace.cublas.forward_thread"), 0);
  EXPECT_EQ(sum(live(program, before), "workspace.cublas.autograd_thread"), 0);
}

TEST(Caches, LaterStagesKeepTheirLastInputAndItsGradient) {
  for (const bool sequence_parallel : {false, true}) {
    TestJob job = job_cut({2, sequence_parallel});
    job.layout.pipeline = 4;
    job.train.global_batch = 6;
    const Lowered lowered(job);
    const std::int64_t x = 2 * 128 * 768 / (sequence_parallel ? 2 : 1);
    for (std::int32_t stage = 0; stage < 4; ++stage) {
      const std::vector<LiveTensor> tensors = live_at_end(lowered.stage(stage));
      EXPECT_EQ(sum(tensors, "received.input"), stage == 0 ? 0 : x);
      const auto passing = [](const LiveTensor& t) {
        return t.category == Category::Temporaries || t.category == Category::CommPp ||
               t.category == Category::SavedActivations || t.category == Category::LogitsLoss;
      };
      const std::int64_t losses = stage == 3 ? 2 * 4 : 0;  // of the last step, and since the log was written
      EXPECT_EQ(sum(tensors, passing), (stage == 0 ? 0 : 2 * x) + losses) << "stage " << stage;
    }
  }
}

TEST(Caches, EveryChunkKeepsItsLastInputAndItsGradient) {
  TestJob job;
  job.model.layers.resize(12);
  job.layout.pipeline = 2;
  job.layout.chunks = 3;
  job.layout.schedule = ScheduleKind::Interleaved;
  const Lowered lowered(job);
  const std::int64_t x = 2 * 128 * 768;
  for (std::int32_t stage = 0; stage < 2; ++stage) {
    const std::vector<LiveTensor> tensors = live_at_end(lowered.stage(stage));
    EXPECT_EQ(sum(tensors, "received.input"), (stage == 0 ? 2 : 3) * x);
    const std::int64_t losses = stage == 1 ? 2 * 4 : 0;
    EXPECT_EQ(sum(tensors, Category::Temporaries), (stage == 0 ? 2 : 3) * x + losses);  // their gradients
  }
}

TEST(Caches, AReceivedInputIsAnActivationAndAReceivedGradientCommunication) {
  TestJob job;
  job.layout.pipeline = 2;
  const Lowered lowered(job);
  const std::int64_t x = 2 * 128 * 768;
  const auto received = [](const char* label, Category category) {
    return [label, category](const std::string& l, Category c) { return l == label && c == category; };
  };
  EXPECT_GE(highest(lowered.stage(1), received("received.input", Category::SavedActivations)), x);
  // The schedule's variable refers to one gradient until the next has arrived.
  EXPECT_EQ(highest(lowered.stage(0), received("received.output_gradient", Category::CommPp)), 2 * x);
  job.train.global_batch = 1;
  EXPECT_EQ(highest(Lowered(job).stage(0), received("received.output_gradient", Category::CommPp)), x);
}

TEST(Batch, EndsOfThePipelineLoadAllOfItAndKeepWhatTheyNeed) {
  TestJob job;
  job.layout.pipeline = 3;
  job.model.layers.resize(3);
  job.train.micro_batch = 2;
  job.train.global_batch = 4;
  const std::int64_t T = 256;
  // What of a batch is there when the first operator begins.
  const auto kept = [&](std::int32_t stage) {
    const Program program = Lowered(job).stage(stage);
    std::size_t next = 0;
    for (bool loads = false; next + 1 < program.ops.size(); ++next) {
      const Mark* mark = std::get_if<Mark>(&program.ops[next + 1]);
      if (mark == nullptr) continue;
      if (loads) break;
      loads = program[mark->label] == "load_batch";
    }
    std::set<std::string> tensors;
    for (const LiveTensor& t : live(program, next))
      if (t.label.starts_with("batch.")) tensors.insert(fmt::format("{} {}", t.label.substr(6), t.bytes / T));
    return fmt::format("{}", fmt::join(tensors, ", "));
  };
  const std::string all = "labels 8, loss_mask 4, position_ids 8, tokens 8";
  EXPECT_EQ(kept(0), all);
  EXPECT_EQ(kept(1), "");
  EXPECT_EQ(kept(2), all);
  job.settings.attention_mask = true;  // a byte for each pair of tokens of a sequence
  EXPECT_EQ(kept(0), "attention_mask 128, " + all);
  // Ranks that the first one of their tensor-parallel group serves.
  job.layout.tensor = 2;
  EXPECT_EQ(kept(0), "attention_mask 128, position_ids 8, tokens 8");
  EXPECT_EQ(kept(1), "");
  EXPECT_EQ(kept(2), "attention_mask 128, labels 8, loss_mask 4");
}

TEST(Batch, IsGoneAfterItsForwardPassButForWhatBackwardReads) {
  TestJob job;
  job.settings.attention_mask = true;
  const Program program = Lowered(job).stage(0);
  const std::vector<LiveTensor> tensors = live(program, first_mark(program, Phase::Backward, "loss"));
  EXPECT_EQ(sum(tensors, [](const LiveTensor& t) { return t.label.starts_with("batch."); }), 8 * 128);
  EXPECT_EQ(sum(tensors, "batch.tokens"), 8 * 128);  // the embedding's backward looks them up again
}

}  // namespace
}  // namespace tidemark::tests::caches_test
