#include <string>

#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/job.hpp"
#include "tests/convert/recipes.hpp"

// Tools that train with Megatron-LM, or much as it does: what each file comes to, worked out by hand.

namespace tidemark::tests::relatives_test {
namespace {

Scenario scenario_of_text(const std::string& file, const std::string& text, std::int64_t gpus = 0) {
  ConvertRequest requested = requested_of(file, text);
  if (gpus > 0) requested.gpus = gpus;
  return scenario_of(convert(requested), shipped_data());
}
std::int64_t parameters(const Scenario& scenario) { return parameter_count(Job(scenario).built); }
bool is_open(const std::string& file, const std::string& text, const std::string& what) {
  for (const Remark& remark : convert(requested_of(file, text)).remarks)
    if (remark.kind == RemarkKind::NotJudged && remark.what.find(what) != std::string::npos) return true;
  return false;
}

bool is_bounded(const std::string& file, const std::string& text, const std::string& what) {
  for (const Remark& remark : convert(requested_of(file, text)).remarks)
    if (remark.kind == RemarkKind::Bounded && remark.what.find(what) != std::string::npos) return true;
  return false;
}

TEST(Swift, SaysACheckpointAndMegatronsWordsWithUnderscores) {
  const std::string script =
      "PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' NPROC_PER_NODE=8 \\\n"
      "megatron sft --model Qwen/Qwen3-8B --dataset 'a/b' --packing true --tensor_model_parallel_size 4 \\\n"
      "  --sequence_parallel true --micro_batch_size 2 --global_batch_size 32 --max_length 8192 \\\n"
      "  --recompute_granularity full --recompute_method uniform --recompute_num_layers 1 --save_safetensors true\n";
  const Scenario s = scenario_of_text("job.sh", script);
  // 4096 wide, 36 layers, 32 and 8 heads of 128, MLPs of 12288, 151936 tokens, not tied.
  const std::int64_t layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 2 * 128 + 3 * 4096 * 12'288 + 2 * 4096;
  EXPECT_EQ(parameters(s), 36 * layer + 2 * std::int64_t{151'936} * 4096 + 4096);
  EXPECT_EQ(s.gpus, 8);
  EXPECT_EQ(s.layout.tensor, 4);
  EXPECT_EQ(s.layout.data, 2);
  EXPECT_TRUE(s.layout.sequence_parallel);
  EXPECT_EQ(s.layout.sharding, Sharding::Zero1) << "its default";
  EXPECT_EQ(s.train.micro_batch, 2);
  EXPECT_EQ(s.train.global_batch, 32);
  EXPECT_EQ(s.train.sequence_length, 8192);
  EXPECT_EQ(s.train.precision, DType::BF16) << "its default";
  EXPECT_EQ(s.train.gradient_dtype, DType::FP32);
  EXPECT_EQ(s.train.attention, AttentionKernel::Flash) << "its default";
  EXPECT_EQ(s.train.recompute.kind, Recompute::Full);
  EXPECT_EQ(s.train.hidden_dropout, 0);
  EXPECT_TRUE(is_bounded("job.sh", script, "--packing"));
  EXPECT_THROW(scenario_of_text("job.sh", "NPROC_PER_NODE=8 megatron sft --model No/Such-1B --max_length 1024\n"),
               InputError);
  EXPECT_THROW(scenario_of_text("job.sh",
                                "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-8B --tuner_type longlora "
                                "--max_length 1024\n"),
               InputError);
  EXPECT_TRUE(is_bounded("job.sh",
                         "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-8B --tuner_type lora --lora_rank 16 "
                         "--max_length 1024\n",
                         "--tuner_type = \"lora\""));
}

TEST(FlagScale, IsMegatronsArgumentsInTables) {
  const std::string config =
      "system:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 2\n  disable_bias_linear: True\n"
      "  use_distributed_optimizer: True\n  precision: {fp16: True, accumulate_allreduce_grads_in_fp32: True}\n"
      "  logging: {log_interval: 1}\n"
      "model:\n  num_layers: 32\n  hidden_size: 4096\n  num_attention_heads: 32\n  seq_length: 2048\n"
      "  max_position_embeddings: 2048\n  use_rotary_position_embeddings: true\n  no_position_embedding: true\n"
      "  swiglu: true\n  multiple_of: 256\n  normalization: RMSNorm\n  untie_embeddings_and_output_weights: true\n"
      "  attention_dropout: 0.0\n  hidden_dropout: 0.0\n  micro_batch_size: 2\n  global_batch_size: 64\n"
      "  optimizer: {lr_scheduler: {lr: 2.0e-5}}\n"
      "data:\n  data_path: ${data_path:??}\n  tokenizer: {tokenizer_type: AFS, vocab_size: 100008}\n";
  const Scenario s = scenario_of_text("job.yaml", config, 16);
  // Llama's rule: 8/3 of 4096 is 10922, and the next multiple of 256 is 11008.
  EXPECT_EQ(parameters(s),
            std::int64_t{32} * (4 * 4096 * 4096 + 3 * 4096 * 11'008 + 2 * 4096) + 2 * 100'008 * 4096 + 4096);
  EXPECT_EQ(s.layout.tensor, 2);
  EXPECT_EQ(s.layout.pipeline, 2);
  EXPECT_EQ(s.layout.data, 4);
  EXPECT_EQ(s.layout.sharding, Sharding::Zero1);
  EXPECT_EQ(s.train.precision, DType::FP16);
  EXPECT_EQ(s.train.gradient_dtype, DType::FP32);
  EXPECT_EQ(s.train.micro_batch, 2);
  EXPECT_EQ(s.train.global_batch, 64);
}

TEST(Nanotron, IsAnsweredAsMegatronsWithinABound) {
  const std::string config =
      "model:\n  dtype: bfloat16\n  make_vocab_size_divisible_by: 1\n"
      "  model_config: {hidden_size: 2048, intermediate_size: 11008, num_hidden_layers: 36, num_attention_heads: 16,\n"
      "    num_key_value_heads: 4, vocab_size: 128256, tie_word_embeddings: true, max_position_embeddings: 4096}\n"
      "optimizer: {zero_stage: 0, accumulate_grad_in_fp32: true}\n"
      "parallelism: {dp: 2, tp: 2, pp: 1, tp_mode: REDUCE_SCATTER}\n"
      "tokens: {micro_batch_size: 3, sequence_length: 4096, batch_accumulation_per_replica: 4}\n";
  const Scenario s = scenario_of_text("job.yaml", config);
  // Four groups of 128.
  EXPECT_EQ(parameters(s), std::int64_t{36} * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 11'008 + 2 * 2048) +
                               128'256 * 2048 + 2048);
  EXPECT_EQ(s.gpus, 4);
  EXPECT_EQ(s.layout.tensor, 2);
  EXPECT_EQ(s.layout.data, 2);
  EXPECT_TRUE(s.layout.sequence_parallel);
  EXPECT_EQ(s.layout.sharding, Sharding::None);
  EXPECT_EQ(s.train.micro_batch, 3);
  EXPECT_EQ(s.train.global_batch, 24);
  EXPECT_TRUE(is_bounded("job.yaml", config, "nanotron"));
  EXPECT_FALSE(is_open("job.yaml", config, "nanotron"));
  const auto with = [&](const std::string& key) {
    std::string its = config;
    return its.replace(its.find("vocab_size:"), 0, key + ", ");
  };
  EXPECT_FALSE(
      is_open("job.yaml", with("is_qwen2_config: true, _fused_rms_norm: true, moe_config: null"), "moe_config"));
  EXPECT_TRUE(is_open("job.yaml", with("sliding_window_size: 512"), "sliding_window_size"));
  EXPECT_TRUE(is_open("job.yaml", with("moe_config: {num_experts: 8}"), "moe_config"));
  EXPECT_TRUE(is_open("job.yaml", with("_fused_rms_norm: false"), "_fused_rms_norm"));
  EXPECT_THROW(scenario_of_text("job.yaml", with("is_starcoder2_config: true")), InputError);
}

TEST(Nemo, InterpolationsAreFollowed) {
  const std::string config =
      "trainer: {devices: 8, num_nodes: 2, precision: bf16, accumulate_grad_batches: 1}\n"
      "run: {name: gpt, time_limit: 1}\n"
      "model:\n  mcore_gpt: true\n  megatron_amp_O2: true\n  transformer_engine: true\n  micro_batch_size: 1\n"
      "  global_batch_size: 32\n  tensor_model_parallel_size: 4\n  pipeline_model_parallel_size: 2\n"
      "  sequence_parallel: true\n  encoder_seq_length: 2048\n  max_position_embeddings: ${.encoder_seq_length}\n"
      "  num_layers: 24\n  hidden_size: 4096\n  ffn_hidden_size: ${multiply:4, ${.hidden_size}}\n"
      "  num_attention_heads: 32\n  hidden_dropout: 0.1\n  attention_dropout: 0.1\n"
      "  tokenizer: {library: megatron, type: GPT2BPETokenizer}\n  gradient_as_bucket_view: true\n"
      "  optim: {name: mcore_distributed_optim, grad_sync_dtype: bf16, betas: [0.9, 0.95], sched: {name: Cosine}}\n"
      "  data: {data_impl: mmap, seq_length: 2048, splits_string: '90,8,2'}\n";
  const Scenario s = scenario_of_text("job.yaml", config);
  // GPT: biases, learned positions, 50257 tokens, tied.
  const std::int64_t h = 4096;
  EXPECT_EQ(parameters(s), 24 * (12 * h * h + 13 * h) + (50'257 + 2048) * h + 2 * h);
  EXPECT_EQ(s.gpus, 16);
  EXPECT_EQ(s.layout.tensor, 4);
  EXPECT_EQ(s.layout.pipeline, 2);
  EXPECT_EQ(s.layout.sharding, Sharding::Zero1);
  EXPECT_EQ(s.train.gradient_dtype, DType::BF16);
  EXPECT_EQ(s.train.global_batch, 32);
  EXPECT_FALSE(is_open("job.yaml", config, ""));
  EXPECT_FALSE(is_open("job.yaml", config + "  fp8: true\n", "fp8"));
  EXPECT_TRUE(is_bounded("job.yaml", config + "  fp8: true\n  fp8_e4m3: false\n", "--fp8-format"));
  EXPECT_FALSE(is_bounded("job.yaml", config + "  fp8: false\n  fp8_hybrid: true\n", "--fp8-format"));
}

// What launches such a file says on how many nodes it runs, and people put that into its name.
TEST(Nemo, FilesNamedAfterTheirDevicesAreOfSoMany) {
  const std::string config =
      "trainer: {devices: 8, precision: bf16}\n"
      "model:\n  micro_batch_size: 1\n  global_batch_size: 64\n  tensor_model_parallel_size: 8\n"
      "  encoder_seq_length: 2048\n  max_position_embeddings: 2048\n  num_layers: 24\n  hidden_size: 4096\n"
      "  ffn_hidden_size: 16384\n  num_attention_heads: 32\n"
      "  optim: {name: distributed_fused_adam, contiguous_grad_buffer: true, contiguous_param_buffer: true}\n";
  EXPECT_EQ(scenario_of_text("gpt-5b-64gpus-bf16.yaml", config).gpus, 64);
  EXPECT_EQ(scenario_of_text("gpt_5b_4nodes.yaml", config).gpus, 32);
  EXPECT_EQ(scenario_of_text("gpt-5b.yaml", config).gpus, 8) << "Lightning's default is one node";
  std::string said = config;
  said.replace(said.find("devices: 8"), 10, "devices: 8, num_nodes: 2");
  EXPECT_EQ(scenario_of_text("gpt-5b-64gpus.yaml", said).gpus, 16) << "what the file says goes before its name";
  EXPECT_TRUE(is_bounded("gpt-5b.yaml", config, "distributed_fused_adam"));
}

const std::string shape =
    " --num-layers 24 --hidden-size 2048 --ffn-hidden-size 5504 --num-attention-heads 16 --seq-length 2048 "
    "--max-position-embeddings 2048 --micro-batch-size 4 --global-batch-size 32 --swiglu --disable-bias-linear "
    "--use-rotary-position-embeddings --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0 ";

TEST(MegatronDeepSpeed, ItsEngineIsToldAndItsSharesAreInTheFigures) {
  const std::string script =
      "torchrun --nproc_per_node 8 pretrain_gpt.py --bf16 --normalization rmsnorm "
      "--num-key-value-heads 4 --vocab-size 32000" +
      shape +
      "--checkpoint-activations --deepspeed --zero-stage 1 --deepspeed_config ds.json "
      "--deepspeed-activation-checkpointing --no-query-key-layer-scaling\n";
  const Scenario s = scenario_of_text("job.sh", script);
  EXPECT_EQ(parameters(s), std::int64_t{24} * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 5504 + 2 * 2048) +
                               2 * 32'000 * 2048 + 2048);
  EXPECT_EQ(s.layout.sharding, Sharding::Zero1);
  EXPECT_EQ(s.train.recompute.kind, Recompute::Full);
  EXPECT_EQ(s.train.recompute.layers, 1);
  EXPECT_TRUE(is_bounded("job.sh", script, "--deepspeed"));
  EXPECT_FALSE(is_open("job.sh", script, "--zero-stage"));
}

// runtime/engine.py and bf16_optimizer.py: in bf16 beneath a PipelineModule the optimizer's states are cut over
// replicas without ZeRO; in fp16 they are not.
TEST(MegatronDeepSpeed, StatesInBf16AreSharedOutWithoutZero) {
  const auto of = [&](const std::string& flags) {
    return scenario_of_text("job.sh", "torchrun --nproc_per_node 8 pretrain_gpt.py --vocab-size 32000" + shape +
                                          "--deepspeed --deepspeed_config ds.json --zero-stage 0 " + flags + "\n")
        .layout.sharding;
  };
  EXPECT_EQ(of("--bf16"), Sharding::Zero1);
  EXPECT_EQ(of("--fp16"), Sharding::None);
  EXPECT_EQ(of("--bf16 --no-pipeline-parallel"), Sharding::None);
}

TEST(Pai, ExtraTokensAreOfTheVocabularyWhichIsNotPadded) {
  const Scenario s = scenario_of_text(
      "job.sh",
      "torchrun --nproc_per_node 8 pretrain_llama.py --bf16 --normalization RMSNorm --tensor-model-parallel-size 8 "
      "--position-embedding-type rope --patch-tokenizer-type LLama3Tokenizer --extra-vocab-size 256" +
          shape + "--train-mode pretrain\n");
  EXPECT_EQ(s.model.vocabulary, 128'256);
  EXPECT_EQ(s.model.vocabulary_multiple, 1);
}

TEST(Bigscience, PaddedVocabulariesAndBatchesThatGrow) {
  const std::string script =
      "torchrun --nproc_per_node 8 pretrain_gpt.py --fp16 --num-layers 30 --hidden-size 4096 --num-attention-heads 32 "
      "--seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --rampup-batch-size 192 32 9_765_625 "
      "--global-batch-size 512 --pad-vocab-size-to 250880 --position-embedding-type alibi --embed-layernorm "
      "--tensor-model-parallel-size 4\n";
  const Scenario s = scenario_of_text("job.sh", script);
  EXPECT_EQ(s.model.vocabulary, 250'880);
  EXPECT_EQ(s.train.global_batch, 512);
  EXPECT_EQ(s.train.precision, DType::FP16);
  EXPECT_TRUE(is_bounded("job.sh", script, "alibi") && is_bounded("job.sh", script, "--embed-layernorm"));
}

TEST(Placeholders, DoNotEatTheNextFlag) {
  const Scenario s = scenario_of_text(
      "job.sh",
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 "
      "--seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 4 "
      "--vocab-file <PATH TO gpt-vocab.json> --merge-file <PATH TO gpt-merges.txt> "
      "--tensorboard-dir <TENSORBOARD DIRECTORY> --fp16\n");
  EXPECT_EQ(s.train.precision, DType::FP16);
  EXPECT_EQ(s.model.vocabulary, 50'257) << "pretrain_gpt.py's own default";
}

}  // namespace
}  // namespace tidemark::tests::relatives_test
