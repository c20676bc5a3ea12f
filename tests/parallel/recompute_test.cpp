#include "parallel/recompute.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/parallel/test_job.hpp"

namespace tidemark::tests {
namespace {

TestJob job_with(Recomputation asked, AttentionKernel attention = AttentionKernel::Fused) {
  TestJob job;
  job.layout.tensor = 2;
  job.layout.sequence_parallel = true;
  job.model.layers = 6;
  job.train.micro_batch = 2;
  job.train.attention = attention;
  job.train.recompute = asked;
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

std::vector<std::string> names(const ModelGraph& graph, const std::vector<OperatorId>& operators) {
  std::vector<std::string> found;
  for (const OperatorId id : operators) found.push_back(graph[id].name);
  return found;
}

std::vector<std::string> value_names(const ModelGraph& graph, const std::vector<ValueId>& values) {
  std::vector<std::string> found;
  for (const ValueId id : values) found.push_back(graph[id].name);
  return found;
}

OperatorId operator_named(const ModelGraph& graph, const std::string& name) {
  for (std::size_t o = 0; o < graph.operators.size(); ++o)
    if (graph.operators[o].name == name) return {static_cast<std::int32_t>(o)};
  return {};
}

TEST(OperatorsBetween, AreThoseThatAllWaysLeadThrough) {
  const Lowered lowered(job_with({}));
  const ModelGraph& graph = lowered.graph;
  const auto between = [&](const std::string& after, const std::string& upto) {
    return names(graph, operators_between(graph, operator_named(graph, after), operator_named(graph, upto)));
  };
  EXPECT_EQ(
      between("layers.1.attention.add", "layers.1.mlp.fc2"),
      (std::vector<std::string>{"layers.1.mlp.norm", "layers.1.mlp.fc1", "layers.1.mlp.swiglu", "layers.1.mlp.fc2"}));
  // The residual addition is reached past the MLP as well: upto fc2 it does not count, and from inside the MLP nothing
  // but what follows inside it is sure to be reached through there.
  EXPECT_EQ(between("layers.1.mlp.norm", "layers.1.mlp.add"),
            (std::vector<std::string>{"layers.1.mlp.fc1", "layers.1.mlp.swiglu", "layers.1.mlp.fc2"}));
  EXPECT_EQ(between("layers.0.mlp.add", "layers.2.mlp.add").size(),
            2 * between("layers.0.mlp.add", "layers.1.mlp.add").size());
}

TEST(Segments, OfUniformRecomputationAreGroupsOfLayers) {
  const Lowered lowered(job_with({.kind = Recompute::Full, .method = RecomputeMethod::Uniform, .layers = 4}));
  const std::vector<Segment> segments = recomputed_segments(
      lowered.graph, {.first = 0, .last = 6, .embedding = true, .head = true}, lowered.job.train.recompute);
  ASSERT_EQ(segments.size(), 2u);  // four layers, and the two that are left
  EXPECT_EQ(segments[0].operators.size(), 2 * segments[1].operators.size());
  EXPECT_EQ(value_names(lowered.graph, segments[1].inputs), (std::vector<std::string>{"layers.3.mlp.add.out"}));
  EXPECT_EQ(value_names(lowered.graph, segments[1].outputs), (std::vector<std::string>{"layers.5.mlp.add.out"}));
}

TEST(Segments, OfAnMlpHoldTheNormsAtItsEndsAndNothingBeside) {
  TestJob job = job_with({.kind = Recompute::Selective, .mlp = true});
  const auto first_segment = [&] {
    const Lowered lowered(job);
    const Segment segment =
        recomputed_segments(lowered.graph, {.first = 1, .last = 2}, lowered.job.train.recompute).front();
    std::vector<std::string> found = value_names(lowered.graph, segment.inputs);
    for (std::string& name : names(lowered.graph, segment.operators)) found.push_back(std::move(name));
    return fmt::format("{}", fmt::join(found, " "));
  };
  job.model.norms = NormPlacement::Around;
  EXPECT_EQ(first_segment(),
            "layers.1.attention.add.out layers.1.mlp.norm layers.1.mlp.fc1 layers.1.mlp.swiglu layers.1.mlp.fc2 "
            "layers.1.mlp.post_norm");
  job.model.norms = NormPlacement::After;
  EXPECT_EQ(first_segment(),
            "layers.1.attention.add.out layers.1.mlp.fc1 layers.1.mlp.swiglu layers.1.mlp.fc2 layers.1.mlp.post_norm");
  job.model.norms = NormPlacement::Before;
  job.model.parallel_residual = true;
  EXPECT_EQ(first_segment(),
            "layers.0.mlp.add.out layers.1.mlp.norm layers.1.mlp.fc1 layers.1.mlp.swiglu layers.1.mlp.fc2");
}

TEST(Segments, OfAttentionHaveItsThreeInputs) {
  for (const AttentionKernel kernel : {AttentionKernel::Fused, AttentionKernel::Flash}) {
    const Lowered lowered(job_with({.kind = Recompute::Selective, .core_attention = true}, kernel));
    const std::vector<Segment> segments =
        recomputed_segments(lowered.graph, {.first = 2, .last = 4}, lowered.job.train.recompute);
    ASSERT_EQ(segments.size(), 2u);
    EXPECT_EQ(value_names(lowered.graph, segments[0].inputs),
              (std::vector<std::string>{"layers.2.attention.q", "layers.2.attention.k", "layers.2.attention.v"}));
    EXPECT_EQ(segments[0].operators.size(), kernel == AttentionKernel::Flash ? 5u : 1u);  // with four copies
    EXPECT_EQ(segments[0].outputs.size(), 1u);
  }
}

// What saved activations of the layers a stage holds after its first forward pass.
std::int64_t saved_after_forward(const TestJob& job) {
  const Lowered lowered(job);
  const Program program = lowered.stage(0);
  return sum(live(program, first_mark(program, Phase::Forward, "final_norm")),
             [](const LiveTensor& t) { return t.category == Category::SavedActivations; });
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
  const TestJob job = job_with({.kind = Recompute::Selective, .core_attention = true});
  const std::int64_t statistics = 4 * job.train.tokens() * job.model.heads / job.layout.tensor + rng_state;
  EXPECT_EQ(saved_after_forward(job), 6 * (saved_by_a_layer(job) - statistics) + hidden_tensor(job));
}

TEST(Recomputation, OfTheMlpDropsItsInsides) {
  const TestJob job = job_with({.kind = Recompute::Selective, .mlp = true});
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
    // What the layers of a group save, with the group's output in the place of what came in.
    EXPECT_EQ(rebuilt, group * saved_by_a_layer(job)) << group;
  }
}

TEST(Recomputation, RunsEveryForwardKernelTwice) {
  const auto kernels = [](const TestJob& job) {
    std::int64_t gemms = 0;
    const Program program = Lowered(job).stage(0);
    for (const Op& op : program.ops)
      if (const Launch* launch = std::get_if<Launch>(&op))
        gemms += std::holds_alternative<Gemm>(program[launch->kernel]);
    return gemms;
  };
  const TestJob plain = job_with({}), full = job_with({.kind = Recompute::Full});
  const std::int64_t passes = plain.train.steps * plain.train.global_batch / plain.train.micro_batch;
  EXPECT_EQ(kernels(full) - kernels(plain), passes * 6 * 4);  // four linears in each of six layers
}

TEST(Recomputation, LeavesNothingBehind) {
  for (const Recomputation asked : {Recomputation{.kind = Recompute::Full, .layers = 2},
                                    Recomputation{.kind = Recompute::Selective, .core_attention = true, .mlp = true}}) {
    const Program program = Lowered(job_with(asked)).stage(0);
    EXPECT_EQ(sum(live_at_end(program), Category::Recompute), 0);
    EXPECT_EQ(sum(live_at_end(program), Category::SavedActivations), 0);
  }
}

}  // namespace
}  // namespace tidemark::tests
