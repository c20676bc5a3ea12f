#include "parallel/job/built_model.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/frameworks/megatron/training.hpp"
#include "parallel/lowering/flops.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::built_model_test {
namespace {

const Model tiny{.name = "tiny",
                 .architecture = "llama",
                 .hidden = 64,
                 .heads = 4,
                 .kv_heads = 2,
                 .head_dim = 16,
                 .ffn = 96,
                 .vocabulary = 1000,
                 .max_positions = 128,
                 .layers = LayerList(1)};

Model with_layers(Model model, std::int64_t layers) {
  model.layers.resize(layers);
  return model;
}

const Parameter* parameter_named(const BuiltModel& built, const std::string& name) {
  for (const Parameter& p : built.parameters)
    if (p.name == name) return &p;
  return nullptr;
}

// A GPT-2-like model: LayerNorm, learned positions, biases, GELU.
Model gpt() {
  Model m = tiny;
  m.kv_heads = m.heads;
  m.ffn = 4 * m.hidden;
  m.tied_embeddings = m.qkv_bias = m.output_bias = m.mlp_bias = true;
  m.normalization = Normalization::Layer;
  m.activation = Activation::Gelu;
  m.positions = Positions::Learned;
  return m;
}

TEST(BuiltModel, ParametersCountOnceEachAndUnpadded) {
  // h 64, ffn 96, vocabulary 1000: 2Vh + h + layers x (h(a+2k)d + adh + 3fh + 2h)
  const std::int64_t layer = 64 * 128 + 64 * 64 + 3 * 96 * 64 + 2 * 64;
  EXPECT_EQ(parameter_count(build_model(tiny, {})), 2 * 64000 + 64 + layer);
  EXPECT_EQ(parameter_count(build_model(with_layers(tiny, 7), {})), 2 * 64000 + 64 + 7 * layer);
  Model extra = tiny;
  extra.vocabulary_extra = 1;
  extra.vocabulary_multiple = 512;
  EXPECT_EQ(parameter_count(build_model(extra, {})), 2 * 64000 + 64 + layer);
  const std::int64_t h = 64;
  EXPECT_EQ(parameter_count(build_model(gpt(), {})), (1000 + 128) * h + 12 * h * h + 13 * h + 2 * h);
}

TEST(BuiltModel, TiedEmbeddingsShareOneWeight) {
  Model tied = tiny;
  tied.tied_embeddings = true;
  const BuiltModel built = build_model(tied, {});
  EXPECT_EQ(parameter_named(built, "head.weight"), nullptr);
  EXPECT_EQ(parameter_count(built), parameter_count(build_model(tiny, {})) - 64000);
  EXPECT_EQ(built.parameters.front().name, "embedding.weight");
}

std::vector<std::string> names_of(const BuiltModel& built) {
  std::vector<std::string> names;
  for (const Parameter& p : built.parameters) names.push_back(p.name);
  return names;
}

TEST(BuiltModel, ExpertsRegisterOneLinearAfterTheOtherAndSayWhoseTheyAre) {
  Model m = tiny;
  m.layers.resize(2);
  m.layers.replace(1, {.mlp = Experts{.count = 2, .chosen = 1, .ffn = 32, .shared_ffn = 48, .shared_gate = true}});
  const BuiltModel built = build_model(m, {});
  EXPECT_EQ(names_of(built), (std::vector<std::string>{"embedding.weight",
                                                       "layers.0.attention.proj.weight",
                                                       "layers.0.attention.norm.weight",
                                                       "layers.0.attention.qkv.weight",
                                                       "layers.0.mlp.norm.weight",
                                                       "layers.0.mlp.fc1.weight",
                                                       "layers.0.mlp.fc2.weight",
                                                       "layers.1.attention.proj.weight",
                                                       "layers.1.attention.norm.weight",
                                                       "layers.1.attention.qkv.weight",
                                                       "layers.1.mlp.norm.weight",
                                                       "layers.1.mlp.router.weight",
                                                       "layers.1.mlp.experts.0.fc1.weight",
                                                       "layers.1.mlp.experts.1.fc1.weight",
                                                       "layers.1.mlp.experts.0.fc2.weight",
                                                       "layers.1.mlp.experts.1.fc2.weight",
                                                       "layers.1.mlp.shared.gate.weight",
                                                       "layers.1.mlp.shared.fc1.weight",
                                                       "layers.1.mlp.shared.fc2.weight",
                                                       "final_norm.weight",
                                                       "head.weight"}));
  const auto expected = [](const std::string& name) {
    const std::size_t at = name.find("experts.");
    return at == std::string::npos ? -1 : name[at + 8] - '0';
  };
  for (const Parameter& p : built.parameters) EXPECT_EQ(p.expert, expected(p.name)) << p.name;
  const std::int64_t expert = 3 * 32 * 64;
  EXPECT_EQ(parameter_count(built) - active_parameter_count(built), expert);
  EXPECT_EQ(parameter_named(built, "layers.1.mlp.experts.0.fc1.weight")->cut, WeightCut::Rows);
  EXPECT_EQ(parameter_named(built, "layers.1.mlp.experts.1.fc2.weight")->cut, WeightCut::Columns);
  EXPECT_EQ(parameter_named(built, "layers.1.mlp.router.weight")->in_parts, GradientInParts::UnderSequenceParallelism);
}

TEST(BuiltModel, LatentsAreProjectedDownWholeAndUpInParts) {
  Model m = tiny;
  m.kv_heads = m.heads;
  MultiLatentAttention latent{
      .query_rank = 24, .kv_rank = 16, .qk_nope_head_dim = 16, .qk_rope_head_dim = 8, .value_head = 8};
  set_mixer(m, latent);
  m.head_dim = latent.query_head();
  const BuiltModel built = build_model(m, {});
  struct Expected {
    const char* name;
    std::int64_t rows, columns;
    WeightCut cut;
  };
  const Expected expected[] = {{"norm", 64, 0, WeightCut::None},      {"proj", 64, 4 * 8, WeightCut::Columns},
                               {"q_down", 24, 64, WeightCut::None},   {"q_norm", 24, 0, WeightCut::None},
                               {"q_up", 4 * 24, 24, WeightCut::Rows}, {"kv_down", 16 + 8, 64, WeightCut::None},
                               {"kv_norm", 16, 0, WeightCut::None},   {"kv_up", 4 * (16 + 8), 16, WeightCut::Rows}};
  std::size_t at = 1;  // after the embedding
  for (const Expected& e : expected) {
    const Parameter& p = built.parameters[at++];
    EXPECT_EQ(p.name, fmt::format("layers.0.attention.{}.weight", e.name));
    EXPECT_EQ(std::tie(p.rows, p.columns, p.cut), std::tie(e.rows, e.columns, e.cut)) << p.name;
    EXPECT_EQ(p.in_parts == GradientInParts::UnderSequenceParallelism, e.cut == WeightCut::None) << p.name;
  }
  latent.query_rank = 0;
  set_mixer(m, latent);
  EXPECT_EQ(parameter_named(build_model(m, {}), "layers.0.attention.q.weight")->rows, 4 * 24);
}

TEST(BuiltModel, FurtherTokensArePredictedBeforeTheHead) {
  Model m = tiny;
  m.further = LayerList(1);
  m.attention_sinks = true;
  std::vector<std::string> names = names_of(build_model(m, {}));
  EXPECT_EQ(names[1], "layers.0.attention.core.sinks");
  names.erase(names.begin(), std::find(names.begin(), names.end(), "final_norm.weight"));
  EXPECT_EQ(names, (std::vector<std::string>{
                       "final_norm.weight", "next_tokens.0.embedding_norm.weight", "next_tokens.0.hidden_norm.weight",
                       "next_tokens.0.projection.weight", "layers.1.attention.core.sinks",
                       "layers.1.attention.proj.weight", "layers.1.attention.norm.weight",
                       "layers.1.attention.qkv.weight", "layers.1.mlp.norm.weight", "layers.1.mlp.fc1.weight",
                       "layers.1.mlp.fc2.weight", "next_tokens.0.final_norm.weight", "head.weight"}));
}

TEST(BuiltModel, WeightsAreCutWhereTensorParallelismCutsThem) {
  Model m = tiny;
  m.qkv_bias = m.output_bias = m.mlp_bias = true;
  const BuiltModel built = build_model(m, {});
  const auto cut = [&](const std::string& name) { return parameter_named(built, name)->cut; };
  EXPECT_EQ(cut("embedding.weight"), WeightCut::Rows);
  EXPECT_EQ(cut("layers.0.attention.qkv.weight"), WeightCut::Rows);
  EXPECT_EQ(cut("layers.0.attention.qkv.bias"), WeightCut::Rows);
  EXPECT_EQ(cut("layers.0.attention.proj.weight"), WeightCut::Columns);
  EXPECT_EQ(cut("layers.0.attention.proj.bias"), WeightCut::None);  // whole on every rank
  EXPECT_EQ(cut("layers.0.mlp.fc1.weight"), WeightCut::Rows);
  EXPECT_EQ(cut("layers.0.mlp.fc1.bias"), WeightCut::Rows);
  EXPECT_EQ(cut("layers.0.mlp.fc2.weight"), WeightCut::Columns);
  EXPECT_EQ(cut("layers.0.mlp.norm.weight"), WeightCut::None);
  EXPECT_EQ(cut("head.weight"), WeightCut::Rows);
}

// Megatron's own layers have norms by themselves; TransformerEngine's are part of the linear after them.
TEST(BuiltModel, AttentionsNormIsRegisteredWhereItsModuleIs) {
  const auto first_of_layer = [](AttentionKernel attention) {
    return build_model(tiny, {.attention = attention}).parameters[1].name;
  };
  EXPECT_EQ(first_of_layer(AttentionKernel::Fused), "layers.0.attention.proj.weight");
  EXPECT_EQ(first_of_layer(AttentionKernel::Local), "layers.0.attention.norm.weight");
}

// ---- against a description of what models compute ------------------------------------------------------------------

// Where tensor-parallel ranks meet a whole parameter with a part of what it is applied to.
GradientInParts expected_in_parts(const Operator& op, const Parameter& parameter) {
  if (parameter.cut != WeightCut::None || op.does == Does::LooksUp) return GradientInParts::Never;
  return op.does == Does::TurnsAndCuts ? GradientInParts::Always : GradientInParts::UnderSequenceParallelism;
}

std::map<std::string, Parameter> expected_parameters(const Model& model) {
  const ModelGraph graph = model_graph(model, AttentionKernel::Fused);
  std::map<std::string, Parameter> expected;
  for (const Operator& op : graph.operators)
    for (const ParameterId id : op.parameters) {
      Parameter parameter = graph[id];
      parameter.in_parts = expected_in_parts(op, parameter);
      expected.emplace(parameter.name, parameter);
    }
  return expected;
}

Model drawn_model(std::mt19937_64& random) {
  const auto one_of = [&](auto... values) { return std::array{values...}[random() % sizeof...(values)]; };
  Model m = tiny;
  m.layers.resize(one_of(1, 2, 3));
  m.kv_heads = one_of(1, 2, 4);
  m.tied_embeddings = one_of(false, true);
  m.qkv_bias = one_of(false, true);
  m.normalization = one_of(Normalization::Rms, Normalization::Layer);
  m.activation = one_of(Activation::SwiGlu, Activation::GeGlu, Activation::Gelu, Activation::SquaredRelu);
  m.positions = one_of(Positions::Rotary, Positions::Learned);
  m.norms = one_of(NormPlacement::Before, NormPlacement::After, NormPlacement::Around);
  m.output_bias = m.norms == NormPlacement::Before && one_of(false, true);
  m.mlp_bias = m.norms == NormPlacement::Before && one_of(false, true);
  m.qk_norm = one_of(QkNorm::None, QkNorm::PerHead, QkNorm::AllHeads);
  m.parallel_residual = one_of(false, true);
  return m;
}

TEST(BuiltModel, ModulesRegisterTheParametersThatTheModelReads) {
  std::mt19937_64 random(14);
  for (int i = 0; i < 200; ++i) {
    const Model model = drawn_model(random);
    for (const AttentionKernel attention : {AttentionKernel::Fused, AttentionKernel::Local}) {
      std::map<std::string, Parameter> registered;
      for (const Parameter& p : build_model(model, {.attention = attention}).parameters)
        EXPECT_TRUE(registered.emplace(p.name, p).second) << p.name;
      EXPECT_EQ(registered, expected_parameters(model)) << "model " << i;
    }
  }
}

TEST(ForwardOperations, AreTwoForEachWeightAndTokenAndHalfOfAttentionsProducts) {
  const std::int64_t tokens = 32, h = 64;
  const std::int64_t layer = 64 * 128 + 64 * 64 + 3 * 96 * 64, attention = 2 * tokens * tokens * h;
  Model model = with_layers(tiny, 2);
  const auto linears = static_cast<double>(2 * tokens * (1000 * h + 2 * layer));
  EXPECT_EQ(forward_operations(model, tokens).linears, linears);
  EXPECT_EQ(forward_operations(model, tokens).attention, static_cast<double>(2 * attention));
  model.tied_embeddings = true;
  model.vocabulary_extra = 7;  // padding is no work
  EXPECT_EQ(forward_operations(model, tokens).linears, linears);
}

// ---- what a dry run says -------------------------------------------------------------------------------------------

// What each operation saves, without the numbers of buffers.
std::map<std::string, std::string> saved(const TestJob& job) {
  std::map<std::string, std::string> found;
  for (const torch::Recording::Operation& op : megatron::record_forward(Lowered(job).input).operations)
    for (const std::string& tensor : op.saved) {
      std::string& all = found[op.name];
      all += (all.empty() ? "" : " ") + tensor.substr(0, tensor.find('@'));
    }
  return found;
}

using Saved = std::map<std::string, std::string>;

TEST(DryRun, SeesWhatALayersOperationsSave) {
  TestJob job;
  job.model.layers.resize(1);
  const std::string a = "layers.0.attention.", m = "layers.0.mlp.";
  EXPECT_EQ(saved(job),
            (Saved{{a + "norm.out", "embedding.out " + a + "norm.rstd " + a + "norm.out"},
                   {a + "context", a + "q " + a + "k " + a + "v " + a + "context " + a + "lse " + a + "rng_state"},
                   {a + "proj.out", a + "context"},
                   {m + "norm.out", a + "add.out " + m + "norm.rstd " + m + "norm.out"},
                   {m + "swiglu", m + "fc1.out"},
                   {m + "fc2.out", m + "swiglu"},
                   {"final_norm.out", m + "add.out final_norm.rstd"},
                   {"head.logits", "final_norm.out"},
                   {"loss.statistics", "head.logits"}}));
}

TEST(DryRun, SeesOneRankThatHoldsTheWholeModel) {
  TestJob job;
  job.layout.tensor = 2;
  job.layout.pipeline = 2;
  const Lowered lowered(job);
  std::vector<std::string> registered, made;
  for (const Parameter& p : lowered.built.parameters) registered.push_back(p.name);
  for (const torch::Recording::State& state : megatron::record_forward(lowered.input).state) made.push_back(state.name);
  EXPECT_EQ(made, registered);
}

TEST(DryRun, SeesThatACappedHeadSavesTangents) {
  TestJob job;
  job.model.logit_softcap = 30;
  EXPECT_EQ(saved(job)["head.uncapped"], "final_norm.out head.logits_tanh");
}

TEST(DryRun, SeesThatAGateInTwoStepsSavesItsActivation) {
  TestJob job;
  job.fused_gate = false;
  EXPECT_EQ(saved(job)["layers.0.mlp.gate"], "layers.0.mlp.fc1.out layers.0.mlp.gate");
}

}  // namespace
}  // namespace tidemark::tests::built_model_test
