// gpt-oss: sinks that take part in the softmax, experts with biases and gates within limits.

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::gpt_oss_test {
namespace {

class ArithmeticOfGptOss : public testing::TestWithParam<MathCase> {};

TEST_P(ArithmeticOfGptOss, IsThatOfOneRank) { expect_what_one_rank_computes(GetParam()); }

MathCase gpt_oss(std::string name, int gpus, std::string layout, std::string train = "",
                 const std::string& reported = "") {
  MathCase made{.name = std::move(name), .gpus = gpus, .layout = std::move(layout), .train = std::move(train)};
  made.model = "gpt-oss-20b";
  made.override_keys = "num_local_experts = 8\nnum_experts_per_tok = 2\nnum_key_value_heads = 2\nhead_dim = 8";
  made.runtime += "\n[runtime.switches]\nmoe-permute-fusion = true\nmoe-aux-loss-coeff = 0.01" + reported;
  return made;
}
MathCase of_sequences(MathCase made) {
  made.micro_batch = 2;
  return made;
}

const std::string tensors = "tensor = 2\nsequence_parallel = true\nexpert_tensor = 1\n",
                  wide_router = "\nmoe-router-dtype = \"fp32\"",
                  again = "recompute = \"selective\"\nrecompute_modules = ";

INSTANTIATE_TEST_SUITE_P(
    Layouts, ArithmeticOfGptOss,
    testing::Values(gpt_oss("one_rank", 1, ""), gpt_oss("experts", 4, "expert = 4", "", wide_router),
                    gpt_oss("experts_fp64", 4, tensors + "expert = 4", "", "\nmoe-router-dtype = \"fp64\""),
                    of_sequences(gpt_oss("tensors", 2, tensors)),
                    gpt_oss("all_axes", 8, tensors + "pipeline = 2\nexpert = 4\nsharding = \"zero1\"", "", wide_router),
                    gpt_oss("scores", 2, tensors, "attention = \"unfused\""),
                    gpt_oss("wide_scores", 2, "data = 2", "attention = \"unfused\"",
                            "\nno-masked-softmax-fusion = true\nattention-softmax-in-fp32 = true"),
                    gpt_oss("activation_again", 4, "expert = 4", again + "[\"moe_act\", \"core_attn\"]"),
                    gpt_oss("experts_again", 2, tensors + "expert = 2", again + "[\"moe\", \"layernorm\"]"),
                    gpt_oss("layers_again", 2, "pipeline = 2", "recompute = \"full\"")),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests::gpt_oss_test
