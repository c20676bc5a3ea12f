// Modules that predict tokens after the next one: losses and gradients are those of one rank, whatever holds the
// embedding.

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::mtp_layers_test {
namespace {

class ArithmeticOfMtpLayers : public testing::TestWithParam<MathCase> {};

TEST_P(ArithmeticOfMtpLayers, IsThatOfOneRank) { expect_what_one_rank_computes(GetParam()); }

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
MathCase reported(MathCase made, const std::string& switches) {
  made.runtime += "\n" + switches;
  return made;
}
MathCase tied(MathCase made) {
  made.override_keys += "\ntie_word_embeddings = true";
  return made;
}
MathCase of_sequences(MathCase made, int sequences) {
  made.micro_batch = sequences;
  return made;
}

const std::string tensors = "tensor = 2\nsequence_parallel = true\nexpert_tensor = 1\n", te = "cross_entropy = \"te\"",
                  native = "cross_entropy = \"fused\"", zero1 = "\nsharding = \"zero1\"";

INSTANTIATE_TEST_SUITE_P(
    Layouts, ArithmeticOfMtpLayers,
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
                    reported(further("gradients_apart", 2, "pipeline = 2", te),
                             "no-gradient-accumulation-fusion = true")),
    [](const auto& test) { return test.param.name; });

const std::string unfused = "no-gradient-accumulation-fusion = true";

INSTANTIATE_TEST_SUITE_P(
    WithTiedEmbeddings, ArithmeticOfMtpLayers,
    testing::Values(tied(further("one_rank", 1, "")), tied(further("two_modules", 2, "data = 2" + zero1, te, 2)),
                    tied(further("tensors", 2, tensors, te)),
                    tied(reported(further("gradients_apart", 1, ""), unfused)),
                    tied(reported(further("stages", 2, "pipeline = 2", "", 2), unfused)),
                    tied(reported(further("all_axes", 8, tensors + "pipeline = 2\nexpert = 4" + zero1, te), unfused))),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    OfContext, ArithmeticOfMtpLayers,
    testing::Values(further("ring", 2, "context = 2"), further("ring_of_four", 4, "context = 4", te),
                    further("gathered", 2, "context = 2\ncontext_kind = \"all_gather\""),
                    further("by_heads", 2, "context = 2\ncontext_kind = \"a2a\"", "", 2),
                    of_sequences(further("two_sequences", 2, "context = 2", te), 2),
                    tied(further("tied", 2, "context = 2")),
                    further("all_axes", 8, tensors + "context = 2\npipeline = 2\nexpert = 4" + zero1, te)),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests::mtp_layers_test
