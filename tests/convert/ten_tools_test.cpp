#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/predict/prediction.hpp"
#include "tests/convert/recipes.hpp"

// One launch file of each of ten tools, with what it comes to worked out by hand: parameters, layout, batch, and what
// the first rank has for good. A file that is read as another job's shows here.
//
// S is a Llama of 4 layers: hidden 512, 8 heads, gated MLP of 2,048, vocabulary 32,000, head of its own.
//   a layer   4 x 512 x 512 of attention, 3 x 512 x 2048 of the MLP, 2 norms of 512   4,195,328
//   embedding 32,000 x 512, and as much for the head                                 16,384,000
//   all       2 x 16,384,000 + 4 x 4,195,328 + 512                                   49,549,824

namespace tidemark::tests::ten_tools_test {
namespace {

struct Expected {
  std::int64_t parameters = 0;
  std::int32_t tensor = 1, pipeline = 1, data = 1;
  std::int64_t sequence = 0, micro = 0, global = 0;
  /// Bytes that rank 0 has for good: of parameters, gradients (-1: they come and go), the optimizer's own copy, and its
  /// moments.
  std::array<double, 4> bytes{};
};

struct Tool {
  std::string name;
  std::vector<std::pair<std::string, std::string>> files;
  Expected expected;
  std::string model = {};
  std::int64_t gpus = 0, sequence = 0, micro = 0;
};

ConvertRequest requested_of(const Tool& tool) {
  ConvertRequest requested;
  for (const auto& [file, text] : tool.files) {
    requested.files.emplace_back(file);
    requested.texts[file] = text;
  }
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.data_root = shipped_data();
  requested.model = tool.model;
  if (tool.gpus > 0) requested.gpus = tool.gpus;
  if (tool.sequence > 0) requested.sequence_length = tool.sequence;
  if (tool.micro > 0) requested.micro_batch = tool.micro;
  return requested;
}

void holds(const Tool& tool) {
  SCOPED_TRACE(tool.name);
  const Converted converted = convert(requested_of(tool));
  const Scenario s = scenario_of(converted, shipped_data());
  const Prediction p = predict(s);
  const Expected& e = tool.expected;
  EXPECT_EQ(p.parameters, e.parameters);
  EXPECT_EQ(fmt::format("{} {} {}", s.layout.tensor, s.layout.pipeline, s.layout.data),
            fmt::format("{} {} {}", e.tensor, e.pipeline, e.data));
  EXPECT_EQ(fmt::format("{} {} {}", s.train.sequence_length, s.train.micro_batch, s.train.global_batch),
            fmt::format("{} {} {}", e.sequence, e.micro, e.global));
  const Composition& its = p.groups.front().memory.allocated.composition;
  const std::array categories{Category::Parameters, Category::Gradients, Category::OptimizerMaster,
                              Category::OptimizerMoments};
  for (std::size_t i = 0; i < categories.size(); ++i) {
    if (e.bytes[i] < 0) continue;
    const auto found = static_cast<double>(its[categories[i]].count());
    // Blocks are counted, which may be up to 1 MiB larger than what was asked for; the optimizer's buckets are padded.
    EXPECT_GE(found, 0.999 * e.bytes[i]) << category_names[i];
    EXPECT_LE(found, 1.04 * e.bytes[i] + (1 << 20)) << category_names[i];
  }
}

const std::string shape =
    "--num-layers 4 --hidden-size 512 --ffn-hidden-size 2048 --num-attention-heads 8 --swiglu --disable-bias-linear "
    "--normalization RMSNorm --position-embedding-type rope --untie-embeddings-and-output-weights --seq-length 1024 "
    "--max-position-embeddings 1024 --attention-dropout 0 --hidden-dropout 0 --bf16 ";

// Two stages of two tensor-parallel ranks: half an embedding, and two layers whose matrices are cut and norms are not:
// 8,192,000 + 2 x 2,098,176 = 12,388,352. Gradients, own copy and moments are fp32, and nobody shares them out.
TEST(TenTools, MegatronLm) {
  holds({"Megatron-LM",
         {{"run.sh", "torchrun --nproc-per-node 8 pretrain_gpt.py " + shape +
                         "--vocab-size 32000 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
                         "--micro-batch-size 1 --global-batch-size 16\n"}},
         {49'549'824, 2, 2, 2, 1024, 1, 16, {12'388'352 * 2.0, 12'388'352 * 4.0, 12'388'352 * 4.0, 12'388'352 * 8.0}}});
}

// All four layers, embedding and head by halves: 2 x 8,192,000 + 4 x 2,098,176 + 512 = 24,777,216. Four replicas share
// out the optimizer.
TEST(TenTools, MegatronDeepSpeed) {
  holds({"Megatron-DeepSpeed",
         {{"run.sh", "deepspeed --num_gpus 8 pretrain_gpt.py " + shape +
                         "--vocab-size 32000 --tensor-model-parallel-size 2 --no-pipeline-parallel --deepspeed "
                         "--zero-stage 1 --deepspeed_config ds.json --micro-batch-size 2 --global-batch-size 16\n"}},
         {49'549'824, 2, 1, 4, 1024, 2, 16, {24'777'216 * 2.0, 24'777'216 * 4.0, 24'777'216.0, 24'777'216 * 2.0}}});
}

// The tokenizer's 32,000 and no more; eight replicas.
TEST(TenTools, PaiMegatronPatch) {
  holds({"Pai-Megatron-Patch",
         {{"llama3_1/run.sh",
           "torchrun --nproc_per_node 8 pretrain_llama.py " + shape +
               "--extra-vocab-size 0 --patch-tokenizer-type LLama2Tokenizer --use-distributed-optimizer "
               "--micro-batch-size 1 --global-batch-size 8 --max-padding-length 1024\n"}},
         {49'549'824, 1, 1, 8, 1024, 1, 8, {49'549'824 * 2.0, 49'549'824 * 4.0, 49'549'824 / 2.0, 49'549'824.0}}});
}

// Qwen2.5 0.5B: 24 layers of 896 with 14 heads of queries and 2 of keys and values, 64 wide, biases on these, an MLP of
// 4,864, and an embedding of 151,936 that is the head, too.
//   a layer 2 x 896 x 896 + 896 + 2 x (896 x 128 + 128) + 3 x 896 x 4864 + 2 x 896 = 14,912,384
//   all     24 of these + 151,936 x 896 + 896                                      = 494,032,768
// swift's default is a distributed optimizer, and 16 sequences a step.
TEST(TenTools, MsSwift) {
  holds(
      {"ms-swift",
       {{"run.sh",
         "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-0.5B-Instruct --max_length 2048 --packing true "
         "--save_safetensors true --dataset a --finetune true\n"}},
       {494'032'768, 1, 1, 8, 2048, 1, 16, {494'032'768 * 2.0, 494'032'768 * 4.0, 494'032'768 / 2.0, 494'032'768.0}}});
}

// Trained whole in bf16 under autocast LLaMA-Factory makes weights fp32; DistributedDataParallel has all of them on
// each of eight devices, two micro-batches a step.
TEST(TenTools, LlamaFactory) {
  const Tool tool{
      "LLaMA-Factory",
      {{"sft.yaml",
        "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: identity\n"
        "template: qwen\ncutoff_len: 1024\nmax_samples: 1000\noutput_dir: out\nplot_loss: true\n"
        "per_device_train_batch_size: 1\ngradient_accumulation_steps: 2\nlearning_rate: 1.0e-5\nbf16: true\n"}},
      {494'032'768, 1, 1, 8, 1024, 1, 16, {494'032'768 * 4.0, -1, 0, 494'032'768 * 8.0}}};
  holds(tool);
  const Scenario s = scenario_of(convert(requested_of(tool)), shipped_data());
  EXPECT_EQ(s.train.recompute.kind, Recompute::Full) << "on unless it is turned off";
  EXPECT_EQ(s.train.precision, DType::BF16);
}

// LoRA of rank 16 on queries and values, 896 wide in, 896 and 128 wide out: 24 x 16 x (1,792 + 1,024) = 1,081,344 in
// fp32 with moments beside them, over a base in bf16.
TEST(TenTools, Axolotl) {
  const Tool tool{
      "axolotl",
      {{"lora.yml",
        "base_model: Qwen/Qwen2.5-0.5B\nadapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_dropout: 0.05\n"
        "lora_target_modules:\n  - q_proj\n  - v_proj\nsequence_len: 1024\nsample_packing: true\n"
        "micro_batch_size: 2\ngradient_accumulation_steps: 4\nnum_epochs: 1\noptimizer: adamw_torch_fused\n"
        "lr_scheduler: cosine\nlearning_rate: 2e-4\nbf16: auto\ngradient_checkpointing: true\n"
        "attn_implementation: flash_attention_2\ndatasets:\n  - path: a\nval_set_size: 0.0\n"}},
      {494'032'768 + 1'081'344, 1, 1, 8, 1024, 2, 64, {494'032'768 * 2.0 + 1'081'344 * 4.0, -1, 0, 1'081'344 * 8.0}}};
  holds(tool);
  const Scenario s = scenario_of(convert(requested_of(tool)), shipped_data());
  EXPECT_EQ(s.train.attention, AttentionKernel::Flash);
  EXPECT_EQ(s.train.recompute.kind, Recompute::Full);
}

// Its preset zero2 on two devices: bf16 parameters, and halves of fp32 ones and of moments. Sixteen sequences a step.
TEST(TenTools, MsSwiftsTrainer) {
  holds(
      {"swift sft",
       {{"run.sh",
         "NPROC_PER_NODE=2 swift sft --model Qwen/Qwen2.5-0.5B --tuner_type full --dataset a b --torch_dtype bfloat16 "
         "--per_device_train_batch_size 1 --max_length 1024 --deepspeed zero2 --output_dir out\n"}},
       {494'032'768, 1, 1, 2, 1024, 1, 16, {494'032'768 * 2.0, -1, 494'032'768 * 2.0, 494'032'768 * 4.0}}});
}

TEST(TenTools, FlagScale) {
  holds(
      {"FlagScale",
       {{"train.yaml",
         "system:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 1\n  precision:\n    bf16: true\n"
         "  use_distributed_optimizer: true\n  logging:\n    log_interval: 1\nmodel:\n  num_layers: 4\n  hidden_size: "
         "512\n  ffn_hidden_size: 2048\n  num_attention_heads: 8\n  swiglu: true\n  disable_bias_linear: true\n"
         "  normalization: RMSNorm\n  use_rotary_position_embeddings: true\n  position_embedding_type: rope\n"
         "  untie_embeddings_and_output_weights: true\n  seq_length: 1024\n  max_position_embeddings: 1024\n"
         "  vocab_size: 32000\n  micro_batch_size: 1\n  global_batch_size: 8\n  reset_attention_mask: true\n"}},
       {49'549'824, 2, 1, 4, 1024, 1, 8, {24'777'216 * 2.0, 24'777'216 * 4.0, 24'777'216.0, 24'777'216 * 2.0}},
       {},
       8});
}

// Two stages: embedding and two layers, 16,384,000 + 2 x 4,195,328 = 24,774,656, over four replicas.
TEST(TenTools, Nemo1) {
  holds(
      {"NeMo 1",
       {{"nemo.yaml",
         "trainer:\n  devices: 8\n  num_nodes: 1\n  precision: bf16\n  max_steps: 100\nmodel:\n  mcore_gpt: true\n"
         "  micro_batch_size: 1\n  global_batch_size: 8\n  tensor_model_parallel_size: 1\n"
         "  pipeline_model_parallel_size: 2\n  encoder_seq_length: 1024\n  max_position_embeddings: 1024\n"
         "  num_layers: 4\n  hidden_size: 512\n  ffn_hidden_size: 2048\n  num_attention_heads: 8\n  hidden_dropout: "
         "0.0\n  attention_dropout: 0.0\n  normalization: rmsnorm\n  activation: fast-swiglu\n  bias: false\n"
         "  position_embedding_type: rope\n  share_embeddings_and_output_weights: false\n  override_vocab_size: 32000\n"
         "  megatron_amp_O2: true\n  transformer_engine: true\n  optim:\n    name: mcore_distributed_optim\n"
         "    lr: 1e-4\n    sched:\n      name: CosineAnnealing\n"}},
       {49'549'824, 1, 2, 4, 1024, 1, 8, {24'774'656 * 2.0, 24'774'656 * 4.0, 24'774'656.0, 24'774'656 * 2.0}}});
}

TEST(TenTools, MegatronBridge) {
  holds(
      {"Megatron-Bridge",
       {{"bridge.yaml",
         "model:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 1\n  seq_length: 1024\n"
         "  num_layers: 4\n  hidden_size: 512\n  ffn_hidden_size: 2048\n  num_attention_heads: 8\n  vocab_size: 32000\n"
         "  gated_linear_unit: true\n  normalization: RMSNorm\n  add_bias_linear: false\n"
         "  share_embeddings_and_output_weights: false\n  position_embedding_type: rope\n  hidden_dropout: 0.0\n"
         "  attention_dropout: 0.0\ntrain:\n  train_iters: 10\n  micro_batch_size: 1\n  global_batch_size: 16\n"
         "optimizer:\n  use_distributed_optimizer: true\nddp:\n  grad_reduce_in_fp32: true\nmixed_precision: "
         "bf16_mixed\n"}},
       {49'549'824, 2, 1, 4, 1024, 1, 16, {24'777'216 * 2.0, 24'777'216 * 4.0, 24'777'216.0, 24'777'216 * 2.0}},
       {},
       8});
}

// Four replicas of two tensor-parallel ranks, told with Megatron-LM's memory and without yes or no.
TEST(TenTools, Nanotron) {
  const Tool tool{
      "nanotron",
      {{"config.yaml",
        "general:\n  project: a\nmodel:\n  ddp_bucket_cap_mb: 25\n  dtype: bfloat16\n  make_vocab_size_divisible_by: "
        "1\n"
        "  model_config:\n    hidden_size: 512\n    intermediate_size: 2048\n    num_attention_heads: 8\n"
        "    num_hidden_layers: 4\n    num_key_value_heads: 8\n    max_position_embeddings: 1024\n    vocab_size: "
        "32000\n"
        "    tie_word_embeddings: false\noptimizer:\n  zero_stage: 1\n  accumulate_grad_in_fp32: true\nparallelism:\n"
        "  dp: 4\n  pp: 1\n  tp: 2\n  tp_mode: ALL_REDUCE\ntokens:\n  sequence_length: 1024\n  micro_batch_size: 1\n"
        "  batch_accumulation_per_replica: 2\n  train_steps: 10\n"}},
      {49'549'824, 2, 1, 4, 1024, 1, 8, {24'777'216 * 2.0, 24'777'216 * 4.0, 24'777'216.0, 24'777'216 * 2.0}}};
  holds(tool);
  EXPECT_TRUE(convert(requested_of(tool)).lossy());
}

// Llama 3.1 8B has 8,030,261,248 parameters; eight ranks have an eighth of them in fp32, and twice that of moments.
TEST(TenTools, Torchtitan) {
  holds({"torchtitan",
         {{"train.toml",
           "[job]\ndump_folder = \"out\"\n[model]\nname = \"llama3\"\nflavor = \"8B\"\n[optimizer]\nname = \"AdamW\"\n"
           "[training]\nlocal_batch_size = 1\nseq_len = 2048\nsteps = 10\n[parallelism]\n"
           "data_parallel_shard_degree = -1\ntensor_parallel_degree = 1\n[activation_checkpoint]\nmode = \"full\"\n"}},
         {8'030'261'248, 1, 1, 8, 2048, 1, 8, {8'030'261'248 / 2.0, -1, 0, 8'030'261'248.0}},
         {},
         8});
}

// ZeRO-3: an eighth of bf16 parameters, of fp32 ones, and of moments; what is small stays whole.
TEST(TenTools, DeepSpeedAndTrainingArguments) {
  holds({"DeepSpeed",
         {{"ds.json",
           "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 3}, \"train_micro_batch_size_per_gpu\": "
           "1, "
           "\"gradient_accumulation_steps\": 1}"},
          {"arguments.json",
           "{\"output_dir\": \"out\", \"per_device_train_batch_size\": 1, \"bf16\": true, "
           "\"gradient_checkpointing\": true, \"gradient_accumulation_steps\": 1}"}},
         {8'030'261'248, 1, 1, 8, 2048, 1, 8, {-1, -1, 8'030'261'248 / 2.0, 8'030'261'248.0}},
         "models/llama-3.1-8b.json",
         8,
         2048});
}

// FSDP2 with mixed precision: what is trained is fp32, an eighth of it on each rank; at the peak, units that are
// gathered are there, too.
TEST(TenTools, Accelerate) {
  holds({"accelerate",
         {{"fsdp2.yaml",
           "distributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\nfsdp_config:\n"
           "  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_reshard_after_forward: true\n"
           "  fsdp_offload_params: false\n  fsdp_activation_checkpointing: true\n"}},
         {8'030'261'248, 1, 1, 8, 2048, 1, 8, {-1, -1, 0, 8'030'261'248.0}},
         "models/llama-3.1-8b.json",
         0,
         2048,
         1});
}

// Composer keeps weights in fp32 under FullyShardedDataParallel: an eighth of 494,032,768 moments, twice, in fp32; two
// micro-batches of two rows make 32 on eight devices.
TEST(TenTools, LlmFoundry) {
  const Tool tool{
      "llm-foundry",
      {{"sft.yaml",
        "variables:\n  length: 1024\nmax_seq_len: ${variables.length}\nmodel:\n  name: hf_causal_lm\n"
        "  pretrained: true\n  pretrained_model_name_or_path: Qwen/Qwen2.5-0.5B\n  use_flash_attention_2: true\n"
        "tokenizer:\n  name: Qwen/Qwen2.5-0.5B\ntrain_loader:\n  name: finetuning\n  dataset:\n    hf_name: a\n"
        "    max_seq_len: ${max_seq_len}\n  drop_last: true\noptimizer:\n  name: decoupled_adamw\n  lr: 1.0e-5\n"
        "algorithms:\n  gradient_clipping:\n    clipping_type: norm\n    clipping_threshold: 1.0\n"
        "global_train_batch_size: 32\ndevice_train_microbatch_size: 2\nprecision: amp_bf16\nmax_duration: 1ep\n"
        "fsdp_config:\n  sharding_strategy: FULL_SHARD\n  mixed_precision: PURE\n  activation_checkpointing: true\n"
        "  activation_checkpointing_reentrant: false\n"}},
      {494'032'768, 1, 1, 8, 1024, 2, 32, {-1, -1, 0, 494'032'768.0}},
      {},
      8};
  holds(tool);
  const Scenario s = scenario_of(convert(requested_of(tool)), shipped_data());
  EXPECT_EQ(s.train.attention, AttentionKernel::Flash);
  EXPECT_EQ(s.train.recompute.kind, Recompute::Full);
  EXPECT_EQ(s.train.precision, DType::BF16);
}

// What is trained stays in bf16: an eighth of both moments is 494,032,768 x 4 / 8 bytes. Gradients are summed in fp32.
TEST(TenTools, NemoAutoModel) {
  const Tool tool{
      "NeMo AutoModel",
      {{"sft.yaml",
        "recipe: TrainFinetuneRecipeForNextTokenPrediction\nstep_scheduler:\n  global_batch_size: 64\n"
        "  local_batch_size: 4\n  num_epochs: 1\nmodel:\n  _target_: "
        "nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n  pretrained_model_name_or_path: "
        "Qwen/Qwen2.5-0.5B\n  torch_dtype: bf16\ndistributed:\n  strategy: fsdp2\n  dp_size: none\n  tp_size: 1\n"
        "  cp_size: 1\nloss_fn:\n  _target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy\n"
        "dataset:\n  _target_: a\n  seq_length: 1024\noptimizer:\n  _target_: torch.optim.Adam\n  lr: 1.0e-5\n"}},
      {494'032'768, 1, 1, 8, 1024, 4, 64, {-1, -1, 0, 494'032'768 / 2.0}},
      {},
      8};
  holds(tool);
  const Converted converted = convert(requested_of(tool));
  EXPECT_TRUE(std::ranges::any_of(converted.remarks, [](const Remark& its) { return its.bound == "automodel"; }));
}

// Llama 2 7B has 65 norms of 4,096; a rank of two has half of all else: 3,369,340,928. Four replicas share out the
// optimizer. The recipe's name says on how many devices.
TEST(TenTools, MegatronBridgesRecipes) {
  const std::string recipe =
      "from megatron.bridge import AutoBridge\n\nBATCH = 64\n\n"
      "def llama2_7b_pretrain_8gpu_config() -> ConfigContainer:\n"
      "    \"\"\"Pre-training,\n\n    cfg.train.micro_batch_size = 99 would be another.\"\"\"\n"
      "    cfg = _pretrain_common()\n"
      "    cfg.model = AutoBridge.from_hf_pretrained(\n        \"meta-llama/Llama-2-7b-hf\"\n    ).get_model_config()\n"
      "    cfg.model.tensor_model_parallel_size = 2  # of a node\n    cfg.model.pipeline_dtype = torch.bfloat16\n"
      "    cfg.model.virtual_pipeline_model_parallel_size = None\n    cfg.model.seq_length = 4096\n"
      "    cfg.train.global_batch_size = BATCH\n    cfg.train.micro_batch_size = 1\n"
      "    cfg.optimizer.use_precision_aware_optimizer = False\n    cfg.optimizer.exp_avg_dtype = torch.float32\n"
      "    cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=False)\n    return cfg\n";
  constexpr double of_rank = 3'369'340'928;
  const Tool tool{"Megatron-Bridge's recipes",
                  {{"llama2.py", recipe}},
                  {6'738'415'616, 2, 1, 4, 4096, 1, 64, {of_rank * 2, of_rank * 4, of_rank, of_rank * 2}}};
  holds(tool);
  EXPECT_FALSE(convert(requested_of(tool)).lossy());
}

}  // namespace
}  // namespace tidemark::tests::ten_tools_test
