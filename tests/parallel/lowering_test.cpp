// Closed forms that nobody wrote into the lowering and that must fall out of its programs. T: tokens of a micro-batch,
// h: hidden, a and k: query and key-value heads, d: head dimension, f: feed-forward width, V: padded vocabulary,
// t: tensor-parallel degree, N: parameters of a rank, D: data-parallel ranks that share optimizer state.
#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lower.hpp"
#include "sim/memory/flat.hpp"
#include "sim/program/program_text.hpp"
#include "sim/program/verify.hpp"
#include "tests/parallel/data_flow.hpp"
#include "tests/parallel/expected_flow.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests {
namespace {

using namespace literals;

// ---- saved activations ---------------------------------------------------------------------------------------------

struct Cut {
  std::int32_t tensor;
  bool sequence_parallel;
};

TestJob job_cut(Cut cut, std::int64_t micro_batch = 1, AttentionKernel attention = AttentionKernel::Fused) {
  TestJob job;
  job.layout.tensor = cut.tensor;
  job.layout.sequence_parallel = cut.sequence_parallel;
  job.train.micro_batch = micro_batch;
  job.train.attention = attention;
  return job;
}

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

// A layer of latent attention: what is normalized and comes of it, each latent as it came and normalized, queries,
// keys, values, the context, the softmax's statistics, and 1/rms of the residual stream and of both latents. Then the
// MLP. Of tensor-parallel ranks each has some of the heads, and with sequence parallelism the latents of some of the
// tokens.
std::int64_t latent_layer_formula(const TestJob& job) {
  const Model& m = job.model;
  const LatentAttention& l = *m.latent;
  const std::int64_t T = job.train.tokens(), t = job.layout.tensor, h = m.hidden, a = m.heads, f = m.ffn;
  const std::int64_t of_tokens = 2 * (4 * h + 2 * l.query_rank + 2 * l.kv_rank) + 4 * 4;
  const std::int64_t of_heads = 2 * (2 * a * l.query_head() + 2 * a * l.value_head) + 4 * a + 6 * f;
  return T * (of_tokens + of_heads) / t;
}

TEST(LatentAttention, SavesLatentsAndWhatHeadsAreMadeOfThem) {
  for (const std::int32_t tensor : {1, 2}) {
    TestJob job = job_cut({tensor, tensor > 1}, 2);
    Model& m = job.model;
    m.kv_heads = m.heads;
    m.latent = LatentAttention{.query_rank = 96, .kv_rank = 80, .plain_head = 24, .rotary_head = 16, .value_head = 32};
    m.head_dim = m.latent->query_head();
    for (const int layer : {0, 2}) {
      EXPECT_EQ(after_forward(job, layer).saved, latent_layer_formula(job) + rng_state);
      // Beside that each layer has its tables: angles in fp32, cosines and sines of turned dimensions, and frequencies;
      // the angles of the original length, too, while they are remembered.
      const std::int64_t tables = (4 + 2 + 2) * 128 * 16 + 4 * 4096 * 16 + 3 * 4 * 8;
      EXPECT_EQ(after_forward(job, layer).all, latent_layer_formula(job) + rng_state + tables);
    }
  }
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

// ---- persistent state ----------------------------------------------------------------------------------------------

std::int64_t parameters_of(const TestJob& job) {  // of a rank, one pipeline stage
  const Model& m = job.model;
  const std::int64_t t = job.layout.tensor, h = m.hidden;
  const std::int64_t padded = round_up(m.vocabulary + m.vocabulary_extra, 128 * t);
  const std::int64_t layer = h * (m.heads + 2 * m.kv_heads) * m.head_dim / t + m.heads * m.head_dim * h / t +
                             3 * m.ffn * h / t + 2 * h + (m.qkv_bias ? (m.heads + 2 * m.kv_heads) * m.head_dim / t : 0);
  return m.layers * layer + h + padded / t * h * (m.tied_embeddings ? 1 : 2);
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
  const TestJob asked = job(2, Sharding::None);
  const Lowered lowered(asked);
  ASSERT_EQ(lowered.roles.size(), 1u);  // all ranks alike
  const std::vector<LiveTensor> tensors = live_at_end(lowered.stage(0));
  const std::int64_t N = parameters_of(asked);
  EXPECT_EQ(sum(tensors, Category::Parameters), each.parameter * N);
  EXPECT_EQ(sum(tensors, Category::Gradients), (each.gradient + each.gradient_copy) * N);
  EXPECT_EQ(copies(tensors), each.gradient_copy * N);
  EXPECT_EQ(sum(tensors, Category::OptimizerMaster), each.master * N);
  EXPECT_EQ(sum(tensors, Category::OptimizerMoments), each.moments * N);
}

TEST_P(PersistentState, SharesOptimizerStateOutUnderSharding) {
  const StateBytes& each = GetParam();
  constexpr std::int32_t D = 5;
  TestJob asked = job(D, Sharding::Zero1);
  asked.model.vocabulary = 3000;
  const Lowered lowered(asked);
  const std::int64_t N = parameters_of(asked);
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

// The highest number of live bytes in each step, requests rounded as the allocator does, without its slack.
std::vector<Bytes> flat_peaks_by_step(const Program& program) {
  const std::vector<std::int64_t> changes = flat_changes(program);
  std::vector<Bytes> peaks{Bytes{0}};
  std::int64_t level = 0;
  std::int32_t step = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (const Mark* mark = std::get_if<Mark>(&program.ops[i]); mark != nullptr && mark->step != step) {
      step = mark->step;
      peaks.push_back(Bytes{level});
    }
    level += changes[i];
    peaks.back() = std::max(peaks.back(), Bytes{level});
  }
  return peaks;
}

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
    EXPECT_EQ(peaks[2] - peaks[1], moments);
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
  EXPECT_EQ(peaks[1], peaks[2]);
}

TEST(Steps, MoreMicroBatchesOnOneStageChangeNoPeak) {
  std::vector<Bytes> peaks;
  for (const std::int64_t global_batch : {2, 4, 9}) {
    TestJob job = job_cut({2, true});
    job.train.global_batch = global_batch;
    peaks.push_back(replay(Lowered(job).stage(0), no_driver_memory(), {}).allocated.bytes);
  }
  EXPECT_EQ(peaks[0], peaks[1]);
  EXPECT_EQ(peaks[1], peaks[2]);
}

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
    EXPECT_EQ(live_labels(*program, "rotary."), std::vector<std::string>{fmt::format("rotary.table {}", 4 * 128 * 32)});
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
      EXPECT_EQ(sum(tensors, passing), stage == 0 ? 0 : 2 * x) << "stage " << stage;
    }
  }
}

TEST(Caches, EveryChunkKeepsItsLastInputAndItsGradient) {
  TestJob job;
  job.model.layers = 12;
  job.layout.pipeline = 2;
  job.layout.chunks = 3;
  job.layout.schedule = ScheduleKind::Interleaved;
  const Lowered lowered(job);
  const std::int64_t x = 2 * 128 * 768;
  for (std::int32_t stage = 0; stage < 2; ++stage) {
    const std::vector<LiveTensor> tensors = live_at_end(lowered.stage(stage));
    EXPECT_EQ(sum(tensors, "received.input"), (stage == 0 ? 2 : 3) * x);
    EXPECT_EQ(sum(tensors, Category::Temporaries), (stage == 0 ? 2 : 3) * x);  // their gradients
  }
}

TEST(Activations, InFlightChunksAreThoseOfTheInterleavedSchedule) {
  for (const std::int32_t group : {4, 5}) {
    TestJob job;
    job.model.layers = 12;
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
  job.model.layers = 3;
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

// ---- operators -----------------------------------------------------------------------------------------------------

// What an operator's pass allocates, in its order, when caches are filled: "proj.out 1536, …".
std::string taken(const Program& program, Phase phase, const std::string& name) {
  std::vector<std::string> allocated;
  for (std::size_t i = first_mark(program, phase, name, 2) + 1; !std::holds_alternative<Mark>(program.ops[i]); ++i)
    if (const Alloc* o = std::get_if<Alloc>(&program.ops[i]))
      allocated.push_back(fmt::format("{} {}", program[o->label].substr(name.rfind('.') + 1), o->size.count()));
  return fmt::format("{}", fmt::join(allocated, ", "));
}

// TransformerEngine 2.11 module/linear.py, layernorm_linear.py, cpp_extensions/fused_attn.py; cuDNN and FlashAttention
// sum query gradients in fp32 over blocks of keys.
TEST(Operators, OfALayerTakeWhatTheirFunctionsTake) {
  const TestJob job = job_cut({2, true}, 2);
  const Program program = Lowered(job).stage(0);
  const auto forward = [&](const char* op) { return taken(program, Phase::Forward, fmt::format("layers.1.{}", op)); };
  const auto backward = [&](const char* op) { return taken(program, Phase::Backward, fmt::format("layers.1.{}", op)); };
  const std::int64_t T = 256, t = 2, whole = 2 * T * 768, part = whole / t, q = 2 * T * 16 * 32 / t,
                     kv = 2 * T * 8 * 32 / t, ffn = 2 * T * 1024 / t, norm = 2 * 768;

  EXPECT_EQ(forward("attention.norm"), fmt::format("norm.out {}, norm.rstd {}", part, 4 * T / t));
  EXPECT_EQ(forward("attention.qkv"), fmt::format("qkv.gathered {}, qkv.out {}", whole, q + 2 * kv));
  EXPECT_EQ(forward("attention.rotary"), fmt::format("rotary.query {}, q {}, k {}, v {}", q, q, kv, kv));
  EXPECT_EQ(forward("attention.core"), fmt::format("context {}, lse {}, rng_state 16", q, 4 * T * 16 / t));
  EXPECT_EQ(forward("attention.proj"), fmt::format("proj.partial_sum {}, proj.out {}", whole, part));
  EXPECT_EQ(forward("attention.add"), fmt::format("add.out {}", part));
  EXPECT_EQ(forward("mlp.norm"), fmt::format("norm.out {}, norm.rstd {}", part, 4 * T / t));
  EXPECT_EQ(forward("mlp.fc1"), fmt::format("fc1.gathered {}, fc1.out {}", whole, 2 * ffn));
  EXPECT_EQ(forward("mlp.swiglu"), fmt::format("swiglu {}", ffn));
  EXPECT_EQ(forward("mlp.fc2"), fmt::format("fc2.partial_sum {}, fc2.out {}", whole, part));
  EXPECT_EQ(forward("mlp.add"), fmt::format("add.out {}", part));

  EXPECT_EQ(backward("mlp.add"), "");  // both branches get the gradient as it is
  EXPECT_EQ(backward("mlp.fc2"), fmt::format("fc2.gradient_gathered {}, fc2.input_gradient {}", whole, ffn));
  EXPECT_EQ(backward("mlp.swiglu"), fmt::format("swiglu.input_gradient {}", 2 * ffn));
  EXPECT_EQ(backward("mlp.fc1"),
            fmt::format("fc1.gathered {}, fc1.input_gradient {}, fc1.input_gradient_scattered {}", whole, whole, part));
  EXPECT_EQ(backward("mlp.norm"),
            fmt::format("norm.input_gradient {}, norm.weight_gradient {}, norm.gradient_sum {}", part, norm, part));
  EXPECT_EQ(backward("attention.add"), "");
  EXPECT_EQ(backward("attention.proj"), fmt::format("proj.gradient_gathered {}, proj.input_gradient {}", whole, q));
  EXPECT_EQ(backward("attention.core"),
            fmt::format("core.query_gradient {}, core.key_gradient {}, core.value_gradient {}, "
                        "core.query_gradient_fp32 {}",
                        q, kv, kv, 2 * q));
  EXPECT_EQ(
      backward("attention.rotary"),
      fmt::format("rotary.key_gradient {}, rotary.query_gradient {}, rotary.mixed_gradient {}", kv, q, q + 2 * kv));
  EXPECT_EQ(backward("attention.qkv"),
            fmt::format("qkv.gathered {}, qkv.input_gradient {}, qkv.input_gradient_scattered {}", whole, whole, part));
  EXPECT_EQ(backward("attention.norm"),
            fmt::format("norm.input_gradient {}, norm.weight_gradient {}, norm.gradient_sum {}", part, norm, part));
}

// ---- GPT-style models -----------------------------------------------------------------------------------------------

TestJob gpt_job() {
  TestJob job;
  job.model.kv_heads = job.model.heads = 24;
  job.model.ffn = 4 * job.model.hidden;
  job.model.tied_embeddings = job.model.qkv_bias = job.model.output_bias = job.model.mlp_bias = true;
  job.model.normalization = Normalization::Layer;
  job.model.activation = Activation::Gelu;
  job.model.positions = Positions::Learned;
  job.train.hidden_dropout = job.train.attention_dropout = 0.1;
  job.train.micro_batch = 2;
  return job;
}

TEST(Operators, WithBiasesAndDropoutTakeMasksAndSums) {
  TestJob job = gpt_job();
  job.layout.tensor = 2;
  job.train.attention = AttentionKernel::Unfused;
  const Program program = Lowered(job).stage(0);
  const auto forward = [&](const char* op) { return taken(program, Phase::Forward, fmt::format("layers.1.{}", op)); };
  const auto backward = [&](const char* op) { return taken(program, Phase::Backward, fmt::format("layers.1.{}", op)); };
  const std::int64_t T = 256, t = 2, h = 768, whole = 2 * T * h, q = whole / t, ffn = 4 * whole / t,
                     scores = 2 * 2 * 12 * 128 * 128;

  EXPECT_EQ(forward("attention.norm"), fmt::format("norm.out {}, norm.mean {}, norm.rstd {}", whole, 4 * T, 4 * T));
  EXPECT_EQ(forward("attention.qkv"), fmt::format("qkv.out {}", 3 * q));
  EXPECT_EQ(forward("attention.split"), "");
  EXPECT_EQ(
      forward("attention.core"),
      fmt::format("core.scores_addend {}, core.scores {}, softmax {}, dropout_mask {}, dropped {}, core.by_head {}, "
                  "context {}",
                  scores, scores, scores, scores / 2, scores, q, q));
  EXPECT_EQ(forward("attention.proj"), fmt::format("proj.out {}", whole));
  EXPECT_EQ(forward("attention.add"), fmt::format("add.dropout_mask {}, add.out {}", T * h, whole));
  EXPECT_EQ(forward("mlp.fc1"), fmt::format("fc1.out {}", ffn));
  EXPECT_EQ(forward("mlp.gelu"), fmt::format("gelu {}", ffn));

  EXPECT_EQ(backward("mlp.add"), fmt::format("add.dropout_gradient {}, add.bias_gradient {}", whole, 2 * h));
  EXPECT_EQ(backward("mlp.fc2"), fmt::format("fc2.input_gradient {}", ffn));
  EXPECT_EQ(backward("mlp.gelu"), fmt::format("gelu.input_gradient {}, gelu.bias_gradient {}", ffn, 2 * 4 * h / t));
  EXPECT_EQ(backward("mlp.fc1"), fmt::format("fc1.input_gradient {}", whole));
  EXPECT_EQ(backward("mlp.norm"),
            fmt::format("norm.input_gradient {}, norm.weight_gradient {}, norm.bias_gradient {}, norm.gradient_sum {}",
                        whole, 2 * h, 2 * h, whole));
  EXPECT_EQ(backward("attention.proj"), fmt::format("proj.input_gradient {}", q));
  EXPECT_EQ(backward("attention.core"),
            fmt::format("core.weights_gradient {}, core.value_gradient {}, core.dropout_gradient {}, "
                        "core.unscaled_gradient {}, core.query_gradient {}, core.unscaled_gradient {}, "
                        "core.key_gradient {}",
                        scores, q, scores, q, q, q, q));
  EXPECT_EQ(backward("attention.split"), fmt::format("split.mixed_gradient {}", 3 * q));
  EXPECT_EQ(backward("attention.qkv"),
            fmt::format("qkv.input_gradient {}, qkv.bias_gradient {}", whole, 2 * 3 * h / t));
}

std::vector<LiveTensor> at_loss(const TestJob& job) {
  const Program program = Lowered(job).stage(0);
  return live(program, first_mark(program, Phase::Backward, "loss"));
}

TEST(Gpt, QueriesKeysAndValuesLieInTheJointProjection) {
  TestJob job = gpt_job();
  const std::int64_t T = 256, h = 768;
  for (const AttentionKernel kernel : {AttentionKernel::Fused, AttentionKernel::Unfused}) {
    job.train.attention = kernel;
    EXPECT_EQ(sum(at_loss(job), "layers.0.attention.qkv.out"), 2 * T * 3 * h);
    EXPECT_EQ(sum(at_loss(job), "layers.0.attention.q"), 0);
  }
  job.train.attention = AttentionKernel::Flash;  // batch-first copies instead
  EXPECT_EQ(sum(at_loss(job), "layers.0.attention.qkv.out"), 0);
  EXPECT_EQ(sum(at_loss(job), "layers.0.attention.q.transposed"), 2 * T * h);
  EXPECT_EQ(sum(at_loss(job), "layers.0.attention.context"), 2 * T * h);
  EXPECT_EQ(sum(at_loss(job), "layers.0.attention.context.transposed"), 2 * T * h);  // the output twice
}

TEST(Gpt, UnfusedAttentionKeepsScoresAndMasksUntilBackward) {
  TestJob job = gpt_job();
  job.train.attention = AttentionKernel::Unfused;
  job.layout.tensor = 2;
  const std::int64_t scores = 2 * 12 * 128 * 128;  // sequences, heads of the rank, queries, keys
  const std::vector<LiveTensor> tensors = at_loss(job);
  EXPECT_EQ(sum(tensors, "layers.0.attention.softmax"), 2 * scores);
  EXPECT_EQ(sum(tensors, "layers.0.attention.dropout_mask"), scores);
  EXPECT_EQ(sum(tensors, "layers.0.attention.dropped"), 2 * scores);
  EXPECT_EQ(sum(tensors, "layers.0.attention.add.dropout_mask"), 256 * 768);
  EXPECT_EQ(sum(tensors, [](const LiveTensor& t) { return t.label.find("scores") != std::string::npos; }), 0);
}

TEST(Gpt, MegatronsOwnLayersKeepABufferOfScoresAndNoLibraryWorkspace) {
  TestJob job = gpt_job();
  job.train.attention = AttentionKernel::Local;
  job.settings.local_layers = true;
  const std::vector<LiveTensor> tensors = live_at_end(Lowered(job).stage(0));
  EXPECT_EQ(sum(tensors, "global_memory_buffer.mpu"), 2 * 2 * 24 * 128 * 128);
  EXPECT_EQ(sum(tensors, "workspace.gemm"), 0);
  EXPECT_EQ(sum(tensors, "workspace.cublas.forward_thread"), 32 << 20);
}

TEST(Gpt, WithoutFusedAccumulationAWeightsGradientIsATensorUntilItsHook) {
  TestJob job = gpt_job();
  EXPECT_GT(sum(live_at_end(Lowered(job).stage(0)), "dummy_gradient.3072x768"), 0);
  job.settings.gradient_accumulation_fusion = false;
  const Program program = Lowered(job).stage(0);
  EXPECT_EQ(sum(live_at_end(program), "dummy_gradient.3072x768"), 0);
  EXPECT_EQ(most_at_once(program, "layers.0.mlp.fc1.weight_gradient"), 1);
}

TEST(Gpt, ATiedWeightsGradientWaitsForTheEmbeddings) {
  TestJob job = gpt_job();
  job.settings.gradient_accumulation_fusion = false;
  const auto waiting = [&] {
    const Program program = Lowered(job).stage(0);
    return sum(live(program, first_mark(program, Phase::Backward, "layers.0.attention.core")), "head.weight_gradient");
  };
  EXPECT_EQ(waiting(), 2 * 1024 * 768);  // the vocabulary padded to 128
  job.model.tied_embeddings = false;
  EXPECT_EQ(waiting(), 0);
}

TEST(Gpt, DeterministicFlashAttentionSumsQueryGradientsInCopies) {
  TestJob job = gpt_job();
  job.train.attention = AttentionKernel::Flash;
  const auto sums = [&] {
    return highest(Lowered(job).stage(0), [](const std::string& label, Category) {
      return label == "layers.0.attention.core.query_gradient_fp32";
    });
  };
  EXPECT_EQ(sums(), 4 * 256 * 768);
  job.settings.deterministic = true;
  EXPECT_EQ(sums(), 3 * 4 * 256 * 768);  // 132 multiprocessors over 48 sequences and heads
}

// ---- caps, partial and double tables, scales
// -------------------------------------------------------------------------

TEST(SoftCaps, KeepTheTangentsOfScoresAndLogits) {
  TestJob job;
  job.layout.tensor = 2;
  job.train.micro_batch = 2;
  job.train.attention = AttentionKernel::Unfused;
  const std::int64_t scores = 2 * 8 * 128 * 128;  // sequences, heads of the rank, queries, keys
  const std::vector<LiveTensor> plain = at_loss(job);
  EXPECT_EQ(sum(plain, "layers.0.attention.softmax"), 2 * scores);
  EXPECT_EQ(sum(plain, "layers.0.attention.scores_tanh") + sum(plain, "head.logits_tanh"), 0);
  EXPECT_EQ(sum(plain, "global_memory_buffer.mpu"), 0);

  job.model.attention_softcap = 50;
  job.model.logit_softcap = 30;
  job.settings.capped_scores = true;
  const std::vector<LiveTensor> capped = at_loss(job);
  EXPECT_EQ(sum(capped, "layers.0.attention.softmax"), 2 * scores);
  EXPECT_EQ(sum(capped, "layers.0.attention.scores_tanh"), 2 * scores);
  EXPECT_EQ(sum(capped, "global_memory_buffer.mpu"), 2 * scores);
  EXPECT_EQ(sum(capped, "head.logits_tanh"), 2 * 256 * 1024 / 2);
  EXPECT_EQ(sum(capped, [](const LiveTensor& t) { return t.label.find("cap") != std::string::npos; }), 0);
}

TEST(SoftCaps, TakeThreeTensorsOfLogitsAtOnceInTheHead) {
  TestJob job;
  const auto logits = [](const std::string& label, Category category) {
    return label.starts_with("head.") && category == Category::LogitsLoss;
  };
  const std::int64_t size = 2 * 128 * 1024;
  EXPECT_EQ(highest(Lowered(job).stage(0), logits), size);
  job.model.logit_softcap = 30;
  // What was capped is referred to until the cap is done: raw, tangent, capped. Backward, two gradients at a time.
  EXPECT_EQ(highest(Lowered(job).stage(0), logits), 3 * size);
}

TEST(Rotary, TablesHoldWhatIsTurnedAndThoseOfWindowsStandBesideThem) {
  TestJob job;
  EXPECT_EQ(sum(live_at_end(Lowered(job).stage(0)), "rotary.table"), 128 * 32 * 4);
  job.model.rotary_fraction = 0.25;
  EXPECT_EQ(sum(live_at_end(Lowered(job).stage(0)), "rotary.table"), 128 * 8 * 4);
  job.model.window_rotary = true;
  const std::vector<LiveTensor> both = live_at_end(Lowered(job).stage(0));
  EXPECT_EQ(sum(both, [](const LiveTensor& t) { return t.label.starts_with("rotary."); }), 4 * 128 * 8 * 4);
}

TEST(Rotary, InStepsTakesTemporariesOfWhatIsTurnedOnly) {
  TestJob job;
  job.rotary = RotaryKernel::Unfused;
  const auto turned = [](const std::string& label, Category) { return label == "layers.0.attention.rotary.rotated"; };
  EXPECT_EQ(highest(Lowered(job).stage(0), turned), 128 * 16 * 32 * 2);
  job.model.rotary_fraction = 0.25;
  EXPECT_EQ(highest(Lowered(job).stage(0), turned), 128 * 16 * 8 * 2);
  EXPECT_EQ(sum(at_loss(job), "layers.0.attention.query_cos"), 128 * 8 * 2);
}

TEST(Embedding, ThatIsScaledIsMadeTwice) {
  TestJob job;
  const auto whole = [](const std::string& label, Category) {
    return label.starts_with("embedding.") && label != "embedding.weight_gradient";
  };
  const std::int64_t hidden = 128 * 768 * 2;
  const std::int64_t plain = highest(Lowered(job).stage(0), whole);
  job.model.scaled_embedding = true;
  EXPECT_EQ(highest(Lowered(job).stage(0), whole), plain + hidden);
}

TEST(Gradients, OfALinearWithoutANormBeforeItAreDroppedWithItsFunction) {
  // Where norm and linear are one function, it refers to the linear's output gradient until what it gives is summed.
  const auto live_at_sum = [](const TestJob& job, const std::string& sum_label) {
    const Program program = Lowered(job).stage(0);
    for (std::size_t i = 0; i < program.ops.size(); ++i)
      if (const Alloc* alloc = std::get_if<Alloc>(&program.ops[i]);
          alloc != nullptr && program[alloc->label] == sum_label)
        return sum(live(program, i), "layers.1.attention.rotary.mixed_gradient") > 0;
    ADD_FAILURE() << "no " << sum_label;
    return false;
  };
  TestJob job;
  EXPECT_TRUE(live_at_sum(job, "layers.1.attention.norm.gradient_sum"));
  job.model.norms = NormPlacement::After;
  EXPECT_FALSE(live_at_sum(job, "layers.1.attention.qkv.gradient_sum"));
}

// Megatron-LM core 0.14, core/distributed/finalize_model_grads.py: what tensor-parallel ranks add up after a step, each
// sum by its size.
std::vector<std::int64_t> summed_over_tensor_ranks(const TestJob& job, std::int32_t stage = 0) {
  const Lowered lowered(job);
  const Program program = lowered.stage(stage);
  const CommSlot tensor = communicators_of(lowered.input).tensor;
  std::vector<std::int64_t> sums;
  for (std::size_t i = first_mark(program, Phase::Communication, "reduce_gradients");
       i < first_mark(program, Phase::OptimizerStep, "optimizer_step"); ++i)
    if (const Collective* o = std::get_if<Collective>(&program.ops[i]); o != nullptr && o->comm == tensor)
      sums.push_back(o->size.count());
  return sums;
}
using Sums = std::vector<std::int64_t>;

TEST(Gradients, OfNormsAndRowBiasesAreSummedWhereRanksSeePartsOfTheSequence) {
  TestJob job = job_cut({2, true});
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{(4 * 2 + 1) * 768 * 4});
  job.train.gradient_dtype = DType::BF16;
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{(4 * 2 + 1) * 768 * 2});
  EXPECT_EQ(summed_over_tensor_ranks(job_cut({2, false})), Sums{});
  EXPECT_EQ(summed_over_tensor_ranks(job_cut({1, true})), Sums{});
}

TEST(Gradients, OfLearnedPositionsAreNotSummed) {
  // Every rank looks positions up whole, and cuts the sequence after that.
  TestJob job = gpt_job();
  job.layout.tensor = 2;
  job.layout.sequence_parallel = true;
  const std::int64_t layer = 2 * 2 * 768 + 2 * 768;  // two norms with biases, and biases of two row-parallel linears
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{(4 * layer + 2 * 768) * 4});
  job.layout.sequence_parallel = false;
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{});
}

TEST(Gradients, OfNormsOfSingleHeadsAreAlwaysSummed) {
  TestJob job = job_cut({2, false});
  job.model.qk_norm = QkNorm::PerHead;
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{4 * 2 * 32 * 4});
  job.layout.sequence_parallel = true;
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{4 * 2 * 32 * 4 + (4 * 2 + 1) * 768 * 4});
  job.layout.tensor = 1;
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{});
  job.layout.tensor = 2;
  job.layout.sequence_parallel = false;
  job.model.qk_norm = QkNorm::AllHeads;  // cut with the heads
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{});
}

TEST(Gradients, OfOneWholeParameterAreSummedWhereTheyLie) {
  TestJob job = job_cut({2, true});
  job.layout.pipeline = 2;
  job.layout.stage_layers = {4, 0};  // the final norm is left for the last stage
  EXPECT_EQ(summed_over_tensor_ranks(job, 1), Sums{768 * 4});
  EXPECT_EQ(most_at_once(Lowered(job).stage(0), "partial_gradients.flat"), 1);
  EXPECT_EQ(most_at_once(Lowered(job).stage(1), "partial_gradients.flat"), 0);
}

// ---- roles ---------------------------------------------------------------------------------------------------------

TEST(Roles, WithoutShardingAStageIsOneRole) {
  TestJob job;
  job.layout = {.tensor = 2, .pipeline = 2, .data = 3};
  job.train.global_batch = 6;
  const Lowered lowered(job);
  ASSERT_EQ(lowered.roles.size(), 2u);
  EXPECT_EQ(lowered.roles[0].ranks.size(), 6u);
  EXPECT_EQ(lowered.roles[1].ranks.front(), Rank{6});
}

// A program without what is said for one rank: which tokens its rows of the vocabulary are, and where its shards lie.
std::string without_places(const Program& program) {
  std::string all;
  for (const Op& op : program.ops) {
    std::string line = text(program, op);
    if (std::holds_alternative<Launch>(op))
      line.resize(line.find_first_of("( ", line.find(' ', line.find(' ') + 1) + 1));
    all += std::regex_replace(line, std::regex(" (b[0-9]+)\\+[0-9]+"), " $1") + '\n';
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

Target device(std::int32_t compute_capability) {
  return {.compute_capability = compute_capability, .devices_per_node = 8, .capacity = {}};
}

TEST(Roles, AttentionIsSettledByTheDeviceAndTheModel) {
  Model model;
  model.head_dim = 128;
  const auto settled = [&](std::int32_t capability, AttentionKernel asked = AttentionKernel::Auto) {
    return settled_attention(asked, model, device(capability));
  };
  EXPECT_EQ(settled(80), AttentionKernel::Flash);
  EXPECT_EQ(settled(90), AttentionKernel::Fused);
  EXPECT_EQ(settled(100), AttentionKernel::Fused);
  EXPECT_EQ(settled(100, AttentionKernel::Flash), AttentionKernel::Flash);
  model.head_dim = 256;
  EXPECT_EQ(settled(90), AttentionKernel::Fused);
  EXPECT_EQ(settled(100), AttentionKernel::Flash);
  model.attention_softcap = 50;
  for (const std::int32_t capability : {80, 90, 100}) EXPECT_EQ(settled(capability), AttentionKernel::Unfused);
}

// ---- every layout --------------------------------------------------------------------------------------------------

TestJob generated_job(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](const auto&... choices) {
    const auto list = {choices...};
    return *(list.begin() + random() % list.size());
  };
  TestJob job;
  Model& m = job.model;
  m.kv_heads = one_of(4, 8);
  m.heads = m.kv_heads * one_of(1, 2, 3);
  m.head_dim = one_of(16, 20);
  m.hidden = one_of(96, 128, 200);
  m.ffn = one_of(96, 256);
  m.layers = 4;
  m.vocabulary = one_of(100, 1000, 3001);
  m.vocabulary_extra = one_of(0, 1);
  m.tied_embeddings = one_of(false, true);
  m.qkv_bias = one_of(false, true);
  m.output_bias = one_of(false, false, true);
  m.mlp_bias = one_of(false, false, true);
  m.qk_norm = one_of(QkNorm::None, QkNorm::None, QkNorm::PerHead);
  Layout& l = job.layout;
  l.tensor = one_of(1, 2, 4);
  l.sequence_parallel = one_of(false, true);
  l.pipeline = one_of(1, 2, 4);
  l.data = one_of(1, 2, 3);
  l.sharding = one_of(Sharding::None, Sharding::Zero1);
  if (one_of(0, 1, 2) == 0) {
    m.layers = 6;
    l.pipeline = one_of(2, 4);
    l.count_embedding = l.count_loss = true;
  }
  Train& t = job.train;
  t.sequence_length = one_of(64, 256);
  t.micro_batch = one_of(1, 2, 3);
  t.global_batch = t.micro_batch * l.data * one_of(1, 2, 3, 5);
  switch (one_of(0, 1, 2, 3)) {
    case 0:
      if (l.pipeline == 1) break;
      l.schedule = ScheduleKind::Interleaved;
      l.chunks = 2;
      l.count_embedding = l.count_loss = false;
      m.layers = l.pipeline * l.chunks * one_of(1, 2);
      l.chunk_group = one_of(0, l.pipeline + 1);
      t.global_batch = t.micro_batch * l.data * l.group() * one_of(1, 2, 3);
      break;
    case 1:
      l.schedule = ScheduleKind::GPipe;
      break;
    case 2:
      l.count_embedding = l.count_loss = false;
      l.stage_layers.assign(static_cast<std::size_t>(l.pipeline), 1);
      l.stage_layers.back() += one_of(0, 2);
      if (l.pipeline > 2) l.stage_layers[0] = 0;
      m.layers = std::accumulate(l.stage_layers.begin(), l.stage_layers.end(), 0);
      break;
  }
  t.precision = one_of(DType::BF16, DType::BF16, DType::FP16, DType::FP32);
  t.gradient_dtype = one_of(DType::FP32, t.precision);
  t.optimizer = one_of(Optimizer::AdamW, Optimizer::AdamW, Optimizer::Sgd, Optimizer::SgdMomentum);
  t.attention = one_of(AttentionKernel::Fused, AttentionKernel::Flash);
  t.cross_entropy = one_of(CrossEntropy::Unfused, CrossEntropy::Fused, CrossEntropy::TransformerEngine);
  t.recompute.kind = one_of(Recompute::None, Recompute::Full, Recompute::Selective);
  t.recompute.method = one_of(RecomputeMethod::Uniform, RecomputeMethod::Block);
  t.recompute.layers = one_of(1, 2, 3);
  t.recompute.core_attention = one_of(true, false);
  t.recompute.mlp = !t.recompute.core_attention || one_of(true, false);
  t.steps = 3;
  job.versions.transformer_engine = one_of(Version{2, 2}, Version{2, 11});
  job.settings.attention_mask = one_of(false, true);
  job.target.compute_capability = one_of(80, 90, 100);
  m.normalization = one_of(Normalization::Rms, Normalization::Layer);
  m.activation = one_of(Activation::SwiGlu, Activation::Gelu, Activation::SquaredRelu);
  m.positions = one_of(Positions::Rotary, Positions::Learned);
  m.max_positions = 256;
  t.hidden_dropout = one_of(0.0, 0.1);
  t.attention_dropout = one_of(0.0, 0.1);
  if (one_of(0, 1, 2) == 0) t.attention = one_of(AttentionKernel::Unfused, AttentionKernel::Local);
  job.settings.local_layers = t.attention == AttentionKernel::Local;
  job.settings.gradient_accumulation_fusion = one_of(false, true);
  job.settings.bias_dropout_fusion = one_of(false, true);
  job.settings.bias_activation_fusion = one_of(false, true);
  job.settings.overlap_gradients = one_of(false, true);
  job.settings.deterministic = one_of(false, true);
  m.norms = one_of(NormPlacement::Before, NormPlacement::Before, NormPlacement::After, NormPlacement::Around);
  if (m.norms != NormPlacement::Before) m.output_bias = m.mlp_bias = false;
  if (m.qk_norm != QkNorm::None) m.qk_norm = one_of(QkNorm::PerHead, QkNorm::AllHeads);
  if (m.activation == Activation::SwiGlu) m.activation = one_of(Activation::SwiGlu, Activation::GeGlu);
  m.parallel_residual = one_of(false, false, true);
  m.rotary_fraction = one_of(1.0, 0.5);
  m.window_rotary = one_of(false, false, true);
  m.scaled_embedding = one_of(false, true);
  m.logit_softcap = one_of(0.0, 30.0);
  if (stores_scores(t.attention)) m.attention_softcap = one_of(0.0, 50.0);
  job.settings.capped_scores = m.attention_softcap > 0;
  job.fused_gate = one_of(false, true);
  job.rotary = one_of(RotaryKernel::Fused, RotaryKernel::Fused, RotaryKernel::Unfused);
  return job;
}

std::set<BufferId> live_buffers_at_end(const Program& program) {
  std::set<BufferId> live;
  for (const Op& op : program.ops) {
    if (const Alloc* alloc = std::get_if<Alloc>(&op)) live.insert(alloc->buffer);
    if (const Free* freed = std::get_if<Free>(&op)) live.erase(freed->buffer);
  }
  return live;
}
std::set<BufferId> bound_buffers_at_end(const Program& program) {
  std::vector<BufferId> bound(program.names.size());
  for (const Op& op : program.ops) {
    if (const Bind* bind = std::get_if<Bind>(&op)) bound[bind->name.index()] = bind->buffer;
    if (const Unbind* unbind = std::get_if<Unbind>(&op)) bound[unbind->name.index()] = {};
  }
  std::set<BufferId> held(bound.begin(), bound.end());
  held.erase(BufferId{});
  return held;
}

class EveryLayout : public testing::TestWithParam<std::uint64_t> {
 protected:
  const Lowered lowered_{generated_job(GetParam())};
  const Workload workload_ = lower(lowered_.input);
};

TEST_P(EveryLayout, VerifiesClean) {
  for (const Workload& workload : {workload_, lower_stages(lowered_.input)}) {
    const std::vector<std::string> findings = verify(workload);
    EXPECT_TRUE(findings.empty()) << findings.front();
  }
}

TEST_P(EveryLayout, GivesEveryRankOneRole) {
  std::vector<int> roles(static_cast<std::size_t>(lowered_.job.layout.world_size()));
  for (const Role& role : lowered_.roles) {
    EXPECT_EQ(rank_at(lowered_.job.layout, role.first), *std::min_element(role.ranks.begin(), role.ranks.end()));
    for (const Rank rank : role.ranks) {
      ++roles[rank.index()];
      EXPECT_EQ(coordinates(lowered_.job.layout, rank).pipeline, role.first.pipeline);
    }
  }
  EXPECT_EQ(roles, std::vector<int>(roles.size(), 1));
  EXPECT_EQ(workload_.program_of_rank.size(), roles.size());
}

TEST_P(EveryLayout, EndsWithOnlyBoundBuffersLive) {
  for (const Program& program : workload_.programs)
    EXPECT_EQ(live_buffers_at_end(program), bound_buffers_at_end(program));
}

// Scratch space that no kernel is given would be free again before the kernel runs.
TEST_P(EveryLayout, UsesOrKeepsWhateverItsPassesAllocate) {
  for (const Program& program : workload_.programs) {
    std::vector<bool> used(static_cast<std::size_t>(program.buffers));
    for (const Op& op : program.ops) {
      for_each_operand(program, op, [&](BufferId b) { used[b.index()] = true; });
      if (const Bind* bind = std::get_if<Bind>(&op)) used[bind->buffer.index()] = true;
    }
    bool in_pass = false;
    for (const Op& op : program.ops) {
      if (const Mark* mark = std::get_if<Mark>(&op))
        in_pass = mark->phase == Phase::Forward || mark->phase == Phase::Backward;
      const Alloc* o = std::get_if<Alloc>(&op);
      if (!in_pass || o == nullptr || used[o->buffer.index()]) continue;
      // What old Transformer Engines hand autograd, because it wants something.
      EXPECT_TRUE(program[o->label].starts_with("dummy_gradient.")) << program[o->label];
    }
  }
}

TEST_P(EveryLayout, RepeatsItsSecondStep) {
  for (const Program& program : workload_.programs) {
    const std::vector<Bytes> flat = flat_peaks_by_step(program);
    ASSERT_EQ(flat.size(), 4u);
    EXPECT_EQ(flat[3], flat[2]);
    const MemoryRecord record = replay(program, no_driver_memory(), {});
    ASSERT_EQ(record.peak_allocated_by_step.size(), 4u);
    EXPECT_EQ(record.peak_allocated_by_step[3], record.peak_allocated_by_step[2]);
    EXPECT_GE(record.allocated.bytes, *std::max_element(flat.begin(), flat.end()));
  }
}

// Every operator reads what those before it made, every gradient that comes back is of all who read the value, and
// what is shared is summed over all who share it.
TEST_P(EveryLayout, HandsValuesAndGradientsToWhomTheyConcern) {
  TestJob one_step = lowered_.job;
  one_step.train.steps = 1;
  const Lowered lowered(one_step);
  const Workload workload = lower(lowered.input);
  const DataFlow flow(lowered, workload);
  const ExpectedFlow expected(lowered);
  const auto names = [&](const Origins& origins) {
    std::vector<std::string> all;
    for (const Origin& o : origins)
      all.push_back(fmt::format("{}[{}, {}, {}]", lowered.graph[o.op].name, o.micro_batch, o.data, o.tensor));
    return fmt::format("{}", fmt::join(all, " "));
  };
  for (Rank rank{0}; rank.value < workload.world_size() && !HasFailure(); ++rank.value) {
    const Coordinates at = coordinates(one_step.layout, rank);
    const std::vector<Stage> stages = expected.chunks(at.pipeline);
    for (std::int32_t o = 0; o < std::ssize(lowered.graph.operators); ++o) {
      const Operator& op = lowered.graph[OperatorId{o}];
      if (!expected.holds(stages, op)) continue;
      for (std::int32_t m = 0; m < expected.micro_batches(); ++m) {
        const Origin who{{o}, m, at.data, at.tensor};
        const bool hands_on = DataFlow::hands_on(op);
        if (!hands_on) {
          ASSERT_EQ(names(flow.read_by(Phase::Forward, who)), names(expected.read_by(Phase::Forward, who)))
              << "forward, of " << names({who});
        }
        if (!hands_on || !op.parameters.empty()) {
          ASSERT_EQ(names(flow.read_by(Phase::Backward, who)), names(expected.read_by(Phase::Backward, who)))
              << "backward, of " << names({who});
        }
      }
    }
    Origins missing;
    const Origins there = flow.gradients(rank), needed = expected.gradients(at);
    std::set_difference(needed.begin(), needed.end(), there.begin(), there.end(), std::back_inserter(missing));
    EXPECT_EQ(names(missing), "") << "in the gradients of rank " << rank.value;
    for (std::int32_t m = 0; m < expected.micro_batches(); ++m)
      EXPECT_EQ(flow.elements_added(rank, m), expected.elements_added(at.pipeline)) << "rank " << rank.value;
  }
}

TEST_P(EveryLayout, HasATextThatMeansTheSame) {
  for (const Program& program : workload_.programs) {
    const Program parsed = parse_program(text(program));
    EXPECT_EQ(text(parsed), text(program));
    EXPECT_EQ(replay(parsed, no_driver_memory(), {}).allocated.bytes,
              replay(program, no_driver_memory(), {}).allocated.bytes);
  }
}

TEST_P(EveryLayout, IsLoweredTheSameTwice) {
  const Workload again = lower(lowered_.input);
  EXPECT_EQ(again.programs, workload_.programs);
  EXPECT_EQ(again.program_of_rank, workload_.program_of_rank);
}

INSTANTIATE_TEST_SUITE_P(Seeds, EveryLayout, testing::Range<std::uint64_t>(1, 46));

}  // namespace
}  // namespace tidemark::tests
