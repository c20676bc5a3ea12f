#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/convert/megatron/stage_layout.hpp"
#include "scenarios/convert/nemo/published_recipes.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/scenario/memory_bounds.hpp"
#include "tests/convert/recipes.hpp"

// Megatron-Bridge's scripts/performance, as its README starts them: what each comes to is read by hand in
// scripts/performance/configs of the release that is named.

namespace tidemark::tests::bridge_experiments_test {
namespace {

namespace fs = std::filesystem;
using Variables = std::map<std::string, std::string>;

class Experiment {
 public:
  explicit Experiment(const std::string& arguments, const Variables& variables = {})
      : path_(fs::path(testing::TempDir()) / fmt::format("experiment.{}.sh", ::getpid())) {
    std::ofstream(path_) << "python scripts/performance/setup_experiment.py -a me -p batch " << arguments << '\n';
    requested_.files = {path_};
    requested_.data_root = shipped_data();
    requested_.variables = variables;
  }
  Experiment(const Experiment&) = delete;
  Experiment& operator=(const Experiment&) = delete;
  ~Experiment() { fs::remove(path_); }

  ConvertRequest& requested() { return requested_; }
  Converted converted() const { return convert(requested_); }
  Scenario scenario() const { return scenario_of(converted(), shipped_data()); }
  std::string problem() const {
    try {
      (void)converted();
      return "no problem";
    } catch (const InputError& error) {
      return error.problems().front().message + " (" + error.problems().front().hint + ")";
    }
  }

 private:
  fs::path path_;
  ConvertRequest requested_;
};

bool has(const Converted& converted, RemarkKind kind, std::string_view what) {
  return std::ranges::any_of(converted.remarks, [&](const Remark& its) {
    return its.kind == kind && its.what.find(what) != std::string::npos;
  });
}

// 0.3.0, llama3_workload_base_configs.py LLAMA3_70B_PRETRAIN_CONFIG_GB200_FP8_MX_V2.
TEST(BridgeExperiments, TakeTheRecipeOfTheContainersRelease) {
  const Experiment its(
      "-i nvcr.io/nvidia/nemo:26.02 -m llama -mr llama3_70b --gpu gb200 -c fp8_mx -ng 64 -gn 4 -t 00:15:00");
  const Scenario s = its.scenario();
  EXPECT_EQ(s.gpus, 64);
  EXPECT_EQ(s.cluster.node.devices, 72);
  EXPECT_EQ(s.layout.tensor, 2);
  EXPECT_TRUE(s.layout.sequence_parallel);
  EXPECT_EQ(s.layout.pipeline, 4);
  EXPECT_EQ(s.layout.chunks, 5);
  EXPECT_EQ(s.layout.sharding, Sharding::Zero1);
  EXPECT_EQ(s.train.micro_batch, 1);
  EXPECT_EQ(s.train.global_batch, 256);
  EXPECT_EQ(s.train.sequence_length, 8192);
  EXPECT_EQ(s.train.gradient_dtype, DType::BF16);
  EXPECT_EQ(s.model.hidden, 8192);
  EXPECT_EQ(s.model.layers.size(), 80U);
  EXPECT_TRUE(has(its.converted(), RemarkKind::Bounded, "--fp8-format = \"e4m3\""));
  EXPECT_TRUE(has(its.converted(), RemarkKind::Bounded, "--tp-comm-overlap-cfg"));
}

// Its V1 has half the batch. What the command line says goes over the recipe; a batch follows the devices.
TEST(BridgeExperiments, TakeVariantsAndWhatDiffers) {
  const Variables release{{"bridge", "0.3"}};
  const std::string job = "-m llama -mr llama3_70b -g gb200 -c fp8_mx ";
  EXPECT_EQ(Experiment(job + "-ng 64 -cv v1", release).scenario().train.global_batch, 128);
  const Scenario twice = Experiment(job + "-ng 128 -tp 1 -pp 8 -vp 2 -mb 2", release).scenario();
  EXPECT_EQ(twice.train.global_batch, 512);
  EXPECT_EQ(twice.train.micro_batch, 2);
  EXPECT_EQ(twice.layout.tensor, 1);
  EXPECT_FALSE(twice.layout.sequence_parallel);
  EXPECT_EQ(twice.layout.pipeline, 8);
  EXPECT_EQ(twice.layout.chunks, 2);
  const Scenario said = Experiment(job + "-ng 128 -gb 192 model.seq_length=4096", release).scenario();
  EXPECT_EQ(said.train.global_batch, 192);
  EXPECT_EQ(said.train.sequence_length, 4096);
  Experiment elsewhere(job + "-ng 64", release);
  elsewhere.requested().cluster = "clusters/b200-sxm-180g.toml";
  EXPECT_EQ(elsewhere.scenario().cluster.node.devices, 8);
}

// 0.4.0, deepseek_v3.py set_deepseek_v3_pipeline_model_parallel_layout: of 61 layers 4 in each of 16 stages, one in the
// last, with MTP and the loss. HybridEP has all-to-all in its place, and no verdict.
TEST(BridgeExperiments, LayStagesOutAsTheRecipeHasThem) {
  const Experiment its("-i nvcr.io/nvidia/nemo:26.04 -m deepseek -mr deepseek_v3 -g gb200 -c bf16 -ng 256");
  const Scenario s = its.scenario();
  std::vector<std::int32_t> stages(16, 4);
  stages.back() = 1;
  EXPECT_EQ(s.layout.stage_layers, stages);
  EXPECT_EQ(s.layout.pipeline, 4);
  EXPECT_EQ(s.layout.chunks, 4);
  EXPECT_EQ(s.layout.expert, 64);
  EXPECT_EQ(s.train.global_batch, 4096);
  EXPECT_TRUE(has(its.converted(), RemarkKind::NotJudged, "moe_token_dispatcher_type = flex"));
  EXPECT_TRUE(has(its.converted(), RemarkKind::NotJudged, "--cuda-graph-impl"));
}

TEST(BridgeExperiments, SayWhatIsWrong) {
  EXPECT_EQ(Experiment("-m llama -mr llama3_71b -g gb200 -ng 8").problem().substr(0, 80),
            "\"llama3_71b\" is no recipe of Megatron-Bridge 0.3 to 0.6's that is known here (de");
  EXPECT_NE(Experiment("-m llama -mr llama3_8b -g a100 -ng 8").problem().find("it has pretrain b200 bf16"),
            std::string::npos);
  EXPECT_NE(Experiment("-m llama -mr llama3_8b -g h100 -ng none").problem().find("no whole number"), std::string::npos);
  EXPECT_NE(Experiment("-m llama -mr llama3_8b -g h100 -ng 8", {{"bridge", "0.1"}}).problem().find("0.3, 0.4"),
            std::string::npos);
  EXPECT_NE(Experiment("-m llama -mr llama3_8b -g h100 -ng 8 -cv v9").problem().find("there is no variant \"v9\""),
            std::string::npos);
  EXPECT_EQ(Experiment("-m llama -mr llama3_8b -g h100 -tp -ng 8").problem().substr(0, 17), "-tp takes a value");
  EXPECT_NE(Experiment("-m llama").problem().find("names no recipe"), std::string::npos);
  EXPECT_NE(Experiment("-m llama -mr llama3_8b -g h100 -ng $N --use_recipes").problem().find("--use_recipes"),
            std::string::npos);
  EXPECT_TRUE(has(Experiment("-m llama -mr llama3_8b -g h100 -ng 8 --num_layers 4").converted(),
                  RemarkKind::NotExpressed, "--num_layers"));
  EXPECT_TRUE(has(Experiment("-m llama -mr llama3_8b -g h100 -ng 8 --deterministic --no_such 3").converted(),
                  RemarkKind::NotJudged, "--no_such"));
}

// Adapters stand beside all weights, as bounded; a recipe of BF16 keeps its optimizer's states as it says.
TEST(BridgeExperiments, AdaptersAreBounded) {
  const Experiment its("-m llama -mr llama3_70b -g gb200 -c bf16 -ng 8 --task lora", {{"bridge", "0.4"}});
  EXPECT_TRUE(has(its.converted(), RemarkKind::Bounded, "peft"));
  EXPECT_EQ(its.scenario().gpus, 8);
}

// Ranks of tensor, pipeline and context parallelism divide the devices, and micro-batches the batch. Experts' ranks do
// not in some: Qwen3-235B's for 64 GB200 have 8 stages with 32 each, at which Megatron-LM stops.
TEST(BridgeExperiments, EveryRecipeFillsItsDevices) {
  std::set<std::string_view> releases, models;
  for (const PublishedRecipe& its : published_recipes()) {
    const auto number = [&](std::string_view path) -> std::int64_t {
      const auto found = std::ranges::find(its.settings, path, [](const auto& s) { return s.first; });
      return found == its.settings.end() ? 1 : std::stoll(std::string(found->second));
    };
    const std::int64_t ranks = number("model.tensor_model_parallel_size") *
                               number("model.pipeline_model_parallel_size") * number("model.context_parallel_size");
    const std::string name = fmt::format("{} {} {} {} {}", its.model, its.task, its.device, its.precision, its.devices);
    EXPECT_EQ(its.devices % ranks, 0) << name;
    EXPECT_EQ(number("train.global_batch_size") % number("train.micro_batch_size"), 0) << name;
    releases.insert(its.releases.begin(), its.releases.end());
    models.insert(its.model);
  }
  EXPECT_EQ(releases, (std::set<std::string_view>{"0.3", "0.4", "0.5", "0.6"}));
  for (const char* model : {"llama3_8b", "llama3_70b", "llama31_405b", "deepseek_v3", "qwen3_30b_a3b",
                            "qwen3_235b_a22b", "gpt_oss_120b", "kimi_k2"})
    EXPECT_TRUE(models.contains(model)) << model;
}

// 4,096 tokens of 128 experts in 48 layers and the one at work: three tensors in fp32, one; of a width of 2,048, a
// second buffer of four products.
TEST(BridgeExperiments, BoundsAreWhatTheirSourcesComeTo) {
  const Scenario s = Experiment("-m qwen -mr qwen3_30b_a3b -g h100 -c bf16 -ng 16", {{"bridge", "0.6"}}).scenario();
  ASSERT_EQ(s.train.tokens(), 4096);
  EXPECT_EQ(most_more("moe-router-fusion", s), Bytes{std::int64_t{3} * 4 * 4096 * 128 * 49});
  EXPECT_EQ(most_more("moe-router-force-load-balancing", s), Bytes{std::int64_t{4} * 4096 * 128 * 49});
  EXPECT_EQ(most_more("tp-comm-overlap-cfg", s), Bytes{std::int64_t{4} * 2 * 4096 * 2048});
  EXPECT_EQ(most_more("overlap-param-gather-with-optimizer-step", s), Bytes{0});
  EXPECT_TRUE(may_take_less("overlap-param-gather-with-optimizer-step"));
}

TEST(StageLayouts, AreReadAsMegatronLmReadsThem) {
  using Stages = std::vector<std::int64_t>;
  EXPECT_EQ(layers_of_stages("Ettt|tt,|ttL"), (Stages{3, 2, 2}));
  EXPECT_EQ(layers_of_stages("Et*3|(tt|)*2tmL"), (Stages{3, 2, 2, 1}));
  EXPECT_EQ(layers_of_stages("Et*4|(t*7|)*5t*8|tmL"), (Stages{4, 7, 7, 7, 7, 7, 8, 1}));
  EXPECT_EQ(layers_of_stages("E|t|L"), (Stages{0, 1, 0}));
  for (const char* other : {"", "tt|tt", "Et|tt", "E|tt|", "Et|m|tL", "Et||tL", "Et|x|tL", "E(t|tL", "Et*|tL",
                            "Et*0|tL", "Et*99999999999|tL", "((((t", "EtL"})
    EXPECT_EQ(layers_of_stages(other), std::nullopt) << other;
}

}  // namespace
}  // namespace tidemark::tests::bridge_experiments_test
