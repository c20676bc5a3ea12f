// Hybrids of Mamba, attention and MLP layers: ranks that share out heads, sequences, layers and batches.

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::mamba_test {
namespace {

class ArithmeticOfHybrids : public testing::TestWithParam<MathCase> {};

TEST_P(ArithmeticOfHybrids, IsThatOfOneRank) { expect_what_one_rank_computes(GetParam()); }

MathCase hybrid(std::string name, int gpus, std::string layout, int micro_batch = 1, std::string train = "") {
  MathCase made{.name = std::move(name), .gpus = gpus, .layout = std::move(layout), .train = std::move(train)};
  made.model = "nemotron-h-8b";
  made.override_keys =
      "hybrid_override_pattern = \"M-*M\"\nhead_dim = 8\nnum_key_value_heads = 4\nmamba_num_heads = 8\n"
      "mamba_head_dim = 8\nn_groups = 4\nssm_state_size = 4";
  made.micro_batch = micro_batch;
  return made;
}
MathCase in_bf16(MathCase made) {
  made.precision = "bf16";
  return made;
}
MathCase with_positions(MathCase made, const std::string& kind) {
  made.override_keys += "\nposition_embedding_type = \"" + kind + "\"";
  return made;
}

const std::string tensors = "sequence_parallel = true\ntensor = ";

// Rows of a token's projection are no multiple of eight elements where two ranks or four cut them.
INSTANTIATE_TEST_SUITE_P(
    Layouts, ArithmeticOfHybrids,
    testing::Values(hybrid("one_rank", 1, ""), hybrid("sequences", 1, "", 2), hybrid("tensors", 2, tensors + "2"),
                    hybrid("whole_sequences", 2, "tensor = 2", 2), hybrid("four_tensors", 4, tensors + "4", 2),
                    hybrid("stages", 2, "pipeline = 2"), hybrid("replicas", 2, "sharding = \"zero1\""),
                    hybrid("all_axes", 8, tensors + "2\npipeline = 2\nsharding = \"zero1\""),
                    in_bf16(hybrid("bf16", 2, tensors + "2", 2)),
                    hybrid("core_again", 2, tensors + "2", 1, "recompute = \"selective\""),
                    with_positions(hybrid("turned", 2, tensors + "2"), "rope"),
                    with_positions(hybrid("learned", 2, tensors + "2"), "absolute")),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests::mamba_test
