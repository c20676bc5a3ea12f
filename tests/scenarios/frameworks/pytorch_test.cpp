#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/model_config/config_reader.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "sim/program/verify.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// Runtime "pytorch": the scenario's keys, and programs against what a reader of PyTorch's sources expects.

namespace tidemark::tests::pytorch_test {
namespace {

struct Requested {
  std::string model = "llama-2-7b", override_keys = "num_hidden_layers = 2\nvocab_size = 4096";
  std::string train{}, switches{};
  int gpus = 1, global_batch = 2, micro_batch = 2, sequence = 512;
  std::string cluster = "a100-sxm-80g", torch{};
};

std::string text_of(const Requested& a) {
  return fmt::format(
      "model = \"models/{}.json\"\ncluster = \"clusters/{}.toml\"\ngpus = {}\n[model_override]\n{}\n"
      "[train]\nsequence_length = {}\nmicro_batch = {}\nglobal_batch = {}\n{}\n[runtime]\nname = \"pytorch\"\n{}"
      "[runtime.switches]\n{}\n",
      a.model, a.cluster, a.gpus, a.override_keys, a.sequence, a.micro_batch, a.global_batch, a.train,
      a.torch.empty() ? "" : fmt::format("versions = {{ torch = \"{}\" }}\n", a.torch), a.switches);
}

Scenario parsed(const Requested& a) { return parse_scenario(text_of(a), "job.toml", folders); }

std::string problems(const Requested& a) {
  try {
    (void)parsed(a);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no problem";
}

Program program_of(const Requested& a) {
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
    if (launch != nullptr && now == step && program[launch->kernel].operation == Operation::Matmul) ++count;
  }
  return count;
}

TEST(PyTorch, EveryModelHasTheParametersOfItsGraph) {
  for (const auto& entry : std::filesystem::directory_iterator(source / "scenarios/models")) {
    Requested requested{.model = entry.path().stem().string(), .override_keys = "", .train = pure, .sequence = 64};
    const Model model = read_model(entry.path());
    if (model.experts() || model.latent() || model.hybrid() || model.heterogeneous()) continue;  // Megatron's
    const Scenario scenario = parsed(requested);
    if (scenario.model.activation == Activation::SwiGlu && scenario.model.architecture == "gpt2")
      continue;  // Megatron's
    const Runtime runtime = runtime_of(scenario);
    Scenario small = scenario;
    small.model.layers.resize(2);
    const BuiltModel built = build_model(small.model, model_options_of(small));
    const LoweringInput input{built, small.layout, small.train, runtime};
    const Program program = lower_role(input, roles(input).front());
    const std::int64_t bytes = allocated(program, 0, [](const std::string& label, Category category) {
      return category == Category::Parameters && label.ends_with(".parameter");
    });
    EXPECT_EQ(bytes, 2 * parameter_count(built)) << requested.model;
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

TEST(PyTorch, TheGradientOfTiedEmbeddingsIsSummedOutOfPlaceWhereTheHeadsIsAView) {
  // torch/csrc/autograd/input_buffer.cpp can_accumulate_inplace: the head's comes through TBackward, a view of what
  // mm made; under autocast it is a copy in fp32, and nobody else's.
  const std::int64_t vocabulary = 4096, hidden = 4096;
  const auto sums = [&](const std::string& train, bool tied) {
    const Program program = program_of(
        {.override_keys = fmt::format("num_hidden_layers = 1\nvocab_size = 4096\ntie_word_embeddings = {}", tied),
         .train = train,
         .switches = no_cache});
    return allocated(program, 2, [](const std::string& label, Category) { return label == "add"; });
  };
  const auto of_tying = [&](const std::string& train) { return sums(train, true) - sums(train, false); };
  EXPECT_EQ(of_tying(pure), 2 * vocabulary * hidden);
  EXPECT_EQ(of_tying("precision = \"fp32\""), 4 * vocabulary * hidden);
  EXPECT_EQ(of_tying(""), 0);
}

// What a step saves and makes for the masks of attention: [batch, 1, sequence, sequence].
std::int64_t biases(const std::string& model, const std::string& keys, std::int64_t sequence,
                    const std::string& train = pure) {
  const Program program = program_of({.model = model,
                                      .override_keys = keys,
                                      .train = train,
                                      .switches = no_cache,
                                      .sequence = static_cast<int>(sequence)});
  return allocated(program, 1, [](const std::string& label, Category) {
    return label.find("attention_bias") != label.npos && !label.ends_with("low") && !label.ends_with("zero");
  });
}

TEST(PyTorch, AWindowWithinTheSequenceTakesAMaskAndTheMemoryEfficientKernel) {
  const std::string small = "num_hidden_layers = 4\nvocab_size = 1024\n";
  const std::int64_t batch = 2, half = 2;
  EXPECT_EQ(biases("mistral-7b-v0.1", small + "sliding_window = 256", 512), 4 * batch * 512 * 512 * half);
  EXPECT_EQ(biases("mistral-7b-v0.1", small + "sliding_window = 512", 512), 4 * batch * 512 * 512 * half);
  EXPECT_EQ(biases("mistral-7b-v0.1", small + "sliding_window = 513", 512), 0);
  // Rows of whole 16 bytes: made as they are, and copied.
  EXPECT_EQ(biases("mistral-7b-v0.1", small + "sliding_window = 256", 515), 4 * batch * 515 * (515 + 520) * half);
  EXPECT_EQ(biases("mistral-7b-v0.1", small + "sliding_window = 256", 512, pure + "\nattention = \"flash\""), 0);
  // Gemma 3: five layers of six have a window, here three of four.
  EXPECT_EQ(biases("gemma-3-1b", small + "sliding_window = 256\nsliding_window_pattern = 4", 512),
            3 * batch * 512 * 512 * half);
  // Qwen: from a layer on, where it is asked for.
  const std::string qwen = small + "sliding_window = 256\nmax_window_layers = 1\nuse_sliding_window = ";
  EXPECT_EQ(biases("qwen2.5-7b", qwen + "true", 512), 3 * batch * 512 * 512 * half);
  EXPECT_EQ(biases("qwen2.5-7b", qwen + "false", 512), 0);
}

TEST(PyTorch, WithAMaskKeysAndValuesAreRepeatedForAllHeads) {
  const auto saved = [](int window) {
    const Program program = program_of({.model = "mistral-7b-v0.1",
                                        .override_keys = fmt::format("num_hidden_layers = 1\nvocab_size = 1024\n"
                                                                     "sliding_window = {}",
                                                                     window),
                                        .train = pure,
                                        .switches = no_cache});
    return allocated(program, 1, [](const std::string& label, Category category) {
      return category == Category::SavedActivations && label == "layers.0.attention.clone";
    });
  };
  const std::int64_t keys = 2 * 512 * 4096 * 2;  // of 32 heads
  EXPECT_EQ(saved(100) - saved(1000), 2 * keys);
}

TEST(PyTorch, Olmo2WeighsAndTurnsInFp32) {
  const Program program = program_of({.model = "olmo-2-7b",
                                      .override_keys = "num_hidden_layers = 1\nvocab_size = 1024",
                                      .train = pure,
                                      .switches = no_cache});
  const auto of = [&](std::string_view name) {
    return allocated(program, 1, [&](const std::string& label, Category) { return label == name; });
  };
  const std::int64_t tokens = 2 * 512, hidden = 4096;
  EXPECT_EQ(of("layers.0.mul"), 2 * 2 * tokens * hidden * 4);  // two norms: normalized, weighted
  // Queries and keys: normalized, weighted, two products of the turn.
  EXPECT_EQ(of("layers.0.attention.mul"), 2 * 4 * tokens * hidden * 4);
  EXPECT_EQ(of("layers.0.attention.add"), 2 * tokens * hidden * 4);
}

TEST(PyTorch, WhatACheckpointGivesBackLivesUntilItsNodeIsDone) {
  const Program program = program_of({.train = pure + "\nrecompute = \"full\"", .switches = no_cache});
  // The operand of each weight gradient is freed after the gradient of the input is there, which does not read it.
  int seen = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Alloc* alloc = std::get_if<Alloc>(&program.ops[i]);
    if (alloc == nullptr || !program[alloc->label].ends_with("mlp.weight_gradient")) continue;
    std::size_t at = i;
    while (!std::holds_alternative<Launch>(program.ops[at])) ++at;
    const BufferId operand = program.operands[std::get<Launch>(program.ops[at]).inputs.first + 1].buffer;
    bool input_gradient = false;
    for (; !(std::holds_alternative<Free>(program.ops[at]) && std::get<Free>(program.ops[at]).buffer == operand);
         ++at) {
      const Alloc* next = std::get_if<Alloc>(&program.ops[at]);
      input_gradient |= next != nullptr && program[next->label].ends_with("mlp.input_gradient");
    }
    EXPECT_TRUE(input_gradient) << i;
    ++seen;
  }
  EXPECT_EQ(seen, 2 * 2 * 3);  // steps, layers, matrices
}

TEST(PyTorch, AttentionInFp32TakesTheMemoryEfficientKernelsOwnSpace) {
  const auto of = [](std::string_view name, int step) {
    const Program program =
        program_of({.model = "mistral-7b-v0.1",
                    .override_keys = "num_hidden_layers = 1\nvocab_size = 1024\nhidden_size = 1024\n"
                                     "num_attention_heads = 8\nnum_key_value_heads = 2\n"
                                     "intermediate_size = 2048\nsliding_window = 256",
                    .train = "precision = \"fp32\"",
                    .switches = no_cache,
                    .global_batch = 1,
                    .micro_batch = 1,
                    .sequence = 515});
    return allocated(program, step, [&](const std::string& label, Category) { return label.ends_with(name); });
  };
  // Recorded on PyTorch 2.15: 8 heads of 128, 515 tokens: query gradients in 5 x 2 tiles of 128 x 64 with a header, one
  // lse per row in multiples of 32.
  EXPECT_EQ(of("attention_workspace", 1), 2622720);
  EXPECT_EQ(of("attention_lse", 1), 17408);
  EXPECT_EQ(of("delta_product", 1), 515 * 8 * 128 * 4);
}

// The one layer of tests/golden/gpu_recordings/plain.pickle.gz, whose attention has 16 heads of 128 that share 4 keys.
Requested attention_of_recording(const std::string& cluster, const std::string& torch,
                                 const std::string& switches = {}) {
  return {.override_keys =
              "num_hidden_layers = 1\nvocab_size = 1024\nhidden_size = 2048\n"
              "num_attention_heads = 16\nnum_key_value_heads = 4\nintermediate_size = 5632",
          .train = pure,
          .switches = no_cache + "\n" + switches,
          .sequence = 2048,
          .cluster = cluster,
          .torch = torch};
}

TEST(PyTorch, HopperTakesCudnnsAttentionAndWhatItWorksIn) {
  const auto works_in = [](const Requested& requested) {
    return allocated(program_of(requested), 1,
                     [](const std::string& label, Category) { return label.ends_with("attention_workspace"); });
  };
  // As the H100 was asked for: 256 bytes forward, 67371264 backward.
  EXPECT_EQ(works_in(attention_of_recording("h100-sxm-80g", "2.11")), 256 + 67371264);
  EXPECT_EQ(works_in(attention_of_recording("h100-sxm-80g", "2.9")), 0);
  EXPECT_EQ(works_in(attention_of_recording("h100-sxm-80g", "2.11", "enable_cudnn_sdp = false")), 0);
  EXPECT_EQ(works_in(attention_of_recording("a100-sxm-80g", "2.11")), 0);
}

TEST(PyTorch, SharedKeysInFp32LeaveProductsBefore2_14) {
  const auto scores = [](const std::string& torch) {
    Requested requested = attention_of_recording("h100-sxm-80g", torch);
    requested.train = "precision = \"fp32\"";
    return allocated(program_of(requested), 1,
                     [](const std::string& label, Category) { return label.ends_with("softmax_masked"); });
  };
  EXPECT_EQ(scores("2.11"), 2 * 16 * 2048 * 2048);
  EXPECT_EQ(scores("2.14"), 0);
}

TEST(PyTorch, ProductsWithABiasAreCublasLts) {
  const auto works_in = [](const std::string& torch, const std::string& recompute) {
    const Program program = program_of({.model = "qwen2.5-7b",
                                        .override_keys = "num_hidden_layers = 1\nvocab_size = 1024\nhidden_size = 512\n"
                                                         "num_attention_heads = 4\nnum_key_value_heads = 4\n"
                                                         "intermediate_size = 1024",
                                        .train = pure + recompute,
                                        .switches = no_cache,
                                        .torch = torch});
    return allocated(program, 1, [](const std::string& label, Category) {
      return label.ends_with("workspace.cublas") || label.starts_with("workspace.cublas_lt");
    });
  };
  constexpr std::int64_t mib = 1 << 20;
  const std::string full = "\nrecompute = \"full\"";
  EXPECT_EQ(works_in("2.8", ""), 3 * mib);     // anew: queries, keys, values
  EXPECT_EQ(works_in("2.11", ""), mib);        // kept, by the thread that runs them
  EXPECT_EQ(works_in("2.11", full), 2 * mib);  // and by the one that runs them again
  EXPECT_EQ(works_in("2.12", full), 0);        // cuBLAS's own
}

TEST(PyTorch, FlashAttentionSplitsKeysWhereTheDeviceIsNotFull) {
  const auto partial = [](int sequence, const std::string& dropout) {
    const Program program = program_of({.override_keys = "num_hidden_layers = 1\nvocab_size = 1024\nhidden_size = 512\n"
                                                         "num_attention_heads = 4\nnum_key_value_heads = 4\n"
                                                         "intermediate_size = 1024",
                                        .train = pure + dropout,
                                        .switches = no_cache,
                                        .global_batch = 1,
                                        .micro_batch = 1,
                                        .sequence = sequence});
    return allocated(program, 1, [](const std::string& label, Category) { return label.ends_with("attention_parts"); });
  };
  // 4 heads of 128, 16 blocks of queries on 2 x 108 places, 8 blocks of keys: in three parts, as recorded.
  EXPECT_EQ(partial(1000, ""), 3 * 4 * 1000 * 128 * 4);
  EXPECT_EQ(partial(1000, "\nattention_dropout = 0.1"), 0);
  EXPECT_EQ(partial(4096, ""), 0);
}

TEST(PyTorch, ManyTokensAreSortedInTheEmbeddingsBackwardPass) {
  const auto scratch = [](int sequence) {
    const Program program = program_of({.override_keys = "num_hidden_layers = 1\nvocab_size = 1024",
                                        .train = pure,
                                        .switches = no_cache,
                                        .global_batch = 1,
                                        .micro_batch = 1,
                                        .sequence = sequence});
    return allocated(program, 1,
                     [](const std::string& label, Category) { return label.ends_with("embedding_part_sums"); });
  };
  EXPECT_EQ(scratch(3072), 0);
  EXPECT_EQ(scratch(4096), (4096 / 10 + 1024) * 4096 * 4);
}

TEST(PyTorch, OptimizersMakeTheTemporariesOfTheirKernels) {
  const auto temporaries = [](const std::string& switches) {
    const Program program = program_of({.train = pure, .switches = no_cache + "\nmax_grad_norm = 0\n" + switches});
    return allocated(program, 2, [](const std::string& label, Category) { return label.starts_with("optimizer."); });
  };
  const Scenario scenario = parsed({.train = pure});
  const std::int64_t parameters = 2 * parameter_count(build_model(scenario.model, model_options_of(scenario)));
  EXPECT_EQ(temporaries("foreach = true"), parameters);
  EXPECT_EQ(temporaries("foreach = false"), 2 * parameters);  // one after the other: a root and a quotient each
  EXPECT_EQ(temporaries("fused = true"), 0);
  // Decay that is added to gradients makes them anew; AdamW's own does not.
  EXPECT_EQ(temporaries("weight_decay = 0.1"), parameters);
  EXPECT_EQ(temporaries("weight_decay = 0.1\ndecoupled_weight_decay = false"), 2 * parameters);
  EXPECT_EQ(temporaries("foreach = false\nweight_decay = 0.1\ndecoupled_weight_decay = false"), 3 * parameters);
  EXPECT_EQ(temporaries("fused = true\nweight_decay = 0.1\ndecoupled_weight_decay = false"), 0);
}

TEST(PyTorch, DecayAndAmsgradTakeMemoryOfTheirOwn) {
  const auto of = [](const std::string& train, const std::string& switches, Category category, std::string_view scope) {
    const Program program =
        program_of({.train = pure + train, .switches = no_cache + "\nmax_grad_norm = 0\n" + switches});
    return allocated(program, 1,
                     [&](const std::string& label, Category c) { return c == category && label.starts_with(scope); });
  };
  const Scenario scenario = parsed({.train = pure});
  const std::int64_t parameters = 2 * parameter_count(build_model(scenario.model, model_options_of(scenario)));
  const std::string sgd = "\noptimizer = \"sgd\"";
  EXPECT_EQ(of(sgd, "", Category::Temporaries, "optimizer."), 0);
  EXPECT_EQ(of(sgd, "weight_decay = 0.1", Category::Temporaries, "optimizer."), parameters);
  EXPECT_EQ(of("", "amsgrad = true", Category::OptimizerMoments, "optimizer."), 3 * parameters);
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
  const Requested requested{.train = pure, .switches = no_cache + "\nbucket_cap_mb = 25", .gpus = 2, .global_batch = 4};
  const Program program = program_of(requested);
  const auto buckets = [](const std::string& label, Category) { return label == "reducer.bucket"; };
  const Scenario scenario = parsed(requested);
  const std::int64_t parameters = 2 * parameter_count(build_model(scenario.model, model_options_of(scenario)));
  EXPECT_EQ(allocated(program, 0, buckets), parameters);
  EXPECT_EQ(allocated(program, 1, buckets) + allocated(program, 2, buckets), parameters);
  std::int64_t reduced = 0;
  int now = 0;
  for (const Op& op : program.ops) {
    if (const Mark* mark = std::get_if<Mark>(&op)) now = mark->step;
    if (const Collective* c = std::get_if<Collective>(&op); c != nullptr && now == 2) reduced += c->size.count();
  }
  EXPECT_EQ(reduced, parameters);
  // The first is as large as the others where their size is given; otherwise 1 MiB will do.
  const auto first = [&](const Requested& a) {
    const Program made = program_of(a);
    int step = 0;
    for (const Op& op : made.ops) {
      if (const Mark* mark = std::get_if<Mark>(&op)) step = mark->step;
      const Alloc* alloc = std::get_if<Alloc>(&op);
      if (alloc != nullptr && step > 0 && made[alloc->label] == "reducer.bucket") return alloc->size.count();
    }
    return std::int64_t{0};
  };
  Requested usual = requested;
  usual.switches = no_cache;
  EXPECT_EQ(first(usual), 2 * 4096 * 4096);  // the LM head, with which one more than 1 MiB is there
  Requested large = requested;
  large.switches = no_cache + "\nbucket_cap_mb = 100";
  EXPECT_GE(first(large), 100 << 20);
  // Views of buckets are no tensors of their own: what gradients take is the buckets.
  Requested views = requested;
  views.switches += "\ngradient_as_bucket_view = true";
  EXPECT_EQ(allocated(program_of(views), 2, Category::CommDp), 0);
}

TEST(PyTorch, EveryModelAndModeRuns) {
  for (const char* model : {"llama-3.1-8b", "qwen3-8b", "gemma-2-9b", "gemma-3-1b", "olmo-2-7b", "pythia-6.9b", "gpt2",
                            "santacoder", "phi-3-mini-4k", "mistral-7b-v0.1"}) {
    for (const char* train : {"", "master_dtype = \"bf16\"", "precision = \"fp16\"", "precision = \"fp32\"",
                              "recompute = \"full\"", "attention = \"unfused\"\nattention_dropout = 0.1"}) {
      SCOPED_TRACE(std::string(model) + " " + train);
      const Requested requested{
          .model = model, .override_keys = "", .train = train, .gpus = 2, .global_batch = 8, .sequence = 128};
      Scenario scenario = parsed(requested);
      scenario.model.layers.resize(2);
      const Prediction prediction = predict(scenario);
      EXPECT_EQ(prediction.groups.size(), 1U);
      EXPECT_GT(prediction.step.step.count(), 0);
      const Composition& peak = prediction.groups.front().memory.allocated.composition;
      EXPECT_GT(peak[Category::Parameters], Bytes{});
    }
  }
}

TEST(PyTorch, TheBehaviorOfOlderTransformersDiffer) {
  Requested requested{.train = pure};
  const std::string now = text_of(requested);
  const auto peak = [&](const std::string& versions) {
    const Scenario s = parse_scenario(now + "[runtime.versions]\n" + versions, "job.toml", folders);
    return runtime_of(s).eager.value();
  };
  EXPECT_FALSE(peak("transformers = \"5.0\"").reentrant_checkpoint);
  EXPECT_TRUE(peak("transformers = \"4.57\"").reentrant_checkpoint);
  EXPECT_FALSE(peak("transformers = \"4.49\"").shifts_logits);
  EXPECT_TRUE(peak("transformers = \"4.48\"").shifts_logits);
  EXPECT_TRUE(peak("transformers = \"4.48\"").repeats_keys);
}

// Bytes of what is alive at a mark of the second step's forward pass, of labels that `counts` accepts.
template <class Counts>
std::int64_t alive_at(const Program& program, std::string_view text, Counts counts) {
  std::map<std::int32_t, std::int64_t> alive;
  int step = 0;
  for (const Op& op : program.ops) {
    if (const Mark* mark = std::get_if<Mark>(&op)) {
      step = mark->step;
      if (step == 2 && mark->phase == Phase::Forward && program[mark->label] == text) break;
    }
    if (const Alloc* alloc = std::get_if<Alloc>(&op); alloc != nullptr && counts(program[alloc->label]))
      alive[alloc->buffer.value] = alloc->size.count();
    if (const Free* free = std::get_if<Free>(&op)) alive.erase(free->buffer.value);
  }
  std::int64_t bytes = 0;
  for (const auto& [buffer, size] : alive) bytes += size;
  return bytes;
}

Requested with_transformers(Requested requested, const std::string& version) {
  requested.switches += "\n[runtime.versions]\ntransformers = \"" + version + "\"";
  return requested;
}

// gpt_bigcode/modeling_gpt_bigcode.py: `present` is a view of what c_attn gives, which the loop keeps whether or not a
// layer is checkpointed; zeros come back for it.
TEST(PyTorch, GptBigCodesLoopOnceCachedWhatWasCheckpointed) {
  const Requested requested{.model = "santacoder",
                            .override_keys = "num_hidden_layers = 3",
                            .train = pure + "\nrecompute = \"full\"\nsteps = 2"};
  constexpr std::int64_t layers = 3, tokens = 2 * 512, joint = 2048 + 2 * 128, pair = 2 * 128;
  const auto projections = [](const std::string& label) { return label.ends_with(".attention.mm"); };
  const auto cached = [&](const Program& program) { return alive_at(program, "loss", projections); };
  const auto zeros = [](const std::string& label, Category) { return label.ends_with("zero_gradient"); };
  const Program before = program_of(with_transformers(requested, "4.52"));
  EXPECT_EQ(cached(before), layers * tokens * joint * 2);
  EXPECT_EQ(allocated(before, 2, zeros), layers * tokens * pair * 2);
  const Program since = program_of(with_transformers(requested, "4.53"));
  EXPECT_EQ(cached(since), 0);
  EXPECT_EQ(allocated(since, 2, zeros), 0);
  Requested without = requested;
  without.switches = no_cache;
  EXPECT_EQ(cached(program_of(with_transformers(without, "4.52"))), 0);
}

// modeling_llama.py before 4.46: self.lm_head(hidden_states).float(), of which no copy in 16 bits is left.
TEST(PyTorch, LogitsWereOnceMadeWideAsTheyCame) {
  const Requested requested{.train = pure + "\nsteps = 2", .switches = no_cache};
  constexpr std::int64_t logits = 2 * 512 * 4096;
  const auto of_head = [](const std::string& label) {
    return label.starts_with("lm_head.") && label.find("weight") == std::string::npos;
  };
  EXPECT_EQ(alive_at(program_of(with_transformers(requested, "4.45")), "loss", of_head), 4 * logits);
  EXPECT_EQ(alive_at(program_of(with_transformers(requested, "4.46")), "loss", of_head), 2 * logits);
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
  has(problems({.train = "gradient_dtype = \"bf16\""}), "keeps gradients in the precision of the parameters");
  has(problems({.train = "[layout]\ntensor = 2", .gpus = 2}), "plain PyTorch cuts no layers");
  has(problems({.train = "[layout]\nsharding = \"zero1\""}), "every rank holds a replica");
  has(problems({.train = "[layout]\nschedule = \"gpipe\""}),
      "job.toml:12:12: error: schedule: plain PyTorch has no stages to schedule\n  hint: leave it out");
  has(problems({.train = "[layout]\nsequence_parallel = true"}), "sequence_parallel: plain PyTorch cuts no layers");
  has(problems({.train = "[layout]\nstage_layers = [2]"}), "stage_layers: plain PyTorch cuts no models");
  has(problems({.switches = "fuzed = true"}), "fuzed");
  has(problems({.model = "gpt2", .override_keys = "reorder_and_upcast_attn = true"}),
      "attention in fp32 is not modelled");
  has(problems({.switches = "fused = true\nforeach = true"}), "exclude each other");
  has(problems({.switches = "torch_compile = \"all\""}), "is not a part of a model that is compiled");
  has(problems({.switches = "torch_compile = true\nuse_cache = false"}),
      "of a model of transformers puts attention masks");
  has(problems({.switches = "torch_compile = \"regional\""}), "keys and values that a forward pass keeps");
  has(problems({.switches = "torch_compile = \"regional\"\nuse_cache = false"}), "with autocast");
  has(problems({.model = "gpt2", .switches = "modules = \"litgpt\""}), "is not modelled yet with layers like those");
  has(problems({.switches = "modules = \"litgpt\"\nuse_cache = true"}), "keeps no keys and values in training");
  has(problems({.train = "optimizer = \"sgd\"", .switches = "amsgrad = true"}), "torch.optim.SGD has no amsgrad");
  has(problems({.train = "optimizer = \"sgd\"", .switches = "decoupled_weight_decay = false"}),
      "torch.optim.SGD has no decoupled_weight_decay");
}

}  // namespace
}  // namespace tidemark::tests::pytorch_test
