#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/io/input_error.hpp"
#include "scenarios/io/scenario_reader.hpp"
#include "scenarios/prediction.hpp"
#include "sim/verify.hpp"
#include "tests/namespace.hpp"

// Runtime "pytorch": the scenario's keys, and programs against what a reader of PyTorch's sources expects.

namespace tidemark::tests {
namespace {

const std::filesystem::path source = TIDEMARK_SOURCE_DIR;

struct Asked {
  std::string model = "llama-2-7b", override_keys = "num_hidden_layers = 2\nvocab_size = 4096";
  std::string train{}, switches{};
  int gpus = 1, global_batch = 2, micro_batch = 2, sequence = 512;
};

std::string text_of(const Asked& a) {
  return fmt::format(
      "model = \"models/{}.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\ngpus = {}\n[model_override]\n{}\n"
      "[train]\nsequence_length = {}\nmicro_batch = {}\nglobal_batch = {}\n{}\n[runtime]\nname = \"pytorch\"\n"
      "[runtime.switches]\n{}\n",
      a.model, a.gpus, a.override_keys, a.sequence, a.micro_batch, a.global_batch, a.train, a.switches);
}

Scenario parsed(const Asked& a) {
  return parse_scenario(text_of(a), "job.toml", {source / "scenarios/examples", source / "scenarios"});
}

std::string problems(const Asked& a) {
  try {
    (void)parsed(a);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no problem";
}

Program program_of(const Asked& a) {
  const Job job(parsed(a));
  const Program program = lower_role(job.lowering(), job.roles.front());
  EXPECT_TRUE(verify(program).empty());
  EXPECT_EQ(job.roles.size(), 1U);
  return program;
}

const std::string pure = "master_dtype = \"bf16\"";
const std::string no_cache = "use_cache = false";

// Bytes asked for in one step of what `counts` accepts.
template <class Counts>
std::int64_t allocated(const Program& program, int step, Counts counts) {
  std::int64_t bytes = 0;
  int now = 0;
  for (const Op& op : program.ops) {
    if (const Mark* mark = std::get_if<Mark>(&op)) now = mark->step;
    const Alloc* alloc = std::get_if<Alloc>(&op);
    if (alloc != nullptr && now == step && counts(program[alloc->label], alloc->category)) bytes += alloc->size.count();
  }
  return bytes;
}
std::int64_t allocated(const Program& program, int step, Category category) {
  return allocated(program, step, [&](const std::string&, Category c) { return c == category; });
}

int gemms(const Program& program, int step) {
  int count = 0, now = 0;
  for (const Op& op : program.ops) {
    if (const Mark* mark = std::get_if<Mark>(&op)) now = mark->step;
    const Launch* launch = std::get_if<Launch>(&op);
    if (launch != nullptr && now == step && std::holds_alternative<Gemm>(program[launch->kernel])) ++count;
  }
  return count;
}

TEST(PyTorch, EveryModelHasTheParametersOfItsGraph) {
  for (const auto& entry : std::filesystem::directory_iterator(source / "scenarios/models")) {
    Asked asked{.model = entry.path().stem().string(), .override_keys = "", .train = pure, .sequence = 64};
    const Scenario scenario = parsed(asked);
    if (scenario.model.activation == Activation::SwiGlu && scenario.model.architecture == "gpt2")
      continue;  // Megatron's
    const Runtime runtime = runtime_of(scenario);
    Scenario small = scenario;
    small.model.layers = 2;
    const ModelGraph graph = build_model(small.model, graph_options_of(small));
    const LoweringInput input{graph, small.layout, small.train, runtime};
    const Program program = lower_role(input, roles(input).front());
    const std::int64_t bytes = allocated(program, 0, [](const std::string& label, Category category) {
      return category == Category::Parameters && label.ends_with(".parameter");
    });
    EXPECT_EQ(bytes, 2 * parameter_count(graph)) << asked.model;
  }
}

TEST(PyTorch, ALayerSavesWhatItsOperationsRead) {
  // Per token, in bytes, with heads of their own keys: two norms of 4h (fp32 copy) + 2h (before the weight) + 2h
  // (after)
  // + 4, attention of 2 x (q + k + v + out) and 4 per head, the MLP's gate, its activation, up and product.
  const auto saved = [](int layers) {
    const Program program =
        program_of({.override_keys = fmt::format("num_hidden_layers = {}\nvocab_size = 4096", layers),
                    .train = pure,
                    .switches = no_cache});
    return allocated(program, 1, Category::SavedActivations);
  };
  const std::int64_t tokens = 2 * 512, hidden = 4096, heads = 32, ffn = 11008;
  const std::int64_t random_state = 24;  // FlashAttention's seed and offset
  EXPECT_EQ(saved(3) - saved(2), tokens * (16 * hidden + 8 + 8 * hidden + 4 * heads + 8 * ffn) + random_state);
}

TEST(PyTorch, ACheckpointedLayerKeepsItsInputAndRunsAgain) {
  const std::string checkpointed = pure + "\nrecompute = \"full\"";
  const Program plain = program_of({.train = pure, .switches = no_cache});
  const Program early = program_of({.train = checkpointed, .switches = no_cache});
  const Program reentrant = program_of({.train = checkpointed, .switches = no_cache + "\nuse_reentrant = true"});
  // Seven products a layer; without reentrance the second run stops before the last, of which nothing is saved but what
  // it reads.
  EXPECT_EQ(gemms(early, 2), gemms(plain, 2) + 2 * 6);
  EXPECT_EQ(gemms(reentrant, 2), gemms(plain, 2) + 2 * 7);
  const std::int64_t hidden = 2 * 512 * 4096 * 2;
  for (const Program* program : {&early, &reentrant}) {
    const std::int64_t layers = allocated(*program, 2, [](const std::string& label, Category category) {
      return category == Category::SavedActivations && label.starts_with("layers.0");
    });
    EXPECT_EQ(layers, hidden);  // its output, the input of the next
    EXPECT_GT(allocated(*program, 2, Category::Recompute), 10 * hidden);
  }
  EXPECT_EQ(allocated(plain, 2, Category::Recompute), 0);
}

TEST(PyTorch, OptimizersMakeTheTemporariesOfTheirKernels) {
  const auto temporaries = [](const std::string& switches) {
    const Program program = program_of({.train = pure, .switches = no_cache + "\nmax_grad_norm = 0\n" + switches});
    return allocated(program, 2, [](const std::string& label, Category) { return label.starts_with("optimizer."); });
  };
  const Scenario scenario = parsed({.train = pure});
  const std::int64_t parameters = 2 * parameter_count(build_model(scenario.model, graph_options_of(scenario)));
  EXPECT_EQ(temporaries("foreach = true"), parameters);
  EXPECT_EQ(temporaries("foreach = false"), 2 * parameters);  // one after the other: a root and a quotient each
  EXPECT_EQ(temporaries("fused = true"), 0);
}

TEST(PyTorch, AutocastConvertsEachWeightOnceInAForwardPass) {
  const Program program = program_of({.switches = no_cache});
  constexpr std::int64_t of_the_mlp = 2 * 4096 * 11008;  // bytes of gate, up and down in bf16
  int conversions = 0;
  for (const Op& op : program.ops) {
    const Alloc* alloc = std::get_if<Alloc>(&op);
    if (alloc != nullptr && alloc->size.count() == of_the_mlp && program[alloc->label].ends_with(".mlp.to"))
      ++conversions;
  }
  EXPECT_EQ(conversions, 2 * 2 * 3);  // steps, layers, matrices
}

TEST(PyTorch, BucketsOfDataParallelismAreMadeAgainInTheOrderOfArrival) {
  const Asked asked{.train = pure, .switches = no_cache + "\nbucket_cap_mb = 25", .gpus = 2, .global_batch = 4};
  const Program program = program_of(asked);
  const auto buckets = [](const std::string& label, Category) { return label == "reducer.bucket"; };
  const Scenario scenario = parsed(asked);
  const std::int64_t parameters = 2 * parameter_count(build_model(scenario.model, graph_options_of(scenario)));
  EXPECT_EQ(allocated(program, 0, buckets), parameters);
  EXPECT_EQ(allocated(program, 1, buckets) + allocated(program, 2, buckets), parameters);
  std::int64_t reduced = 0;
  int now = 0;
  for (const Op& op : program.ops) {
    if (const Mark* mark = std::get_if<Mark>(&op)) now = mark->step;
    if (const Collective* c = std::get_if<Collective>(&op); c != nullptr && now == 2) reduced += c->size.count();
  }
  EXPECT_EQ(reduced, parameters);
  // Views of buckets are no tensors of their own: what gradients take is the buckets.
  Asked views = asked;
  views.switches += "\ngradient_as_bucket_view = true";
  EXPECT_EQ(allocated(program_of(views), 2, Category::CommDp), 0);
}

TEST(PyTorch, EveryModelAndModeRuns) {
  for (const char* model : {"llama-3.1-8b", "qwen3-8b", "gemma-2-9b", "gemma-3-1b", "olmo-2-7b", "pythia-6.9b", "gpt2",
                            "santacoder", "phi-3-mini-4k", "mistral-7b-v0.1"}) {
    for (const char* train : {"", "master_dtype = \"bf16\"", "precision = \"fp16\"", "precision = \"fp32\"",
                              "recompute = \"full\"", "attention = \"unfused\"\nattention_dropout = 0.1"}) {
      SCOPED_TRACE(std::string(model) + " " + train);
      const Asked asked{
          .model = model, .override_keys = "", .train = train, .gpus = 2, .global_batch = 8, .sequence = 128};
      Scenario scenario = parsed(asked);
      scenario.model.layers = 2;
      const Prediction prediction = predict(scenario);
      EXPECT_EQ(prediction.groups.size(), 1U);
      EXPECT_GT(prediction.step.step.count(), 0);
      const Composition& peak = prediction.groups.front().memory.allocated.composition;
      EXPECT_GT(peak[Category::Parameters], Bytes{});
    }
  }
}

TEST(PyTorch, TheHabitsOfOlderTransformersDiffer) {
  Asked asked{.train = pure};
  const std::string now = text_of(asked);
  const auto peak = [&](const std::string& versions) {
    const Scenario s = parse_scenario(now + "[runtime.versions]\n" + versions, "job.toml",
                                      {source / "scenarios/examples", source / "scenarios"});
    return runtime_of(s).eager.value();
  };
  EXPECT_FALSE(peak("transformers = \"5.0\"").reentrant_checkpoint);
  EXPECT_TRUE(peak("transformers = \"4.57\"").reentrant_checkpoint);
  EXPECT_FALSE(peak("transformers = \"4.49\"").shifts_logits);
  EXPECT_TRUE(peak("transformers = \"4.48\"").shifts_logits);
  EXPECT_TRUE(peak("transformers = \"4.48\"").repeats_keys);
}

TEST(PyTorch, WhatPlainPyTorchDoesNotDoIsRefused) {
  EXPECT_EQ(problems({}), "no problem");
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(problems({.train = "recompute = \"selective\""}), "plain PyTorch checkpoints whole layers");
  has(problems({.train = "cross_entropy = \"te\""}), "plain PyTorch computes its loss unfused");
  has(problems({.train = "attention = \"local\""}), "has no attention of that kind");
  has(problems({.train = "master_dtype = \"fp16\""}), "is neither \"fp32\" nor precision");
  has(problems({.train = "gradient_dtype = \"bf16\""}), "keeps gradients in the parameters' own precision");
  has(problems({.train = "[layout]\ntensor = 2", .gpus = 2}), "plain PyTorch cuts no layers");
  has(problems({.train = "[layout]\nsharding = \"zero1\""}), "every rank holds a replica");
  has(problems({.train = "[layout]\nschedule = \"gpipe\""}),
      "job.toml:12:12: error: schedule: plain PyTorch has no stages to schedule\n  hint: leave it out");
  has(problems({.train = "[layout]\nsequence_parallel = true"}), "sequence_parallel: plain PyTorch cuts no layers");
  has(problems({.train = "[layout]\nstage_layers = [2]"}), "stage_layers: plain PyTorch cuts no models");
  has(problems({.switches = "fuzed = true"}), "fuzed");
  has(problems({.switches = "fused = true\nforeach = true"}), "exclude each other");
}

}  // namespace
}  // namespace tidemark::tests
