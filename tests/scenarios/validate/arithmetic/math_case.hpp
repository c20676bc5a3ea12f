#pragma once

#include <filesystem>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/validate/arithmetic/check_math.hpp"
#include "tests/kernels/thread_world.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests {

/// A small job, whose ranks are threads, that is to compute what one rank computes.
struct MathCase {
  std::string name;
  int gpus = 1;
  std::string layout = {}, train = {};
  std::string override_keys = "tie_word_embeddings = false";
  std::string model = "llama-3.1-8b";
  int micro_batch = 1;
  std::string runtime = "name = \"megatron\"";
  std::string precision = "fp32";
  int global_batch = 4;
  int vocabulary = 128;
  std::string dropout = "hidden_dropout = 0.0\nattention_dropout = 0.0";
  std::string routing = {};
  std::string layers = {};  ///< as a scenario's key says them; empty: as the model has them
};

inline void PrintTo(const MathCase& its, std::ostream* out) { *out << its.name; }

inline Scenario scenario_of(const MathCase& requested) {
  const std::string text = fmt::format(
      R"(model = "models/{}.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = {}
{}
[model_override]
num_hidden_layers = 4
hidden_size = 32
num_attention_heads = 4
{} = 48
vocab_size = {}
vocabulary_multiple = 4
{}
[layout]
{}
[train]
sequence_length = 16
micro_batch = {}
global_batch = {}
steps = 2
precision = "{}"
{}
{}
[runtime]
{}
{}
)",
      requested.model, requested.gpus, requested.layers.empty() ? "" : "layers = " + requested.layers,
      requested.override_keys.find("n_embd") != std::string::npos ? "n_inner" : "intermediate_size",
      requested.vocabulary, requested.override_keys, requested.layout, requested.micro_batch, requested.global_batch,
      requested.precision, requested.dropout, requested.train, requested.runtime,
      requested.routing.empty() ? "" : "[moe]\n" + requested.routing);
  return parse_scenario(text, "small.toml", folders);
}

inline std::string text(const MathCheck& check) {
  std::string all;
  for (const MathDifference& d : check.worst)
    all += fmt::format("{} of step {} on rank {}: {:.3g}\n", d.what, d.step, d.rank, d.relative);
  return all;
}

/// In float64 and in the job's own types.
inline void expect_what_one_rank_computes(const MathCase& requested) {
  const Scenario scenario = scenario_of(requested);
  ASSERT_EQ(beyond_arithmetic(scenario), "");
  for (const math::Storage storage : {math::Storage::Wide, math::Storage::Native}) {
    MathCheck check;
    const std::vector<std::string> ends = on_ranks(scenario.gpus, [&](World& world) {
      MathCheck mine = check_math(scenario, world, storage);
      if (world.rank().value == 0) check = std::move(mine);
    });
    ASSERT_EQ(ends, all_well(scenario.gpus));
    EXPECT_TRUE(check.agrees()) << text(check);
    ASSERT_EQ(check.losses.size(), 2u);
    EXPECT_NE(check.losses[0], check.losses[1]);
    EXPECT_GT(check.tensors, 20);
  }
}

}  // namespace tidemark::tests
