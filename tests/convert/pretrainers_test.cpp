#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/scenario/memory_bounds.hpp"
#include "tests/convert/recipes.hpp"

// Files of tools that pre-train models of their own (MPT, OLMo, Lingua, LitGPT), with what they come to worked out by
// hand. Where nothing else is said, the model is tests/convert/ten_tools_test.cpp's Llama of 4 layers: hidden 512, 8
// heads, gated MLP of 2,048, vocabulary 32,000 and a head of its own, 49,549,824 parameters.

namespace tidemark::tests::pretrainers_test {
namespace {

constexpr std::int64_t llama = 49'549'824;

struct Known {
  std::string file, text;
  std::int64_t parameters = 0;
  std::int64_t sequence = 0, micro = 0, global = 0;
  double moments = 0;  ///< bytes on rank 0 of 8
};

ConvertRequest requested_of(const std::string& file, const std::string& text, std::int64_t gpus = 8) {
  ConvertRequest requested;
  requested.files = {file};
  requested.texts[file] = text;
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.data_root = shipped_data();
  if (gpus > 0) requested.gpus = gpus;
  return requested;
}

Scenario holds(const Known& its) {
  SCOPED_TRACE(its.file);
  const Scenario s = scenario_of(convert(requested_of(its.file, its.text)), shipped_data());
  const Prediction p = predict(s);
  EXPECT_EQ(p.parameters, its.parameters);
  EXPECT_EQ(
      fmt::format("{}: {} {} {}", s.layout.data, s.train.sequence_length, s.train.micro_batch, s.train.global_batch),
      fmt::format("8: {} {} {}", its.sequence, its.micro, its.global));
  const auto found =
      static_cast<double>(p.groups.front().memory.allocated.composition[Category::OptimizerMoments].count());
  EXPECT_GE(found, 0.999 * its.moments);
  EXPECT_LE(found, 1.04 * its.moments + (1 << 20));
  return s;
}

std::vector<std::string> bounds_of(const Converted& converted) {
  std::vector<std::string> found;
  for (const Remark& its : converted.remarks)
    if (!its.bound.empty()) found.push_back(its.bound);
  return found;
}

bool leaves_open(const std::string& file, const std::string& text, std::string_view words) {
  try {
    const Converted converted = convert(requested_of(file, text));
    return std::ranges::any_of(converted.remarks, [&](const Remark& its) {
      return its.is_not_modelled() && fmt::format("{} {}", its.what, its.why).find(words) != std::string::npos;
    });
  } catch (const InputError& error) {
    return std::string(error.what()).find(words) != std::string::npos;
  }
}

const std::string foundry_rest =
    "train_loader:\n  name: text\n  dataset:\n    local: a\n    max_seq_len: ${max_seq_len}\noptimizer:\n"
    "  name: decoupled_adamw\n  lr: 1.0e-4\n  weight_decay: 0.0\nalgorithms:\n  gradient_clipping:\n"
    "    clipping_type: norm\n    clipping_threshold: 1.0\nglobal_train_batch_size: 64\n"
    "device_train_microbatch_size: 2\nprecision: amp_bf16\nfsdp_config:\n  sharding_strategy: FULL_SHARD\n"
    "  mixed_precision: PURE\n";

// A layer: 3 x 512 x 512 + 1,536 and 512 x 512 + 512 of attention, 512 x 2,048 + 2,048 and 2,048 x 512 + 512 of the
// MLP, two norms of 1,024: 3,152,384. Embedding 16,384,000, positions 1,024 x 512, last norm 1,024. Weights are fp32,
// of whose moments a device has an eighth: 29,518,848 x 8 / 8 bytes.
TEST(Pretrainers, MptHasGpt2sParameters) {
  const std::string model =
      "max_seq_len: 1024\nmodel:\n  name: mpt_causal_lm\n  init_device: meta\n  d_model: 512\n  n_heads: 8\n"
      "  n_layers: 4\n  expansion_ratio: 4\n  max_seq_len: ${max_seq_len}\n  vocab_size: 32000\n  attn_config:\n"
      "    attn_impl: flash\n";
  const Scenario s = holds({"mpt.yaml", model + foundry_rest, 29'518'848, 1024, 2, 64, 29'518'848.0});
  EXPECT_EQ(s.train.attention, AttentionKernel::Flash);
  EXPECT_EQ(s.runtime.name, "fsdp");
  EXPECT_EQ(bounds_of(convert(requested_of("mpt.yaml", model + foundry_rest))), std::vector<std::string>{"mpt"});
  // Two norms and one kind of heads that are other than these.
  EXPECT_EQ(bounds_of(convert(requested_of("mpt.yaml", model + "  norm_type: low_precision_rmsnorm\n" + foundry_rest))),
            (std::vector<std::string>{"mpt-rms", "mpt"}));
  EXPECT_TRUE(leaves_open("mpt.yaml", model + "    attn_type: multiquery_attention\n" + foundry_rest, "share keys"));
  EXPECT_TRUE(leaves_open("mpt.yaml", model + "  ffn_config:\n    ffn_type: mb_dmoe\n" + foundry_rest, "mb_dmoe"));
}

std::string olmo(const std::string& norms, const std::string& rest) {
  return "run_name: a\nmodel:\n  d_model: 512\n  n_heads: 8\n  n_layers: 4\n  mlp_hidden_size: 4096\n"
         "  weight_tying: false\n  rope: true\n  flash_attention: true\n  attention_dropout: 0.0\n"
         "  residual_dropout: 0.0\n  embedding_dropout: 0.0\n  include_bias: false\n  activation_type: swiglu\n"
         "  max_sequence_length: 1024\n  vocab_size: 31000\n  embedding_size: 32000\n" +
         norms + "optimizer:\n  name: adamw\n  weight_decay: 0.1\nglobal_train_batch_size: 64\n" +
         "device_train_microbatch_size: 2\nprecision: amp_bf16\nmax_duration: 1ep\nmax_grad_norm: 1.0\n" + rest;
}

// Half of 4,096 is the gate. OLMo 2 has norms of all queries and keys in each layer, 1,024 more.
TEST(Pretrainers, OlmoIsTransformersLlamaOlmoOrOlmo2) {
  const std::string rms = "  layer_norm_type: rms\n";
  const std::string sharded = "fsdp:\n  wrapping_strategy: by_block\n  precision: mixed\n";
  const Scenario s = holds({"olmo.yaml", olmo(rms, sharded + "fused_loss: true\n"), llama, 1024, 2, 64, 1.0 * llama});
  EXPECT_EQ(s.runtime.name, "fsdp");
  const std::string second = rms + "  norm_after: true\n  attention_layer_norm: true\n";
  holds({"olmo.yaml", olmo(second, sharded), llama + 4 * 1024, 1024, 2, 64, 1.0 * llama + 4 * 1024});
  // Norms without weights: 9 x 512 fewer. Every replica has all moments under DistributedDataParallel.
  const Scenario alike = holds({"olmo.yaml",
                                olmo("  layer_norm_type: default\n  layer_norm_with_affine: false\n",
                                     "distributed_strategy: ddp\nddp:\n  grad_sync_mode: batch\n"),
                                llama - 9 * 512, 1024, 2, 64, 8.0 * (llama - 9 * 512)});
  EXPECT_EQ(alike.runtime.name, "pytorch");
  std::string other = olmo(rms, sharded);
  other.replace(other.find("flash_attention: true"), 21, "flash_attention: false");
  EXPECT_EQ(scenario_of(convert(requested_of("olmo.yaml", other)), shipped_data()).train.attention,
            AttentionKernel::Fused);
  EXPECT_EQ(bounds_of(convert(requested_of("olmo.yaml", olmo(rms, sharded + "softmax_auxiliary_loss: true\n")))),
            std::vector<std::string>{"olmo:2"});
  EXPECT_TRUE(leaves_open("olmo.yaml", olmo(rms + "  norm_after: true\n", sharded), "layer_norm_type"));
}

std::string lingua(const std::string& model) {
  return "name: a\nsteps: 100\ngrad_acc_steps: 2\noptim:\n  lr: 1.0e-3\n  clip: 1.0\ndistributed:\n"
         "  fsdp_type: full_shard\n  compile: true\n  model_dtype: bf16\nmodel:\n  dim: 512\n  n_layers: 4\n"
         "  n_heads: 8\n  ffn_dim_multiplier: 1.5\n  multiple_of: 256\n" +
         model +
         "data:\n  seq_len: 1024\n  batch_size: 2\n  tokenizer:\n    name: tiktoken\n    path: a_128k.tiktoken\n";
}

// int(1.5 x int(2 x 2,048 / 3)) = 2,047, up to a multiple of 256: 2,048. Two micro-batches of two rows on eight
// devices.
TEST(Pretrainers, LinguaIsLlamaUnderFullyShard) {
  const Scenario s = holds({"lingua.yaml", lingua("  vocab_size: 32000\n"), llama, 1024, 2, 32, 1.0 * llama});
  EXPECT_EQ(s.runtime.name, "fsdp2");
  EXPECT_EQ(s.layout.sharding, Sharding::Zero2);
  EXPECT_EQ(bounds_of(convert(requested_of("lingua.yaml", lingua("  vocab_size: 32000\n")))),
            (std::vector<std::string>{"compiled-layers", "lingua"}));
  EXPECT_EQ(scenario_of(convert(requested_of("lingua.yaml", lingua(""))), shipped_data()).model.vocabulary, 128'256);
  EXPECT_TRUE(leaves_open("lingua.yaml", lingua("  vocab_size: 32000\n  state_dim: 128\n"), "state_dim"));
}

std::string litgpt(const std::string& precision, const std::string& devices) {
  return "model_name: a\nmodel_config:\n  name: a\n  block_size: 1024\n  padded_vocab_size: 32000\n  n_layer: 4\n"
         "  n_head: 8\n  n_query_groups: 8\n  n_embd: 512\n  rotary_percentage: 1.0\n  parallel_residual: false\n"
         "  bias: false\n  norm_class_name: RMSNorm\n  mlp_class_name: LLaMAMLP\n  intermediate_size: 2048\n"
         "out_dir: out\nprecision: " +
         precision +
         "\ninitial_checkpoint_dir:\nresume: false\ndata: TinyStories\ntrain:\n  global_batch_size: 64\n"
         "  micro_batch_size: 2\n  max_norm: 1.0\n  tie_embeddings: false\noptimizer:\n  class_path: "
         "torch.optim.AdamW\n"
         "  init_args:\n    lr: 0.0005\n    weight_decay: 0.1\ndevices: " +
         devices + "\nnum_nodes: 1\ntokenizer_dir: a\nlogger_name: csv\nseed: 42\n";
}

// Weights are fp32 where it is mixed, and else in half precision with their moments.
TEST(Pretrainers, LitGptsPretrainingIsFsdpWithoutCheckpoints) {
  const Scenario s = holds({"pretrain.yaml", litgpt("bf16-mixed", "auto"), llama, 1024, 2, 64, 1.0 * llama});
  EXPECT_EQ(s.runtime.name, "fsdp");
  EXPECT_EQ(s.train.recompute.kind, Recompute::None);
  holds({"pretrain.yaml", litgpt("bf16-true", "8"), llama, 1024, 2, 64, 0.5 * llama});
  EXPECT_EQ(bounds_of(convert(requested_of("pretrain.yaml", litgpt("bf16-true", "8")))),
            (std::vector<std::string>{"litgpt", "compiled-layers", "chunked-loss"}));
  const ConvertRequest named = requested_of("pretrain.yaml",
                                            "model_name: micro-llama-300M\nout_dir: out\n"
                                            "train:\n  micro_batch_size: 2\n  max_seq_length: 2048\n");
  EXPECT_EQ(scenario_of(convert(named), shipped_data()).model.hidden, 1024);
}

// Qwen2.5 0.5B in half precision, with an eighth of moments in it.
TEST(Pretrainers, LlmRecipesIsFsdpOverHalfPrecision) {
  const Scenario s = holds({"run.sh",
                            "mpirun -np 8 --npernode 8 python examples/finetuning.py --seq-length 1024 "
                            "--micro-batch-size 2 --global-batch-size 64 --bf16 --mixed-precision "
                            "--base-model /models/Qwen2.5-0.5B --low-cpu-fsdp --sharding-strategy FULL_SHARD "
                            "--fsdp-activation-checkpointing --lr 1e-5 --use-mpi\n",
                            494'032'768, 1024, 2, 64, 494'032'768 / 2.0});
  EXPECT_EQ(s.runtime.name, "fsdp");
  EXPECT_EQ(s.train.recompute.kind, Recompute::Full);
}

const std::string without_gate =
    "--num-layers 4 --hidden-size 512 --ffn-hidden-size 2048 --num-attention-heads 8 --disable-bias-linear "
    "--normalization RMSNorm --position-embedding-type rope --untie-embeddings-and-output-weights --seq-length 1024 "
    "--max-position-embeddings 1024 --attention-dropout 0 --hidden-dropout 0 --bf16 --vocab-size 32000 "
    "--micro-batch-size 2 --global-batch-size 64 ";

// A layer of 4 x 512 x 512 + 2 x 512 x 2,048, and norms that are figured with biases: 3,147,776.
TEST(Pretrainers, NormsOfAnotherKindAreWithinABound) {
  const std::string text =
      "torchrun --nproc-per-node 8 pretrain_gpt.py " + without_gate + "--xielu --qknorm-impl apex\n";
  holds({"run.sh", text, 2 * 16'384'000 + 4 * 3'147'776 + 1024, 1024, 2, 64, 8.0 * 45'360'128});
  const std::vector<std::string> bounds = bounds_of(convert(requested_of("run.sh", text, 0)));
  EXPECT_NE(std::ranges::find(bounds, "norms-of-another-kind"), bounds.end());
  EXPECT_NE(std::ranges::find(bounds, "xielu"), bounds.end());
}

TEST(Pretrainers, PaisLegacyProgramsAreWithinABound) {
  const std::string text = "torchrun --nproc-per-node 8 pretrain_megatron_llama.py --swiglu " + without_gate + "\n";
  const std::vector<std::string> bounds = bounds_of(convert(requested_of("examples/llama2/run.sh", text, 0)));
  EXPECT_EQ(bounds, std::vector<std::string>{"pai-legacy-model"});
}

TEST(Pretrainers, WeightsInEightBitsAreOfTheShapeOfTheirName) {
  const auto of = [](const std::string& name) {
    return scenario_of(convert(requested_of("run.sh",
                                            "NPROC_PER_NODE=8 megatron sft --model " + name +
                                                " --tensor_model_parallel_size 2 --micro_batch_size 1 "
                                                "--global_batch_size 16 --max_length 1024 --finetune true\n",
                                            0)),
                       shipped_data())
        .model;
  };
  EXPECT_EQ(of("Qwen/Qwen3-8B-FP8"), of("Qwen/Qwen3-8B"));
}

// GPT-NeoX's own tokenizer by another name; what it logs, and how Transformer Engine's FP8 would be.
TEST(Pretrainers, GptNeoxTakesItsTokenizerByName) {
  const std::string text =
      "{\"pipe_parallel_size\": 0, \"model_parallel_size\": 1, \"num_layers\": 4, \"hidden_size\": 512,\n"
      " \"num_attention_heads\": 8, \"seq_length\": 1024, \"max_position_embeddings\": 1024, \"pos_emb\": \"rotary\",\n"
      " \"train_micro_batch_size_per_gpu\": 2, \"precision\": \"bfloat16\", \"tokenizer_type\": \"HFTokenizer\",\n"
      " \"vocab_file\": \"/data/neox_tokenizer/tokenizer.json\", \"eval_tasks\": [\"a\"], \"no_ssh_check\": true,\n"
      " \"te_mha\": true, \"te_fp8_format\": \"hybrid\", \"ga_dataset\": \"a\", \"wandb_run_name\": \"a\"}\n";
  const Converted converted = convert(requested_of("neox.yml", text));
  for (const Remark& its : converted.remarks) EXPECT_NE(its.kind, RemarkKind::NotJudged) << its.what;
  const std::vector<std::string> bounds = bounds_of(converted);
  EXPECT_EQ(std::ranges::find(bounds, "vocabulary"), bounds.end());
}

// 1,024 tokens of 8 heads, 64 wide: queries, keys and values are 1,536 numbers; two layers and the one at work.
TEST(Pretrainers, BoundsAreWhatTheirSourcesComeTo) {
  const Scenario s =
      scenario_of(convert(requested_of("job.sh",
                                       "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 512 "
                                       "--num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024 "
                                       "--vocab-size 50257 --micro-batch-size 1 --bf16\n",
                                       0)),
                  shipped_data());
  constexpr std::int64_t vocabulary = 50'257 + 1024, ends = 2 * 2 * vocabulary * 512;
  EXPECT_EQ(most_more("mpt", s), Bytes{1024 * ((2 * (512 + 2 * 1536) + 64) * 3 + 6 * 2 * 1536) + ends});
  EXPECT_EQ(most_more("mpt-rms", s), Bytes{4 * 4 * 1024 * 512 * 3});
  EXPECT_EQ(most_more("olmo", s), Bytes{1024 * (2 * 1024 * 3 + 6 * 4 * 1536 + (2 * 2 + 4) * vocabulary)});
  EXPECT_EQ(most_more("olmo:1", s), Bytes{1024 * (2 * 1024 * 3 + 6 * 4 * 1536 + 2 * 2 * vocabulary)});
  EXPECT_EQ(most_more("olmo:2", s), Bytes{1024 * (2 * 1024 * 3 + 6 * 4 * 1536 + (2 * 2 + 2 * 4) * vocabulary)});
  EXPECT_EQ(most_more("olmo-clips", s), Bytes{2 * 1024 * 1536 * 3});
  EXPECT_EQ(most_more("lingua", s), Bytes{1024 * (2 * 2 * 512 * 3 + 4 * 4 * 1536)});
  EXPECT_EQ(most_more("xielu", s), Bytes{2 * 2 * 1024 * 2048});
  EXPECT_EQ(most_more("norms-of-another-kind", s), Bytes{0});
  // A third number of embedding, positions and two layers of 12 x 512 x 512, with sums of the widest.
  EXPECT_GE(most_more("ademamix", s), Bytes{4 * (50'257 * 512 + 2 * 12 * 512 * 512) / 8});
  EXPECT_LE(most_more("ademamix", s),
            Bytes{4 * (2 * vocabulary * 512 + 2 * 13 * 512 * 512) + 5 * 4 * vocabulary * 512});
  // Copies of twelve tensors as wide as a head's, of two norms two numbers in fp32 and one in half precision.
  EXPECT_EQ(most_more("pai-legacy-model", s),
            Bytes{1024 * (4 * 2 * 3 * 512 + 2 * (2 * 4 + 2) * 512 + 2 * (6 * 512 + 2048) + 2 * 4) * 3 +
                  2 * 2 * 1024 * vocabulary});
}

}  // namespace
}  // namespace tidemark::tests::pretrainers_test
