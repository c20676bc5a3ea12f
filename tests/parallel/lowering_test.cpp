#include <algorithm>
#include <iterator>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "sim/memory/flat.hpp"
#include "sim/program/text/program_text.hpp"
#include "sim/program/verify.hpp"
#include "tests/parallel/data_flow.hpp"
#include "tests/parallel/expected_flow.hpp"
#include "tests/parallel/test_job.hpp"
#include "tests/seeds.hpp"

namespace tidemark::tests::lowering_test {
namespace {

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
  m.layers.resize(4);
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
    m.layers.resize(6);
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
      m.layers.resize(l.pipeline * l.chunks * one_of(1, 2));
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
      m.layers.resize(std::accumulate(l.stage_layers.begin(), l.stage_layers.end(), 0));
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
  const bool core_attention = one_of(true, false);
  if (core_attention) t.recompute.modules.add(RecomputedModule::CoreAttention);
  if (!core_attention || one_of(true, false)) t.recompute.modules.add(RecomputedModule::Mlp);
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
  job.settings.overlap.gradients = one_of(false, true);
  job.settings.overlap.parameters = job.settings.overlap.gradients && one_of(false, true);
  job.settings.overlap.gradients_aligned = one_of(false, true);
  job.settings.overlap.parameters_aligned = one_of(false, true);
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
  const std::vector<std::string> findings = verify(workload_);
  EXPECT_TRUE(findings.empty()) << findings.front();
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
      // What old Transformer Engines hand autograd, because it wants something; and what goes into a report of a loss,
      // which has been there since the step began.
      const std::string& label = program[o->label];
      EXPECT_TRUE(label.starts_with("dummy_gradient.") || label == "loss.sum_copy") << label;
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

INSTANTIATE_TEST_SUITE_P(Seeds, EveryLayout, testing::Range<std::uint64_t>(1, 46, seed_step()));

}  // namespace
}  // namespace tidemark::tests::lowering_test
