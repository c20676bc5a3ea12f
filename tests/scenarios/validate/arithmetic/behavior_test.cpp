// What frameworks are told to do otherwise than they do by themselves: the same numbers all the same.

#include <string>

#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::behavior_test {
namespace {

class ArithmeticOfBehavior : public testing::TestWithParam<MathCase> {};

TEST_P(ArithmeticOfBehavior, IsThatOfOneRank) { expect_what_one_rank_computes(GetParam()); }

MathCase mode(std::string name, int gpus, std::string layout, std::string train, std::string switches = "") {
  MathCase made{.name = std::move(name), .gpus = gpus, .layout = std::move(layout), .train = std::move(train)};
  made.override_keys = "num_key_value_heads = 2\nhead_dim = 8";
  if (!switches.empty()) made.runtime += "\n" + switches;
  return made;
}

MathCase learned_positions(std::string name, std::string layout) {
  MathCase made = mode(std::move(name), 2, std::move(layout), "");
  made.model = "gpt2", made.override_keys = "n_layer = 4\nn_embd = 32\nn_head = 4\nn_positions = 16";
  return made;
}

// Queries and keys, each head by itself; turned, or biases of keys would make no difference.
MathCase normalized_heads(std::string name, std::string layout, const std::string& train = "") {
  MathCase made = learned_positions(std::move(name), std::move(layout));
  made.override_keys += "\nposition_embedding_type = \"rope\"\nqk_layernorm = true", made.train = train;
  return made;
}

// Products of the head that come after the passes of a step.
MathCase deferred(std::string name, int gpus, std::string layout, const std::string& limit) {
  return mode(std::move(name), gpus, std::move(layout), "",
              "switches.defer-embedding-wgrad-compute = true\nswitches.wgrad-deferral-limit = " + limit);
}

INSTANTIATE_TEST_SUITE_P(
    LaterProducts, ArithmeticOfBehavior,
    testing::Values(deferred("all", 2, "pipeline = 2", "0"), deferred("two", 2, "pipeline = 2", "2"),
                    deferred("of_chunks", 2, "pipeline = 2\nchunks = 2", "3"),
                    deferred("of_tensors", 4, "pipeline = 2\ntensor = 2\nsequence_parallel = true", "0"),
                    deferred("of_shards", 4, "pipeline = 2\ndata = 2\nsharding = \"zero1\"", "0")),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(NormalizedHeads, ArithmeticOfBehavior,
                         testing::Values(normalized_heads("of_tensors", "tensor = 2\nsequence_parallel = true"),
                                         normalized_heads("of_stages", "pipeline = 2", "attention = \"unfused\"")),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Behavior, ArithmeticOfBehavior,
    testing::Values(mode("mlps_again", 2, "tensor = 2", "recompute = \"selective\"\nrecompute_modules = [\"mlp\"]"),
                    mode("some_layers_again", 4, "tensor = 2\npipeline = 2",
                         "recompute = \"full\"\nrecompute_method = \"block\"\nrecompute_layers = 1"),
                    mode("gate_apart", 2, "tensor = 2", "", "switches.no-bias-swiglu-fusion = true"),
                    mode("turns_apart", 2, "tensor = 2", "", "switches.no-rope-fusion = true"),
                    learned_positions("learned_positions", "tensor = 2\nsequence_parallel = true"),
                    learned_positions("learned_positions_of_stages", "pipeline = 2")),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests::behavior_test
