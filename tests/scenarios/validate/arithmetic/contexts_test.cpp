// Ranks that share out a sequence compute what one rank computes that sees all of it.

#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::contexts_test {
namespace {

class ArithmeticOfContexts : public testing::TestWithParam<MathCase> {};

TEST_P(ArithmeticOfContexts, IsThatOfOneRank) { expect_what_one_rank_computes(GetParam()); }

const std::string ring = "\ncontext_kind = \"p2p\"", gathered = "\ncontext_kind = \"all_gather\"",
                  ulysses = "\ncontext_kind = \"a2a\"", both = "\ncontext_kind = \"a2a+p2p\"\ncontext_inner = 2",
                  flash = "attention = \"flash\"", zero1 = "\nsharding = \"zero1\"",
                  tensors = "tensor = 2\nsequence_parallel = true\n";

MathCase of(std::string name, int gpus, std::string layout, std::string train = "", int micro_batch = 1) {
  MathCase made{.name = std::move(name), .gpus = gpus, .layout = std::move(layout), .train = std::move(train)};
  made.override_keys = "num_key_value_heads = 4\nhead_dim = 8";
  made.micro_batch = micro_batch;
  return made;
}

INSTANTIATE_TEST_SUITE_P(Kinds, ArithmeticOfContexts,
                         testing::Values(of("ring_of_two", 2, "context = 2" + ring),
                                         of("ring", 4, "context = 4" + ring),
                                         of("ring_flash", 4, "context = 4" + ring, flash, 2),
                                         of("ring_and_replicas", 4, "context = 2\ndata = 2" + ring),
                                         of("ring_and_shards", 4, "context = 2\ndata = 2" + ring + zero1),
                                         of("ring_and_tensors", 4, tensors + "context = 2" + ring),
                                         of("ring_in_a_pipeline", 4, "pipeline = 2\ncontext = 2" + ring, flash),
                                         of("gathered", 4, "context = 4" + gathered),
                                         of("gathered_flash", 2, "context = 2" + gathered, flash, 2),
                                         of("gathered_and_shards", 4, "context = 2\ndata = 2" + gathered + zero1),
                                         of("by_heads", 4, "context = 4" + ulysses),
                                         of("by_heads_of_tensors", 4, tensors + "context = 2" + ulysses, flash, 2),
                                         of("by_heads_and_replicas", 4, "context = 2\ndata = 2" + ulysses),
                                         of("by_heads_and_a_ring", 4, "context = 4" + both + zero1),
                                         of("by_heads_and_a_ring_flash", 4, "context = 4" + both, flash, 2),
                                         of("recomputed", 4, "context = 4" + ring, "recompute = \"full\"")),
                         [](const auto& test) { return test.param.name; });

// Latents, with values as wide as keys or not. In fp32 the fused kernel would turn by other positions.
MathCase of_latents(std::string name, int gpus, std::string layout, int value_width, std::string train = "",
                    std::string precision = "bf16") {
  MathCase made = of(std::move(name), gpus, std::move(layout), std::move(train), 2);
  made.model = "deepseek-v3";
  made.override_keys = fmt::format(
      "num_key_value_heads = 4\nfirst_k_dense_replace = 4\nq_lora_rank = 24\nkv_lora_rank = 16\nqk_nope_head_dim = "
      "8\nqk_rope_head_dim = 8\nv_head_dim = {}\nnum_nextn_predict_layers = 0",
      value_width);
  made.precision = std::move(precision);
  if (made.precision == "fp32") made.runtime += "\n[runtime.switches]\nno-rope-fusion = true";
  return made;
}

INSTANTIATE_TEST_SUITE_P(
    Latents, ArithmeticOfContexts,
    testing::Values(of_latents("latents_ring", 4, "context = 4" + ring, 8),
                    of_latents("latents_ring_step_by_step", 4, "context = 4" + ring, 8, "", "fp32"),
                    of_latents("latents_ring_of_tensors", 8, tensors + "context = 2\npipeline = 2" + ring + zero1, 24),
                    of_latents("latents_by_heads_and_a_ring", 4, "context = 4" + both, 8),
                    of_latents("latents_gathered", 2, "context = 2" + gathered, 16),
                    of_latents("latents_by_heads", 4, "context = 2\ndata = 2" + ulysses, 16, "", "fp32"),
                    of_latents("latents_recomputed", 2, "context = 2" + ring, 8, "recompute = \"full\"")),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests::contexts_test
