// Modules whose saved tensors Megatron moves to the host: what is asked for, and what that takes.
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "sim/program/program_builder.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::module_offload_test {
namespace {

using namespace literals;

struct Requested {
  std::string modules = R"(["core_attn"])", switches = {}, layout = "tensor = 2", train = {};
  std::string release = "0.16";
  int layers = 6, gpus = 2;
};

std::string job(const Requested& requested) {
  return fmt::format(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = {}
[model_override]
num_hidden_layers = {}
[layout]
{}
[train]
sequence_length = 2048
micro_batch = 1
hidden_dropout = 0.0
attention_dropout = 0.0
{}
[runtime]
versions.megatron = "{}"
[runtime.switches]
fine-grained-activation-offloading = true
offload-modules = {}
{}
)",
                     requested.gpus, requested.layers, requested.layout, requested.train, requested.release,
                     requested.modules, requested.switches);
}
Scenario scenario_of(const std::string& text) { return parse_scenario(text, "job.toml", folders); }
std::string problems(const std::string& text) {
  try {
    (void)scenario_of(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no problem";
}
bool says(const Requested& requested, const std::string& what) {
  return problems(job(requested)).find(what) != std::string::npos;
}
MemoryRecord predicted(const Requested& requested) {
  return predict(scenario_of(job(requested))).groups.front().memory;
}

TEST(ModuleOffload, WhatMegatronAsksForIsAskedFor) {
  EXPECT_EQ(problems(job({})), "no problem");
  EXPECT_TRUE(says({.release = "0.15"}, "Megatron-LM core has it from 0.16 on"));
  EXPECT_TRUE(says({.modules = "[]"}, "the modules are not given"));
  EXPECT_TRUE(says({.modules = R"(["attention"])"}, "\"attention\" is not a module that can be offloaded"));
  EXPECT_TRUE(says({.modules = R"(["fused_group_mlp"])"}, "not modelled yet"));
  EXPECT_TRUE(says({.modules = R"(["attn_proj"])"}, "which core_attn's backward pass needs"));
  EXPECT_TRUE(says({.switches = "cpu-offloading-num-layers = 2"}, "layers are offloaded already"));
  EXPECT_TRUE(says({.switches = "activation-offload-fraction = 0.5"}, "has it from 0.19 on"));
  EXPECT_TRUE(says({.switches = "fine-grained-offloading-max-inflight-offloads = 1"}, "has it from 0.18 on"));
  EXPECT_TRUE(says({.switches = "delta-offload-bytes-across-pp-ranks = 1"}, "not modelled yet"));
  EXPECT_TRUE(says({.train = "recompute = \"full\""}, "not modelled yet"));
  EXPECT_TRUE(says({.layout = "context = 2"}, "not modelled yet"));
}

TEST(ModuleOffload, SwitchesWithoutItAreSlips) {
  std::string text = job({});
  const std::string on = "fine-grained-activation-offloading = true\n";
  text.erase(text.find(on), on.size());
  EXPECT_NE(problems(text).find("no module is offloaded"), std::string::npos);
}

TEST(ModuleOffload, ComesBackFromJson) {
  const Scenario requested = scenario_of(job({.modules = R"(["core_attn", "attn_proj"])",
                                              .switches = "activation-offload-fraction = 0.5\n"
                                                          "min-offloaded-tensor-size = 4096\n"
                                                          "fine-grained-offloading-max-inflight-offloads = 2",
                                              .release = "0.19"}));
  const nlohmann::json json = nlohmann::json::parse(scenario_json(requested, 2));
  EXPECT_EQ(json["offload"]["activations"], "cpu");
  const nlohmann::json& switches = json["runtime"]["switches"];
  EXPECT_EQ(switches["offload-modules"], (nlohmann::json{"core_attn", "attn_proj"}));
  EXPECT_EQ(switches["min-offloaded-tensor-size"], 4096);
  EXPECT_EQ(switches["activation-offload-fraction"], 0.5);
  EXPECT_EQ(switches["fine-grained-offloading-max-inflight-offloads"], 2);
}

// In the first step all of a module's groups go; from then on, of a pass that runs backward next, all but the last.
// Queries, keys, values and what comes of them: 2048 tokens, of 16 and 4 heads of 128.
TEST(ModuleOffload, PinnedMemoryIsThatOfTheFirstStep) {
  const Bytes queries = 2048 * 16 * 128 * 2_B, keys = 2048 * 4 * 128 * 2_B;
  EXPECT_EQ(predicted({}).pinned.peak, 6 * (2 * queries + 2 * keys));
  EXPECT_EQ(predicted({.switches = "min-offloaded-tensor-size = 2000000"}).pinned.peak, 6 * 2 * queries);
  EXPECT_EQ(predicted({.switches = "min-offloaded-tensor-size = 20000000"}).pinned.peak, Bytes{});
}

TEST(ModuleOffload, LeavesTheDeviceWithLess) {
  const Bytes none = predicted({.switches = "min-offloaded-tensor-size = 20000000"}).allocated.bytes,
              attention = predicted({}).allocated.bytes,
              more = predicted({.modules = R"(["qkv_linear", "core_attn", "attn_proj"])"}).allocated.bytes;
  EXPECT_LT(attention, none);
  EXPECT_LT(more, attention);
}

// The compute stream waits for a copy from the host before it reads what was copied.
TEST(ModuleOffload, WhatComesBackIsAwaited) {
  const Program program = Job(scenario_of(job({}))).program(0);
  std::map<StreamId, std::set<BufferId>> coming;
  std::map<EventId, std::pair<StreamId, std::set<BufferId>>> there_at;
  int awaited = 0;
  for (const Op& op : program.ops) {
    if (const auto* copy = std::get_if<Memcpy>(&op); copy != nullptr && copy->stream != ProgramBuilder::compute)
      coming[copy->stream].insert(copy->to.buffer);
    if (const auto* record = std::get_if<Record>(&op))
      there_at[record->event] = {record->stream, coming[record->stream]};
    if (const auto* wait = std::get_if<Wait>(&op); wait != nullptr && wait->stream == ProgramBuilder::compute) {
      const auto& [stream, copied] = there_at[wait->event];
      for (const BufferId buffer : copied) awaited += static_cast<int>(coming[stream].erase(buffer));
    }
    if (const auto* launch = std::get_if<Launch>(&op); launch != nullptr && launch->stream == ProgramBuilder::compute) {
      for (const Operand& input : program[launch->inputs])
        for (const auto& [stream, buffers] : coming)
          EXPECT_FALSE(buffers.contains(input.buffer)) << "b" << input.buffer.value;
    }
  }
  EXPECT_GT(awaited, 0);
}

// A pipeline's first rank has several passes' tensors there.
TEST(ModuleOffload, PassesInFlightHaveRoomOfTheirOwn) {
  const auto stages = [](int pipeline) {
    return predicted({.layout = fmt::format("pipeline = {}", pipeline),
                      .train = "global_batch = 8",
                      .layers = 2 * pipeline,
                      .gpus = pipeline})
        .pinned.peak;
  };
  EXPECT_EQ(stages(4), 2 * stages(2));
}

}  // namespace
}  // namespace tidemark::tests::module_offload_test
