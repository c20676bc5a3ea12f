// A small model is trained by ranks that share it, and by one that holds it whole: the same losses, gradients and
// parameters, or the programs do not mean what they were written for.

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::check_math_test {
namespace {

using Case = MathCase;

class Arithmetic : public testing::TestWithParam<Case> {};

TEST_P(Arithmetic, OfAllRanksIsThatOfOne) { expect_what_one_rank_computes(GetParam()); }

const std::string all_axes = "tensor = 2\nsequence_parallel = true\npipeline = 2\ndata = 2\nsharding = \"zero1\"";
const std::string grouped = "num_key_value_heads = 2\nhead_dim = 8", alike = "num_key_value_heads = 4";
const std::string unfused = "attention = \"unfused\"";
const std::string tied = grouped + "\ntie_word_embeddings = true";

INSTANTIATE_TEST_SUITE_P(
    Layouts, Arithmetic,
    testing::Values(Case{"one_rank", 1, "", "", grouped}, Case{"tensor", 2, "tensor = 2", "", grouped},
                    Case{"tensor_and_sequence", 2, "tensor = 2\nsequence_parallel = true", "", grouped},
                    Case{"pipeline", 2, "pipeline = 2", "", grouped}, Case{"data", 2, "data = 2", "", grouped},
                    Case{"shards", 2, "data = 2\nsharding = \"zero1\"", "", grouped},
                    Case{"instances", 4, "data = 4\nsharding = \"zero1\"\nshard_group = 2", "", grouped},
                    Case{"interleaved", 2, "pipeline = 2\nchunks = 2", "", grouped},
                    Case{"gpipe", 2, "pipeline = 2\nschedule = \"gpipe\"", "", grouped},
                    Case{"zero_bubble", 4, "pipeline = 4\nschedule = \"zb-h1\"", "", grouped},
                    Case{"all_axes", 8, all_axes, "", grouped}, Case{"all_axes_tied", 8, all_axes, "", tied},
                    Case{"tied", 2, "pipeline = 2", "", tied},
                    Case{"tied_shards", 4, "pipeline = 2\ndata = 2\nsharding = \"zero1\"", "", tied},
                    Case{"uneven", 2, "pipeline = 2\nstage_layers = [3, 1]", "", grouped}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Trainings, Arithmetic,
    testing::Values(Case{"recomputed", 4, "tensor = 2\npipeline = 2", "recompute = \"full\"", grouped},
                    Case{"selective", 2, "tensor = 2", "recompute = \"selective\"", grouped},
                    Case{"scores", 2, "tensor = 2", unfused, grouped},
                    Case{"flash", 2, "tensor = 2", "attention = \"flash\"", grouped},
                    Case{"loss_of_transformer_engine", 2, "tensor = 2", "cross_entropy = \"te\"", grouped},
                    Case{"fused_loss", 2, "tensor = 2", "cross_entropy = \"fused\"", grouped},
                    Case{"sgd", 2, "data = 2", "optimizer = \"sgd\"", grouped},
                    Case{"two_sequences", 4, "tensor = 2\ndata = 2\nsequence_parallel = true", "", grouped,
                         "llama-3.1-8b", 2}),
    [](const auto& test) { return test.param.name; });

Case in_16_bits(std::string name, int gpus, std::string layout, std::string train = "",
                std::string precision = "bf16") {
  return {.name = std::move(name),
          .gpus = gpus,
          .layout = std::move(layout),
          .train = std::move(train),
          .override_keys = grouped,
          .precision = std::move(precision)};
}

Case with_softmax_in_fp32() {
  Case made = in_16_bits("softmax_in_fp32", 2, "tensor = 2", "attention = \"unfused\"");
  made.runtime += "\n[runtime.switches]\nno-masked-softmax-fusion = true\nattention-softmax-in-fp32 = true";
  return made;
}

const std::string gathering = "\noverlap-param-gather = true",
                  unaligned = gathering + "\nno-align-grad-reduce = true\nno-align-param-gather = true";

// Several buckets on the first stage.
Case beside_passes(std::string name, int gpus, std::string layout, const std::string& switches = gathering) {
  Case made{.name = std::move(name), .gpus = gpus, .layout = std::move(layout), .override_keys = grouped};
  made.runtime += "\n[runtime.switches]\noverlap-grad-reduce = true\nddp-bucket-size = 3000" + switches;
  return made;
}

INSTANTIATE_TEST_SUITE_P(
    BesidePasses, Arithmetic,
    testing::Values(beside_passes("replicas", 2, "data = 2", ""),
                    beside_passes("shards", 2, "data = 2\nsharding = \"zero1\""),
                    beside_passes("all_axes", 8, all_axes), beside_passes("unaligned", 8, all_axes, unaligned),
                    beside_passes("chunks", 8, all_axes + "\nchunks = 2"),
                    beside_passes("unaligned_chunks", 8, all_axes + "\nchunks = 2", unaligned),
                    beside_passes("instances", 4, "data = 4\nsharding = \"zero1\"\nshard_group = 2")),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Types, Arithmetic,
    testing::Values(in_16_bits("bf16", 1, ""), in_16_bits("bf16_of_all_axes", 8, all_axes),
                    in_16_bits("bf16_sgd", 2, "data = 2\nsharding = \"zero1\"", "optimizer = \"sgd\""),
                    in_16_bits("bf16_gradients", 4, "tensor = 2\ndata = 2", "gradient_dtype = \"bf16\""),
                    in_16_bits("bf16_scores", 2, "tensor = 2", "attention = \"unfused\""),
                    in_16_bits("bf16_recomputed", 2, "pipeline = 2", "recompute = \"full\""),
                    in_16_bits("bf16_te_loss", 2, "tensor = 2", "cross_entropy = \"te\""),
                    in_16_bits("bf16_fused_loss", 2, "tensor = 2", "cross_entropy = \"fused\""), with_softmax_in_fp32(),
                    in_16_bits("bf16_local", 2, "tensor = 2", "attention = \"local\""),
                    in_16_bits("fp16", 4, "tensor = 2\npipeline = 2", "", "fp16")),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(Models, Arithmetic,
                         testing::Values(Case{"qwen2", 4, "tensor = 2\npipeline = 2\nsequence_parallel = true", "",
                                              "num_key_value_heads = 2", "qwen2.5-7b"},
                                         Case{"qwen3", 4, "tensor = 2\npipeline = 2\nsequence_parallel = true", "",
                                              grouped, "qwen3-8b"},
                                         Case{"olmo2", 2, "tensor = 2", "", alike, "olmo-2-7b"},
                                         Case{"neox", 4, "tensor = 2\ndata = 2", "", "", "pythia-6.9b"},
                                         Case{"gemma2", 4, "tensor = 2\npipeline = 2", "", grouped, "gemma-2-9b"}),
                         [](const auto& test) { return test.param.name; });

// Ranks drop what one rank would, also when a forward pass runs again.
Case dropping(Case requested) {
  requested.dropout = "hidden_dropout = 0.2\nattention_dropout = 0.2";
  return requested;
}
const std::string sequence_cut = "tensor = 2\nsequence_parallel = true";
const std::string interleaved = sequence_cut + "\npipeline = 2\nchunks = 2";
const std::string two_blocks = "recompute = \"full\"\nrecompute_method = \"block\"\nrecompute_layers = 1";
const std::string llama = "llama-3.1-8b";

INSTANTIATE_TEST_SUITE_P(
    Dropouts, Arithmetic,
    testing::Values(dropping({"tensor", 2, "tensor = 2", "", grouped}),
                    dropping({"tensor_scores", 2, "tensor = 2", unfused, grouped}),
                    dropping({"two_sequences", 4, sequence_cut + "\ndata = 2", "", grouped, llama, 2}),
                    dropping({"two_sequences_flash", 4, sequence_cut + "\ndata = 2", "attention = \"flash\"", grouped,
                              llama, 2}),
                    dropping({"two_sequences_scores", 2, sequence_cut, unfused, grouped, llama, 2}),
                    dropping({"interleaved_full", 4, interleaved, "recompute = \"full\"", grouped}),
                    dropping({"blocks", 2, "pipeline = 2", two_blocks, grouped}),
                    dropping({"selective", 2, sequence_cut, "recompute = \"selective\"", grouped}),
                    dropping({"selective_scores", 2, sequence_cut, unfused + "\nrecompute = \"selective\"", grouped}),
                    dropping({"zero_bubble", 4, "tensor = 2\npipeline = 2\nschedule = \"zb-h1\"", "", grouped}),
                    dropping({"all_axes_tied", 8, all_axes, "recompute = \"full\"", tied}),
                    dropping({"biases", 4, "tensor = 2\ndata = 2", "", "", "pythia-6.9b"}),
                    dropping({"positions", 4, sequence_cut + "\npipeline = 2", "",
                              "n_layer = 4\nn_embd = 32\nn_head = 4", "gpt2"})),
    [](const auto& test) { return test.param.name; });

// Of latents, in layers without experts.
const std::string latents =
    "num_key_value_heads = 4\nfirst_k_dense_replace = 4\nq_lora_rank = 24\nkv_lora_rank = 16\nqk_nope_head_dim = "
    "8\nqk_rope_head_dim = 8\nv_head_dim = 16";
const std::string sequence = "sequence_parallel = true\n", v3 = "deepseek-v3",
                  no_mtp = "\nnum_nextn_predict_layers = 0";

INSTANTIATE_TEST_SUITE_P(
    Latents, Arithmetic,
    testing::Values(Case{"one_rank", 1, "", "", latents + no_mtp, v3},
                    Case{"tensor", 2, sequence + "tensor = 2", "", latents + no_mtp, v3, 2},
                    Case{"all_axes", 8, all_axes, "", latents + no_mtp, v3},
                    Case{"scores", 2, sequence + "tensor = 2", "attention = \"unfused\"", latents + no_mtp, v3},
                    Case{"recomputed", 4, sequence + "tensor = 2\npipeline = 2", "recompute = \"full\"",
                         latents + no_mtp, v3},
                    Case{"step_by_step", 2, sequence + "tensor = 2", "", latents + no_mtp, v3, 1,
                         "name = \"megatron\"\n[runtime.switches]\nno-rope-fusion = true"},
                    Case{"queries_without", 4, sequence + "tensor = 2\ndata = 2", "",
                         "num_key_value_heads = 4\nfirst_k_dense_replace = 4\nkv_lora_rank = 16\nqk_nope_head_dim = "
                         "8\nqk_rope_head_dim = 8\nv_head_dim = 8",
                         "deepseek-v2-lite"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests::check_math_test
