#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/job.hpp"
#include "tests/convert/recipes.hpp"

// Primus' experiments, NeMo 2's recipes and names for Megatron-Bridge's: what each comes to, worked out by hand.

namespace tidemark::tests::more_tools_test {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  explicit Folder(const char* name) : path_(fs::path(testing::TempDir()) / fmt::format("{}.{}", name, ::getpid())) {
    fs::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  fs::path put(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
    return path_ / name;
  }

 private:
  fs::path path_;
};

ConvertRequest requested_of_file(const fs::path& file) {
  ConvertRequest requested;
  requested.files = {file};
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.data_root = shipped_data();
  return requested;
}
Scenario scenario_of_request(const ConvertRequest& requested) {
  return scenario_of(convert(requested), shipped_data());
}
std::int64_t parameters(const Scenario& scenario) { return parameter_count(Job(scenario).built); }
bool has(const Converted& converted, RemarkKind kind, std::string_view what) {
  return std::ranges::any_of(converted.remarks, [&](const Remark& its) {
    return its.kind == kind && its.what.find(what) != std::string::npos;
  });
}
std::string problem_of(const ConvertRequest& requested) {
  try {
    (void)scenario_of_request(requested);
    return "no problem";
  } catch (const InputError& error) {
    return (error.leaves_open() ? "open: " : "wrong: ") + error.problems().front().message;
  }
}

// A model of Llama's kind: 4 projections of a layer, of which two are of keys and values, 3 of its MLP, 2 norms.
std::int64_t llama(std::int64_t layers, std::int64_t hidden, std::int64_t kv, std::int64_t ffn,
                   std::int64_t vocabulary) {
  const std::int64_t layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * ffn + 2 * hidden;
  return layers * layer + 2 * vocabulary * hidden + hidden;
}

const char* const primus_experiment =
    "modules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml\n    model: small.yaml\n"
    "    overrides:\n      seq_length: ${PRIMUS_SEQ_LENGTH:8192}\n      micro_batch_size: 2\n      global_batch_size: "
    "64\n"
    "      tensor_model_parallel_size: ${PRIMUS_TP:1}\n      overlap_grad_reduce: true\n      recompute_granularity: "
    "full\n"
    "      recompute_method: block\n      recompute_num_layers: 4\n      enable_primus_turbo: true\n"
    "      use_turbo_attention: true\n      stderr_sink_level: DEBUG\n      train_iters: 50\n      mock_data: true\n";

TEST(Primus, ExtendsItsModelsAndTrainersFilesAndOverridesThem) {
  const Folder folder("primus");
  folder.put("primus/configs/modules/megatron/pre_trainer.yaml",
             "extends:\n  - trainer_base.yaml\nglobal_batch_size: 16\nuse_distributed_optimizer: true\n");
  folder.put("primus/configs/modules/megatron/trainer_base.yaml",
             "bf16: true\nmicro_batch_size: 2\nuse_distributed_optimizer: false\nmoe_router_topk: 2\nfp8: null\n");
  folder.put(
      "primus/configs/models/megatron/language_model.yaml",
      "num_layers: 24\nhidden_dropout: 0.1\nattention_dropout: 0.1\nsequence_parallel: true\nadd_bias_linear: false\n"
      "swiglu: true\nkv_lora_rank: 32\n");
  folder.put("primus/configs/models/megatron/llama_base.yaml",
             "extends:\n  - language_model.yaml\nhidden_dropout: 0.0\nattention_dropout: 0.0\nnormalization: RMSNorm\n"
             "position_embedding_type: rope\nuntie_embeddings_and_output_weights: true\n");
  folder.put("primus/configs/models/megatron/small.yaml",
             "extends:\n  - llama_base.yaml\nnum_layers: 16\nhidden_size: 2048\nffn_hidden_size: 5632\n"
             "num_attention_heads: 16\ngroup_query_attention: true\nnum_query_groups: 4\nvocab_size: 32000\n");
  ConvertRequest requested = requested_of_file(folder.put("examples/megatron/job.yaml", primus_experiment));
  requested.gpus = 8;
  const Converted converted = convert(requested);
  const Scenario s = scenario_of(converted, shipped_data());
  EXPECT_EQ(parameters(s), llama(16, 2048, 4 * 128, 5632, 32'000));
  EXPECT_EQ(s.layout.tensor, 1);
  EXPECT_EQ(s.layout.data, 8);
  EXPECT_EQ(s.layout.sharding, Sharding::Zero1) << "of pre_trainer.yaml, over trainer_base.yaml";
  EXPECT_EQ(s.train.sequence_length, 8192);
  EXPECT_EQ(s.train.micro_batch, 2);
  EXPECT_EQ(s.train.global_batch, 64);
  EXPECT_EQ(s.train.recompute.kind, Recompute::Full);
  EXPECT_EQ(s.train.hidden_dropout, 0) << "of llama_base.yaml, over language_model.yaml";
  EXPECT_TRUE(has(converted, RemarkKind::Assumed, "use_turbo_attention"));
  EXPECT_FALSE(has(converted, RemarkKind::NotJudged, "")) << "defaults of Primus' own ask for nothing";
  requested.variables = {{"PRIMUS_SEQ_LENGTH", "4096"}, {"PRIMUS_TP", "2"}};
  const Scenario other = scenario_of_request(requested);
  EXPECT_EQ(other.train.sequence_length, 4096);
  EXPECT_EQ(other.layout.tensor, 2);
  EXPECT_TRUE(other.layout.sequence_parallel) << "of language_model.yaml";
}

TEST(Primus, FilesThatExtendEachOtherOrWhatIsNotThereAreNotPassedOver) {
  const Folder folder("primus_loop");
  folder.put("primus/configs/models/megatron/small.yaml", "extends:\n  - other.yaml\n  - other.yaml\n");
  folder.put("primus/configs/models/megatron/other.yaml", "extends:\n  - small.yaml\n");
  const std::string file = folder.put("examples/megatron/job.yaml", primus_experiment);
  ConvertRequest requested = requested_of_file(file);
  requested.gpus = 8;
  EXPECT_NE(problem_of(requested).find("extends more than 64 files"), std::string::npos);
  folder.put("primus/configs/models/megatron/small.yaml",
             "extends:\n  - absent.yaml\nnum_layers: 4\nhidden_size: 512\nnum_attention_heads: 8\n");
  EXPECT_TRUE(has(convert(requested), RemarkKind::NotJudged, "absent.yaml"));
}

TEST(Primus, AloneHasItsTrainersDefaultsAndAModelByName) {
  ConvertRequest requested =
      requested_of("job.yaml",
                   "modules: {pre_trainer: {framework: megatron, config: pre_trainer.yaml, model: llama2_7B.yaml, "
                   "overrides: {seq_length: 4096, global_batch_size: 128, use_turbo_deepep: true, "
                   "enable_primus_turbo: true}}}\n");
  requested.gpus = 8;
  const Converted converted = convert(requested);
  const Scenario s = scenario_of(converted, shipped_data());
  EXPECT_EQ(parameters(s), llama(32, 4096, 4096, 11'008, 32'000));
  EXPECT_EQ(s.train.micro_batch, 2) << "its default";
  EXPECT_EQ(s.train.global_batch, 128);
  EXPECT_EQ(s.layout.sharding, Sharding::Zero1) << "its default";
  EXPECT_TRUE(has(converted, RemarkKind::NotJudged, "use_turbo_deepep"));
  EXPECT_EQ(problem_of(requested_of("job.yaml", "modules: {pre_trainer: {framework: maxtext, model: a.yaml}}\n")),
            "open: framework = \"maxtext\" of Primus is not modelled");
  EXPECT_EQ(problem_of(requested_of("job.yaml",
                                    "modules: {pre_trainer: {framework: megatron, model: a.yaml, "
                                    "overrides: {seq_length: \"${LENGTH}\"}}}\n")),
            "wrong: ${LENGTH} is of the environment, which does not say it");
}

TEST(Primus, TakesTorchtitansConfigurationToo) {
  const Folder folder("primus_titan");
  folder.put(
      "primus/configs/modules/torchtitan/pre_trainer.yaml",
      "training: {local_batch_size: 8, seq_len: 2048, global_batch_size: -1, mock_data: true}\n"
      "activation_checkpoint: {mode: none, selective_ac_option: \"2\"}\nparallelism: {tensor_parallel_degree: 1, "
      "pipeline_parallel_degree: 1, pipeline_parallel_schedule: 1F1B}\ncompile: {enable: false}\n");
  folder.put("primus/configs/models/torchtitan/llama3.1_8B.yaml",
             "job: {description: x}\nmodel: {name: llama3, flavor: 8B, converters: [primus_turbo]}\n");
  ConvertRequest requested = requested_of_file(folder.put(
      "examples/job.yaml",
      "modules:\n  pre_trainer:\n    framework: torchtitan\n    config: pre_trainer.yaml\n    model: llama3.1_8B.yaml\n"
      "    overrides:\n      training: {local_batch_size: 4, seq_len: 8192, steps: 50}\n"
      "      primus_turbo: {enable_primus_turbo: true}\n      metrics: {log_freq: 1}\n"));
  requested.gpus = 8;
  const Scenario s = scenario_of_request(requested);
  EXPECT_EQ(parameters(s), llama(32, 4096, 8 * 128, 14'336, 128'256));
  EXPECT_EQ(s.runtime.name, "torchtitan");
  EXPECT_EQ(s.layout.data, 8);
  EXPECT_EQ(s.layout.sharding, Sharding::Zero3);
  EXPECT_EQ(s.train.micro_batch, 4);
  EXPECT_EQ(s.train.global_batch, 32);
  EXPECT_EQ(s.train.sequence_length, 8192);
  EXPECT_EQ(s.train.recompute.kind, Recompute::None);
}

// In the form of nemo/collections/llm: recipes that call each other, and dataclasses that inherit.
const char* const nemo_model =
    "from dataclasses import dataclass\nfrom nemo.collections.llm.gpt.model.base import GPTConfig, GPTModel\n"
    "@dataclass\nclass LlamaConfig(GPTConfig):\n    \"\"\"Doc.\"\"\"\n    normalization: str = \"RMSNorm\"\n"
    "    activation_func: Callable = F.silu\n    gated_linear_unit: bool = True\n"
    "    position_embedding_type: str = \"rope\"\n    add_bias_linear: bool = False\n    seq_length: int = 4096\n"
    "    attention_dropout: float = 0.0\n    hidden_dropout: float = 0.0\n"
    "    share_embeddings_and_output_weights: bool = False\n    bias_activation_fusion: bool = True\n"
    "    apply_rope_fusion: bool = True\n\n    def method(self):\n        x = 1\n        return x\n\n"
    "@dataclass\nclass SmallConfig(LlamaConfig):\n    num_layers: int = 16\n    hidden_size: int = 2048\n"
    "    num_attention_heads: int = 16\n    num_query_groups: int = 4\n    ffn_hidden_size: int = 5632\n";
const char* const nemo_base =
    "class GPTConfig(TransformerConfig, io.IOMixin):\n    fp16_lm_cross_entropy: bool = False\n"
    "    share_embeddings_and_output_weights: bool = True\n    masked_softmax_fusion: bool = True\n"
    "    gradient_accumulation_fusion: bool = _available\n    vocab_size: Optional[int] = None\n";
const char* const nemo_shared =
    "def bf16_mixed() -> run.Config[MegatronMixedPrecision]:\n"
    "    return run.Config(MegatronMixedPrecision, precision=\"bf16-mixed\", grad_reduce_in_fp32=True)\n"
    "def adam(max_lr: float = 1e-4, min_lr: Optional[float] = None):\n"
    "    min_lr = min_lr if min_lr is not None else (0.1 * max_lr)\n"
    "    opt = run.Config(OptimizerConfig, optimizer=\"adam\", lr=max_lr, use_distributed_optimizer=True)\n"
    "    return run.Config(MegatronOptimizerModule, config=opt)\n";
const char* const nemo_job =
    "import nemo_run as run\nfrom nemo import lightning as nl\n"
    "from nemo.collections.llm.gpt.model.llama import SmallConfig, LlamaModel\n"
    "from nemo.collections.llm.recipes.shared import adam, bf16_mixed\nNAME = \"small\"\n\n"
    "@run.cli.factory(name=NAME)\ndef model() -> run.Config[pl.LightningModule]:\n"
    "    \"\"\"Doc with = signs, f(a=1).\"\"\"\n    return run.Config(LlamaModel, config=run.Config(SmallConfig))\n\n"
    "def trainer(\n    tensor_parallelism: int = 2,\n    pipeline_parallelism_type: Optional[torch.dtype] = None,\n"
    "    num_nodes: int = 1,\n    num_gpus_per_node: int = 8,\n    callbacks=None,\n) -> run.Config[nl.Trainer]:\n"
    "    strategy = run.Config(\n        nl.MegatronStrategy,\n        tensor_model_parallel_size=tensor_parallelism,\n"
    "        pipeline_model_parallel_size=1,\n        sequence_parallel=tensor_parallelism > 1,\n"
    "        ckpt_async_save=True,\n        ddp=run.Config(DistributedDataParallelConfig, overlap_grad_reduce=True),\n"
    "    )\n    return run.Config(nl.Trainer, devices=num_gpus_per_node, num_nodes=num_nodes, plugins=bf16_mixed(),\n"
    "                      strategy=strategy, callbacks=callbacks)\n\n"
    "def pretrain_recipe(dir=None, num_nodes: int = 2, performance_mode: bool = False, fn=pretrain) -> run.Partial:\n"
    "    recipe = run.Partial(fn, model=model(), trainer=trainer(num_nodes=num_nodes,\n"
    "        callbacks=[run.Config(TimingCallback)]),\n"
    "        data=run.Config(MockDataModule, seq_length=4096, global_batch_size=512, micro_batch_size=1),\n"
    "        optim=adam(max_lr=3e-4))\n    if performance_mode:\n        recipe = faster(recipe)\n    return recipe\n\n"
    "def faster(recipe: run.Partial) -> run.Partial:\n    if not recipe.trainer.callbacks:\n"
    "        recipe.trainer.callbacks = []\n    "
    "recipe.trainer.callbacks.append(run.Config(MegatronCommOverlapCallback,\n"
    "        tp_comm_overlap=False))\n    recipe.trainer.plugins.grad_reduce_in_fp32 = False\n    return recipe\n\n"
    "def finetune_recipe(peft_scheme='lora'):\n    recipe = pretrain_recipe()\n"
    "    if peft_scheme is None or peft_scheme.lower() == 'none':\n"
    "        recipe.trainer.strategy.tensor_model_parallel_size = 1\n    elif peft_scheme.lower() in ['lora', "
    "'dora']:\n"
    "        recipe.peft = run.Config(PEFT_STR2CLS[peft_scheme.lower()])\n    return recipe\n";

fs::path nemo_files(const Folder& folder) {
  folder.put("nemo/collections/llm/gpt/model/llama.py", nemo_model);
  folder.put("nemo/collections/llm/gpt/model/base.py", nemo_base);
  folder.put("nemo/collections/llm/recipes/shared.py", nemo_shared);
  return folder.put("nemo/collections/llm/recipes/small.py", nemo_job);
}

TEST(NemoRecipes, AreEvaluatedWithTheFilesAroundThem) {
  const Folder folder("nemo");
  const Converted converted = convert(requested_of_file(nemo_files(folder)));
  const Scenario s = scenario_of(converted, shipped_data());
  EXPECT_EQ(parameters(s), llama(16, 2048, 4 * 128, 5632, 50'257)) << "mock data comes with GPT-2's tokenizer";
  EXPECT_EQ(s.gpus, 16);
  EXPECT_EQ(s.layout.tensor, 2);
  EXPECT_TRUE(s.layout.sequence_parallel);
  EXPECT_EQ(s.layout.data, 8);
  EXPECT_EQ(s.layout.sharding, Sharding::Zero1);
  EXPECT_EQ(s.train.sequence_length, 4096);
  EXPECT_EQ(s.train.micro_batch, 1);
  EXPECT_EQ(s.train.global_batch, 512);
  EXPECT_EQ(s.train.precision, DType::BF16);
  EXPECT_EQ(s.train.gradient_dtype, DType::FP32);
  EXPECT_EQ(s.train.hidden_dropout, 0);
  EXPECT_FALSE(has(converted, RemarkKind::NotJudged, ""));
}

TEST(NemoRecipes, TakeTheirParametersFromOutside) {
  const Folder folder("nemo_parameters");
  ConvertRequest requested = requested_of_file(nemo_files(folder));
  requested.variables = {{"num_nodes", "4"}, {"performance_mode", "True"}};
  const Scenario s = scenario_of_request(requested);
  EXPECT_EQ(s.gpus, 32);
  EXPECT_EQ(s.train.gradient_dtype, DType::BF16) << "of its faster form";
  requested.variables = {{"recipe", "finetune_recipe"}, {"peft_scheme", "none"}};
  EXPECT_EQ(scenario_of_request(requested).layout.tensor, 1);
  requested.variables = {{"recipe", "finetune_recipe"}};
  EXPECT_TRUE(has(convert(requested), RemarkKind::Bounded, "peft_scheme = \"lora\""));
  EXPECT_EQ(scenario_of_request(requested).layout.tensor, 2);
  requested.variables = {{"recipe", "finetune_recipe"}, {"peft_scheme", "dora"}};
  EXPECT_EQ(problem_of(requested), "open: finetune_recipe: adapters on Megatron-LM are not modelled");
  requested.variables = {{"recipe", "other"}};
  EXPECT_EQ(problem_of(requested), "wrong: has no recipe \"other\"");
  EXPECT_EQ(problem_of(requested_of("small.py", nemo_job)),
            "open: the model's configuration SmallConfig is in no file that is there, so that it is not modelled");
}

// What nothing defines may be anything: it is told, and neither left out nor taken for settings without values.
TEST(NemoRecipes, ThatCallWhatIsNotThereAreNotJudged) {
  const Folder folder("nemo_unknown");
  const fs::path file = nemo_files(folder);
  const auto leaves_open = [&](const std::string& from, const std::string& to, std::string_view what) {
    std::string text = nemo_job;
    text.replace(text.find(from), from.size(), to);
    ConvertRequest requested = requested_of_file(file);
    requested.texts[file] = text;
    return has(convert(requested), RemarkKind::NotJudged, what);
  };
  EXPECT_TRUE(leaves_open("plugins=bf16_mixed()", "plugins=mystery()", "plugins"));
  EXPECT_TRUE(leaves_open("plugins=bf16_mixed()", "plugins=[mystery()]", "plugins"));
  EXPECT_TRUE(leaves_open("strategy=strategy", "strategy=mystery(strategy)", "strategy = mystery"));
  EXPECT_TRUE(leaves_open("devices=num_gpus_per_node", "devices=mystery()", "devices"));
  EXPECT_TRUE(leaves_open("num_nodes=num_nodes, plugins", "num_nodes=NODES[0], plugins", "num_nodes"));
  EXPECT_TRUE(leaves_open("callbacks=callbacks", "callbacks=mystery()", "callbacks"));
  EXPECT_TRUE(leaves_open("tensor_model_parallel_size=tensor_parallelism", "tensor_model_parallel_size=TENSORS",
                          "tensor_model_parallel_size"));
  EXPECT_TRUE(leaves_open("optim=adam(max_lr=3e-4)", "optim=mystery()", "optim"));
  EXPECT_TRUE(leaves_open("seq_length=4096", "seq_length=LENGTH", "seq_length"));
  EXPECT_TRUE(leaves_open("    return recipe\n\ndef faster", "    mystery(recipe)\n    return recipe\n\ndef faster",
                          "mystery"));
  EXPECT_FALSE(leaves_open("4096", "8192", ""));
}

// nemo/lightning/pytorch/plugins/mixed_precision.py: gradients that are not summed in fp32 are of the type trained in.
TEST(NemoRecipes, InFp16HaveGradientsInFp16) {
  const Folder folder("nemo_fp16");
  const fs::path file = nemo_files(folder);
  folder.put("nemo/collections/llm/recipes/shared.py",
             std::string(nemo_shared) +
                 "def fp16_mixed():\n    return run.Config(MegatronMixedPrecision, "
                 "precision=\"16-mixed\", grad_reduce_in_fp32=False)\n");
  std::string text = nemo_job;
  for (const std::string from = "bf16_mixed"; text.find(from) != std::string::npos;)
    text.replace(text.find(from), from.size(), "fp16_mixed");
  ConvertRequest requested = requested_of_file(file);
  requested.texts[file] = text;
  const Scenario s = scenario_of_request(requested);
  EXPECT_EQ(s.train.precision, DType::FP16);
  EXPECT_EQ(s.train.gradient_dtype, DType::FP16);
}

TEST(NemoRecipes, ThatRecurOrNestWithoutEndAreNotFollowed) {
  const std::string head = "import nemo_run as run\n";
  for (const std::string& body :
       {std::string("def pretrain_recipe():\n    return pretrain_recipe()\n"),
        "def pretrain_recipe():\n    return " + std::string(5000, '(') + "\n",
        "def pretrain_recipe():\n    return " + std::string(5000, '-') + "1\n",
        "def pretrain_recipe():\n    return " + std::string(3000, 'n') + " not not not in\n",
        std::string("A = B\nB = A\ndef pretrain_recipe():\n    return A\n"),
        std::string("def pretrain_recipe(a=pretrain_recipe(), b=a):\n    x.y.z = a\n    return x\n")})
    EXPECT_TRUE(problem_of(requested_of("job.py", head + body)).starts_with("open: pretrain_recipe makes no model"));
}

TEST(BridgeRecipes, MayHaveOtherNamesInAnotherFile) {
  const Folder folder("bridge_names");
  folder.put("src/megatron/bridge/recipes/llama/h100/llama3.py",
             "def llama3_8b_pretrain_8gpu_h100_config():\n    cfg = _pretrain_common()\n"
             "    cfg.model = AutoBridge.from_hf_pretrained(\"meta-llama/Meta-Llama-3-8B\").to_megatron_provider()\n"
             "    cfg.model.tensor_model_parallel_size = 1\n    cfg.model.context_parallel_size = 2\n"
             "    cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=True)\n    cfg.model.seq_length = 8192\n"
             "    return cfg\n");
  ConvertRequest requested = requested_of_file(folder.put(
      "src/megatron/bridge/recipes/llama/llama3.py",
      "from megatron.bridge.recipes.llama.h100.llama3 import (\n"
      "    llama3_8b_pretrain_8gpu_h100_config as llama3_8b_pretrain_config,\n)\n"
      "from megatron.bridge.recipes.llama.h100.llama3 import (\n    other_config as llama3_8b_sft_config,\n)\n"));
  EXPECT_EQ(problem_of(requested), "wrong: has 2 recipes, and a scenario is of one");
  requested.variables = {{"recipe", "llama3_8b_pretrain_config"}};
  const Converted converted = convert(requested);
  const Scenario s = scenario_of(converted, shipped_data());
  EXPECT_EQ(parameters(s), llama(32, 4096, 8 * 128, 14'336, 128'256));
  EXPECT_EQ(s.gpus, 8);
  EXPECT_EQ(s.layout.context, 2);
  EXPECT_EQ(s.train.micro_batch, 2);
  EXPECT_EQ(s.train.global_batch, 32);
  EXPECT_TRUE(has(converted, RemarkKind::Assumed, "tp_comm_overlap")) << "Bridge turns it off";
}

TEST(SwiftsOwnFiles, AreItsCommands) {
  const Scenario s = scenario_of_request(requested_of(
      "job.sh",
      "torchrun --nproc_per_node=8 --nnodes=1 swift/cli/sft.py --model Qwen/Qwen2.5-7B-Instruct --train_type full \\\n"
      "  --torch_dtype bfloat16 --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --max_length 8192 \\\n"
      "  --deepspeed zero2 --dataset a --output_dir o\n"));
  EXPECT_EQ(s.gpus, 8);
  EXPECT_EQ(s.layout.sharding, Sharding::Zero2);
  EXPECT_EQ(s.train.global_batch, 32);
  EXPECT_EQ(s.train.sequence_length, 8192);
}

TEST(TitanOf2024, HasItsDegreesInTrainingAndExperimental) {
  ConvertRequest requested = requested_of(
      "job.toml",
      "[model]\nname = \"llama3\"\nflavor = \"70B\"\n[training]\nbatch_size = 2\nseq_len = 8192\n"
      "tensor_parallel_degree = 8\ndata_parallel_degree = -1\n[experimental]\npipeline_parallel_degree = 1\n"
      "enable_async_tensor_parallel = false\n[activation_checkpoint]\nmode = \"full\"\n");
  requested.gpus = 64;
  const Scenario s = scenario_of_request(requested);
  EXPECT_EQ(s.layout.tensor, 8);
  EXPECT_EQ(s.layout.data, 8);
  EXPECT_EQ(s.layout.pipeline, 1);
  EXPECT_EQ(s.train.global_batch, 16);
  EXPECT_EQ(s.train.recompute.kind, Recompute::Full);
  requested.texts.begin()->second += "[float8]\nenable_float8_linear = true\n";
  EXPECT_TRUE(has(convert(requested), RemarkKind::Bounded, "float8.enable_float8_linear"));
  std::string& text = requested.texts.begin()->second;
  text.insert(text.find("[experimental]\n") + 15, "custom_import = \"ours\"\nother = 3\n");
  EXPECT_TRUE(has(convert(requested), RemarkKind::NotJudged, "experimental.custom_import"));
  EXPECT_TRUE(has(convert(requested), RemarkKind::NotJudged, "experimental.other"));
}

const std::string launch =
    "\ntorchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
    "--ffn-hidden-size 11008 --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --vocab-size 32000 --seq-length 4096 --max-position-embeddings 4096 "
    "--micro-batch-size 1 --global-batch-size 64 --bf16 ";

TEST(SourcedFiles, ThatAreNotThereLeaveWhatTheScriptAssignedAndSayThatTheyMayNot) {
  ConvertRequest requested =
      requested_of("job.sh", "TP=2\nDATA=/data/x\nsource /no/such/env.sh\nARGS=\"--tensor-model-parallel-size $TP\"" +
                                 launch + "--data-path $DATA $ARGS\n");
  const Converted converted = convert(requested);
  EXPECT_TRUE(has(converted, RemarkKind::NotJudged, "env.sh")) << "$TP came before it";
  EXPECT_EQ(scenario_of(converted, shipped_data()).layout.tensor, 2);
  requested = requested_of("job.sh", "DATA=/data/x\nsource /no/such/env.sh\nTP=2" + launch +
                                         "--data-path $DATA --tensor-model-parallel-size $TP\n");
  EXPECT_FALSE(has(convert(requested), RemarkKind::NotJudged, "")) << "a path of data, and what comes behind it";
  requested = requested_of("job.sh", "source /no/such/env.sh\n" + launch + "--tensor-model-parallel-size $TP\n");
  EXPECT_TRUE(problem_of(requested).find("$TP (source in line 1 may assign it)") != std::string::npos);
}

TEST(SourcedFiles, BesideTheScriptAreReadByTheWayThatScriptsNameTheirOwnFolder) {
  const Folder folder("sourced");
  folder.put("common.sh", "TP=4\n");
  for (const char* own :
       {"SCRIPT_DIR=\"$(cd \"$(dirname \"${BASH_SOURCE[0]}\")\" && pwd)\"\nsource \"${SCRIPT_DIR}/../common.sh\"\n",
        "source \"$(dirname \"$0\")/../common.sh\"\n", "ROOT=$(cd $(dirname $0)/.. && pwd)\n. $ROOT/common.sh\n"}) {
    const fs::path job = folder.put("jobs/job.sh", own + launch + "--tensor-model-parallel-size $TP\n");
    EXPECT_EQ(scenario_of_request(requested_of_file(job)).layout.tensor, 4) << own;
  }
}

TEST(Branches, ThatOnlyLeaveFlagsOfNoMatterMayGoEitherWay) {
  const std::string choice =
      "ARGS=\"\"\nif [ -f /ckpt/latest.txt ]; then LOAD=/ckpt; else LOAD=/base; ARGS=\"--finetune\"; fi";
  const Converted converted = convert(requested_of("job.sh", choice + launch + "--load $LOAD $ARGS\n"));
  EXPECT_NO_THROW((void)scenario_of(converted, shipped_data()));
  EXPECT_TRUE(has(converted, RemarkKind::NoMatter, "$ARGS"));
  const std::string matters = "ARGS=\"\"\nif [ -f /x ]; then ARGS=\"--tensor-model-parallel-size 2\"; fi";
  EXPECT_TRUE(problem_of(requested_of("job.sh", matters + launch + "$ARGS\n")).starts_with("wrong: $ARGS"));
}

TEST(Overrides, OfHydraAreNoPatternsOfFileNames) {
  EXPECT_EQ(
      problem_of(requested_of("job.sh", "python3 launcher_scripts/main.py stages=[training] training=gpt3/126m\n")),
      "open: \"launcher_scripts/main.py\" is of NeMo's launcher scripts, which is not modelled");
}

TEST(PaiTokenizers, AreAsManyTokensAsTheirVocabulariesAndSoManyMore) {
  const std::string job = launch.substr(0, launch.find("--vocab-size")) + launch.substr(launch.find("--seq-length"));
  const Scenario s = scenario_of_request(
      requested_of("job.sh", job + "--patch-tokenizer-type Qwen2Tokenizer --extra-vocab-size 293\n"));
  EXPECT_EQ(parameters(s), llama(32, 4096, 4096, 11'008, 151'936)) << "151643 and 293";
  EXPECT_TRUE(has(convert(requested_of("job.sh", job + "--patch-tokenizer-type OPTTokenizer --extra-vocab-size 0\n")),
                  RemarkKind::Bounded, "--extra-vocab-size"));
}

TEST(Vocabularies, OfShapesThatAreNobodysAreBounded) {
  const std::string job = launch.substr(0, launch.find("--vocab-size")) + launch.substr(launch.find("--seq-length")) +
                          "--tokenizer-type Llama2Tokenizer --tokenizer-model my.model ";
  EXPECT_FALSE(has(convert(requested_of("job.sh", job)), RemarkKind::Bounded, "vocab-size")) << "Llama-2 7B's shape";
  const std::string other = job + "--ffn-hidden-size 13696 ";
  EXPECT_TRUE(has(convert(requested_of("job.sh", other)), RemarkKind::Bounded, "vocab-size"));
  EXPECT_FALSE(has(convert(requested_of("job.sh", other + "--tokenizer-model /llama/tokenizer.model\n")),
                   RemarkKind::Bounded, "vocab-size"));
  EXPECT_EQ(parameters(scenario_of_request(
                requested_of("job.sh", other + "--tokenizer-model a/llm-jp-tokenizer-100k.ver3.0b1.model\n"))),
            llama(32, 4096, 4096, 13'696, 99'487));
}

}  // namespace
}  // namespace tidemark::tests::more_tools_test
