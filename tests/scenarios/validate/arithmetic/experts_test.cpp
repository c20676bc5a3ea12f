// Ranks that share out experts, and tokens as unevenly as is stated, compute what one rank computes that has all
// experts.

#include <algorithm>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::experts_test {
namespace {

class ArithmeticOfExperts : public testing::TestWithParam<MathCase> {};

TEST_P(ArithmeticOfExperts, IsThatOfOneRank) { expect_what_one_rank_computes(GetParam()); }

// A model's router and shared experts, in few numbers: eight experts, of which each token chooses two.
const std::string mixtral = "num_local_experts = 8\nnum_experts_per_tok = 2\nnum_key_value_heads = 2\nhead_dim = 8",
                  sizes = "moe_intermediate_size = 24\nnum_experts_per_tok = 2\n",
                  qwen2 = sizes + "num_experts = 8\nshared_expert_intermediate_size = 32\nnum_key_value_heads = 2",
                  qwen3 = sizes + "num_experts = 8\nnum_key_value_heads = 2\nhead_dim = 8",
                  glm = sizes +
                        "n_routed_experts = 8\nnum_key_value_heads = 2\nhead_dim = 8\nfirst_k_dense_replace = "
                        "1\nnum_nextn_predict_layers = 0",
                  latents =
                      "num_key_value_heads = 4\nfirst_k_dense_replace = 1\nkv_lora_rank = 16\nqk_nope_head_dim = "
                      "8\nqk_rope_head_dim = 8\nv_head_dim = 16",
                  v2_lite = sizes + "n_routed_experts = 8\n" + latents, wide_queries = v2_lite + "\nq_lora_rank = 24",
                  v3 = wide_queries + "\nn_group = 1\ntopk_group = 1\nnum_nextn_predict_layers = 0",
                  four_groups = wide_queries + "\nn_group = 4\ntopk_group = 2";

struct Requested {
  std::string layout = {}, routing = {}, train = {}, switches = {};
  std::string precision = "fp32";
  int micro_batch = 1;
};

MathCase of(const char* model, const std::string& keys, std::string name, int gpus, Requested requested) {
  MathCase made{.name = std::move(name), .gpus = gpus, .layout = std::move(requested.layout)};
  made.train = std::move(requested.train);
  made.override_keys = keys;
  made.model = model;
  made.micro_batch = requested.micro_batch;
  made.global_batch = std::max(made.global_batch, gpus);
  made.precision = std::move(requested.precision);
  if (!requested.switches.empty()) made.runtime += "\n[runtime.switches]\n" + requested.switches;
  made.routing = std::move(requested.routing);
  return made;
}
MathCase of_mixtral(std::string name, int gpus, Requested requested) {
  return of("mixtral-8x7b", mixtral, std::move(name), gpus, std::move(requested));
}

const std::string tensors = "tensor = 2\nsequence_parallel = true\nexpert_tensor = 1\n",
                  zero1 = "\nsharding = \"zero1\"", balanced = "moe-aux-loss-coeff = 0.01",
                  fused = "moe-permute-fusion = true", both = balanced + "\n" + fused,
                  wide_router = "\nmoe-router-dtype = \"fp32\"",
                  together = "moe-router-load-balancing-type = \"global_aux_loss\"\n",
                  all_losses =
                      "moe-router-load-balancing-type = [\"global_aux_loss\", \"aux_loss\", \"seq_aux_loss\"]\n"
                      "moe-aux-loss-coeff = [0.01, 0.02, 0.01]",
                  core_0_12 = "\n[runtime.versions]\nmegatron = \"0.12\"",
                  core_0_15 = "\n[runtime.versions]\nmegatron = \"0.15\"";

INSTANTIATE_TEST_SUITE_P(
    Layouts, ArithmeticOfExperts,
    testing::Values(of_mixtral("one_rank", 1, {}), of_mixtral("one_rank_fused", 1, {.switches = fused}),
                    of_mixtral("replicas", 2, {"data = 2"}), of_mixtral("two", 2, {"expert = 2"}),
                    of_mixtral("two_sequences", 2, {.layout = "expert = 2", .micro_batch = 2}),
                    of_mixtral("one_expert_each", 8, {"expert = 8"}), of_mixtral("shards", 4, {"expert = 2" + zero1}),
                    of_mixtral("instances", 8, {"expert = 2" + zero1 + "\nshard_group = 4"}),
                    of_mixtral("stages", 4, {"pipeline = 2\nexpert = 2"}),
                    of_mixtral("interleaved", 4, {"pipeline = 2\nchunks = 2\nexpert = 2"}),
                    of_mixtral("tensors", 2, {tensors + "expert = 2"}),
                    of_mixtral("tensors_alone", 4, {.layout = tensors + "expert = 1", .switches = both}),
                    of_mixtral("all_axes", 8,
                               {.layout = tensors + "pipeline = 2\nexpert = 4" + zero1, .switches = both}),
                    of_mixtral("bf16", 4, {.layout = tensors + "expert = 4", .switches = both, .precision = "bf16"}),
                    of_mixtral("recomputed", 4, {.layout = tensors + "expert = 2", .train = "recompute = \"full\""})),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Loads, ArithmeticOfExperts,
    testing::Values(
        of_mixtral("uneven", 4, {"expert = 4", "imbalance = 1.5"}),
        of_mixtral("uneven_fused", 4, {"expert = 2" + zero1, "imbalance = 1.5", "", both}),
        of_mixtral("uneven_stages", 8, {tensors + "pipeline = 2\nexpert = 4", "imbalance = 1.3", "", both}),
        of_mixtral("zipf", 4, {"expert = 4", "imbalance = { zipf = 0.8, seed = 3 }"}),
        of_mixtral("dirichlet", 8,
                   {tensors + "pipeline = 2\nexpert = 2" + zero1, "imbalance = { dirichlet = 2, seed = 1 }", "", both}),
        of_mixtral("dropped", 4, {"expert = 4", "capacity_factor = 1.0\nimbalance = 1.5"}),
        of_mixtral("dropped_fused", 4, {"expert = 4", "capacity_factor = 1.0\nimbalance = 1.5", "", both}),
        of_mixtral("padded", 4, {"expert = 4", "capacity_factor = 1.0\npad_to_capacity = true"}),
        of_mixtral("padded_fused", 4, {"expert = 2", "capacity_factor = 1.25\npad_to_capacity = true", "", both}),
        of_mixtral("one_gets_nearly_all", 4, {"expert = 4", "imbalance = 3.5", "", fused})),
    [](const auto& test) { return test.param.name; });

const std::string within = "tensor = 2\nsequence_parallel = true\nexpert_tensor = 2\n",
                  gathers = "dispatcher = \"allgather\"", one_by_one = "moe-grouped-gemm = false",
                  sinkhorn = "moe-router-load-balancing-type = \"sinkhorn\"", eager = "no-bias-swiglu-fusion = true";

INSTANTIATE_TEST_SUITE_P(
    TensorsOfExperts, ArithmeticOfExperts,
    testing::Values(
        of_mixtral("alone", 2, {within + "expert = 1"}),
        of_mixtral("all_to_all", 4, {within + "expert = 2", "", "", both}),
        of_mixtral("all_to_all_uneven", 8, {within + "expert = 4" + zero1, "imbalance = 1.5", "", balanced}),
        of_mixtral("of_replicas", 4, {"expert = 2\nexpert_tensor = 2"}),
        of_mixtral("of_wide_tensors", 4,
                   {"tensor = 2\nsequence_parallel = true\nexpert_tensor = 4\nexpert = 1", "", "", wide_router}),
        of_mixtral("gathered", 4, {within + "expert = 2", gathers, "", both}),
        of_mixtral("padded", 4, {within + "expert = 2", "capacity_factor = 1.0\npad_to_capacity = true", "", fused})),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Gathered, ArithmeticOfExperts,
    testing::Values(of_mixtral("alone", 1, {"", gathers}), of_mixtral("two", 2, {"expert = 2", gathers}),
                    of_mixtral("uneven", 4, {"expert = 4", gathers + "\nimbalance = 1.5", "", balanced}),
                    of_mixtral("wide", 4, {tensors + "expert = 4" + zero1, gathers, "", fused + wide_router}),
                    of_mixtral("stages", 4, {"pipeline = 2\nexpert = 2", gathers})),
    [](const auto& test) { return test.param.name; });

// A token goes once to each rank, whose kernels sum in bf16.
MathCase once_to_each(MathCase its) {
  its.precision = "bf16";
  its.routing += "\ndispatcher = \"flex\"";
  return its;
}

INSTANTIATE_TEST_SUITE_P(
    OnceToEachRank, ArithmeticOfExperts,
    testing::Values(
        once_to_each(of_mixtral("two", 2, {"expert = 2"})),
        once_to_each(of_mixtral("uneven", 4, {"expert = 4" + zero1, "imbalance = 1.5", "", both + wide_router})),
        once_to_each(of_mixtral("over_a_network", 16, {"expert = 8\nexpert_tensor = 2", "", "", fused})),
        once_to_each(of_mixtral("within", 4, {within + "expert = 2", "", "", balanced + wide_router})),
        once_to_each(of_mixtral("recomputed", 4, {"pipeline = 2\nexpert = 2", "", "recompute = \"full\"", fused})),
        once_to_each(of("deepseek-v2", four_groups, "groups", 4, {"expert = 4", "", "", both}))),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    OneByOne, ArithmeticOfExperts,
    testing::Values(of_mixtral("all_to_all", 2, {"expert = 2", "", "", one_by_one}),
                    of_mixtral("one_each", 8, {"expert = 8", "", "", one_by_one + "\n" + eager}),
                    of_mixtral("within", 4, {within + "expert = 2", gathers, "", one_by_one + "\n" + sinkhorn})),
    [](const auto& test) { return test.param.name; });

const std::string small_logits = "moe-z-loss-coeff = 0.1";

const std::string widest_router = "\nmoe-router-dtype = \"fp64\"";

INSTANTIATE_TEST_SUITE_P(
    RoutersInFp64, ArithmeticOfExperts,
    testing::Values(of_mixtral("one_rank", 1, {.switches = widest_router, .precision = "bf16"}),
                    of_mixtral("all_to_all", 4,
                               {within + "expert = 2", "imbalance = 1.5", "",
                                both + "\n" + small_logits + widest_router}),
                    of_mixtral("gathered", 4, {within + "expert = 2", gathers, "", balanced + widest_router}),
                    of_mixtral("one_by_one", 2, {"expert = 2", "", "", one_by_one + "\n" + eager + widest_router}),
                    of_mixtral("as_of_0_12", 2, {"expert = 2", "", "", fused + widest_router + core_0_12}),
                    once_to_each(of_mixtral("once_to_each", 4, {within + "expert = 2", "", "", both + widest_router})),
                    of("deepseek-v3", four_groups + "\nnum_nextn_predict_layers = 0", "sigmoids", 8,
                       {.layout = tensors + "pipeline = 2\nexpert = 4" + zero1,
                        .train = "recompute = \"full\"",
                        .switches = both + widest_router,
                        .precision = "bf16"})),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    SmallLogits, ArithmeticOfExperts,
    testing::Values(of_mixtral("alone", 2, {"expert = 2", "", "", small_logits}),
                    of_mixtral("balanced", 4, {tensors + "expert = 2", "", "", both + "\n" + small_logits}),
                    of_mixtral("of_contexts", 4, {"context = 2\nexpert = 2", "", "", small_logits + wide_router}),
                    of_mixtral("by_sinkhorn", 2, {"expert = 2", "", "", sinkhorn + "\n" + small_logits})),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    BalancedTogether, ArithmeticOfExperts,
    testing::Values(of_mixtral("tensors", 2, {tensors + "expert = 2", "", "", together + both + core_0_15}),
                    of_mixtral("stages_of_contexts", 4,
                               {"context = 2\npipeline = 2\nexpert = 2", "", "", together + balanced + core_0_15}),
                    of_mixtral("all_losses", 2,
                               {.layout = tensors + "expert = 2",
                                .train = "recompute = \"full\"",
                                .switches = all_losses + core_0_15,
                                .micro_batch = 2})),
    [](const auto& test) { return test.param.name; });

const std::string ahead = "overlap-p2p-communication-warmup-flush = true";

INSTANTIATE_TEST_SUITE_P(
    ByGroups, ArithmeticOfExperts,
    testing::Values(of("deepseek-v2", four_groups, "softmax", 2, {"expert = 2"}),
                    of("deepseek-v2", four_groups, "uneven", 4, {"expert = 4", "imbalance = 1.3", "", both}),
                    of("deepseek-v3", four_groups + "\nnum_nextn_predict_layers = 0", "sigmoids", 8,
                       {tensors + "pipeline = 2\nexpert = 4" + zero1, "", "", both + wide_router}),
                    of("deepseek-v3", four_groups + "\nnum_nextn_predict_layers = 0", "loads", 4,
                       {"expert = 4", "imbalance = { zipf = 0.4, seed = 1 }", "", both})),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(HandedOverAhead, ArithmeticOfExperts,
                         testing::Values(of_mixtral("of_chunks", 4,
                                                    {"pipeline = 2\nchunks = 2\nexpert = 2", "", "", ahead})),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    OfContext, ArithmeticOfExperts,
    testing::Values(of_mixtral("ring", 2, {"context = 2\nexpert = 2"}),
                    of_mixtral("ring_gathered", 4,
                               {.layout = "context = 2\nexpert = 2", .routing = gathers, .micro_batch = 2}),
                    of_mixtral("tensors", 4, {tensors + "context = 2\nexpert = 4", "imbalance = 1.3", "", both})),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Models, ArithmeticOfExperts,
    testing::Values(
        of("qwen2-57b-a14b", qwen2, "shared_with_a_gate", 4, {tensors + "expert = 2", "", "", both + wide_router}),
        of("qwen3-30b-a3b", qwen3, "softmax_of_all", 4, {"pipeline = 2\nexpert = 2", "", "", balanced}),
        of("glm-4.5", glm, "sigmoids", 4, {"expert = 4" + zero1, "imbalance = 1.2", "", both + wide_router}),
        of("deepseek-v2-lite", v2_lite, "latents", 2, {"expert = 2"}),
        of("deepseek-v2-lite", v2_lite, "latents_of_tensors", 4, {tensors + "expert = 4", "imbalance = 1.5", "", both}),
        of("deepseek-v3", v3, "latents_of_all_axes", 8,
           {tensors + "pipeline = 2\nexpert = 4" + zero1, "", "", both + wide_router}),
        of("deepseek-v3", v3, "latents_by_sequence", 2,
           {.layout = "expert = 2",
            .switches = "moe-router-load-balancing-type = \"seq_aux_loss\"\n" + both,
            .micro_batch = 2})),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests::experts_test
