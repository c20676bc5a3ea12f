#include "parallel/graph.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/sizes.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {
namespace {

const Model tiny{.name = "tiny",
                 .architecture = "llama",
                 .hidden = 64,
                 .layers = 1,
                 .heads = 4,
                 .kv_heads = 2,
                 .head_dim = 16,
                 .ffn = 96,
                 .vocabulary = 1000,
                 .max_positions = 128,
                 .whole_layers = {}};

Model with_layers(Model model, std::int64_t layers) {
  model.layers = layers;
  return model;
}

const Operator& operator_named(const ModelGraph& graph, const std::string& name) {
  for (const Operator& op : graph.operators)
    if (op.name == name) return op;
  throw std::runtime_error("no operator " + name);
}

std::string saved(const ModelGraph& graph, const std::string& name) {
  std::string out;
  for (const ValueId v : operator_named(graph, name).saved) {
    if (!out.empty()) out += ' ';
    out += graph[v].name;
  }
  return out;
}

const Parameter* parameter_named(const ModelGraph& graph, const std::string& name) {
  for (const Parameter& p : graph.parameters)
    if (p.name == name) return &p;
  return nullptr;
}

TEST(Graph, ALayerIsItsOperatorsAndWhatTheySave) {
  EXPECT_EQ(text(build_model(tiny, {.cross_entropy = CrossEntropy::TransformerEngine})),
            R"(tiny: 15 operators, 9 parameters with 158912 elements
embedding: tokens -> embedding.out  [embedding.weight 1000x64]  saves tokens
layers.0.attention.norm: embedding.out -> layers.0.attention.norm.out layers.0.attention.norm.rstd  [layers.0.attention.norm.weight 64x1]  saves embedding.out layers.0.attention.norm.rstd
layers.0.attention.qkv: layers.0.attention.norm.out -> layers.0.attention.qkv.out  [layers.0.attention.qkv.weight 128x64]  saves layers.0.attention.norm.out
layers.0.attention.rotary: layers.0.attention.qkv.out -> layers.0.attention.q layers.0.attention.k layers.0.attention.v
layers.0.attention.core: layers.0.attention.q layers.0.attention.k layers.0.attention.v -> layers.0.attention.context layers.0.attention.lse layers.0.attention.rng_state  saves layers.0.attention.q layers.0.attention.k layers.0.attention.v layers.0.attention.context layers.0.attention.lse layers.0.attention.rng_state
layers.0.attention.proj: layers.0.attention.context -> layers.0.attention.proj.out  [layers.0.attention.proj.weight 64x64]  saves layers.0.attention.context
layers.0.attention.add: embedding.out layers.0.attention.proj.out -> layers.0.attention.add.out
layers.0.mlp.norm: layers.0.attention.add.out -> layers.0.mlp.norm.out layers.0.mlp.norm.rstd  [layers.0.mlp.norm.weight 64x1]  saves layers.0.attention.add.out layers.0.mlp.norm.rstd
layers.0.mlp.fc1: layers.0.mlp.norm.out -> layers.0.mlp.fc1.out  [layers.0.mlp.fc1.weight 192x64]  saves layers.0.mlp.norm.out
layers.0.mlp.swiglu: layers.0.mlp.fc1.out -> layers.0.mlp.swiglu  saves layers.0.mlp.fc1.out
layers.0.mlp.fc2: layers.0.mlp.swiglu -> layers.0.mlp.fc2.out  [layers.0.mlp.fc2.weight 64x96]  saves layers.0.mlp.swiglu
layers.0.mlp.add: layers.0.attention.add.out layers.0.mlp.fc2.out -> layers.0.mlp.add.out
final_norm: layers.0.mlp.add.out -> final_norm.out final_norm.rstd  [final_norm.weight 64x1]  saves layers.0.mlp.add.out final_norm.rstd
head: final_norm.out -> head.logits  [head.weight 1000x64]  saves final_norm.out
loss: head.logits labels -> loss.out  saves head.logits
)");
}

TEST(Graph, TheLossSavesWhatItsVariantSaves) {
  EXPECT_EQ(saved(build_model(tiny, {.cross_entropy = CrossEntropy::TransformerEngine}), "loss"), "head.logits");
  for (const CrossEntropy variant : {CrossEntropy::Unfused, CrossEntropy::Fused}) {
    const ModelGraph graph = build_model(tiny, {.cross_entropy = variant});
    EXPECT_EQ(saved(graph, "loss"), "loss.softmax loss.masked_target loss.target_mask");
    const Value& softmax = graph[operator_named(graph, "loss").saved.front()];
    EXPECT_TRUE(softmax.vocabulary);
    EXPECT_EQ(softmax.precision, Precision::Fp32);
    EXPECT_EQ(softmax.placement, Placement::Tensor);
  }
}

TEST(Graph, FlashAttentionWorksOnBatchFirstCopies) {
  const ModelGraph graph = build_model(tiny, {.attention = AttentionKernel::Flash});
  const std::string at = "layers.0.attention.";
  EXPECT_EQ(saved(graph, at + "core"), at + "q.transposed " + at + "k.transposed " + at + "v.transposed " + at +
                                           "context " + at + "lse " + at + "rng_state");
  EXPECT_EQ(saved(graph, at + "proj"), at + "context.transposed");
  EXPECT_EQ(saved(graph, at + "q.transpose"), "");
}

TEST(Graph, EveryLayerHasTheSameOperators) {
  const ModelGraph graph = build_model(with_layers(tiny, 3), {});
  std::vector<int> count(3);
  for (const Operator& op : graph.operators)
    if (op.layer >= 0 && op.layer < 3) ++count[static_cast<std::size_t>(op.layer)];
  EXPECT_EQ(count, (std::vector<int>{11, 11, 11}));
  EXPECT_EQ(operator_named(graph, "embedding").layer, -1);
  EXPECT_EQ(operator_named(graph, "final_norm").layer, 3);
  EXPECT_EQ(operator_named(graph, "head").layer, 3);
  EXPECT_EQ(operator_named(graph, "loss").layer, 3);
}

TEST(Graph, ParametersCountOnceEachAndUnpadded) {
  // h 64, ffn 96, vocabulary 1000: 2Vh + h + layers x (h(a+2k)d + adh + 3fh + 2h)
  const std::int64_t layer = 64 * 128 + 64 * 64 + 3 * 96 * 64 + 2 * 64;
  EXPECT_EQ(parameter_count(build_model(tiny, {})), 2 * 64000 + 64 + layer);
  EXPECT_EQ(parameter_count(build_model(with_layers(tiny, 7), {})), 2 * 64000 + 64 + 7 * layer);
  Model extra = tiny;
  extra.vocabulary_extra = 1;
  extra.vocabulary_multiple = 512;
  EXPECT_EQ(parameter_count(build_model(extra, {})), 2 * 64000 + 64 + layer);
}

TEST(Graph, TiedEmbeddingsShareOneWeight) {
  Model tied = tiny;
  tied.tied_embeddings = true;
  const ModelGraph graph = build_model(tied, {});
  EXPECT_EQ(operator_named(graph, "head").parameters, operator_named(graph, "embedding").parameters);
  EXPECT_EQ(parameter_named(graph, "head.weight"), nullptr);
  EXPECT_EQ(parameter_count(graph), parameter_count(build_model(tiny, {})) - 64000);
  EXPECT_NE(operator_named(build_model(tiny, {}), "head").parameters,
            operator_named(build_model(tiny, {}), "embedding").parameters);
}

TEST(Graph, BiasesAreParametersAndSaveNothing) {
  Model biased = tiny;
  biased.qkv_bias = true;
  const ModelGraph graph = build_model(biased, {});
  ASSERT_NE(parameter_named(graph, "layers.0.attention.qkv.bias"), nullptr);
  EXPECT_EQ(parameter_named(graph, "layers.0.attention.qkv.bias")->rows, 128);
  EXPECT_EQ(parameter_named(graph, "layers.0.attention.qkv.bias")->cut, WeightCut::Rows);
  EXPECT_EQ(parameter_named(graph, "layers.0.attention.proj.bias"), nullptr);
  EXPECT_EQ(saved(graph, "layers.0.attention.qkv"), "layers.0.attention.norm.out");
  EXPECT_EQ(parameter_count(graph), parameter_count(build_model(tiny, {})) + 128);

  biased.output_bias = biased.mlp_bias = true;
  const ModelGraph all = build_model(biased, {});
  EXPECT_EQ(parameter_count(all), parameter_count(build_model(tiny, {})) + 128 + 64 + 192 + 64);
  EXPECT_EQ(parameter_named(all, "layers.0.attention.proj.bias")->cut, WeightCut::None);  // whole on every rank
  EXPECT_EQ(parameter_named(all, "layers.0.mlp.fc1.bias")->cut, WeightCut::Rows);
}

// A GPT-2-like model: LayerNorm, learned positions, biases, GELU.
Model gpt(std::int64_t heads, std::int64_t head_dim) {
  Model m = tiny;
  m.hidden = heads * head_dim;
  m.heads = m.kv_heads = heads;
  m.head_dim = head_dim;
  m.ffn = 4 * m.hidden;
  m.tied_embeddings = m.qkv_bias = m.output_bias = m.mlp_bias = true;
  m.normalization = Normalization::Layer;
  m.activation = Activation::Gelu;
  m.positions = Positions::Learned;
  return m;
}

TEST(Graph, AGptLayerIsItsOperatorsAndWhatTheySave) {
  const ModelGraph graph = build_model(
      gpt(4, 16),
      {.attention = AttentionKernel::Unfused, .hidden_dropout = 0.1, .attention_dropout = 0.1, .sequence_length = 32});
  EXPECT_EQ(saved(graph, "embedding"), "tokens position_ids embedding.dropout_mask");
  EXPECT_EQ(saved(graph, "layers.0.attention.norm"),
            "embedding.out layers.0.attention.norm.mean layers.0.attention.norm.rstd");
  EXPECT_EQ(saved(graph, "layers.0.attention.split"), "");  // parts of the joint projection
  EXPECT_EQ(saved(graph, "layers.0.attention.core"),
            "layers.0.attention.q layers.0.attention.k layers.0.attention.v layers.0.attention.softmax "
            "layers.0.attention.dropout_mask layers.0.attention.dropped");
  EXPECT_EQ(saved(graph, "layers.0.attention.add"), "layers.0.attention.add.dropout_mask");
  EXPECT_EQ(saved(graph, "layers.0.mlp.gelu"), "layers.0.mlp.fc1.out");
  // Megatron adds all biases but that of q, k, v after the GEMM.
  EXPECT_EQ(operator_named(graph, "layers.0.attention.qkv").parameters.size(), 2U);
  for (const char* linear : {"layers.0.attention.proj", "layers.0.mlp.fc1", "layers.0.mlp.fc2"})
    EXPECT_EQ(operator_named(graph, linear).parameters.size(), 1U) << linear;
  for (const char* after : {"layers.0.attention.add", "layers.0.mlp.gelu", "layers.0.mlp.add"})
    EXPECT_EQ(operator_named(graph, after).parameters.size(), 1U) << after;
  const std::int64_t h = 64;
  EXPECT_EQ(parameter_count(graph), (1000 + 128) * h + 12 * h * h + 13 * h + 2 * h);
}

TEST(Graph, WithoutDropoutThereAreNoMasks) {
  const ModelGraph graph = build_model(gpt(4, 16), {.attention = AttentionKernel::Unfused, .sequence_length = 32});
  for (const Value& value : graph.values) EXPECT_EQ(value.name.find("dropout"), std::string::npos) << value.name;
  EXPECT_EQ(saved(graph, "layers.0.attention.core"),
            "layers.0.attention.q layers.0.attention.k layers.0.attention.v layers.0.attention.softmax");
}

TEST(Graph, UnfusedRotaryKeepsItsCosinesAndSines) {
  const ModelGraph graph = build_model(tiny, {.rotary = RotaryKernel::Unfused, .sequence_length = 32});
  EXPECT_EQ(saved(graph, "layers.0.attention.rotary"),
            "layers.0.attention.query_cos layers.0.attention.query_sin layers.0.attention.key_cos "
            "layers.0.attention.key_sin");
  const Value& cosines = graph[operator_named(graph, "layers.0.attention.rotary").saved.front()];
  EXPECT_EQ(cosines.per_token, 0);  // all sequences of a micro-batch share them
  EXPECT_EQ(cosines.fixed, 32 * 16);
}

TEST(Graph, NormsStandWhereTheModelSays) {
  Model m = tiny;
  m.norms = NormPlacement::Around;
  const ModelGraph around = build_model(m, {});
  EXPECT_EQ(saved(around, "layers.0.attention.post_norm"),
            "layers.0.attention.proj.out layers.0.attention.post_norm.rstd");
  EXPECT_EQ(around[operator_named(around, "layers.0.mlp.add").inputs[1]].name, "layers.0.mlp.post_norm.out");
  EXPECT_EQ(parameter_count(around), parameter_count(build_model(tiny, {})) + 2 * 64);

  m.norms = NormPlacement::After;
  const ModelGraph after = build_model(m, {});
  EXPECT_EQ(saved(after, "layers.0.attention.qkv"), "embedding.out");
  EXPECT_EQ(saved(after, "layers.0.mlp.fc1"), "layers.0.attention.add.out");
  EXPECT_EQ(parameter_named(after, "layers.0.mlp.norm.weight"), nullptr);
  EXPECT_EQ(parameter_count(after), parameter_count(build_model(tiny, {})));
}

TEST(Graph, BranchesOfAParallelResidualReadTheSameInput) {
  Model m = with_layers(tiny, 2);
  m.parallel_residual = true;
  const ModelGraph graph = build_model(m, {});
  for (const char* norm : {"layers.1.attention.norm", "layers.1.mlp.norm"})
    EXPECT_EQ(graph[operator_named(graph, norm).inputs[0]].name, "layers.0.mlp.add.out") << norm;
  EXPECT_EQ(graph[operator_named(graph, "layers.1.mlp.add").inputs[0]].name, "layers.1.attention.add.out");
}

TEST(Graph, NormsOfAllHeadsAreCutWithThem) {
  Model m = tiny;
  m.qk_norm = QkNorm::PerHead;
  EXPECT_EQ(parameter_count(build_model(m, {})), parameter_count(build_model(tiny, {})) + 2 * 16);
  m.qk_norm = QkNorm::AllHeads;
  const ModelGraph graph = build_model(m, {});
  EXPECT_EQ(parameter_count(graph), parameter_count(build_model(tiny, {})) + 64 + 32);
  EXPECT_EQ(parameter_named(graph, "layers.0.attention.k_norm.weight")->cut, WeightCut::Rows);
}

TEST(Graph, CapsSaveTangents) {
  Model m = tiny;
  m.attention_softcap = 50;
  m.logit_softcap = 30;
  const ModelGraph graph =
      build_model(m, {.attention = AttentionKernel::Unfused, .attention_dropout = 0.1, .sequence_length = 32});
  EXPECT_EQ(saved(graph, "layers.0.attention.core"),
            "layers.0.attention.q layers.0.attention.k_repeated layers.0.attention.v_repeated "
            "layers.0.attention.softmax layers.0.attention.dropout_mask layers.0.attention.dropped "
            "layers.0.attention.scores_tanh");
  EXPECT_EQ(saved(graph, "head"), "final_norm.out head.logits_tanh");
}

TEST(Graph, AGateInTwoStepsSavesItsActivation) {
  Model m = tiny;
  m.activation = Activation::GeGlu;
  EXPECT_EQ(saved(build_model(m, {}), "layers.0.mlp.geglu"), "layers.0.mlp.fc1.out");
  EXPECT_EQ(saved(build_model(m, {.fused_gate = false}), "layers.0.mlp.geglu"),
            "layers.0.mlp.fc1.out layers.0.mlp.gate");
}

TEST(Graph, WeightsAreCutWhereTensorParallelismCutsThem) {
  const ModelGraph graph = build_model(tiny, {});
  const auto cut = [&](const std::string& name) { return parameter_named(graph, name)->cut; };
  EXPECT_EQ(cut("embedding.weight"), WeightCut::Rows);
  EXPECT_EQ(cut("layers.0.attention.qkv.weight"), WeightCut::Rows);
  EXPECT_EQ(cut("layers.0.attention.proj.weight"), WeightCut::Columns);
  EXPECT_EQ(cut("layers.0.mlp.fc1.weight"), WeightCut::Rows);
  EXPECT_EQ(cut("layers.0.mlp.fc2.weight"), WeightCut::Columns);
  EXPECT_EQ(cut("layers.0.mlp.norm.weight"), WeightCut::None);
  EXPECT_EQ(cut("head.weight"), WeightCut::Rows);
  for (const Parameter& p : graph.parameters)
    EXPECT_EQ(p.vocabulary, p.name == "embedding.weight" || p.name == "head.weight") << p.name;
}

TEST(Graph, TopologicalOrderFollowsTheValues) {
  ModelGraph graph = build_model(with_layers(tiny, 3), {.attention = AttentionKernel::Flash});
  const auto holds = [&] {
    std::vector<int> made(graph.values.size(), 1);
    for (const Operator& op : graph.operators)
      for (const ValueId v : op.outputs) made[v.index()] = 0;
    const std::vector<OperatorId> order = topological_order(graph);
    for (const OperatorId id : order) {
      for (const ValueId v : graph[id].inputs)
        if (made[v.index()] == 0) return false;
      for (const ValueId v : graph[id].outputs) made[v.index()] = 1;
    }
    return order.size() == graph.operators.size();
  };
  EXPECT_TRUE(holds());
  for (std::size_t i = 0; i < graph.operators.size(); ++i)  // ties, and here everything, keep the order of adding
    EXPECT_EQ(topological_order(graph)[i], OperatorId{static_cast<std::int32_t>(i)});
  std::reverse(graph.operators.begin(), graph.operators.end());
  EXPECT_TRUE(holds());
}

}  // namespace
}  // namespace tidemark::tests
