// Modules that predict tokens after the next one: losses and gradients are those of one rank, whatever holds the
// embedding.

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/scenarios/arithmetic/math_case.hpp"

namespace tidemark::tests {
namespace {

class ArithmeticOfNextTokens : public testing::TestWithParam<MathCase> {};

TEST_P(ArithmeticOfNextTokens, IsThatOfOneRank) { expect_what_one_rank_computes(GetParam()); }

// GLM-4.5 without experts but in the modules, which come after the last layer.
MathCase further(std::string name, int gpus, std::string layout, std::string train = "", int modules = 1) {
  MathCase made{.name = std::move(name), .gpus = gpus, .layout = std::move(layout), .train = std::move(train)};
  made.model = "glm-4.5";
  made.override_keys =
      "moe_intermediate_size = 24\nnum_experts_per_tok = 2\nn_routed_experts = 8\nnum_key_value_heads = 2\n"
      "head_dim = 8\nfirst_k_dense_replace = 3\nnum_nextn_predict_layers = " +
      std::to_string(modules);
  made.runtime += "\n[runtime.switches]\nmoe-permute-fusion = true";
  return made;
}
MathCase told(MathCase made, const std::string& switches) {
  made.runtime += "\n" + switches;
  return made;
}
MathCase of_sequences(MathCase made, int sequences) {
  made.micro_batch = sequences;
  return made;
}

const std::string tensors = "tensor = 2\nsequence_parallel = true\nexpert_tensor = 1\n", te = "cross_entropy = \"te\"",
                  native = "cross_entropy = \"fused\"";

INSTANTIATE_TEST_SUITE_P(
    Layouts, ArithmeticOfNextTokens,
    testing::Values(further("one_rank", 1, ""), further("two_modules", 1, "", "", 2),
                    further("replicas", 2, "data = 2", te), further("stages", 2, "pipeline = 2"),
                    further("stages_te", 2, "pipeline = 2", te, 2), further("stages_native", 2, "pipeline = 2", native),
                    further("tensors", 2, tensors), further("tensors_te", 2, tensors, te, 2),
                    of_sequences(further("two_sequences", 2, tensors, native), 2),
                    of_sequences(further("two_sequences_of_stages", 2, "pipeline = 2", te), 2),
                    further("interleaved", 2, "pipeline = 2\nchunks = 2", te),
                    further("all_axes", 8, tensors + "pipeline = 2\nexpert = 4\nsharding = \"zero1\"", te),
                    further("recomputed", 4, tensors + "pipeline = 2", "recompute = \"full\""),
                    further("some_recomputed", 2, "pipeline = 2",
                            "recompute = \"full\"\nrecompute_method = \"block\"\nrecompute_layers = 1"),
                    told(further("gradients_apart", 2, "pipeline = 2", te), "no-gradient-accumulation-fusion = true")),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests
