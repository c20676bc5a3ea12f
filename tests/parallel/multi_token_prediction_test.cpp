// Modules that predict tokens after the next one (core/transformer/multi_token_prediction.py): what the last stage
// holds of them, by hand. T: tokens of a micro-batch, h: hidden, t: tensor-parallel degree.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::mtp_layers_test {
namespace {

TestJob job_with(std::int64_t modules, Cut cut = {2, true}) {
  TestJob job = job_cut(cut, 2);
  job.layout.pipeline = 2;
  job.model.further = LayerList(modules);
  return job;
}

std::int64_t of_category(const Program& program, std::size_t op, Category category) {
  return sum(live(program, op), category);
}

// Of the last stage, when its first backward pass begins.
std::int64_t saved(const TestJob& job, Category category) {
  const Program program = Lowered(job).stage(1);
  return of_category(program, first_mark(program, Phase::Backward, "loss"), category);
}

TEST(NextTokens, SaveWhatTheirLayerDoesAndWhatIsJoinedForIt) {
  for (const Cut cut : {Cut{1, false}, Cut{2, true}}) {
    const TestJob job = job_with(1, cut);
    const Model& m = job.model;
    const std::int64_t T = job.train.tokens(), t = cut.tensor, F = 2 * T * m.hidden, x = F / t;
    const std::int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim, rng_state = 16;
    const std::int64_t layer =
        T * (8 * m.hidden + 2 * (q + 2 * kv) + 2 * q + 4 * m.heads + 6 * m.ffn + 8) / t + rng_state;
    // What the two norms read: embeddings and the main branch's states, which are normalized; the projection's input,
    // twice as wide; of its output, which the layer reads, the tokens of all ranks; what the last norm reads; and
    // instead of the head's input a copy of both branches'.
    const std::int64_t joined = x + 2 * x + (F - x) + x + 2 * x, statistics = 3 * 4 * T / t;
    // The mask that losses are multiplied by, how many tokens it leaves, and the losses that join the model's.
    const std::int64_t of_loss = 4 * T + 4 + 4 * T;
    EXPECT_EQ(saved(job, Category::SavedActivations) - saved(job_with(0, cut), Category::SavedActivations),
              layer + joined + statistics + of_loss);
    const std::int64_t vocabulary = 1024;  // padded
    EXPECT_EQ(saved(job, Category::LogitsLoss) - saved(job_with(0, cut), Category::LogitsLoss), 2 * T * vocabulary / t);
  }
}

std::int64_t parameters(const TestJob& job, std::int32_t stage) {
  const Program program = Lowered(job).stage(stage);
  return of_category(program, first_mark(program, Phase::Construction, "build_buffers", 0), Category::Parameters) / 2;
}

TEST(NextTokens, BringTheEmbeddingToTheLastStage) {
  const TestJob none = job_with(0), one = job_with(1), two = job_with(2);
  const Model& m = one.model;
  const std::int64_t h = m.hidden, q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim, vocabulary = 1024;
  const std::int64_t layer = h * (q + 2 * kv) / 2 + q * h / 2 + 3 * h * m.ffn / 2 + 2 * h;
  const std::int64_t module = layer + 2 * h * h / 2 + 3 * h;
  EXPECT_EQ(parameters(one, 1) - parameters(none, 1), module + vocabulary * h / 2);
  EXPECT_EQ(parameters(two, 1) - parameters(one, 1), module);
  EXPECT_EQ(parameters(one, 0), parameters(none, 0));
}

// gpt_model.py: only the first stage does without a head of its own, and the last one's lookups and logits are of its
// copy of the embedding.
TEST(NextTokens, LeaveATiedLastStageAHeadThatNobodyReads) {
  TestJob untied = job_with(1);
  TestJob tied = untied;
  tied.model.tied_embeddings = true;
  EXPECT_EQ(parameters(tied, 1), parameters(untied, 1));
  for (TestJob* const job : {&untied, &tied}) job->layout.pipeline = 1, job->layout.data = 1;
  EXPECT_EQ(parameters(untied, 0) - parameters(tied, 0), 1024 * untied.model.hidden / 2);
}

}  // namespace
}  // namespace tidemark::tests::mtp_layers_test
