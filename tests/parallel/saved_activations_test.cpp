// Closed forms that nobody wrote into the lowering and that must fall out of its programs. T: tokens of a micro-batch,
// h: hidden, a and k: query and key-value heads, d: head dimension, f: feed-forward width, V: padded vocabulary,
// t: tensor-parallel degree, N: parameters of a rank, D: data-parallel ranks that share optimizer state.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::saved_activations_test {
namespace {

bool of_state(Category category) {
  return category == Category::Parameters || category == Category::Gradients || category == Category::OptimizerMaster ||
         category == Category::OptimizerMoments;
}

// What one layer holds right after its forward pass, and what of it is called a saved activation.
struct LayerBytes {
  std::int64_t saved = 0;
  std::int64_t all = 0;
};
LayerBytes after_forward(const TestJob& job, int layer) {
  const Lowered lowered(job);
  const Program program = lowered.stage(0);
  const char* first = job.model.norms == NormPlacement::After ? "qkv" : "norm";
  const std::size_t next = first_mark(program, Phase::Forward, fmt::format("layers.{}.attention.{}", layer + 1, first));
  const std::string mine = fmt::format("layers.{}.", layer);
  const std::vector<LiveTensor> tensors = live(program, next);
  // A layer's output is saved by the next one; its input, of equal size, is called after the layer before.
  return {
      sum(tensors,
          [&](const LiveTensor& t) { return t.label.starts_with(mine) && t.category == Category::SavedActivations; }),
      sum(tensors, [&](const LiveTensor& t) { return t.label.starts_with(mine) && !of_state(t.category); })};
}

constexpr std::int64_t rng_state = 16;

std::int64_t layer_formula(const TestJob& job) {
  const Model& m = job.model;
  const std::int64_t T = job.train.tokens(), t = job.layout.tensor, h = m.hidden, a = m.heads, k = m.kv_heads,
                     d = m.head_dim, f = m.ffn;
  if (job.layout.sequence_parallel) return T * (8 * h + 2 * (a + 2 * k) * d + 2 * a * d + 4 * a + 6 * f + 8) / t;
  return T * (8 * h + 8 + (2 * (a + 2 * k) * d + 2 * a * d + 4 * a + 6 * f) / t);
}

class LayerActivations : public testing::TestWithParam<Cut> {};

TEST_P(LayerActivations, AreTheClosedFormToTheByte) {
  const TestJob job = job_cut(GetParam());
  for (const int layer : {0, 2}) {
    EXPECT_EQ(after_forward(job, layer).saved, layer_formula(job) + rng_state);
    EXPECT_EQ(after_forward(job, layer).all, layer_formula(job) + rng_state);  // nothing else stays
  }
}

TEST_P(LayerActivations, GrowWithTheMicroBatch) {
  const TestJob job = job_cut(GetParam(), 2);
  EXPECT_EQ(job.train.tokens(), 256);
  EXPECT_EQ(after_forward(job, 1).all, layer_formula(job) + rng_state);
}

TEST_P(LayerActivations, FlashAttentionKeepsItsOutputTwice) {
  const TestJob job = job_cut(GetParam(), 2, AttentionKernel::Flash);
  const std::int64_t second_output = 2 * job.train.tokens() * 16 * 32 / job.layout.tensor;
  EXPECT_EQ(after_forward(job, 1).saved, layer_formula(job) + rng_state + second_output);
  EXPECT_EQ(after_forward(job, 1).all, layer_formula(job) + rng_state + second_output);
}

TEST_P(LayerActivations, NormsOfQueriesAndKeysSaveTheirInputsAndAStatisticOfEachHead) {
  TestJob job = job_cut(GetParam(), 2);
  job.model.qk_norm = QkNorm::PerHead;
  const std::int64_t heads = job.model.heads + job.model.kv_heads;
  const std::int64_t norms = job.train.tokens() * heads * (2 * job.model.head_dim + 4) / job.layout.tensor;
  EXPECT_EQ(after_forward(job, 1).saved, layer_formula(job) + rng_state + norms);
  EXPECT_EQ(after_forward(job, 1).all, layer_formula(job) + rng_state + norms);
}

TEST_P(LayerActivations, NormsOfAllHeadsTogetherHaveOneStatisticOfEachToken) {
  TestJob job = job_cut(GetParam(), 2);
  job.model.qk_norm = QkNorm::AllHeads;
  const std::int64_t heads = job.model.heads + job.model.kv_heads, T = job.train.tokens();
  const std::int64_t norms = T * heads * 2 * job.model.head_dim / job.layout.tensor + T * 2 * 4;
  EXPECT_EQ(after_forward(job, 1).saved, layer_formula(job) + rng_state + norms);
  EXPECT_EQ(after_forward(job, 1).all, layer_formula(job) + rng_state + norms);
}

TEST_P(LayerActivations, NormsAfterABranchSaveWhatItsLinearGave) {
  TestJob job = job_cut(GetParam(), 2);
  job.model.norms = NormPlacement::Around;
  const std::int64_t cut = job.layout.sequence_parallel ? job.layout.tensor : 1;
  const std::int64_t after = job.train.tokens() * 2 * (2 * job.model.hidden + 4) / cut;
  EXPECT_EQ(after_forward(job, 1).saved, layer_formula(job) + rng_state + after);
  EXPECT_EQ(after_forward(job, 1).all, layer_formula(job) + rng_state + after);
  // Instead of those before it, they save as much: the linears save the residual stream, which the norms did.
  job.model.norms = NormPlacement::After;
  EXPECT_EQ(after_forward(job, 1).saved, layer_formula(job) + rng_state);
  EXPECT_EQ(after_forward(job, 1).all, layer_formula(job) + rng_state);
}

TEST_P(LayerActivations, BranchesOfOneInputSaveItOnce) {
  TestJob job = job_cut(GetParam(), 2);
  job.model.parallel_residual = true;
  const std::int64_t cut = job.layout.sequence_parallel ? job.layout.tensor : 1;
  const std::int64_t hidden = job.train.tokens() * 2 * job.model.hidden / cut;
  EXPECT_EQ(after_forward(job, 1).saved, layer_formula(job) + rng_state - hidden);
  EXPECT_EQ(after_forward(job, 1).all, layer_formula(job) + rng_state - hidden);
}

TEST_P(LayerActivations, AGateInTwoStepsSavesWhatBecameOfIt) {
  TestJob job = job_cut(GetParam(), 2);
  job.model.activation = Activation::GeGlu;
  EXPECT_EQ(after_forward(job, 1).saved, layer_formula(job) + rng_state);
  job.fused_gate = false;
  const std::int64_t gate = job.train.tokens() * 2 * job.model.ffn / job.layout.tensor;
  EXPECT_EQ(after_forward(job, 1).saved, layer_formula(job) + rng_state + gate);
  EXPECT_EQ(after_forward(job, 1).all, layer_formula(job) + rng_state + gate);
}

TEST_P(LayerActivations, FlashAttentionOfOneSequenceCopiesNothing) {
  const TestJob job = job_cut(GetParam(), 1, AttentionKernel::Flash);
  EXPECT_EQ(after_forward(job, 1).all, layer_formula(job) + rng_state);
  EXPECT_EQ(after_forward(job, 1).saved, layer_formula(job) + rng_state);
}

INSTANTIATE_TEST_SUITE_P(Cuts, LayerActivations,
                         testing::Values(Cut{1, false}, Cut{2, false}, Cut{2, true}, Cut{4, false}, Cut{4, true},
                                         Cut{8, false}, Cut{8, true}),
                         [](const auto& parameter) {
                           return fmt::format("tensor{}{}", parameter.param.tensor,
                                              parameter.param.sequence_parallel ? "sequence" : "");
                         });

TEST(Activations, AreGoneAfterTheStep) {
  const Lowered lowered(job_cut({2, true}));
  EXPECT_EQ(sum(live_at_end(lowered.stage(0)), Category::SavedActivations), 0);
}

TEST(Activations, InFlightMicroBatchesAreThoseOfOneForwardOneBackward) {
  for (const std::int64_t micro_batches : {1, 2, 3, 6}) {
    TestJob job;
    job.layout.pipeline = 4;
    job.train.global_batch = micro_batches;
    const Lowered lowered(job);
    for (std::int32_t stage = 0; stage < 4; ++stage) {
      const Program program = lowered.stage(stage);
      const int in_flight = static_cast<int>(std::min<std::int64_t>(4 - stage, micro_batches));
      EXPECT_EQ(most_at_once(program, fmt::format("layers.{}.mlp.fc1.out", stage)), in_flight);
      if (stage > 0) {
        // one more, because the decoder refers to the last input until it is given another
        EXPECT_GE(most_at_once(program, "received.input"), in_flight);
        EXPECT_LE(most_at_once(program, "received.input"), in_flight + 1);
      }
    }
  }
}

TEST(Activations, InFlightChunksAreThoseOfTheInterleavedSchedule) {
  for (const std::int32_t group : {4, 5}) {
    TestJob job;
    job.model.layers.resize(12);
    job.layout.pipeline = 4;
    job.layout.chunks = 3;
    job.layout.chunk_group = group;
    job.layout.schedule = ScheduleKind::Interleaved;
    job.train.global_batch = 2 * group;
    const Lowered lowered(job);
    for (std::int32_t stage = 0; stage < 4; ++stage) {
      const int in_flight = std::min(2 * (4 - stage - 1) + 2 * group + 1, 3 * 2 * group);
      int held = 0;
      std::vector<int> of(static_cast<std::size_t>(lowered.stage(stage).buffers));
      const Program program = lowered.stage(stage);
      int most = 0;
      for (const Op& op : program.ops) {
        if (const Alloc* o = std::get_if<Alloc>(&op)) {
          of[o->buffer.index()] = program[o->label].ends_with("mlp.fc1.out") ? 1 : 0;
          most = std::max(most, held += of[o->buffer.index()]);
        } else if (const Free* freed = std::get_if<Free>(&op)) {
          held -= of[freed->buffer.index()];
        }
      }
      EXPECT_EQ(most, in_flight) << "stage " << stage << ", groups of " << group;
    }
  }
}

// A layer of latent attention: what is normalized and comes of it, each latent as it came and normalized, queries,
// keys, values, the context, the softmax's statistics, and 1/rms of the residual stream and of both latents. Then the
// MLP. (What is projected down for keys is not kept whole: its part for the latent is no contiguous view, of which
// Transformer Engine's modules take a copy, module/base.py prepare_forward.) Of tensor-parallel ranks each has some of
// the heads, and with sequence parallelism the latents of some of the tokens.
std::int64_t latent_layer_formula(const TestJob& job) {
  const Model& m = job.model;
  const MultiLatentAttention& l = *m.latent();
  const std::int64_t T = job.train.tokens(), t = job.layout.tensor, h = m.hidden, a = m.heads, f = m.ffn;
  const std::int64_t of_tokens = 2 * (4 * h + 2 * l.query_rank + 2 * l.kv_rank) + 4 * 4;
  const std::int64_t of_heads = 2 * (2 * a * l.query_head() + 2 * a * l.value_head) + 4 * a + 6 * f;
  return T * (of_tokens + of_heads) / t;
}

TEST(MultiLatentAttention, SavesLatentsAndWhatHeadsAreMadeOfThem) {
  for (const std::int32_t tensor : {1, 2}) {
    TestJob job = job_cut({tensor, tensor > 1}, 2);
    Model& m = job.model;
    m.kv_heads = m.heads;
    set_mixer(m,
              MultiLatentAttention{
                  .query_rank = 96, .kv_rank = 80, .qk_nope_head_dim = 24, .qk_rope_head_dim = 16, .value_head = 32});
    m.head_dim = m.latent()->query_head();
    for (const int layer : {0, 2}) {
      EXPECT_EQ(after_forward(job, layer).saved, latent_layer_formula(job) + rng_state);
      // Beside that each layer has its tables: angles in fp32, cosines and sines of turned dimensions, and frequencies;
      // the angles of the original length, too, while they are remembered.
      const std::int64_t tables = (4 + 2 + 2) * 128 * 16 + 4 * 4096 * 16 + 3 * 4 * 8;
      EXPECT_EQ(after_forward(job, layer).all, latent_layer_formula(job) + rng_state + tables);
    }
  }
}

}  // namespace
}  // namespace tidemark::tests::saved_activations_test
