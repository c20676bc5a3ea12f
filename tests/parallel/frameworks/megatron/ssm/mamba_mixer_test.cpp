// What a layer with Megatron-LM's Mamba-2 mixer keeps and holds. T: tokens of a micro-batch, h: hidden, i: heads times
// their width, g, n and a: groups, states and heads, t: tensor-parallel ranks.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lowering/flops.hpp"
#include "parallel/lowering/lower.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::mamba_mixer_test {
namespace {

using parallel::NoMixer;
using parallel::NoMlp;

const Mamba2 mamba{.heads = 32, .head_dim = 48, .groups = 4, .state = 64};
const Layer mixes{mamba, NoMlp{}}, attends{Attention{}, NoMlp{}}, multiplies{NoMixer{}, DenseMlp{}};

TestJob hybrid_job(Cut cut, std::int64_t micro_batch = 1, std::int64_t sequence = 256) {
  TestJob job = job_cut(cut, micro_batch);
  job.train.sequence_length = sequence;
  job.model.layers = {};
  for (const Layer& layer : {mixes, mixes, multiplies, attends, mixes, multiplies}) job.model.layers.append(1, layer);
  job.model.positions = Positions::None;
  job.model.activation = Activation::SquaredRelu;
  return job;
}

bool of_state(Category category) {
  return category == Category::Parameters || category == Category::Gradients || category == Category::OptimizerMaster ||
         category == Category::OptimizerMoments;
}

struct Bytes {
  std::int64_t saved = 0, all = 0;
};
Bytes after_forward(const TestJob& job, int layer, const char* next) {
  const Lowered lowered(job);
  const Program program = lowered.stage(0);
  const std::size_t end = first_mark(program, Phase::Forward, fmt::format("layers.{}.{}", layer + 1, next));
  const std::string mine = fmt::format("layers.{}.", layer);
  const std::vector<LiveTensor> tensors = live(program, end);
  const auto is_mine = [&](const LiveTensor& t) { return t.label.starts_with(mine) && !of_state(t.category); };
  return {sum(tensors, [&](const LiveTensor& t) { return is_mine(t) && t.category == Category::SavedActivations; }),
          sum(tensors, is_mine)};
}

// The residual stream, what is normalized of it and its statistic; z, x, B, C and dt of each token; the scan before its
// gate; its output, normalized by groups, and their statistics. Of each head: rates of decay as they are and by exp,
// and what dt begins with, in fp32.
std::int64_t layer_formula(const TestJob& job) {
  const std::int64_t T = job.train.tokens(), t = job.layout.tensor, h = job.model.hidden;
  const std::int64_t i = mamba.heads * mamba.head_dim, gn = mamba.groups * mamba.state, a = mamba.heads;
  const std::int64_t residual = T * (2 * 2 * h + 4) / (job.layout.sequence_parallel ? t : 1);
  const std::int64_t of_tokens = 2 * (2 * i + 2 * gn + a) + 3 * 2 * i + 4 * mamba.groups;
  return residual + T * of_tokens / t + 3 * 4 * a / t;
}

class MambaLayer : public testing::TestWithParam<Cut> {};

TEST_P(MambaLayer, KeepsTheClosedFormToTheByte) {
  for (const std::int64_t micro_batch : {1, 2}) {
    const TestJob job = hybrid_job(GetParam(), micro_batch);
    EXPECT_EQ(after_forward(job, 0, "mixer.norm").saved, layer_formula(job)) << micro_batch;
    EXPECT_EQ(after_forward(job, 0, "mixer.norm").all, layer_formula(job)) << micro_batch;
    EXPECT_EQ(after_forward(job, 1, "mlp.norm").all, layer_formula(job)) << micro_batch;
  }
}

INSTANTIATE_TEST_SUITE_P(Cuts, MambaLayer, testing::Values(Cut{1, false}, Cut{2, false}, Cut{2, true}, Cut{4, true}),
                         [](const auto& test) {
                           return fmt::format("tp{}{}", test.param.tensor, test.param.sequence_parallel ? "_sp" : "");
                         });

TEST(MambaMixer, RegistersItsParametersAsItsModulesDo) {
  const BuiltModel built = build_model(hybrid_job({1, false}).model, {.attention = AttentionKernel::Fused});
  std::vector<std::string> names;
  std::int64_t elements = 0;
  for (const Parameter& parameter : built.parameters)
    if (parameter.layer == 0) names.push_back(parameter.name), elements += parameter.elements();
  const std::string at = "layers.0.mixer.";
  EXPECT_EQ(names, (std::vector<std::string>{at + "dt_bias", at + "A_log", at + "D", at + "norm.weight",
                                             at + "in_proj.weight", at + "conv1d.weight", at + "conv1d.bias",
                                             at + "out_norm.weight", at + "out_proj.weight"}));
  const std::int64_t h = 768, i = 32 * 48, gn = 4 * 64, a = 32;
  EXPECT_EQ(elements, h * (2 * i + 2 * gn + a) + (i + 2 * gn) * 5 + 3 * a + i + i * h + h);
}

// The largest buffers of a chunk: scores and states, which no pass keeps.
TEST(MambaMixer, BackwardHoldsStatesOfEachChunkInBothTypes) {
  const TestJob job = hybrid_job({1, false}, 1, 512);
  const Lowered lowered(job);
  const Program program = lowered.stage(0);
  std::int64_t wide = 0, narrow = 0;
  for (const Op& op : program.ops) {
    const auto* const alloc = std::get_if<Alloc>(&op);
    if (alloc == nullptr) continue;
    const std::int64_t states = 512 / 128 * 32 * 48 * 64;
    const std::string& label = program[alloc->label];
    if (label.find(".mixer.scan.") == std::string::npos) continue;
    if (label.ends_with("states") && alloc->size.count() == 4 * states) ++wide;
    if (label.ends_with("states") && alloc->size.count() == 2 * states) ++narrow;
  }
  // Forward: of chunks in fp32, what passed in bf16. Backward: of chunks and what passed in fp32, and that in bf16.
  EXPECT_EQ(wide, 3 * narrow / 2);
  EXPECT_GT(narrow, 0);
}

TEST(MambaMixer, TunesEachKernelOnceBeforeItsFirstRun) {
  const Lowered lowered(hybrid_job({1, false}));
  const Program program = lowered.stage(0);
  std::int64_t tuned = 0;
  for (const Op& op : program.ops)
    if (const auto* const alloc = std::get_if<Alloc>(&op);
        alloc != nullptr && program[alloc->label] == "triton.l2_cache") {
      EXPECT_EQ(alloc->size.count(), 256 << 20);
      ++tuned;
    }
  EXPECT_EQ(tuned, 5 + 11);  // forward; what comes on top of these backward
}

// Two for each weight; C B^T and what it weighs within chunks of 128, half of each masked; into states and out of them.
TEST(MambaMixer, OperationsAreTwoForEachWeightAndThoseOfAScanByChunks) {
  Model model = hybrid_job({1, false}).model;
  model.layers = LayerList(3, mixes);
  const std::int64_t tokens = 512, i = 32 * 48, gn = 4 * 64, h = 768;
  const ForwardOperations found = forward_operations(model, tokens);
  EXPECT_EQ(found.attention, static_cast<double>(3 * tokens * (128 * (gn + i) + 4 * i * 64)));
  EXPECT_EQ(found.linears, static_cast<double>(2 * tokens * (3 * (h * (2 * i + 2 * gn + 32) + i * h) + h * 1000)));
}

}  // namespace
}  // namespace tidemark::tests::mamba_mixer_test
