#include <string>

#include <gtest/gtest.h>

#include "tests/scenarios/one_job.hpp"

// Scenario files as such: their keys, their defaults, and how problems are told.

namespace tidemark::tests::scenario_reader_test {
namespace {

using namespace literals;
using namespace one_job;

TEST(ScenarioReader, ReadsTheContractsExample) {
  const Scenario s = read_scenario(source / "scenarios/examples/llama-3.1-70b-64xh100.toml", source / "scenarios");
  EXPECT_EQ(s.name, "llama-3.1-70b-64xh100");
  EXPECT_EQ(s.model.name, "llama-3.1-70b");
  EXPECT_EQ(s.cluster.name, "h100-sxm-80g");
  EXPECT_EQ(s.gpus, 64);
  EXPECT_EQ(s.layout,
            (Layout{.tensor = 8, .sequence_parallel = true, .pipeline = 4, .data = 2, .sharding = Sharding::Zero1}));
  EXPECT_EQ(s.train, (Train{.sequence_length = 8192,
                            .micro_batch = 1,
                            .global_batch = 128,
                            .cross_entropy = CrossEntropy::TransformerEngine}));
  EXPECT_EQ(s.runtime, RuntimeChoice{});
}

TEST(ScenarioReader, ReadsEveryShippedScenario) {
  int count = 0;
  for (const char* folder : {"scenarios/examples", "scenarios/examples/seeds", "tests/golden/simumax_b200"}) {
    for (const auto& entry : std::filesystem::directory_iterator(source / folder)) {
      if (entry.path().extension() != ".toml") continue;  // a ds_config.json, say
      EXPECT_NO_THROW(read_scenario(entry.path(), source / "scenarios")) << entry.path();
      ++count;
    }
  }
  EXPECT_GE(count, 14);
}

TEST(ScenarioReader, GoldenScenariosStateWhatTheRunsWere) {
  const Scenario s = read_scenario(source / "tests/golden/simumax_b200/llama3_405b_l4_tp4_pp1_dp2_mbc8_cef.toml",
                                   source / "scenarios");
  EXPECT_EQ(s.model.layers.size(), 4);
  EXPECT_EQ(s.model.kv_heads, 16);
  EXPECT_EQ(s.model.vocabulary_extra, 1);
  EXPECT_EQ(s.layout, (Layout{.tensor = 4, .sequence_parallel = true, .data = 2, .sharding = Sharding::Zero1}));
  EXPECT_EQ(s.train.global_batch, 16);
  EXPECT_EQ(s.runtime.versions, Versions{});
}

TEST(ScenarioReader, ReadsWhatTheExampleLeavesOut) {
  const Scenario s = parse_scenario(R"(model = "models/qwen2.5-7b.json"
cluster = "clusters/b200-sxm-180g.toml"
gpus = 8
[model_override]
num_hidden_layers = 14
tie_word_embeddings = true
vocabulary_extra = 1
vocabulary_multiple = 64
[layout]
tensor = 2
pipeline = 2
data = 2
count_embedding = true
count_loss = true
order = "tp-cp-ep-dp-pp"
[train]
sequence_length = 4097
micro_batch = 3
precision = "fp16"
gradient_dtype = "fp32"
optimizer = "sgd_momentum"
attention = "flash"
cross_entropy = "fused"
steps = 3
hidden_dropout = 0
attention_dropout = 0
[runtime]
headroom = "2 GiB"
allocator = ""
versions = {megatron = "0.13.1", transformer_engine = "2.8", torch = "2.9", cuda = "12.8", nccl = "2.27"}
environment = {CUBLAS_WORKSPACE_CONFIG = ":4096:8", CUDA_DEVICE_MAX_CONNECTIONS = 1}
)",
                                    "folder/job.toml", folders);
  EXPECT_EQ(s.name, "job");
  EXPECT_EQ(s.model.layers.size(), 14);
  EXPECT_TRUE(s.model.tied_embeddings);
  EXPECT_EQ(s.model.vocabulary_extra, 1);
  EXPECT_EQ(s.model.vocabulary_multiple, 64);
  EXPECT_EQ(s.layout, (Layout{.tensor = 2, .pipeline = 2, .data = 2, .count_embedding = true, .count_loss = true}));
  EXPECT_EQ(s.train, (Train{.sequence_length = 4097,
                            .micro_batch = 3,
                            .global_batch = 6,
                            .precision = DType::FP16,
                            .gradient_dtype = DType::FP32,
                            .optimizer = Optimizer::SgdMomentum,
                            .attention = AttentionKernel::Flash,
                            .cross_entropy = CrossEntropy::Fused,
                            .steps = 3}));
  EXPECT_EQ(s.runtime.headroom, 2_GiB);
  EXPECT_EQ(s.runtime.versions, (Versions{{0, 13}, {2, 8}, {2, 9}, {12, 8}, {2, 27}}));
  EXPECT_EQ(s.runtime.cublas_workspace_config, ":4096:8");
}

TEST(ScenarioReader, KeysOfTheFormatThatAreNotModelledAreRefused) {
  const std::string layout = "job.toml:6:";
  EXPECT_EQ(with("[layout]", "expert = 8"),
            layout + "10: error: expert = 8, and the model has no experts\n  hint: leave it out");
  EXPECT_EQ(with("[layout]", "schedule = \"zb-x\""),
            layout +
                "12: error: schedule = \"zb-x\" is not known\n  hint: \"1f1b\", \"gpipe\", \"interleaved\", "
                "\"zb-h1\", \"looped-bfs\", \"interleaved-zb\", \"zb-v\" or \"dualpipe-v\" would do");
  EXPECT_EQ(with("[layout]", "schedule = \"zb-v\"\nchunks = 2"),
            layout +
                "12: error: schedule = \"zb-v\" is PyTorch's, and Megatron has no such\n  hint: name = "
                "\"torchtitan\" in [runtime], or \"interleaved\"");
  for (const char* line :
       {"precision = \"fp8-hybrid\"", "master_dtype = \"fp16\"", "moment_dtypes = [\"bf16\", \"bf16\"]"}) {
    EXPECT_NE(with("[train]", line).find("not modelled yet"), std::string::npos) << line;
  }
  EXPECT_EQ(problems_of(std::string(job) + "[offload]\noptimizer = \"nvme\""),
            "job.toml:21:13: error: optimizer = \"nvme\" is not modelled yet\n  hint: \"none\" or \"cpu\" would do");
}

TEST(ScenarioReader, KeysThatAskForNothingAreAccepted) {
  EXPECT_EQ(with("[layout]",
                 "context = 1\ncontext_kind = \"p2p\"\nexpert = 1\nexpert_tensor = 1\nchunks = 1\nschedule = \"1f1b\"\n"
                 "order = \"tp-cp-ep-dp-pp\"\ndata = 2"),
            "no problem");
  EXPECT_EQ(
      with("[train]",
           "precision = \"bf16\"\nmaster_dtype = \"fp32\"\nmoment_dtypes = [\"fp32\", \"fp32\"]\nrecompute = \"none\"\n"
           "recompute_layers = 0\nrecompute_modules = []\nattention = \"auto\"\nsteps = 2\noptimizer = \"adamw\""),
      "no problem");
  EXPECT_EQ(
      problems_of(
          std::string(job) +
          "[offload]\noptimizer = \"none\"\noptimizer_fraction = 0.0\nparameters = \"none\"\nactivations = \"none\""),
      "no problem");
}

TEST(ScenarioReader, UnknownKeysComeWithASuggestion) {
  EXPECT_EQ(problems({{"micro_batch = 1", "micro_batchs = 1"}}),
            "job.toml:10:1: error: micro_batch is missing in [train]\n  hint: give a whole number\n"
            "job.toml:12:1: error: unknown key \"micro_batchs\" in [train]\n  hint: did you mean micro_batch?");
  EXPECT_EQ(problems({{"[layout]", "[layuot]"}, {"pipeline = 4", "pipeline = 1"}}).substr(0, 69),
            "job.toml:5:2: error: unknown key \"layuot\"\n  hint: did you mean layout");
  EXPECT_EQ(with("[runtime]", "versions = {pytorch = \"2.9\"}"),
            "job.toml:19:13: error: unknown key \"pytorch\" in [runtime.versions]\n  hint: did you mean torch?");
  const std::string quoted = problems_of("\"train.recompute\" = \"none\"\ntensor = 2\n" + std::string(job));
  EXPECT_NE(quoted.find("unknown key \"train.recompute\"\n  hint: did you mean train.recompute without quotes?"),
            std::string::npos)
      << quoted;
  EXPECT_NE(quoted.find("unknown key \"tensor\"\n  hint: did you mean layout.tensor?"), std::string::npos) << quoted;
}

TEST(ScenarioReader, TakesShippedModelsByTheirNamesAlone) {
  const std::string named = problems({{"\"models/llama-3.1-70b.json\"", "\"nemotron-h-8b\""}});
  EXPECT_EQ(named.find("neither in the scenario's folder"), std::string::npos) << named;
  EXPECT_NE(problems({{"\"models/llama-3.1-70b.json\"", "\"nemotron-h-9b\""}}).find("neither"), std::string::npos);
}

TEST(ScenarioReader, AllProblemsAreReportedAtOnce) {
  EXPECT_EQ(
      problems_of(R"(model = "models/llama-3.1-7b.json"
cluster = 5
gpus = 0
color = "blue"
[layout]
tensor = "two"
sharding = "zero9"
[train]
sequence_length = 4096.5
steps = 1
[runtime]
headroom = 2
)"),
      "job.toml:1:9: error: model = \"models/llama-3.1-7b.json\" is neither in the scenario's folder nor in the data "
      "root\n"
      "  hint: did you mean \"models/llama-3.1-70b.json\"?\n"
      "job.toml:2:11: error: cluster takes a text between quotes, not 5\n"
      "  hint: between quotes: cluster = \"...\"\n"
      "job.toml:3:8: error: gpus = 0 is out of range\n"
      "  hint: 1 to 1048576 would do\n"
      "job.toml:4:1: error: unknown key \"color\"\n"
      "  hint: known here: adapter, calibration, cluster, gpus, layers, layout, model, model_override, moe, offload, "
      "quantization, rollout, run, "
      "runtime or train\n"
      "job.toml:6:10: error: tensor takes a whole number, not \"two\"\n"
      "  hint: 1 to 1048576 would do\n"
      "job.toml:7:12: error: sharding = \"zero9\" is not known\n"
      "  hint: \"none\", \"zero1\", \"zero2\" or \"zero3\" would do\n"
      "job.toml:8:1: error: micro_batch is missing in [train]\n"
      "  hint: give a whole number\n"
      "job.toml:9:19: error: sequence_length takes a whole number, not 4096.5\n"
      "  hint: 1 to 16777216 would do\n"
      "job.toml:10:9: error: steps = 1 is out of range\n"
      "  hint: 2 to 64 would do\n"
      "job.toml:12:12: error: headroom takes a text with a unit, not 2\n"
      "  hint: such as \"80 GiB\", \"512 MiB\" or \"8519680 B\"");
}

TEST(ScenarioReader, ProblemsOfTheModelStandWithTheScenarios) {
  EXPECT_EQ(
      problems({{"[model_override]", "[model_override]\nnum_hidden_layers = 0\nnum_experts = 8\nrope_scaling = []"},
                {"gpus = 64", "gpus = 65"}}),
      "job.toml:3:8: error: gpus = 65 is not a multiple of tensor x pipeline = 8 x 4 = 32\n  hint: 64 or 96 would\n"
      "job.toml:5:21: error: num_hidden_layers: 0 is out of range\n  hint: 1 to 4096 would do\n"
      "job.toml:6:15: error: num_experts: mixture of experts is not modelled in this family\n"
      "job.toml:7:16: error: rope_scaling takes a number, a text, true or false, not []\n"
      "  hint: other values go into a config.json of your own");
}

TEST(ScenarioReader, SyntaxErrorsHaveAPlace) {
  EXPECT_EQ(problems({{"gpus = 64", "gpus = "}}).substr(0, 21), "job.toml:3:8: error: ");
  EXPECT_EQ(problems({{"gpus = 64", "gpus = 64\ngpus = 64"}}).substr(0, 21), "job.toml:4:8: error: ");
  EXPECT_EQ(problems({{"[layout]", "[$layout]"}}).substr(0, 21), "job.toml:5:2: error: ");
  EXPECT_EQ(problems({{"gpus = 64", "gpus = 99999999999999999999"}}).substr(0, 15), "job.toml:3:28: ");
}

TEST(ScenarioReader, CharactersBeyondAsciiBelongInCommentsAndStrings) {
  EXPECT_EQ(problems({{"gpus = 64", "gpus = 64  # caf\u00e9 \u02cb"}}), "no problem");
  EXPECT_EQ(problems({{"\"megatron\"", "\"m\u00e9gatron\u02cb\""}}),
            "job.toml:19:8: error: name = \"m\u00e9gatron\u02cb\" is not known\n  hint: \"megatron\", \"pytorch\", "
            "\"fsdp2\", \"fsdp\", \"torchtitan\" or \"deepspeed\" would do");
  // Of each of these toml++ asks whether it is white space, and has no answer in its tables.
  const auto error = [](const std::string& from, const std::string& to) {
    const std::string all = problems({{from, to}});
    return all.substr(0, all.find(" while parsing"));
  };
  EXPECT_EQ(error("gpus = 64", "gpus\u02cb = 64"), "job.toml:3:5: error: Error");
  EXPECT_EQ(error("\"megatron\"", "\"\u00e9\" \u00a0"), "job.toml:19:12: error: Error");
  EXPECT_EQ(error("\"megatron\"", "\"\"\"a\\\u02cb\"\"\""), "job.toml:19:13: error: Error");
  EXPECT_EQ(error("\"megatron\"", "\"\"\"a\"\"\"\"\"\u02cb"), "job.toml:19:17: error: Error");
  EXPECT_EQ(error("gpus = 64", "gpus = 64\"h100\u00cc\""), "job.toml:3:10: error: Error");
  EXPECT_EQ(error("gpus = 64", "gpus = 64 'h100\u00cc'"), "job.toml:3:11: error: Error");
  EXPECT_EQ(error("gpus = 64", "gpus = 4\bs='\u00cc'"), "job.toml:3:9: error: Error");
  EXPECT_EQ(problems({{"\"megatron\"", "\"\"\"m\u00e9gatron\u02cb\"\"\""}}),
            "job.toml:19:8: error: name = \"m\u00e9gatron\u02cb\" is not known\n  hint: \"megatron\", \"pytorch\", "
            "\"fsdp2\", \"fsdp\", \"torchtitan\" or \"deepspeed\" would do");
  EXPECT_EQ(problems({{"model =", "\ufeffmodel ="}}), "no problem");
}

TEST(ScenarioReader, ExtremesAreInputErrors) {
  for (const char* value : {"-1", "0", "9223372036854775807", "-9223372036854775808", "nan", "inf", "1e300",
                            "1979-05-27", "[64]", "{a = 1}", "true", "\"64\""}) {
    EXPECT_NE(problems({{"gpus = 64", "gpus = " + std::string(value)}}), "no problem") << value;
    EXPECT_NE(problems({{"tensor = 8", "tensor = " + std::string(value)}}), "no problem") << value;
    EXPECT_NE(problems({{"= 8192", "= " + std::string(value)}}), "no problem") << value;
  }
  EXPECT_NE(problems_of(""), "no problem");
  EXPECT_NE(problems_of(std::string("\0\1\2\xff", 4)), "no problem");
  EXPECT_NE(problems_of("layout = " + std::string(10000, '[')), "no problem");
  EXPECT_NE(problems({{"models/llama-3.1-70b.json", ""}}), "no problem");
  EXPECT_NE(problems({{"models/llama-3.1-70b.json", "/dev/zero"}}), "no problem");
  EXPECT_NE(problems({{"models/llama-3.1-70b.json", "a\\u0000b"}}), "no problem");
  EXPECT_NE(problems({{"models/llama-3.1-70b.json", std::string(10000, 'a')}}), "no problem");
  EXPECT_THROW(read_scenario("no/such/scenario.toml", folders.data_root), InputError);
}

TEST(ScenarioReader, JobsBeyond64BitsAreRefused) {
  EXPECT_EQ(problems({{"= 8192", "= 16777216"},
                      {"micro_batch = 1", "micro_batch = 4096"},
                      {"= 128", "= 8192"},
                      {"[model_override]",
                       "[model_override]\nvocab_size = 4194304\nhidden_size = 262144\nintermediate_size = "
                       "1048576\nhead_dim = 128"}}),
            "job.toml:15:19: error: the job is too large to simulate: one rank could need more than an exabyte");
  EXPECT_EQ(problems({{"= 128", "= 16777216"}}),
            "job.toml:13:16: error: the job is too long to simulate: 335544320 passes through a layer on one rank\n"
            "  hint: at most 1048576 would do: fewer sequences, or fewer steps");
}

TEST(ScenarioReader, FilesOfTheScenariosOwnFolderComeFirst) {
  const std::filesystem::path own = std::filesystem::path(testing::TempDir()) / "own_folder";
  std::filesystem::create_directories(own / "models");
  std::filesystem::copy_file(source / "scenarios/models/llama-3.1-8b.json", own / "models/llama-3.1-70b.json",
                             std::filesystem::copy_options::overwrite_existing);
  const Scenario s = parse_scenario(job, "job.toml", {own, source / "scenarios"});
  EXPECT_EQ(s.model.hidden, 4096);
  EXPECT_EQ(s.model.name, "llama-3.1-70b");
}

TEST(ScenarioReader, AModelOfAnotherSizeHasNotTheNameOfItsFile) {
  const auto name_with = [](const std::string& key) {
    const std::string table = "[model_override]\n";
    std::string text(job);
    text.insert(text.find(table) + table.size(), key + '\n');
    return parse_scenario(text, "job.toml", {source, source / "scenarios"}).model.name;
  };
  EXPECT_EQ(name_with("num_hidden_layers = 40"), "resized llama-3.1-70b");
  EXPECT_EQ(name_with("num_hidden_layers = 80"), "llama-3.1-70b");
  EXPECT_EQ(name_with("vocab_size = 128512"), "llama-3.1-70b");
}

}  // namespace
}  // namespace tidemark::tests::scenario_reader_test
