// Layers that lack a branch, or have MLPs of widths of their own: ranks that share out heads, sequences, layers and
// batches.

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::heterogeneous_arithmetic_test {
namespace {

class ArithmeticOfLayersThatDiffer : public testing::TestWithParam<MathCase> {};

TEST_P(ArithmeticOfLayersThatDiffer, IsThatOfOneRank) { expect_what_one_rank_computes(GetParam()); }

MathCase differing(std::string name, int gpus, std::string layout, std::string train = "") {
  MathCase made{.name = std::move(name), .gpus = gpus, .layout = std::move(layout), .train = std::move(train)};
  made.override_keys = "num_key_value_heads = 2";
  made.layers = R"(["attention dense=96", "unmixed dense=16", "attention alone", "attention dense"])";
  return made;
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ArithmeticOfLayersThatDiffer,
    testing::Values(differing("one_rank", 1, ""), differing("tensors", 2, "sequence_parallel = true\ntensor = 2"),
                    differing("whole_sequences", 2, "tensor = 2"), differing("stages", 2, "pipeline = 2"),
                    differing("contexts", 2, "context = 2"), differing("replicas", 2, "sharding = \"zero1\""),
                    differing("again", 2, "pipeline = 2", "recompute = \"full\"")),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests::heterogeneous_arithmetic_test
