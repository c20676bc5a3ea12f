#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "sim/program/verify.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// Optimizers that keep less than AdamW: keys, and what they keep, by their sources' own arithmetic.

namespace tidemark::tests::small_optimizers_test {
namespace {

using namespace literals;

Scenario parsed(const std::string& train, const std::string& switches = "", const std::string& runtime = "pytorch",
                const std::string& versions = "", int gpus = 1) {
  const std::string text = fmt::format(
      "model = \"models/llama-2-7b.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\ngpus = {}\n[model_override]\n"
      "num_hidden_layers = 2\nvocab_size = 4100\n[train]\nsequence_length = 64\nmicro_batch = 1\nglobal_batch = {}\n"
      "master_dtype = \"bf16\"\n{}\n[runtime]\nname = \"{}\"\n{}\n[runtime.switches]\n{}\n",
      gpus, gpus, train, runtime, versions, switches);
  return parse_scenario(text, "job.toml", folders);
}

std::string problems(const std::string& train, const std::string& switches = "", const std::string& runtime = "pytorch",
                     const std::string& versions = "", int gpus = 1) {
  try {
    (void)parsed(train, switches, runtime, versions, gpus);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no problem";
}

// Bytes of state by what it is called, in the first step, and where it lies.
std::map<std::string, std::int64_t> state_of(const Scenario& scenario) {
  const Job job(scenario);
  const Program program = lower_role(job.lowering(), job.roles.front());
  EXPECT_TRUE(verify(program).empty());
  std::map<std::string, std::int64_t> bytes;
  for (const Op& op : program.ops)
    if (const Alloc* alloc = std::get_if<Alloc>(&op);
        alloc != nullptr && alloc->category == Category::OptimizerMoments) {
      const std::string label = program[alloc->label];
      const std::string space = alloc->space == MemorySpace::Managed ? " managed" : "";
      bytes[label.substr(label.rfind('.') + 1) + space] += alloc->size.count();
    }
  return bytes;
}

using State = std::map<std::string, std::int64_t>;

// Two layers of hidden 4096 and 11008 wide MLPs; norms have 4096 elements, the fewest that are kept in 8 bits.
constexpr std::int64_t hidden = 4096, embedding = 4100 * hidden, layer = 4 * hidden * hidden + 3 * hidden * 11008,
                       others = 2 * (layer + 2 * hidden) + hidden + embedding;  // … and the head

std::int64_t blocks(std::int64_t size) {  // each parameter has whole ones: all sizes are multiples of 4096
  return others / size;
}

TEST(SmallOptimizers, EightBitAdamKeepsAByteOfEachMomentAndAScaleOfEachBlock) {
  const State expected{{"state1", others + 4 * embedding},
                       {"state2", others + 4 * embedding},
                       {"absmax1", 4 * blocks(256)},
                       {"absmax2", 4 * blocks(256)},
                       {"qmap1", 1024},
                       {"qmap2", 1024}};
  EXPECT_EQ(state_of(parsed("optimizer = \"adamw_8bit\"")), expected);
}

TEST(SmallOptimizers, BlocksWereLongerOnce) {
  State state = state_of(parsed("optimizer = \"adamw_8bit\"", "quantize_embeddings = true", "pytorch",
                                "versions = { bitsandbytes = \"0.43\" }"));
  EXPECT_EQ(state["absmax1"], 4 * (others + embedding) / 2048);
  EXPECT_EQ(state["state1"], others + embedding);
}

TEST(SmallOptimizers, LionHasOneMoment) {
  const State expected{{"state1", 4 * (others + embedding)}};
  EXPECT_EQ(state_of(parsed("optimizer = \"lion_32bit\"")), expected);
}

TEST(SmallOptimizers, PagedStateOfLargeTensorsIsManaged) {
  const std::int64_t norms = 5 * hidden;  // of fewer than 100,000 elements
  const State expected{{"state1", 4 * norms},
                       {"state2", 4 * norms},
                       {"state1 managed", 4 * (others + embedding - norms)},
                       {"state2 managed", 4 * (others + embedding - norms)}};
  const Scenario scenario = parsed("optimizer = \"paged_adamw_32bit\"");
  EXPECT_EQ(state_of(scenario), expected);
  const Prediction prediction = predict(scenario);
  const MemoryRecord& memory = prediction.highest().memory;
  EXPECT_EQ(memory.managed.count(), 8 * (others + embedding - norms));
  EXPECT_EQ(prediction.resident(memory, memory.device.bytes), memory.managed);
  EXPECT_EQ(prediction.resident(memory, scenario.cluster.device.capacity - 5_MiB), 5_MiB);
  EXPECT_EQ(prediction.resident(memory, scenario.cluster.device.capacity + 5_MiB), 0_B);
}

TEST(SmallOptimizers, ManagedMemoryAloneIsAllThatIsSaidOfAHost) {
  Scenario full = parsed("optimizer = \"paged_adamw_32bit\"");
  const MemoryRecord memory = predict(full).highest().memory;
  full.cluster.device.capacity = memory.device.bytes;  // no room beside all else
  const Prediction prediction = predict(full);
  EXPECT_EQ(prediction.fullest_node.bytes, memory.managed);
  const std::string text = prediction_text(prediction);
  EXPECT_NE(text.find("\non the host, node 0: "), std::string::npos) << text;
  EXPECT_EQ(text.find("; pinned "), std::string::npos) << text;
  const nlohmann::json group = nlohmann::json::parse(prediction_json(prediction))["groups"][0];
  EXPECT_EQ(group["peak_host_pinned_bytes"], 0);
  EXPECT_EQ(group["peak_host_pageable_bytes"], 0);
}

TEST(SmallOptimizers, AdafactorKeepsARowAndAColumnOfEachMatrix) {
  const std::int64_t rows_and_columns = 2 * (4 * 2 * hidden + 3 * (hidden + 11008)) + 2 * (4100 + hidden);
  State state = state_of(parsed("optimizer = \"adafactor\""));
  EXPECT_EQ(state["exp_avg_sq_row"] + state["exp_avg_sq_col"], 4 * rows_and_columns);
  EXPECT_EQ(state["exp_avg_sq"], 4 * 5 * hidden);
  EXPECT_EQ(state.count("exp_avg"), 0U);
  EXPECT_EQ(state_of(parsed("optimizer = \"adafactor\"", "beta1 = 0.9"))["exp_avg"], 4 * (others + embedding));
  State of_torch = state_of(parsed("optimizer = \"adafactor\"", "adafactor = \"torch\""));
  EXPECT_EQ(of_torch["row_var"] + of_torch["col_var"], 2 * rows_and_columns);
}

// Shards of flat parameters have one dimension: no rows, no columns.
TEST(SmallOptimizers, AdafactorOfFlatParametersIsNotFactored) {
  State state = state_of(parsed("optimizer = \"adafactor\"", "", "fsdp", "", 2));
  EXPECT_EQ(state["exp_avg_sq"], 4 * (others + embedding) / 2);
  EXPECT_EQ(state.count("exp_avg_sq_row"), 0U);
}

TEST(SmallOptimizers, MuonHasOneMomentOfHiddenMatrices) {
  State state = state_of(parsed("optimizer = \"muon\""));
  EXPECT_EQ(state["momentum_buffer"], 2 * 2 * layer);
  EXPECT_EQ(state["exp_avg"], 2 * (2 * embedding + 5 * hidden));
}

TEST(SmallOptimizers, ApolloKeepsMomentsOfProjectedGradients) {
  // Of 64 rows or columns, along the longer side: four square matrices, and three of the MLP.
  const std::int64_t projected = 2 * 64 * (4 * hidden + 3 * 11008), projections = 2 * 64 * (4 * hidden + 3 * hidden);
  State state = state_of(parsed("optimizer = \"apollo_adamw\"", "rank = 64"));
  EXPECT_EQ(state["exp_avg"], 2 * (projected + 2 * embedding + 5 * hidden));
  EXPECT_EQ(state["to"], 2 * projections);
}

// Of 64 rows or columns, as APOLLO.
TEST(SmallOptimizers, GaloreKeepsMomentsOfProjectedGradientsAndTheirVectors) {
  const std::int64_t projected = 2 * 64 * (4 * hidden + 3 * 11008), projections = 2 * 64 * (4 * hidden + 3 * hidden);
  for (const std::string name : {"galore_adamw", "galore_adamw_layerwise"}) {
    State state = state_of(parsed(fmt::format("optimizer = \"{}\"", name), "rank = 64"));
    EXPECT_EQ(state["exp_avg"], 2 * (projected + 2 * embedding + 5 * hidden)) << name;
    EXPECT_EQ(state["to"], 2 * projections) << name;
  }
}

// An optimizer of each parameter, in the backward pass: no two hidden gradients are there at once.
TEST(SmallOptimizers, LayerwiseOnesGiveEachGradientUpAtOnce) {
  const auto most_gradients = [](const std::string& name) {
    const Job job(parsed(fmt::format("optimizer = \"{}\"", name)));
    const Program program = lower_role(job.lowering(), job.roles.front());
    std::map<BufferId, std::int64_t> live;
    std::int64_t now = 0, most = 0;
    for (const Op& op : program.ops) {
      if (const Alloc* alloc = std::get_if<Alloc>(&op); alloc != nullptr && alloc->category == Category::Gradients)
        now += live[alloc->buffer] = alloc->size.count();
      if (const Free* free = std::get_if<Free>(&op); free != nullptr && live.count(free->buffer) != 0)
        now -= live[free->buffer];
      most = std::max(most, now);
    }
    return most;
  };
  EXPECT_EQ(most_gradients("galore_adamw"), 2 * (others + embedding));
  EXPECT_LE(most_gradients("galore_adamw_layerwise"), 2 * 3 * hidden * 11008);
}

TEST(SmallOptimizers, AreReadBackAsTheyAreWritten) {
  for (const std::string name :
       {"adafactor", "muon", "adamw_8bit", "lion_32bit", "lion_8bit", "paged_adamw_32bit", "paged_adamw_8bit",
        "paged_lion_32bit", "paged_lion_8bit", "galore_adamw", "galore_adamw_layerwise"}) {
    const std::string train = fmt::format("optimizer = \"{}\"", name);
    EXPECT_NE(scenario_json(parsed(train), 2).find(fmt::format("\"{}\"", name)), std::string::npos) << name;
  }
  const std::string json = scenario_json(parsed("optimizer = \"adafactor\"", "beta1 = 0.5"), 2);
  EXPECT_NE(json.find("\"beta1\""), std::string::npos);
}

void has(const std::string& problems, const std::string& text) {
  EXPECT_NE(problems.find(text), std::string::npos) << problems;
}

TEST(SmallOptimizers, WhatDoesNotGoTogetherIsAnError) {
  has(problems("optimizer = \"lion\""), "optimizer = \"lion\" is not known by that name\n  hint: \"lion_32bit\" or");
  has(problems("optimizer = \"adamw_torch\""), "\"adamw\" would do");
  has(problems("optimizer = \"galore_adafactor\""), "is not modelled yet");
  has(problems("optimizer = \"galore\""), "\"galore_adamw\" or \"galore_adamw_layerwise\" would do");
  has(problems("optimizer = \"galore_adamw\"", "", "fsdp", "", 2), "it projects matrices, and shards of flat");
  has(problems("optimizer = \"galore_adamw_layerwise\"", "", "pytorch", "", 2),
      "does not work with DistributedDataParallel");
  has(problems("optimizer = \"lion_32bit\"", "rank = 8"), "rank is for optimizers that project gradients");
  has(problems("optimizer = \"muon\"", "", "fsdp", "", 2), "Muon takes matrices, and shards of flat parameters have");
  has(problems("optimizer = \"muon\"", "", "fsdp2", "", 2), "Muon gathers the matrices of DTensors");
  has(problems("optimizer = \"adamw_8bit\"", "", "fsdp2", "", 2), "bitsandbytes' kernels do not accept DTensors");
  has(problems("optimizer = \"adafactor\"", "", "fsdp2", "", 2), "adds DTensors to plain tensors");
  has(problems("optimizer = \"muon\"", "", "pytorch", "versions = { torch = \"2.8\" }"), "from PyTorch 2.9 on");
  has(problems("optimizer = \"lion_8bit\"", "fused = true"), "has no such kernels");
  has(problems("optimizer = \"lion_8bit\"", "amsgrad = true"), "are AdamW's");
  has(problems("", "adafactor = \"torch\""), "is of optimizer = \"adafactor\"");
  has(problems("", "beta1 = 0.9"), "beta1 is an argument of transformers' Adafactor");
  has(problems("optimizer = \"lion_32bit\"", "quantize_embeddings = true"), "keep their state in 8 bits");
  has(problems("optimizer = \"lion_32bit\"", "", "pytorch", "versions = { bitsandbytes = \"0.40\" }"), "older than");
}

}  // namespace
}  // namespace tidemark::tests::small_optimizers_test
