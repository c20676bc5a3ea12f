#include <gtest/gtest.h>

#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::recompute_test {
namespace {

TestJob job_with(Recomputation requested, AttentionKernel attention = AttentionKernel::Fused) {
  TestJob job;
  job.layout.tensor = 2;
  job.layout.sequence_parallel = true;
  job.model.layers.resize(6);
  job.train.micro_batch = 2;
  job.train.attention = attention;
  job.train.recompute = requested;
  return job;
}

constexpr std::int64_t rng_state = 16;

// framework-memory.md 2.1: what a layer saves, with sequence parallelism; fp32 statistics and the generator's state
// included.
std::int64_t saved_by_a_layer(const TestJob& job) {
  const Model& m = job.model;
  const std::int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  return job.train.tokens() * (8 * m.hidden + 2 * (q + 2 * kv) + 2 * q + 4 * m.heads + 6 * m.ffn + 8) /
             job.layout.tensor +
         rng_state;
}
std::int64_t hidden_tensor(const TestJob& job) { return job.train.tokens() * job.model.hidden * 2 / job.layout.tensor; }

// What saved activations of the layers a stage holds after its first forward pass.
std::int64_t saved_after_forward(const TestJob& job) {
  const Lowered lowered(job);
  const Program program = lowered.stage(0);
  return sum(live(program, first_mark(program, Phase::Forward, "final_norm")),
             [](const LiveTensor& t) { return t.category == Category::SavedActivations; });
}

// Every layer has latent attention and experts, each of which takes as many tokens.
TestJob job_of_experts(RecomputedModules modules) {
  TestJob job = job_with({.kind = modules.bits() != 0 ? Recompute::Selective : Recompute::None, .modules = modules});
  Model& m = job.model;
  m.kv_heads = m.heads;
  set_mixer(m, MultiLatentAttention{
                   .query_rank = 96, .kv_rank = 80, .qk_nope_head_dim = 24, .qk_rope_head_dim = 16, .value_head = 32});
  m.head_dim = m.latent()->query_head();
  set_mlp(m, Experts{.count = 8, .chosen = 2, .ffn = 224, .shared_ffn = 160});
  job.layout.data = 2;
  job.layout.expert = 4;
  job.layout.expert_tensor = 1;
  job.train.global_batch = 8;
  job.train.routing.capacity_factor = 1;
  job.train.routing.pads_to_capacity = true;
  job.settings.experts.fused_permutation = true;
  return job;
}
// Of a layer.
std::int64_t dropped_by(RecomputedModule module) {
  return (saved_after_forward(job_of_experts({})) - saved_after_forward(job_of_experts({module}))) / 6;
}

TEST(Recomputation, OfAllLayersKeepsOneTensorForEachGroup) {
  for (const std::int32_t group : {1, 2, 3, 4, 6}) {
    const TestJob job = job_with({.kind = Recompute::Full, .layers = group});
    const std::int64_t groups = (6 + group - 1) / group;
    // One for each group, and the last layer's output, which the final norm saves.
    EXPECT_EQ(saved_after_forward(job), (groups + 1) * hidden_tensor(job)) << group;
  }
}

TEST(Recomputation, OfSomeLayersLeavesTheOthersAsTheyAre) {
  for (const std::int32_t layers : {1, 4, 6, 9}) {
    const TestJob job = job_with({.kind = Recompute::Full, .method = RecomputeMethod::Block, .layers = layers});
    const std::int64_t again = std::min(layers, 6);
    EXPECT_EQ(saved_after_forward(job),
              again * hidden_tensor(job) + (6 - again) * saved_by_a_layer(job) + hidden_tensor(job))
        << layers;
  }
}

TEST(Recomputation, OfAttentionDropsItsStatisticsOnly) {
  const TestJob job = job_with({.kind = Recompute::Selective, .modules = {RecomputedModule::CoreAttention}});
  const std::int64_t statistics = 4 * job.train.tokens() * job.model.heads / job.layout.tensor + rng_state;
  EXPECT_EQ(saved_after_forward(job), 6 * (saved_by_a_layer(job) - statistics) + hidden_tensor(job));
}

TEST(Recomputation, OfTheMlpDropsItsInsides) {
  const TestJob job = job_with({.kind = Recompute::Selective, .modules = {RecomputedModule::Mlp}});
  // Both fc1's branches and what comes of them, the norm's output and its statistics.
  const std::int64_t inside = job.train.tokens() * (6 * job.model.ffn + 2 * job.model.hidden + 4) / job.layout.tensor;
  EXPECT_EQ(saved_after_forward(job), 6 * (saved_by_a_layer(job) - inside) + hidden_tensor(job));
}

TEST(Recomputation, RebuildsOneGroupAtATime) {
  for (const std::int32_t group : {1, 2, 3}) {
    const TestJob job = job_with({.kind = Recompute::Full, .layers = group});
    const Program program = Lowered(job).stage(0);
    const std::int64_t rebuilt =
        highest(program, [](const std::string&, Category category) { return category == Category::Recompute; });
    // What the layers of a group save, with the group's output in place of what came in.
    EXPECT_EQ(rebuilt, group * saved_by_a_layer(job)) << group;
  }
}

TEST(Recomputation, RunsEveryForwardKernelTwice) {
  const auto kernels = [](const TestJob& job) {
    std::int64_t gemms = 0;
    const Program program = Lowered(job).stage(0);
    for (const Op& op : program.ops)
      if (const Launch* launch = std::get_if<Launch>(&op))
        gemms += program[launch->kernel].operation == Operation::Matmul;
    return gemms;
  };
  const TestJob plain = job_with({}), full = job_with({.kind = Recompute::Full});
  const std::int64_t passes = plain.train.steps * plain.train.global_batch / plain.train.micro_batch;
  EXPECT_EQ(kernels(full) - kernels(plain), passes * 6 * 4);  // four linears in each of six layers
}

TEST(Recomputation, LeavesNothingBehind) {
  using enum RecomputedModule;
  for (const TestJob& job : {job_with({.kind = Recompute::Full, .layers = 2}),
                             job_with({.kind = Recompute::Selective, .modules = {CoreAttention, Mlp}})}) {
    const Program program = Lowered(job).stage(0);
    EXPECT_EQ(sum(live_at_end(program), Category::Recompute), 0);
    EXPECT_EQ(sum(live_at_end(program), Category::SavedActivations), 0);
  }
  // But for the dispatchers' attributes, which are those of the second run.
  const auto left = [](RecomputedModules modules) {
    const std::vector<LiveTensor> all = live_at_end(Lowered(job_of_experts(modules)).stage(0));
    return sum(all, Category::Recompute) + sum(all, Category::SavedActivations);
  };
  for (const RecomputedModules& modules :
       {RecomputedModules{LayerNorm, LatentUp, ExpertActivation, SharedExperts}, RecomputedModules{LayerNorm, Experts}})
    EXPECT_EQ(left(modules), left({}));
}

TEST(Recomputation, OfNormsDropsTheirOutputs) {
  const TestJob job = job_of_experts({});
  const std::int64_t statistics = 4 * job.train.tokens() / job.layout.tensor;
  EXPECT_EQ(dropped_by(RecomputedModule::LayerNorm), 2 * (hidden_tensor(job) + statistics));
}

// The latents stay; that of the keys with what positions turn of them, of which it was cut off. Gathered, that counts
// as communication.
TEST(Recomputation, OfWhatComesOfLatentsDropsHeadsAndNormedLatents) {
  const TestJob job = job_of_experts({});
  const MultiLatentAttention& l = *job.model.latent();
  const std::int64_t T = job.train.tokens(), t = job.layout.tensor, a = job.model.heads;
  const std::int64_t heads = 2 * T * a * (2 * l.query_head() + l.value_head) / t;
  const std::int64_t latents = 2 * T * (l.query_rank + l.kv_rank) / t, copy = 2 * T * l.kv_rank / t;
  const std::int64_t statistics = 2 * 4 * T / t;
  const std::int64_t kept = 2 * T * (l.kv_rank + l.qk_rope_head_dim) / t;
  EXPECT_EQ(dropped_by(RecomputedModule::LatentUp), heads + latents + copy + statistics - kept);
}

// framework-memory.md 4.1. Each rank's experts get as many rows as it has tokens, times two.
TEST(Recomputation, OfExpertsActivationDropsItsOutput) {
  const TestJob job = job_of_experts({});
  const std::int64_t rows = 2 * job.train.tokens() / job.layout.tensor;
  EXPECT_EQ(dropped_by(RecomputedModule::ExpertActivation), 2 * rows * job.model.experts()->ffn);
  // It is there twice while it is read again: where it was, and as the second run made it.
  const Program program = Lowered(job_of_experts({RecomputedModule::ExpertActivation})).stage(0);
  const auto activated = [](const std::string& label, Category) { return label == "layers.0.mlp.experts.activation"; };
  EXPECT_EQ(highest(program, activated), 2 * 2 * rows * job.model.experts()->ffn);
}

TEST(Recomputation, OfSharedExpertsDropsTheirInsides) {
  const TestJob job = job_of_experts({});
  EXPECT_EQ(dropped_by(RecomputedModule::SharedExperts),
            6 * job.train.tokens() * job.model.experts()->shared_ffn / job.layout.tensor);
}

// Attention saves what it does, and the experts what comes to them: normalized, of what was normalized.
TEST(Recomputation, OfExpertsLeavesWhatComesToThem) {
  const TestJob job = job_of_experts({RecomputedModule::Experts});
  const Model& m = job.model;
  const MultiLatentAttention& l = *m.latent();
  const std::int64_t T = job.train.tokens(), t = job.layout.tensor;
  const std::int64_t attention = T * (2 * (2 * m.hidden + 2 * l.query_rank + 2 * l.kv_rank) + 3 * 4) / t +
                                 T * (2 * 2 * m.heads * (l.query_head() + l.value_head) + 4 * m.heads) / t + rng_state;
  const std::int64_t experts = T * (2 * 2 * m.hidden + 4) / t;
  EXPECT_EQ(saved_after_forward(job), 6 * (attention + experts) + hidden_tensor(job));
}

TEST(Recomputation, SharedOutKeepsAPartOfEachLayersInput) {
  for (const RecomputeMethod method : {RecomputeMethod::Uniform, RecomputeMethod::Block}) {
    TestJob job = job_with({.kind = Recompute::Full, .method = method, .layers = 6});
    job.layout.sequence_parallel = false;
    job.settings.distribute_saved = true;
    const std::int64_t whole = job.train.tokens() * job.model.hidden * 2,
                       groups = method == RecomputeMethod::Block ? 6 : 1;
    EXPECT_EQ(saved_after_forward(job), groups * whole / job.layout.tensor + whole);
  }
}

// What a layer's operators run for the second time, in order: forward marks after the first backward one.
std::vector<std::string> run_again(const TestJob& job, const std::string& layer) {
  const Program program = Lowered(job).stage(0);
  std::vector<std::string> found;
  bool backward = false;
  for (const Op& op : program.ops) {
    const Mark* const mark = std::get_if<Mark>(&op);
    if (mark == nullptr || mark->step != 1 || mark->micro_batch != 0) continue;
    backward |= mark->phase == Phase::Backward;
    if (const std::string& label = program[mark->label]; backward && mark->phase == Phase::Forward)
      if (label.starts_with(layer)) found.push_back(label.substr(layer.size()));
  }
  return found;
}

TEST(Recomputation, OfAnMlpRunsTheNormsAtItsEndsAndNothingBeside) {
  using Names = std::vector<std::string>;
  TestJob job = job_with({.kind = Recompute::Selective, .modules = {RecomputedModule::Mlp}});
  const auto of_mlp = [&] { return run_again(job, "layers.1.mlp."); };
  job.model.norms = NormPlacement::Around;
  EXPECT_EQ(of_mlp(), (Names{"norm", "fc1", "swiglu", "fc2", "post_norm"}));
  job.model.norms = NormPlacement::After;
  EXPECT_EQ(of_mlp(), (Names{"fc1", "swiglu", "fc2", "post_norm"}));
  job.model.norms = NormPlacement::Before;
  job.model.parallel_residual = true;
  EXPECT_EQ(of_mlp(), (Names{"norm", "fc1", "swiglu", "fc2"}));
  EXPECT_EQ(run_again(job, "layers.1.attention."), Names{});
}

TEST(Recomputation, OfAttentionRunsWhatLiesBetweenItsProjections) {
  using Names = std::vector<std::string>;
  const Recomputation requested{.kind = Recompute::Selective, .modules = {RecomputedModule::CoreAttention}};
  EXPECT_EQ(run_again(job_with(requested), "layers.2.attention."), Names{"core"});
  EXPECT_EQ(run_again(job_with(requested, AttentionKernel::Flash), "layers.2.attention."),
            (Names{"q.transpose", "k.transpose", "v.transpose", "core", "context.transpose"}));
}

// Korthikanti et al. 2022, table 2: bytes that a layer keeps, of 16-bit elements and masks of one byte. Statistics of
// norms are of no size.
TEST(Recomputation, LeavesALayerWhatKorthikantiEtAlCount) {
  const std::int64_t s = 32, b = 3;
  for (const auto& [heads, head_dim] : {std::pair<std::int64_t, std::int64_t>{4, 16}, {16, 8}, {8, 24}}) {
    for (const std::int32_t t : {1, 2, 4}) {
      for (const bool sequence_parallel : {false, true}) {
        TestJob job;
        Model& m = job.model;
        m.hidden = heads * head_dim, m.heads = m.kv_heads = heads, m.head_dim = head_dim, m.ffn = 4 * m.hidden;
        m.tied_embeddings = m.qkv_bias = m.output_bias = m.mlp_bias = true;
        m.normalization = Normalization::Layer;
        m.activation = Activation::Gelu;
        m.positions = Positions::Learned;
        job.layout.tensor = t;
        job.layout.sequence_parallel = sequence_parallel && t > 1;
        job.train.sequence_length = s;
        job.train.micro_batch = b, job.train.global_batch = b;
        job.train.attention = AttentionKernel::Unfused;
        job.train.hidden_dropout = job.train.attention_dropout = 0.1;
        const auto kept = [&](const Recomputation& requested) {
          job.train.recompute = requested;
          const auto by_layers = [&](std::int64_t layers) {
            job.model.layers.resize(layers);
            const Program program = Lowered(job).stage(0);
            return sum(live(program, first_mark(program, Phase::Forward, "final_norm")), [](const LiveTensor& tensor) {
              return tensor.category == Category::SavedActivations && !tensor.label.ends_with(".mean") &&
                     !tensor.label.ends_with(".rstd");
            });
          };
          return by_layers(4) - by_layers(3);
        };
        const std::int64_t h = m.hidden, a = heads;
        const std::int64_t scores = 5 * a * s * s * b / t;
        const std::int64_t others = sequence_parallel ? s * b * h * 34 / t : s * b * h * 10 + s * b * h * 24 / t;
        EXPECT_EQ(kept({}), others + scores) << "t " << t << ", heads " << heads << ", sequence " << sequence_parallel;
        EXPECT_EQ(kept({.kind = Recompute::Selective, .modules = {RecomputedModule::CoreAttention}}), others);
        EXPECT_EQ(kept({.kind = Recompute::Full}), s * b * h * 2 / (sequence_parallel ? t : 1));
      }
    }
  }
}

}  // namespace
}  // namespace tidemark::tests::recompute_test
