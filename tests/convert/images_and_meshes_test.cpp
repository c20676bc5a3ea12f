#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/convert/hugging_face/target_patterns.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/scenario/memory_bounds.hpp"
#include "tests/convert/recipes.hpp"

// Models with a tower for images, and ranks that share rows: what launch files of them come to, worked out by hand.

namespace tidemark::tests::images_and_meshes_test {
namespace {

std::string bound_in(const Converted& converted, std::string_view name) {
  for (const Remark& its : converted.remarks)
    if (its.kind == RemarkKind::Bounded && its.bound.starts_with(name)) return its.bound;
  return {};
}

Converted converted(const std::string& file, const std::string& text, std::int64_t gpus) {
  ConvertRequest requested = requested_of(file, text);
  requested.gpus = gpus;
  return convert(requested);
}

const std::string of_images =
    "model_name_or_path: Qwen/Qwen2.5-VL-7B-Instruct\nstage: sft\nfinetuning_type: lora\ntemplate: qwen2_vl\n"
    "dataset: d\ncutoff_len: 2048\noutput_dir: o\nper_device_train_batch_size: 1\nbf16: true\nlora_target: all\n";

// The tower: patches of 1,176 numbers onto 1,280; 32 layers of attention, three linears of 3,420 and two norms; a norm,
// and two linears of four patches onto the text's 3,584.
TEST(Images, BringATowerThatIsBoundedAndFrozenUnlessTold) {
  const Converted its = converted("lora.yaml", of_images, 1);
  EXPECT_EQ(bound_in(its, "images"), "images:2");
  const Scenario s = scenario_of(its, shipped_data());
  EXPECT_EQ(parameter_count(Job(s).built), 7'615'616'512) << "the text's";
  EXPECT_EQ(s.train.sequence_length, 2048);
  constexpr std::int64_t layer = 4 * (1280 * 1280 + 1280) + 3 * 1280 * 3420 + 2 * 3420 + 1280 + 2 * 1280;
  constexpr std::int64_t tower = 1176 * 1280 + 32 * layer + 1280 + 5120 * 5120 + 5120 + 5120 * 3584 + 3584;
  static_assert(tower == 676'550'144);
  // 2,048 tokens of four patches each: pixels twice in fp32, one layer at work; of tokens what the merger makes twice,
  // embeddings ten times, and ten rows of cosines and sines.
  constexpr std::int64_t patches = 4 * 2048 * (8 * 1176 + 4 * (14 * 1280 + 3 * 3420));
  constexpr std::int64_t tokens = 2048 * 4 * (2 * 5120 + 10 * 3584 + 128 * (6 + 2 * 2));
  EXPECT_EQ(most_more("images:2", s), Bytes{patches + tokens + 6 * tower});
  // Layers run again: of each its input stays. Gradients and moments in fp32, and a copy in half precision.
  EXPECT_EQ(most_more("images:3", s), Bytes{patches + 4 * 2048 * 32 * 4 * 1280 + tokens + (6 + 18) * tower});

  EXPECT_EQ(bound_in(converted("lora.yaml", of_images + "freeze_vision_tower: false\n", 1), "images"), "images:3");
}

TEST(Images, AreTrainedWhereNoToolSaysThatTheyAreNot) {
  const std::string script =
      "accelerate launch --num_processes 2 sft.py --model_name_or_path google/gemma-3-12b-it --bf16 "
      "--max_length 1024 --per_device_train_batch_size 1 --output_dir o\n";
  EXPECT_EQ(bound_in(converted("run.sh", script, 2), "images"), "images:11");
  const std::string swift =
      "NPROC_PER_NODE=2 swift sft --model Qwen/Qwen3-VL-8B-Instruct --tuner_type lora --dataset d --output_dir o\n";
  EXPECT_EQ(bound_in(converted("run.sh", swift, 2), "images"), "images:8");
}

Converted of_targets(const std::string& model, const std::string& pattern) {
  return converted("run.sh",
                   "accelerate launch --num_processes 1 sft.py --model_name_or_path " + model +
                       " --bf16 --max_length 1024 --per_device_train_batch_size 1 --output_dir o --use_peft "
                       "--lora_target_modules '" +
                       pattern + "'\n",
                   1);
}

// As axolotl's examples of Qwen2-VL pick layers.
TEST(Images, PatternsOfAdaptersNameLinearsOfTheTextModel) {
  const auto targets = [](const std::string& model, const std::string& pattern) {
    return fmt::format("{}",
                       fmt::join(scenario_of(of_targets(model, pattern), shipped_data()).train.adapter->targets, " "));
  };
  const std::string all = R"(model.language_model.layers.[\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj)";
  EXPECT_EQ(
      targets("Qwen/Qwen2-VL-7B-Instruct", all),
      "mlp.down_proj mlp.gate_proj mlp.up_proj self_attn.k_proj self_attn.o_proj self_attn.q_proj self_attn.v_proj");
  EXPECT_EQ(targets("Qwen/Qwen2-VL-7B-Instruct", "model.language_model.layers.[0-9]+.self_attn.(q|v)_proj"),
            "self_attn.q_proj self_attn.v_proj");
  EXPECT_EQ(targets("Qwen/Qwen2.5-0.5B", R"(.*\.self_attn\.(q|v)_proj|lm_head)"),
            "lm_head self_attn.q_proj self_attn.v_proj");
}

// Of some layers only; of a tower perhaps; what Python's re knows and nobody reads here; what no linear is called.
TEST(Images, OtherPatternsOfAdaptersStayOpen) {
  for (const auto& [model, pattern] : {std::pair{"Qwen/Qwen2.5-0.5B", R"(.*layers\.(3|7)\.self_attn\.q_proj)"},
                                       {"Qwen/Qwen2-VL-7B-Instruct", ".*q_proj"},
                                       {"Qwen/Qwen2.5-0.5B", "(?i).*Q_PROJ"},
                                       {"Qwen/Qwen2.5-0.5B", ".*{2}q_proj"},
                                       {"Qwen/Qwen2.5-0.5B", R"(model\.language_model\..*q_proj)"}}) {
    try {
      (void)scenario_of(of_targets(model, pattern), shipped_data());
      ADD_FAILURE() << pattern;
    } catch (const InputError& error) {
      EXPECT_TRUE(error.leaves_open()) << error.what();
      EXPECT_NE(std::string(error.what()).find("regular expressions are not modelled yet"), std::string::npos);
    }
  }
}

// As Python's re.fullmatch has them.
TEST(ModulePatterns, MeanWhatPythonSaysThatTheyMean) {
  const std::vector<std::string> paths{"model.layers.7.self_attn.q_proj",
                                       "model.layers.8.self_attn.q_proj",
                                       "model.layers.12.mlp.up_proj",
                                       "abcd",
                                       "acd",
                                       "abcdd",
                                       "xyz_",
                                       "xa",
                                       "x-",
                                       "x",
                                       "aaab",
                                       std::string(200, 'a'),
                                       ""};
  const auto found = [&](const std::string& pattern) {
    const std::optional<ModulePattern> its = ModulePattern::parse(pattern);
    if (!its) return std::string("none");
    std::vector<std::string> meant;
    std::ranges::copy_if(paths, std::back_inserter(meant), [&](const std::string& path) { return its->matches(path); });
    return fmt::format("{}", fmt::join(meant, " "));
  };
  EXPECT_EQ(found(R"(.*\.layers\.(3|7|11)\.self_attn\.(q|k|v|o)_proj|.*\.mlp\.(gate|up|down)_proj)"),
            "model.layers.7.self_attn.q_proj model.layers.12.mlp.up_proj");
  EXPECT_EQ(found(R"(model.layers.[\d]+.(_checkpoint_wrapped_module.)?(mlp|self_attn).(up|down|gate|q|k|v|o)_proj)"),
            "model.layers.7.self_attn.q_proj model.layers.8.self_attn.q_proj model.layers.12.mlp.up_proj");
  EXPECT_EQ(found("(?:a|ab)(?:c|bcd)d*"), "abcd acd abcdd");
  EXPECT_EQ(found(R"([^a-c]+\w?)"), "xyz_ xa x- x");
  EXPECT_EQ(found("(a*)*b"), "aaab");
  EXPECT_EQ(found("x[a-]?"), "xa x- x");
  for (const char* pattern : {"a{2}", "(?i)a", "a*?", "^a", "a$", "(a", "a)", "[a", "*a", R"(\s)", "a\\"})
    EXPECT_EQ(found(pattern), "none") << pattern;
  EXPECT_EQ(found(std::string(100, '(') + std::string(100, ')')), "none");
}

TEST(Images, AreNotAScenariosUnlessItAsksForTheTextAlone) {
  const auto scenario = [](const std::string& model) {
    return "model = \"" + model +
           "\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 1\n[train]\n"
           "sequence_length = 128\nmicro_batch = 1\n[runtime]\nname = \"pytorch\"\n";
  };
  const auto read = [](const std::string& text) {
    return scenario_of(convert(requested_of("job.toml", text)), shipped_data());
  };
  EXPECT_EQ(read(scenario("Qwen/Qwen2.5-VL-7B-Instruct:text")).model.hidden, 3584);
  EXPECT_THROW((void)read(scenario("Qwen/Qwen2.5-VL-7B-Instruct")), InputError);
}

// Four ranks, two on a row of 4,096 tokens: each has a part of 2,048, and a step takes 16 rows, which are 32 parts.
TEST(RowsOfSeveralRanks, AreRowsOfTheirParts) {
  const std::string script =
      "torchrun --standalone --nnodes=1 --nproc_per_node=4 -m verl.trainer.fsdp_sft_trainer data.train_files=t "
      "data.val_files=v data.max_length=4096 data.train_batch_size=16 data.micro_batch_size_per_gpu=2 "
      "model.partial_pretrain=Qwen/Qwen2.5-0.5B-Instruct trainer.default_local_dir=o "
      "ulysses_sequence_parallel_size=2\n";
  const Converted its = converted("run.sh", script, 4);
  EXPECT_EQ(bound_in(its, "row-parts"), "row-parts:2");
  const Scenario s = scenario_of(its, shipped_data());
  EXPECT_EQ(s.train.sequence_length, 2048);
  EXPECT_EQ(s.train.micro_batch, 2);
  EXPECT_EQ(s.train.global_batch, 32);
  EXPECT_EQ(s.layout.data, 4);
  EXPECT_EQ(parameter_count(Job(s).built), 494'032'768);
  // 4,096 tokens of two parts; 14 heads and 2 of keys and values, of 64; as many bytes as numbers of places.
  const std::int64_t tokens = 2 * 2048;
  EXPECT_EQ(most_more("row-parts:2", s),
            Bytes{tokens * (2 * 4 * (3 * 14 + 4 * 2) * 64 + 64 * 2) + (std::int64_t{1} << 30)});
}

TEST(RowsOfSeveralRanks, AreOfAxolotlAndAccelerateToo) {
  const std::string axolotl =
      "base_model: meta-llama/Llama-3.1-8B\ncontext_parallel_size: 8\nsequence_len: 32_768\nmicro_batch_size: 1\n"
      "gradient_accumulation_steps: 2\nbf16: true\noptimizer: adamw_torch\nattn_implementation: flash_attention_2\n"
      "gradient_checkpointing: true\noutput_dir: o\ndatasets:\n  - path: d\n    type: alpaca\nfsdp_version: 2\n"
      "fsdp_config:\n  reshard_after_forward: true\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n";
  const Converted its = converted("job.yaml", axolotl, 8);
  EXPECT_EQ(bound_in(its, "row-parts"), "row-parts:8");
  const Scenario s = scenario_of(its, shipped_data());
  EXPECT_EQ(s.train.sequence_length, 4096);
  EXPECT_EQ(s.train.global_batch, 2 * 8) << "two micro-batches on each of eight ranks";
  EXPECT_EQ(s.layout.data, 8);

  const std::string accelerate =
      "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
      "  fsdp_reshard_after_forward: true\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\nmixed_precision: bf16\n"
      "num_machines: 1\nnum_processes: 8\nparallelism_config:\n  parallelism_config_cp_size: 4\n"
      "  parallelism_config_dp_replicate_size: 1\n  parallelism_config_dp_shard_size: 2\n"
      "  parallelism_config_tp_size: 1\n";
  ConvertRequest requested = requested_of("cp.yaml", accelerate);
  requested.model = "models/llama-3.1-8b.json";
  requested.sequence_length = 8192;
  requested.micro_batch = 1;
  const Scenario cut = scenario_of(convert(requested), shipped_data());
  EXPECT_EQ(cut.train.sequence_length, 2048);
  EXPECT_EQ(cut.layout.data, 8);
  EXPECT_EQ(cut.layout.shards(), 8);
}

TEST(RowsOfSeveralRanks, ThatDoNotDivideRanksAreRefused) {
  const std::string axolotl =
      "base_model: meta-llama/Llama-3.1-8B\ncontext_parallel_size: 3\nsequence_len: 4096\nmicro_batch_size: 1\n"
      "bf16: true\noutput_dir: o\ndatasets:\n  - path: d\n    type: alpaca\n";
  const Converted its = converted("job.yaml", axolotl, 8);
  const auto refused = std::ranges::find(its.remarks, RemarkKind::NotExpressed, &Remark::kind);
  ASSERT_NE(refused, its.remarks.end());
  EXPECT_EQ(refused->why, "8 ranks do not share rows 3 by 3");
}

}  // namespace
}  // namespace tidemark::tests::images_and_meshes_test
