// Closed forms that nobody wrote into the lowering and that must fall out of its programs. T: tokens of a micro-batch,
// h: hidden, a and k: query and key-value heads, d: head dimension, f: feed-forward width, V: padded vocabulary,
// t: tensor-parallel degree, N: parameters of a rank, D: data-parallel ranks that share optimizer state.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::operators_test {
namespace {

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
            fmt::format("core.value_gradient {}, core.weights_gradient {}, core.dropout_gradient {}, "
                        "core.unscaled_gradient {}, core.query_gradient {}, core.unscaled_gradient {}, "
                        "core.key_gradient {}",
                        q, scores, scores, q, q, q, q));
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
  job.layout.tensor = 2;
  const std::int64_t scores =
      2 * 12 * 128 *
      128;  // sequences, heads of the rank, queries, keys  // sequences, heads of the rank, queries, keys
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

// The softmax reads its own result backward, in fp32; the product what was made of it.
TEST(Gpt, ASoftmaxInFp32IsKeptInBothTypesUnlessDropoutComesBetween) {
  TestJob job = gpt_job();
  job.train.attention = AttentionKernel::Unfused;
  job.softmax_precision = SoftmaxPrecision::Fp32;
  job.layout.tensor = 2;
  const std::int64_t scores = 2 * 12 * 128 * 128;  // sequences, heads of the rank, queries, keys
  for (const double dropout : {0.0, 0.1}) {
    job.train.attention_dropout = dropout;
    const std::vector<LiveTensor> tensors = at_loss(job);
    EXPECT_EQ(sum(tensors, "layers.0.attention.softmax"), 4 * scores);
    EXPECT_EQ(sum(tensors, "layers.0.attention.softmax_narrow"), dropout > 0 ? 0 : 2 * scores);
    EXPECT_EQ(sum(tensors, "layers.0.attention.dropped"), dropout > 0 ? 2 * scores : 0);
  }
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
  EXPECT_EQ(sum(both,
                [](const LiveTensor& t) {
                  return t.label.starts_with("rotary.") && t.label != "rotary.inverse_frequencies";
                }),
            4 * 128 * 8 * 4);
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

// core/tensor_parallel/cross_entropy.py calculate_logits_max: sums of exponentials would be the same with any number
// taken off the logits, as long as none overflows.
TEST(Loss, TheLargestLogitOfAllPartsIsTakenOff) {
  TestJob job = job_cut({2, false});
  job.train.cross_entropy = CrossEntropy::Unfused;
  const Program program = Lowered(job).stage(0);
  const Bytes of_tokens = job.train.micro_batch * job.train.sequence_length * size_of(DType::FP32);
  const auto largest = [&](const Op& op) {
    const auto* collective = std::get_if<Collective>(&op);
    return collective != nullptr && collective->reduction == Reduction::Largest && collective->size == of_tokens;
  };
  EXPECT_EQ(std::ranges::count_if(program.ops, largest), job.train.steps * micro_batches_of(job.train, job.layout));
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

}  // namespace
}  // namespace tidemark::tests::operators_test
