// Layers whose saved tensors Megatron moves to the host: what is asked for, and what that takes.
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::layer_offload_test {
namespace {

std::string job(int layers, const std::string& train = "", const std::string& top = "gpus = 2") {
  return fmt::format(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
{}
[model_override]
num_hidden_layers = 6
[layout]
tensor = 2
[train]
sequence_length = 2048
micro_batch = 1
hidden_dropout = 0.0
attention_dropout = 0.0
{}
[runtime.switches]
cpu-offloading-num-layers = {}
)",
                     top, train, layers);
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
bool says(const std::string& text, const std::string& what) { return problems(text).find(what) != std::string::npos; }

TEST(LayerOffload, WhatMegatronAsksForIsAskedFor) {
  EXPECT_TRUE(says(job(6), "the last layer's activations stay on the device"));
  EXPECT_TRUE(says(job(2, "recompute = \"full\""), "have nothing to offload"));
  EXPECT_TRUE(
      says(job(0, "[offload]\nactivations = \"cpu\""), "neither the number of layers nor the modules are given"));
  std::string all_forward_first = job(2);
  all_forward_first.replace(all_forward_first.find("tensor = 2"), 0, "schedule = \"gpipe\"\n");
  EXPECT_TRUE(says(all_forward_first, "passes follow one another"));
  EXPECT_TRUE(says(job(2, "[runtime.versions]\ntransformer_engine = \"2.8\""), "in another way before 2.10"));
  EXPECT_EQ(problems(job(2, "[offload]\nactivations = \"cpu\"")), "no problem");
  const nlohmann::json json = nlohmann::json::parse(scenario_json(scenario_of(job(2)), 2));
  EXPECT_EQ(json["offload"]["activations"], "cpu");
  EXPECT_EQ(json["runtime"]["switches"]["cpu-offloading-num-layers"], 2);
}

// A pass keeps what so many layers save, and those of the others are on the host.
TEST(LayerOffload, KeepsAsManyLayersLessOnTheDevice) {
  const auto predicted = [](int layers) { return predict(scenario_of(job(layers))).groups.front().memory; };
  const MemoryRecord none = predicted(0), two = predicted(2), four = predicted(4);
  EXPECT_EQ(none.pinned.peak, Bytes{});
  EXPECT_GT(two.pinned.peak, Bytes{});
  // Powers of two: all layers alike.
  EXPECT_EQ(four.pinned.peak, 2 * two.pinned.peak);
  const Bytes of_two = none.allocated.bytes - two.allocated.bytes,
              of_four = none.allocated.bytes - four.allocated.bytes;
  EXPECT_GT(of_two, Bytes{});
  EXPECT_GT(of_four, of_two + of_two / 2);
  EXPECT_LE(of_four, four.pinned.peak);
}

}  // namespace
}  // namespace tidemark::tests::layer_offload_test
