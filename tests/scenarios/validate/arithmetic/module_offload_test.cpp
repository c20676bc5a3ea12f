// Modules of Megatron's layers whose saved tensors go to the host and come back: the same numbers all the same.

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::module_offload_test {
namespace {

class ArithmeticOfModulesOnTheHost : public testing::TestWithParam<MathCase> {};

TEST_P(ArithmeticOfModulesOnTheHost, IsThatOfOneRank) { expect_what_one_rank_computes(GetParam()); }

std::string on_host(const std::string& modules, const std::string& release = "0.16", int smallest = 64) {
  return "\nversions.megatron = \"" + release +
         "\"\nswitches.fine-grained-activation-offloading = true\nswitches.min-offloaded-tensor-size = " +
         std::to_string(smallest) + "\nswitches.offload-modules = [" + modules + "]";
}

MathCase dense(std::string name, int gpus, std::string layout, const std::string& switches) {
  MathCase made{.name = std::move(name), .gpus = gpus, .layout = std::move(layout)};
  made.override_keys = "num_key_value_heads = 2\nhead_dim = 8";
  made.runtime += switches;
  return made;
}

// Latent attention, and experts behind one dense layer.
MathCase latent(std::string name, int gpus, std::string layout, const std::string& switches, std::string train = "") {
  MathCase made{.name = std::move(name), .gpus = gpus, .layout = std::move(layout), .train = std::move(train)};
  made.model = "deepseek-v3";
  made.override_keys =
      "moe_intermediate_size = 24\nnum_experts_per_tok = 2\nn_routed_experts = 8\nn_group = 1\ntopk_group = 1\n"
      "num_nextn_predict_layers = 0\nfirst_k_dense_replace = 1\nnum_key_value_heads = 4\nq_lora_rank = 24\n"
      "kv_lora_rank = 16\nqk_nope_head_dim = 8\nqk_rope_head_dim = 8\nv_head_dim = 16";
  made.runtime += switches + "\nswitches.moe-aux-loss-coeff = 0.01\nswitches.moe-permute-fusion = true";
  return made;
}

// Queries, keys and values are views of one tensor.
MathCase joint(std::string name) {
  MathCase made = dense(std::move(name), 2, "tensor = 2", on_host(R"("qkv_linear", "core_attn")"));
  made.model = "gpt2", made.override_keys = "n_layer = 4\nn_embd = 32\nn_head = 4\nn_positions = 16";
  return made;
}

const std::string attention = R"("qkv_linear", "core_attn", "attn_proj")",
                  all = R"("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act")",
                  tensors = "tensor = 2\nsequence_parallel = true\n",
                  again =
                      "recompute = \"selective\"\nrecompute_modules = [\"layernorm\", \"mla_up_proj\", \"moe_act\"]";

INSTANTIATE_TEST_SUITE_P(
    Modules, ArithmeticOfModulesOnTheHost,
    testing::Values(dense("attention", 2, tensors, on_host(attention)), joint("views_of_one_tensor"),
                    dense("stages", 4, tensors + "pipeline = 2", on_host(attention)),
                    dense("chunks", 2, "pipeline = 2\nchunks = 2", on_host(attention)),
                    dense("chunks_by_name", 2, "pipeline = 2\nchunks = 2", on_host(attention, "0.19")),
                    dense("part", 2, "pipeline = 2",
                          on_host(attention, "0.19") + "\nswitches.activation-offload-fraction = 0.5"),
                    dense("few_in_flight", 2, "pipeline = 2",
                          on_host(attention, "0.18") + "\nswitches.fine-grained-offloading-max-inflight-offloads = 1"),
                    dense("projections", 2, tensors, on_host(R"("qkv_linear")")),
                    latent("all", 4, tensors + "expert_tensor = 1\nexpert = 4", on_host(all)),
                    latent("all_of_stages", 4, "pipeline = 2\nexpert = 2", on_host(all)),
                    latent("all_by_name", 4, "pipeline = 2\nexpert = 2", on_host(all, "0.19")),
                    latent("experts", 2, "expert = 2", on_host(R"("expert_fc1", "moe_act")")),
                    latent("large_ones", 2, "expert = 2", on_host(all, "0.16", 520)),
                    latent("some_again", 4, tensors + "expert_tensor = 1\nexpert = 2", on_host(all), again)),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests::module_offload_test
