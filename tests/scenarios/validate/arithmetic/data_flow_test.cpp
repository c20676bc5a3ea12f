// The lint over data flow finds nothing in the programs of any framework but what its source does too.

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/predict/job.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/validate/flow_check.hpp"
#include "tests/scenarios/folders.hpp"
#include "tests/scenarios/random_layout.hpp"
#include "tests/seeds.hpp"

namespace tidemark::tests::data_flow_test {
namespace {

namespace fs = std::filesystem;

// What is met on the way, of what is known.
std::set<const KnownFlow*>& met() {
  static std::set<const KnownFlow*> all;
  return all;
}

// Lines that nobody can explain, of the shortest programs that show all that the first and the last of a stage's ranks
// do.
std::string unexplained(const Scenario& requested) {
  const Scenario scenario = resolved_scenario(requested);
  const Runtime runtime = runtime_of(scenario);
  const BuiltModel built = build_model(scenario.model, model_options_of(scenario));
  const LoweringInput input{built, scenario.layout, scenario.train, runtime};
  const std::vector<Role> all = roles(input);
  Workload workload{
      {}, std::vector<std::int32_t>(static_cast<std::size_t>(scenario.gpus)), communicators_of(input).table};
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::int32_t stage = all[r].first.pipeline;
    const bool first = r == 0 || all[r - 1].first.pipeline != stage,
               last = r + 1 == all.size() || all[r + 1].first.pipeline != stage;
    if (first || last) workload.programs.push_back(lower_shortest(input, all[r]));
    for (const Rank rank : all[r].ranks)
      workload.program_of_rank[rank.index()] = static_cast<std::int32_t>(workload.programs.size()) - 1;
  }
  std::string lines;
  for (const FlowNote& note : flow_check(workload, flows_of(runtime))) {
    met().insert(known_flow(note.finding, flows_of(runtime)));
    if (scenario.train.rollout) met().insert(known_flow(note.finding, FlowsOf::Rollouts));
    if (note.reason.empty()) lines += text(note) + '\n';
  }
  return lines;
}

std::string unexplained(const std::string& text) { return unexplained(parse_scenario(text, "job.toml", folders)); }

std::vector<fs::path> scenario_files() {
  std::vector<fs::path> files;
  for (const char* folder : {"tests/golden", "tests/validate", "scenarios/examples"})
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(source / folder))
      // Not of jobs that people reported: not all of their flows have been looked at.
      if (entry.path().extension() == ".toml" && entry.path().parent_path().filename() != "reports")
        files.push_back(entry.path());
  std::ranges::sort(files);
  if (every_case()) return files;
  // By push one in ten: the other tests of this file have each framework and feature.
  std::vector<fs::path> some;
  for (std::size_t i = 0; i < files.size(); i += 10) some.push_back(files[i]);
  return some;
}

TEST(DataFlowOfJobs, IsExplainedInAllScenariosThatAreMeasured) {
  int tried = 0;
  for (const fs::path& file : scenario_files()) {
    std::optional<Scenario> scenario;
    try {
      scenario = read_scenario(file, source / "scenarios");
    } catch (const InputError&) {
      continue;  // a table of measurements
    }
    ++tried;
    EXPECT_EQ(unexplained(*scenario), "") << file;
  }
  EXPECT_GT(tried, every_case() ? 120 : 12);
}

TEST(DataFlowOfJobs, IsExplainedInGeneratedJobs) {
  int tried = 0;
  for (std::uint32_t seed = 1; seed <= 120; seed += seed_step())
    if (const std::optional<Scenario> scenario = random_scenario(seed)) {
      ++tried;
      ASSERT_EQ(unexplained(*scenario), "") << "seed " << seed;
    }
  EXPECT_GT(tried, seeds(30));
}

TEST(DataFlowOfJobs, IsExplainedUnderTransformersTrainer) {
  for (const char* runtime : {"pytorch", "fsdp", "fsdp2", "deepspeed"})
    EXPECT_EQ(unexplained(fmt::format(
                  "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\ngpus = 2\n"
                  "[layout]\nsharding = \"{}\"\n[model_override]\nnum_hidden_layers = 2\n[train]\nsequence_length = "
                  "64\nmicro_batch = 1\n"
                  "[runtime]\nname = \"{}\"\n[runtime.switches]\nlogging_nan_inf_filter = true\n",
                  std::string_view(runtime) == "pytorch" ? "none" : "zero3", runtime)),
              "")
        << runtime;
}

TEST(DataFlowOfJobs, IsExplainedOfTransformersExperts) {
  for (const char* model : {"mixtral-8x7b", "qwen3-30b-a3b", "qwen2-57b-a14b"})
    for (const char* transformers : {"4.51", "4.57", "5.4", "5.6", "5.10", "5.23"})
      for (const char* runtime : {"pytorch", "fsdp2", "deepspeed"}) {
        const bool shards = std::string_view(runtime) != "pytorch";
        EXPECT_EQ(
            unexplained(fmt::format(
                "model = \"models/{}.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = {}\n"
                "[layout]\nsharding = \"{}\"\n[model_override]\nnum_hidden_layers = 2\n[train]\nsequence_length "
                "= 512\nmicro_batch = 1\nmaster_dtype = \"{}\"\n[runtime]\nname = \"{}\"\n"
                "versions = {{ torch = \"2.15\", transformers = \"{}\" }}\n[runtime.switches]\nuse_cache = false\n",
                model, shards ? 2 : 1, shards ? "zero3" : "none", shards ? "fp32" : "bf16", runtime, transformers)),
            "")
            << model << ", " << transformers << ", " << runtime;
      }
}

TEST(DataFlowOfJobs, IsExplainedUnderEachOptimizer) {
  for (const char* optimizer :
       {"adafactor", "muon", "adamw_8bit", "lion_32bit", "lion_8bit", "paged_adamw_32bit", "sgd_momentum"})
    for (const char* switches : {"", "foreach = false", "adafactor = \"torch\"", "use_liger_kernel = true"}) {
      const bool of_torch = std::string_view(switches).starts_with("adafactor");
      if (of_torch && std::string_view(optimizer) != "adafactor") continue;
      const std::string text = fmt::format(
          "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\ngpus = 1\n"
          "[model_override]\nnum_hidden_layers = 2\n[train]\nsequence_length = 64\nmicro_batch = 1\n"
          "master_dtype = \"bf16\"\noptimizer = \"{}\"\n[runtime]\nname = \"pytorch\"\n[runtime.switches]\n{}\n",
          optimizer, switches);
      EXPECT_EQ(unexplained(text), "") << optimizer << ", " << switches;
    }
}

TEST(DataFlowOfJobs, IsExplainedOfEachKernelOfAttention) {
  for (const char* cluster : {"a100-sxm-80g", "h100-sxm-80g"})
    for (const char* torch : {"2.9", "2.11", "2.14", "2.15"})
      for (const char* precision : {"fp32", "bf16"})
        for (const char* dropout : {"0.0", "0.1"})
          for (const char* window : {"8", "4096"}) {
            const std::string text = fmt::format(
                "model = \"models/mistral-7b-v0.1.json\"\ncluster = \"clusters/{}.toml\"\ngpus = 1\n"
                "[model_override]\nnum_hidden_layers = 2\nsliding_window = {}\n[train]\nsequence_length = 64\n"
                "micro_batch = 1\nprecision = \"{}\"\nattention_dropout = {}\n[runtime]\nname = \"pytorch\"\n"
                "versions = {{ torch = \"{}\" }}\n",
                cluster, window, precision, dropout, torch);
            EXPECT_EQ(unexplained(text), "") << text;
          }
}

TEST(DataFlowOfJobs, IsExplainedOfTorchtitansExperts) {
  for (const char* keys : {"recompute = \"none\"", "recompute = \"full\"", "recompute = \"selective\"",
                           "[layout]\nexpert = 2", "recompute = \"full\"\n[layout]\nexpert = 4", "[layout]\ntensor = 2",
                           "recompute = \"full\"\n[layout]\ntensor = 2", "[layout]\ntensor = 2\nexpert = 2",
                           "recompute = \"full\"\n[layout]\ntensor = 2\nexpert = 4",
                           "[layout]\ntensor = 2\nexpert = 2\nexpert_tensor = 2"}) {
    const std::string text = fmt::format(
        "model = \"models/qwen3-30b-a3b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 4\n"
        "[model_override]\nnum_hidden_layers = 2\nnum_experts = 8\n[train]\nsequence_length = 64\nmicro_batch = 1\n"
        "{}\n[moe]\nimbalance = {{ zipf = 0.5, seed = 1 }}\n[runtime]\nname = \"torchtitan\"\n"
        "versions = {{ torch = \"2.15\", torchtitan = \"0.2.2\" }}\n",
        keys);
    EXPECT_EQ(unexplained(text), "") << keys;
  }
}

TEST(DataFlowOfJobs, IsExplainedOfTorchtitanInFp32) {
  for (const char* layout : {"tensor = 4", "pipeline = 4", "data = 4"})
    for (const char* recompute : {"none", "full", "selective"}) {
      const std::string text = fmt::format(
          "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 4\n"
          "[model_override]\nnum_hidden_layers = 4\n[layout]\n{}\n[train]\nsequence_length = 64\n"
          "micro_batch = 1\nglobal_batch = 16\nrecompute = \"{}\"\nprecision = \"fp32\"\n[runtime]\n"
          "name = \"torchtitan\"\nversions = {{ torch = \"2.15\", torchtitan = \"0.2.2\" }}\n",
          layout, recompute);
      EXPECT_EQ(unexplained(text), "") << layout << ", " << recompute;
    }
}

TEST(DataFlowOfJobs, IsExplainedOfTorchtitansReplicas) {
  for (const char* recompute : {"none", "full", "selective"})
    for (const char* release : {"0.1", "0.2", "0.2.2"}) {
      const std::string text = fmt::format(
          "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 2\n"
          "[model_override]\nnum_hidden_layers = 3\n[layout]\nsharding = \"none\"\n[train]\n"
          "sequence_length = 64\nmicro_batch = 1\nglobal_batch = 4\nrecompute = \"{}\"\n[runtime]\n"
          "name = \"torchtitan\"\nversions = {{ torch = \"2.15\", torchtitan = \"{}\" }}\n",
          recompute, release);
      EXPECT_EQ(unexplained(text), "") << recompute << ", " << release;
    }
}

TEST(DataFlowOfJobs, IsExplainedOfTorchtitanOnOneDevice) {
  for (const char* model : {"llama-3.1-8b", "qwen3-8b"})
    for (const char* recompute : {"none", "full", "selective"})
      for (const char* release : {"0.1", "0.2", "0.2.2"}) {
        if (std::string_view(model) == "qwen3-8b" && std::string_view(release) == "0.1") continue;
        const std::string text = fmt::format(
            "model = \"models/{}.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 1\n"
            "[model_override]\nnum_hidden_layers = 3\n[train]\nsequence_length = 64\nmicro_batch = 1\n"
            "global_batch = 2\nrecompute = \"{}\"\n[runtime]\nname = \"torchtitan\"\n"
            "versions = {{ torch = \"2.15\", torchtitan = \"{}\" }}\n",
            model, recompute, release);
        EXPECT_EQ(unexplained(text), "") << model << ", " << recompute << ", " << release;
      }
}

TEST(DataFlowOfJobs, IsExplainedOfTorchtitansExpertsInPipelines) {
  for (const char* model : {"qwen3-30b-a3b", "deepseek-v2-lite"})
    for (const char* layout : {"", "schedule = \"interleaved\"", "expert = 2"}) {
      const std::string text = fmt::format(
          "model = \"models/{}.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 4\n"
          "[model_override]\nnum_hidden_layers = 4\n{}\n[layout]\npipeline = 2\n{}\n"
          "[train]\nsequence_length = 64\nmicro_batch = 1\nglobal_batch = 8\nrecompute = \"full\"\n"
          "[runtime]\nname = \"torchtitan\"\nversions = {{ torch = \"2.15\", torchtitan = \"0.2.2\" }}\n",
          model, std::string_view(model).starts_with("qwen3") ? "num_experts = 8" : "n_routed_experts = 8", layout);
      EXPECT_EQ(unexplained(text), "") << model << ", " << layout;
    }
}

// With a latent of queries, without, and with none at all.
TEST(DataFlowOfJobs, IsExplainedOfTorchtitansTensorsInParts) {
  struct Kind {
    const char *name, *sizes;
  };
  for (const Kind kind :
       {Kind{"deepseek-v2-lite", "n_routed_experts = 16\n"},
        Kind{"deepseek-v3", "n_routed_experts = 16\nnum_nextn_predict_layers = 0\n"}, Kind{"llama-3.1-8b", ""}})
    for (const char* recompute : {"none", "full", "selective"})
      for (const char* layout : {"", "pipeline = 2\n"})
        for (const int sequences : {1, 2}) {
          const std::string text = fmt::format(
              "model = \"models/{}.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n"
              "[model_override]\nnum_hidden_layers = 5\n{}[layout]\ntensor = 2\n{}"
              "[train]\nsequence_length = 64\nmicro_batch = {}\nglobal_batch = 16\nrecompute = \"{}\"\n"
              "[runtime]\nname = \"torchtitan\"\nversions = {{ torch = \"2.15\", torchtitan = \"0.2.2\" }}\n",
              kind.name, kind.sizes, layout, sequences, recompute);
          EXPECT_EQ(unexplained(text), "") << kind.name << ", " << recompute << ", " << layout << sequences;
        }
}

TEST(DataFlowOfJobs, IsExplainedOfTorchtitansSharedOutExpertsInParts) {
  for (const char* name : {"deepseek-v2-lite", "deepseek-v3"})
    for (const char* recompute : {"none", "full"})
      for (const char* parts : {"1", "2"}) {
        const std::string text = fmt::format(
            "model = \"models/{}.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n"
            "[model_override]\nnum_hidden_layers = 4\nfirst_k_dense_replace = 3\nn_routed_experts = 16\n"
            "num_nextn_predict_layers = 0\n[layout]\ntensor = 2\nexpert = 4\nexpert_tensor = {}\n"
            "[train]\nsequence_length = 64\nmicro_batch = 2\nglobal_batch = 16\nrecompute = \"{}\"\n"
            "[runtime]\nname = \"torchtitan\"\nversions = {{ torch = \"2.15\", torchtitan = \"0.2.2\" }}\n",
            name, parts, recompute);
        EXPECT_EQ(unexplained(text), "") << name << ", " << recompute << ", " << parts;
      }
}

TEST(DataFlowOfJobs, IsExplainedOfTorchtitansPipelines) {
  for (const char* versions : {"torch = \"2.15\", torchtitan = \"0.2.2\"", "torch = \"2.11\", torchtitan = \"0.2.1\"",
                               "torch = \"2.10\", torchtitan = \"0.2\""})
    for (const char* layout :
         {"", "schedule = \"gpipe\"", "schedule = \"interleaved\"", "schedule = \"looped-bfs\"", "tensor = 2"})
      for (const char* recompute : {"none", "full", "selective"}) {
        const std::string text = fmt::format(
            "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n"
            "[model_override]\nnum_hidden_layers = 4\n[layout]\npipeline = 2\n{}\n[train]\nsequence_length = 64\n"
            "micro_batch = 1\nglobal_batch = 16\nrecompute = \"{}\"\n[runtime]\nname = \"torchtitan\"\n"
            "versions = {{ {} }}\n",
            layout, recompute, versions);
        EXPECT_EQ(unexplained(text), "") << layout << ", " << recompute << ", " << versions;
      }
}

TEST(DataFlowOfJobs, IsExplainedOfTorchtitansPartedPasses) {
  for (const char* schedule : {"interleaved-zb", "zb-v", "dualpipe-v"})
    for (const char* ranks : {"", "tensor = 2"}) {
      const std::string text = fmt::format(
          "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n"
          "[model_override]\nnum_hidden_layers = 4\n[layout]\npipeline = 2\nschedule = \"{}\"\n{}\n[train]\n"
          "sequence_length = 64\nmicro_batch = 1\nglobal_batch = 16\n[runtime]\nname = \"torchtitan\"\n"
          "versions = {{ torch = \"2.15\", torchtitan = \"0.2.2\" }}\n[runtime.switches]\n"
          "pipeline_parallel_expert_parallel_overlap = false\n",
          schedule, ranks);
      EXPECT_EQ(unexplained(text), "") << schedule << ", " << ranks;
    }
}

TEST(DataFlowOfJobs, IsExplainedOfTorchtitansDeepSeek) {
  struct Kind {
    const char *name, *sizes;
  };
  for (const Kind kind : {Kind{"deepseek-v2-lite", ""},
                          Kind{"deepseek-v3", "n_group = 4\ntopk_group = 2\nnum_nextn_predict_layers = 0\n"}})
    for (const char* keys :
         {"recompute = \"none\"", "recompute = \"full\"", "recompute = \"selective\"", "[layout]\nexpert = 2",
          "recompute = \"full\"\n[layout]\nexpert = 4", "recompute = \"selective\"\n[layout]\nexpert = 4"}) {
      const std::string text = fmt::format(
          "model = \"models/{}.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 4\n"
          "[model_override]\nnum_hidden_layers = 2\nn_routed_experts = 8\nnum_experts_per_tok = 2\n"
          "first_k_dense_replace = 1\n{}[train]\nsequence_length = 64\nmicro_batch = 1\n{}\n"
          "[moe]\nimbalance = {{ zipf = 0.5, seed = 1 }}\n[runtime]\nname = \"torchtitan\"\n"
          "versions = {{ torch = \"2.12\", torchtitan = \"0.2.2\" }}\n",
          kind.name, kind.sizes, keys);
      EXPECT_EQ(unexplained(text), "") << kind.name << ", " << keys;
    }
}

TEST(DataFlowOfJobs, IsExplainedOfFurtherTokens) {
  for (const char* tied : {"false", "true"})
    for (const char* layout : {"context = 4\n", "context = 2\npipeline = 2\n", "pipeline = 2\nexpert = 2\n"})
      for (const int sequences : {1, 2}) {
        const std::string text = fmt::format(
            "model = \"models/glm-4.5.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 4\n"
            "[model_override]\nnum_hidden_layers = 4\nfirst_k_dense_replace = 3\nn_routed_experts = 8\n"
            "num_nextn_predict_layers = 2\ntie_word_embeddings = {}\n[layout]\n{}"
            "[train]\nsequence_length = 64\nmicro_batch = {}\nglobal_batch = 8\n"
            "[runtime]\nname = \"megatron\"\n[runtime.switches]\nmoe-router-dtype = \"fp64\"\n",
            tied, layout, sequences);
        EXPECT_EQ(unexplained(text), "") << tied << ", " << layout << sequences;
      }
}

// The vocabulary's rows leave some ranks a row less than others: what they get of a reduction ends in padding.
TEST(DataFlowOfJobs, IsExplainedOfShardsOfUnlikeLength) {
  EXPECT_EQ(unexplained("model = \"models/llama-3.1-405b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 512\n"
                        "[model_override]\nnum_hidden_layers = 2\n[train]\nsequence_length = 64\nmicro_batch = 1\n"
                        "precision = \"bf16\"\nrecompute = \"full\"\n[runtime]\nname = \"torchtitan\"\n"
                        "versions = { torch = \"2.15\", torchtitan = \"0.2.2\" }\n"),
            "");
}

TEST(DataFlowOfJobs, IsExplainedUnderChoicesOfDeepSpeed) {
  struct Choice {
    const char *sharding, *switches;
  };
  for (const Choice& choice : {Choice{"zero1", "grad_accum_dtype = \"fp32\"\ngradient_clipping = 1.0"},
                               Choice{"zero3", "zero_hpz_partition_size = 2\nstage3_max_reuse_distance = 300000000"}}) {
    const std::string text = fmt::format(
        "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\ngpus = 4\n"
        "[model_override]\nnum_hidden_layers = 2\n[layout]\nsharding = \"{}\"\n[train]\nsequence_length = 64\n"
        "micro_batch = 1\nglobal_batch = 8\nprecision = \"bf16\"\n[runtime]\nname = \"deepspeed\"\n"
        "[runtime.switches]\n{}\n",
        choice.sharding, choice.switches);
    EXPECT_EQ(unexplained(text), "") << choice.sharding << ", " << choice.switches;
  }
}

TEST(DataFlowOfJobs, IsExplainedOfQuantizedBasesUnderStage3) {
  for (const char* format : {"nf4", "int8"})
    for (const char* switches : {"use_reentrant = true", "use_reentrant = false\nzero_hpz_partition_size = 2"}) {
      const std::string text = fmt::format(
          "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\ngpus = 4\n"
          "[model_override]\nnum_hidden_layers = 2\n[layout]\nsharding = \"zero3\"\n[train]\nsequence_length = 64\n"
          "micro_batch = 1\nglobal_batch = 8\nprecision = \"bf16\"\nrecompute = \"full\"\n"
          "[adapter]\ntarget_modules = \"all-linear\"\n[quantization]\nformat = \"{}\"\n"
          "[runtime]\nname = \"deepspeed\"\nversions = {{ bitsandbytes = \"0.50\" }}\n[runtime.switches]\n{}\n",
          format, switches);
      EXPECT_EQ(unexplained(text), "") << format << ", " << switches;
    }
}

// What no job shows any more is not known any more. (The tests above run before, in one process.)
TEST(DataFlowOfJobs, NothingIsKnownThatNobodyMeets) {
  if (met().empty() || !every_case()) GTEST_SKIP() << "run with every case of the other tests of DataFlowOfJobs";
  for (const FlowsOf framework :
       {FlowsOf::Megatron, FlowsOf::OffloadedLayers, FlowsOf::ModuleOffload, FlowsOf::PyTorch, FlowsOf::Rollouts})
    for (const KnownFlow& known : known_flows(framework))
      EXPECT_TRUE(met().contains(&known))
          << fmt::format("{} {}, {} until {}: {}", name(known.kind), known.tensor, known.at, known.until, known.reason);
}

}  // namespace
}  // namespace tidemark::tests::data_flow_test
