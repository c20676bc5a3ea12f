// Modules that run again, whose outputs may be given up meanwhile, and tokens' tensors that ranks share out: the same
// numbers all the same.

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::modules_again_test {
namespace {

class ArithmeticOfModulesAgain : public testing::TestWithParam<MathCase> {};

TEST_P(ArithmeticOfModulesAgain, IsThatOfOneRank) { expect_what_one_rank_computes(GetParam()); }

// Latent attention, and experts behind one dense layer.
MathCase again(std::string name, int gpus, std::string layout, const std::string& modules) {
  MathCase made{.name = std::move(name), .gpus = gpus, .layout = std::move(layout)};
  made.model = "deepseek-v3";
  made.override_keys =
      "moe_intermediate_size = 24\nnum_experts_per_tok = 2\nn_routed_experts = 8\nn_group = 1\ntopk_group = 1\n"
      "num_nextn_predict_layers = 0\nfirst_k_dense_replace = 1\nnum_key_value_heads = 4\nq_lora_rank = 24\n"
      "kv_lora_rank = 16\nqk_nope_head_dim = 8\nqk_rope_head_dim = 8\nv_head_dim = 16";
  made.train = "recompute = \"selective\"\nrecompute_modules = [" + modules + "]";
  made.runtime += "\n[runtime.switches]\nmoe-aux-loss-coeff = 0.01\nmoe-permute-fusion = true";
  return made;
}

MathCase dense(std::string name, int gpus, std::string layout, std::string train, const std::string& switches = "") {
  MathCase made{.name = std::move(name), .gpus = gpus, .layout = std::move(layout), .train = std::move(train)};
  made.override_keys = "num_key_value_heads = 2\nhead_dim = 8";
  made.runtime += switches;
  return made;
}

const std::string tensors = "tensor = 2\nsequence_parallel = true\nexpert_tensor = 1\n",
                  everything = R"("core_attn", "mlp", "layernorm", "mla_up_proj", "moe_act", "shared_experts")",
                  shared_out = "\nswitches.distribute-saved-activations = true";

INSTANTIATE_TEST_SUITE_P(
    Modules, ArithmeticOfModulesAgain,
    testing::Values(again("norms", 2, "expert = 2", R"("layernorm")"),
                    again("norms_of_tensors", 4, tensors + "expert = 2", R"("layernorm")"),
                    again("latents_up", 2, "data = 2", R"("mla_up_proj")"),
                    again("latents_up_of_tensors", 4, tensors + "expert = 4", R"("mla_up_proj")"),
                    again("experts", 4, "expert = 4", R"("moe")"),
                    again("experts_and_norms", 4, tensors + "expert = 2", R"("moe", "layernorm")"),
                    again("expert_activation", 4, "expert = 2", R"("moe_act")"),
                    again("expert_activation_within", 2, "expert = 2", R"("moe", "moe_act", "shared_experts")"),
                    again("shared_experts", 4, tensors + "expert = 4", R"("shared_experts")"),
                    again("everything", 8, tensors + "pipeline = 2\nexpert = 4\nsharding = \"zero1\"", everything),
                    dense("norms_of_local_layers", 2, "tensor = 2\nsequence_parallel = true",
                          "attention = \"local\"\nrecompute = \"selective\"\nrecompute_modules = [\"layernorm\"]"),
                    dense("mlps_and_norms_of_local_layers", 2, "pipeline = 2",
                          "attention = \"local\"\nrecompute = \"selective\"\nrecompute_modules = [\"layernorm\", "
                          "\"mlp\"]")),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    SharedOut, ArithmeticOfModulesAgain,
    testing::Values(dense("layers", 2, "tensor = 2", "recompute = \"full\"", shared_out),
                    dense("groups", 2, "tensor = 2", "recompute = \"full\"\nrecompute_layers = 2", shared_out),
                    dense("stages", 4, "tensor = 2\npipeline = 2",
                          "recompute = \"full\"\nrecompute_method = \"block\"\nrecompute_layers = 1", shared_out),
                    dense("chunks", 4, "tensor = 2\npipeline = 2\nchunks = 2", "recompute = \"full\"", shared_out)),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests::modules_again_test
