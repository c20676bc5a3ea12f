#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"

// Sharded parameters, gathered and reduced unit by unit: what comes of them is what one rank that holds the model
// whole comes to.

namespace tidemark::tests::fully_shard_test {
namespace {

MathCase sharded(std::string name, int gpus, std::string layout = "", std::string train = "",
                 std::string switches = "") {
  MathCase its{.name = std::move(name), .gpus = gpus, .layout = std::move(layout), .train = std::move(train)};
  its.runtime = "name = \"fsdp2\"\n[runtime.switches]\n" + std::move(switches);
  its.global_batch = gpus;
  its.override_keys = "num_key_value_heads = 2\nhead_dim = 8\ntie_word_embeddings = false";
  return its;
}

MathCase flat(std::string name, int gpus, std::string layout = "", std::string train = "", std::string switches = "") {
  MathCase its = sharded(std::move(name), gpus, std::move(layout), std::move(train));
  its.runtime = "name = \"fsdp\"\n[runtime.switches]\n" + std::move(switches);
  return its;
}

MathCase in_bf16(MathCase its) {
  its.precision = "bf16";
  return its;
}

// Another micro-batch each.
MathCase twice(MathCase its) {
  its.global_batch *= 2;
  return its;
}

MathCase of(MathCase its, std::string model, std::string keys = "") {
  its.model = std::move(model);
  its.override_keys = std::move(keys);
  return its;
}

class ArithmeticOfShards : public testing::TestWithParam<MathCase> {};

TEST_P(ArithmeticOfShards, IsThatOfOneRank) { expect_what_one_rank_computes(GetParam()); }

INSTANTIATE_TEST_SUITE_P(FullyShard, ArithmeticOfShards,
                         testing::Values(sharded("two", 2), sharded("kept", 2, "sharding = \"zero2\""),
                                         sharded("uneven", 3),  // 48 and 128 rows, over three
                                         sharded("last_is_empty", 5), twice(sharded("accumulating", 2)),
                                         twice(sharded("reduced_each", 2, "", "", "sync_each_batch = true")),
                                         sharded("replicas", 4, "shard_group = 2"),
                                         twice(sharded("replicas_accumulating", 4, "shard_group = 2")),
                                         sharded("checkpointed", 2, "", "recompute = \"full\""),
                                         sharded("reentrant", 2, "", "recompute = \"full\"", "use_reentrant = true"),
                                         twice(sharded("checkpointed_accumulating", 2, "", "recompute = \"full\"")),
                                         sharded("sgd", 2, "", "optimizer = \"sgd\""),
                                         sharded("fused", 2, "", "optimizer = \"adamw\"", "fused = true"),
                                         of(sharded("tied", 2), "qwen3-8b",
                                            "num_key_value_heads = 2\nhead_dim = 8\ntie_word_embeddings = true"),
                                         in_bf16(sharded("bf16", 2))),
                         [](const testing::TestParamInfo<MathCase>& row) { return row.param.name; });

MathCase titan(std::string name, int gpus, std::string release, std::string train = "", std::string switches = "") {
  MathCase its = sharded(std::move(name), gpus, "", std::move(train));
  its.runtime = "name = \"torchtitan\"\nversions = { torch = \"2.15\", torchtitan = \"" + release +
                "\" }\n[runtime.switches]\n" + std::move(switches);
  return its;
}

// Ranks with parts of sequences, and with sequences of their own.
MathCase in_context(MathCase its, std::string layout) {
  its.layout = std::move(layout);
  return in_bf16(std::move(its));
}

MathCase qwen3(MathCase its) { return of(std::move(its), "qwen3-8b", "num_key_value_heads = 2\nhead_dim = 16"); }

// 2 of 8 experts; of 16 tokens a sequence as many for each, or as many as are said.
MathCase with_experts(MathCase its, std::string routing = "") {
  its = in_bf16(of(std::move(its), "qwen3-30b-a3b",
                   "num_key_value_heads = 2\nhead_dim = 16\nnum_experts = 8\nnum_experts_per_tok = 2\n"
                   "moe_intermediate_size = 16"));
  its.routing = std::move(routing);
  return its;
}

// Latent attention, a layer without experts, and 2 of 8 experts beside shared ones.
MathCase deepseek(MathCase its, const std::string& model = "deepseek-v2-lite", const std::string& sizes = "") {
  return in_bf16(
      of(std::move(its), model,
         "num_key_value_heads = 4\nkv_lora_rank = 16\nqk_nope_head_dim = 8\nqk_rope_head_dim = 8\nv_head_dim = 8\n"
         "n_routed_experts = 8\nnum_experts_per_tok = 2\nmoe_intermediate_size = 16\n"
         "first_k_dense_replace = 1\n" +
             sizes));
}
// A latent of queries too, and experts of the best groups.
MathCase deepseek_v3(MathCase its) {
  return deepseek(std::move(its), "deepseek-v3",
                  "q_lora_rank = 16\nn_group = 4\ntopk_group = 2\nnum_nextn_predict_layers = 0");
}

MathCase on_torch(MathCase its, const std::string& torch) {
  its.runtime.replace(its.runtime.find("2.15"), 4, torch);
  return its;
}

// Over ranks.
MathCase shared_out(MathCase its, std::string layout) {
  its.layout = std::move(layout);
  return its;
}

MathCase pipelined(MathCase its, const std::string& layout, const std::string& torch = "2.15", int micro_batches = 4) {
  its.layout = "pipeline = 2\n" + layout;
  its.global_batch = its.gpus / 2 * micro_batches;
  return in_bf16(on_torch(std::move(its), torch));
}

INSTANTIATE_TEST_SUITE_P(
    TorchtitansPipelines, ArithmeticOfShards,
    testing::Values(pipelined(titan("in_turns", 4, "0.2.2"), ""),
                    pipelined(titan("whole_passes", 4, "0.2.2", "recompute = \"full\""), "schedule = \"gpipe\""),
                    pipelined(titan("of_means", 4, "0.2", "recompute = \"selective\""), "", "2.7"),
                    pipelined(titan("gathered_again", 6, "0.2.1", "", "fsdp_reshard_after_forward = \"always\""), "",
                              "2.12"),
                    pipelined(titan("interleaved", 4, "0.2.2"), "schedule = \"interleaved\""),
                    pipelined(with_experts(titan("experts_in_turns", 4, "0.2.2", "recompute = \"full\"")), ""),
                    pipelined(with_experts(titan("experts_of_stages", 4, "0.2.2"), "imbalance = 1.5"),
                              "schedule = \"interleaved\"\nexpert = 2"),
                    pipelined(deepseek_v3(titan("latents_in_turns", 4, "0.2.2")), "expert = 2"),
                    pipelined(titan("breadth_first", 4, "0.2.2"), "schedule = \"looped-bfs\""),
                    pipelined(titan("zero_bubble", 4, "0.2.2"), "schedule = \"interleaved-zb\""),
                    pipelined(qwen3(titan("zero_bubble_v", 4, "0.2.2")), "schedule = \"zb-v\""),
                    pipelined(titan("dual_pipe_v", 4, "0.2.2", "", "pipeline_parallel_expert_parallel_overlap = false"),
                              "schedule = \"dualpipe-v\"")),
    [](const testing::TestParamInfo<MathCase>& row) { return row.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Torchtitan, ArithmeticOfShards,
    testing::Values(
        in_bf16(shared_out(titan("replicas", 2, "0.2", "recompute = \"full\""), "sharding = \"none\"")),
        twice(shared_out(titan("accumulating_replicas", 3, "0.2.1"), "sharding = \"none\"")),
        titan("one_device", 1, "0.2.2", "recompute = \"selective\""), twice(titan("one_device_0_1", 1, "0.1")),
        in_bf16(qwen3(titan("one_device_in_bf16", 1, "0.2.2"))), titan("titan_0_1", 2, "0.1"),
        titan("titan_0_2", 2, "0.2"), twice(titan("accumulating", 2, "0.2")),
        titan("never", 2, "0.2", "", "fsdp_reshard_after_forward = \"never\""),
        titan("always", 3, "0.1", "", "fsdp_reshard_after_forward = \"always\""),
        titan("full", 2, "0.2", "recompute = \"full\""), titan("per_operation", 2, "0.2", "recompute = \"selective\""),
        titan("every_second", 2, "0.2", "recompute = \"selective\"", "selective_ac_option = 2"),
        titan("compiled", 2, "0.2.1", "", "compile = true"),
        titan("compiled_full", 2, "0.2.1", "recompute = \"full\"", "compile = true"),
        in_bf16(titan("budgeted", 2, "0.2.2", "", "compile = true\nmemory_budget = 0.3")),
        titan("of_inputs_alone", 2, "0.2.1", "", "compile = true\nmemory_budget = 0"),
        twice(titan("compiled_per_operation", 2, "0.2", "recompute = \"selective\"", "compile = \"model\"")),
        in_bf16(twice(titan("counted_tokens", 2, "0.2.2", "recompute = \"selective\""))),
        in_context(titan("context", 2, "0.2.2"), "context = 2"),
        in_context(titan("context_of_several", 8, "0.2.2", "recompute = \"selective\""), "context = 4"),
        in_context(titan("context_unbalanced", 4, "0.2.2", "recompute = \"full\"",
                         "context_parallel_load_balancer = \"None\""),
                   "context = 4"),
        in_context(qwen3(titan("context_replicas", 8, "0.2.2")), "context = 2\nshard_group = 2"),
        qwen3(titan("titan_qwen3", 2, "0.2")),
        in_bf16(twice(qwen3(titan("titan_qwen3_per_operation", 3, "0.2.2", "recompute = \"selective\"")))),
        with_experts(titan("titan_experts", 2, "0.2.2")),
        with_experts(twice(titan("titan_experts_uneven", 3, "0.2.2", "recompute = \"selective\"")),
                     "imbalance = { zipf = 0.8, seed = 3 }"),
        with_experts(titan("titan_experts_full", 2, "0.2.2", "recompute = \"full\"")),
        shared_out(with_experts(titan("titan_experts_parallel", 4, "0.2.2")), "expert = 2"),
        shared_out(with_experts(titan("titan_experts_of_all", 2, "0.2.2", "recompute = \"full\"")), "expert = 2"),
        shared_out(with_experts(twice(titan("titan_experts_uneven_parallel", 4, "0.2.2")),
                                "imbalance = { zipf = 0.8, seed = 3 }"),
                   "expert = 4"),
        shared_out(with_experts(titan("titan_experts_replicas", 8, "0.2.2")), "expert = 2\nshard_group = 4"),
        deepseek(titan("titan_deepseek", 2, "0.2.2")),
        deepseek(twice(titan("titan_deepseek_per_operation", 3, "0.2.2", "recompute = \"selective\""))),
        deepseek_v3(titan("titan_deepseek_groups", 2, "0.2.2", "recompute = \"full\"")),
        shared_out(deepseek(titan("titan_deepseek_parallel", 4, "0.2.2")), "expert = 2"),
        on_torch(shared_out(with_experts(twice(titan("titan_experts_parallel_per_operation", 4, "0.2.2",
                                                     "recompute = \"selective\"")),
                                         "imbalance = { zipf = 0.8, seed = 3 }"),
                            "expert = 4"),
                 "2.12"),
        on_torch(shared_out(deepseek(twice(titan("titan_deepseek_parallel_per_operation", 4, "0.2.2",
                                                 "recompute = \"selective\""))),
                            "expert = 2"),
                 "2.12"),
        shared_out(deepseek_v3(twice(titan("titan_deepseek_groups_parallel", 8, "0.2.2", "recompute = \"full\""))),
                   "expert = 4\nshard_group = 4")),
    [](const testing::TestParamInfo<MathCase>& row) { return row.param.name; });

// Flat parameters: of 7 ranks, some hold pieces of several parameters, and the last some padding.
INSTANTIATE_TEST_SUITE_P(
    FullyShardedDataParallel, ArithmeticOfShards,
    testing::Values(
        flat("flat_two", 2), flat("flat_original", 2, "", "", "use_orig_params = true"),
        flat("flat_kept", 2, "sharding = \"zero2\"", "", "use_orig_params = true"),
        flat("flat_whole", 2, "sharding = \"none\""),
        flat("flat_whole_original", 2, "sharding = \"none\"", "", "use_orig_params = true"), flat("flat_uneven", 7),
        flat("flat_uneven_original", 7, "", "", "use_orig_params = true"), twice(flat("flat_accumulating", 2)),
        twice(flat("flat_accumulating_original", 2, "", "", "use_orig_params = true")),
        twice(flat("flat_reduced_each", 2, "", "", "sync_each_batch = true\nuse_orig_params = true")),
        twice(flat("flat_whole_reduced_each", 2, "sharding = \"none\"", "", "sync_each_batch = true")),
        flat("flat_post", 2, "", "", "backward_prefetch = \"backward_post\""),
        flat("flat_forward_prefetch", 2, "", "", "forward_prefetch = true\nlimit_all_gathers = false"),
        flat("flat_synced", 2, "", "", "sync_module_states = true"), twice(flat("flat_replicas", 4, "shard_group = 2")),
        flat("flat_replicas_synced", 4, "shard_group = 2\nsharding = \"zero2\"", "",
             "sync_module_states = true\nuse_orig_params = true"),
        flat("flat_checkpointed", 2, "", "recompute = \"full\""),
        flat("flat_reentrant", 2, "", "recompute = \"full\"", "use_reentrant = true"),
        flat("flat_fused", 2, "", "optimizer = \"adamw\"", "fused = true\nuse_orig_params = true"),
        of(flat("flat_tied", 2), "qwen3-8b", "num_key_value_heads = 2\nhead_dim = 8\ntie_word_embeddings = true"),
        in_bf16(flat("flat_bf16", 2)),
        in_bf16(flat("flat_autocast", 2, "", "", "autocast = true\nparam_dtype = \"fp32\"\nuse_orig_params = true"))),
    [](const testing::TestParamInfo<MathCase>& row) { return row.param.name; });

MathCase on_host(MathCase its, const std::string& what = "parameters") {
  its.runtime += "\n[offload]\n" + what + " = \"cpu\"";
  return its;
}

MathCase plain(std::string name, std::string train = "", std::string switches = "") {
  MathCase its = sharded(std::move(name), 2, "", std::move(train));
  its.runtime = "name = \"pytorch\"\n[runtime.switches]\n" + std::move(switches);
  return its;
}

// What lies on the host comes back as it was.
INSTANTIATE_TEST_SUITE_P(
    CpuOffload, ArithmeticOfShards,
    testing::Values(
        on_host(flat("flat_offloaded", 2)),
        on_host(flat("flat_offloaded_original", 2, "", "", "use_orig_params = true")),
        on_host(twice(flat("flat_offloaded_accumulating", 2, "", "", "use_orig_params = true"))),
        on_host(twice(flat("flat_offloaded_kept", 3, "sharding = \"zero2\"", "", "use_orig_params = true"))),
        on_host(flat("flat_offloaded_uneven", 7, "", "optimizer = \"adamw\"")),
        on_host(flat("flat_offloaded_replicas", 4, "shard_group = 2", "", "use_orig_params = true")),
        on_host(flat("flat_offloaded_clipped", 2, "", "recompute = \"full\"", "max_grad_norm = 1.0")),
        on_host(in_bf16(flat("flat_offloaded_bf16", 2, "", "", "use_orig_params = true"))),
        on_host(sharded("offloaded_alone", 1)), on_host(in_bf16(sharded("offloaded_alone_bf16", 1))),
        on_host(twice(titan("titan_offloaded", 2, "0.2"))), on_host(in_bf16(titan("titan_offloaded_bf16", 3, "0.2.2"))),
        on_host(plain("saved"), "activations"), on_host(plain("saved_pinned", "", "pin_memory = true"), "activations"),
        on_host(twice(plain("saved_checkpointed", "recompute = \"full\"", "pin_memory = true")), "activations"),
        on_host(plain("saved_reentrant", "recompute = \"full\"", "use_reentrant = true"), "activations")),
    [](const testing::TestParamInfo<MathCase>& row) { return row.param.name; });

}  // namespace
}  // namespace tidemark::tests::fully_shard_test
