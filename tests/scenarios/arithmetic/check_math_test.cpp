// A small model is trained by ranks that share it, and by one that holds it whole: the same losses, gradients and
// parameters, or the programs do not mean what they were written for.

#include <string>

#include <gtest/gtest.h>

#include "tests/scenarios/arithmetic/math_case.hpp"

namespace tidemark::tests {
namespace {

using Case = MathCase;

class Arithmetic : public testing::TestWithParam<Case> {};

TEST_P(Arithmetic, OfAllRanksIsThatOfOne) { expect_what_one_rank_computes(GetParam()); }

const std::string all_axes = "tensor = 2\nsequence_parallel = true\npipeline = 2\ndata = 2\nsharding = \"zero1\"";
const std::string grouped = "num_key_value_heads = 2\nhead_dim = 8", alike = "num_key_value_heads = 4";
const std::string tied = grouped + "\ntie_word_embeddings = true";

INSTANTIATE_TEST_SUITE_P(
    Layouts, Arithmetic,
    testing::Values(Case{"one_rank", 1, "", "", grouped}, Case{"tensor", 2, "tensor = 2", "", grouped},
                    Case{"tensor_and_sequence", 2, "tensor = 2\nsequence_parallel = true", "", grouped},
                    Case{"pipeline", 2, "pipeline = 2", "", grouped}, Case{"data", 2, "data = 2", "", grouped},
                    Case{"shards", 2, "data = 2\nsharding = \"zero1\"", "", grouped},
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
                    Case{"scores", 2, "tensor = 2", "attention = \"unfused\"", grouped},
                    Case{"flash", 2, "tensor = 2", "attention = \"flash\"", grouped},
                    Case{"loss_of_transformer_engine", 2, "tensor = 2", "cross_entropy = \"te\"", grouped},
                    Case{"fused_loss", 2, "tensor = 2", "cross_entropy = \"fused\"", grouped},
                    Case{"sgd", 2, "data = 2", "optimizer = \"sgd\"", grouped},
                    Case{"two_sequences", 4, "tensor = 2\ndata = 2\nsequence_parallel = true", "", grouped,
                         "llama-3.1-8b", 2}),
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
}  // namespace tidemark::tests
