#include "tests/parallel/same_programs.hpp"

#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "parallel/frameworks/megatron/training.hpp"
#include "parallel/stages.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests {
namespace {

std::string parting(const TestJob& job) {
  const Lowered lowered(job);
  const std::vector<std::int64_t> sizes(static_cast<std::size_t>(job.train.steps),
                                        micro_batches_of(job.train, job.layout));
  for (const Role& role : lowered.roles) {
    const Program old = lowered_before(lowered.input, role, sizes);
    const Program now = megatron::lower_training(lowered.input, role.first.pipeline, role.first.data, sizes);
    if (std::string found = difference(normal_form(old), normal_form(now)); !found.empty())
      return fmt::format("pipeline {} data {}: {}", role.first.pipeline, role.first.data, found);
  }
  return "";
}

TEST(SamePrograms, OfTheSimplestJob) { EXPECT_EQ(parting(TestJob{}), ""); }

// Any job that can be asked for; nothing where it cannot.
std::optional<TestJob> random_job(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&]<class T>(std::initializer_list<T> values) { return *(values.begin() + random() % values.size()); };
  const auto maybe = [&] { return pick({false, true}); };
  TestJob job;
  Model& m = job.model;
  m.layers = pick({4, 6, 12});
  m.kv_heads = pick({4, 8, 16});
  m.tied_embeddings = maybe();
  m.qkv_bias = maybe();
  m.norms = pick({NormPlacement::Before, NormPlacement::Before, NormPlacement::After, NormPlacement::Around});
  m.output_bias = m.norms == NormPlacement::Before && maybe();
  m.mlp_bias = m.norms == NormPlacement::Before && maybe();
  m.normalization = pick({Normalization::Rms, Normalization::Layer});
  m.parallel_residual = pick({false, false, true});
  m.scaled_embedding = pick({false, true});
  m.activation = pick({Activation::SwiGlu, Activation::GeGlu, Activation::Gelu, Activation::SquaredRelu});
  m.positions = pick({Positions::Rotary, Positions::Rotary, Positions::Learned});
  if (m.positions == Positions::Rotary) {
    m.qk_norm = pick({QkNorm::None, QkNorm::None, QkNorm::PerHead, QkNorm::AllHeads});
    m.rotary_fraction = pick({1.0, 0.5});
    m.window_rotary = pick({false, false, true});
  }
  m.attention_softcap = pick({0.0, 0.0, 0.0, 50.0});
  m.logit_softcap = pick({0.0, 0.0, 30.0});
  Train& train = job.train;
  train.sequence_length = pick({128, 1024, 2048});
  train.attention = pick({AttentionKernel::Fused, AttentionKernel::Flash, AttentionKernel::Unfused, AttentionKernel::Local});
  if (m.attention_softcap > 0) train.attention = AttentionKernel::Unfused;
  train.cross_entropy = pick({CrossEntropy::Unfused, CrossEntropy::Fused, CrossEntropy::TransformerEngine});
  train.precision = pick({DType::BF16, DType::BF16, DType::FP16, DType::FP32});
  train.gradient_dtype = train.precision == DType::FP32 ? DType::FP32 : pick({DType::FP32, train.precision});
  train.optimizer = pick({Optimizer::AdamW, Optimizer::Sgd, Optimizer::SgdMomentum});
  train.hidden_dropout = pick({0.0, 0.1});
  train.attention_dropout = stores_scores(train.attention) ? pick({0.0, 0.1}) : 0.0;
  train.steps = pick({2, 2, 3});
  switch (pick({0, 0, 1, 2, 3, 4})) {
    case 1:
      train.recompute = {.kind = Recompute::Full, .method = RecomputeMethod::Block, .layers = pick({1, 2})};
      break;
    case 2:
      train.recompute = {.kind = Recompute::Full, .layers = pick({1, 2, 5})};
      break;
    case 3:
      train.recompute = {.kind = Recompute::Selective, .core_attention = true, .mlp = maybe()};
      break;
    case 4:
      train.recompute = {.kind = Recompute::Selective, .core_attention = maybe(), .mlp = true};
      break;
    default:
      break;
  }
  Layout& layout = job.layout;
  layout.tensor = pick({1, 2, 4});
  layout.sequence_parallel = layout.tensor > 1 && maybe();
  layout.pipeline = pick({1, 1, 2, 3, 4});
  layout.data = pick({1, 2});
  layout.sharding = pick({Sharding::None, Sharding::Zero1});
  layout.schedule = pick({ScheduleKind::OneFOneB, ScheduleKind::OneFOneB, ScheduleKind::GPipe, ScheduleKind::Interleaved});
  layout.count_embedding = pick({false, false, true}), layout.count_loss = pick({false, false, true});
  if (layout.schedule == ScheduleKind::Interleaved) {
    if (layout.pipeline == 1) return std::nullopt;
    layout.chunks = pick({2, 3});
    layout.chunk_group = pick({0, 0, layout.pipeline + 1});
  }
  const std::int64_t micro_batches = pick({1, 3, 4, 6, 8, 12});
  if (layout.schedule == ScheduleKind::Interleaved && micro_batches % layout.group() != 0) return std::nullopt;
  if (!wrong_with_stages(static_cast<std::int32_t>(m.layers), layout).empty()) return std::nullopt;
  train.micro_batch = pick({1, 2, 5});
  train.global_batch = micro_batches * train.micro_batch * layout.data;
  job.versions.transformer_engine = pick({Version{2, 1}, Version{2, 7}, Version{2, 11}});
  job.versions.megatron = pick({Version{0, 10}, Version{0, 14}, Version{0, 18}});
  RuntimeSettings& settings = job.settings;
  settings.attention_mask = maybe();
  settings.local_layers = train.attention == AttentionKernel::Local;
  settings.gradient_accumulation_fusion = pick({true, true, false});
  settings.bias_dropout_fusion = maybe();
  settings.bias_activation_fusion = maybe();
  settings.capped_scores = m.attention_softcap > 0;
  settings.overlap_gradients = maybe();
  settings.deterministic = maybe();
  job.rotary = m.positions == Positions::Rotary && maybe() ? RotaryKernel::Unfused : RotaryKernel::Fused;
  job.fused_gate = maybe();
  job.softmax_precision = maybe() ? Precision::Fp32 : Precision::Compute;
  return job;
}

TEST(SamePrograms, OfAThousandJobs) {
  int compared = 0, differ = 0;
  for (std::uint32_t seed = 1; compared < 1000; ++seed) {
    const std::optional<TestJob> job = random_job(seed);
    if (!job) continue;
    ++compared;
    const std::string found = parting(*job);
    if (found.empty()) continue;
    ADD_FAILURE() << "seed " << seed << ": " << found;
    if (++differ == 3) break;
  }
}

}  // namespace
}  // namespace tidemark::tests
