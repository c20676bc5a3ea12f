#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"

// DeepSpeed's ZeRO: whatever is shared out, in whatever buckets, ranks come to what one rank comes to that holds all of
// it.

namespace tidemark::tests::zero_test {
namespace {

MathCase zero(std::string name, int stage, int gpus, std::string switches = "", std::string train = "") {
  MathCase its{.name = std::move(name), .gpus = gpus, .train = std::move(train)};
  its.layout = fmt::format("sharding = \"zero{}\"", stage);
  its.runtime = "name = \"deepspeed\"\n[runtime.switches]\n" + std::move(switches);
  its.override_keys = "num_key_value_heads = 2\nhead_dim = 8";
  its.global_batch = gpus;
  return its;
}

MathCase in(MathCase its, std::string precision) {
  its.precision = std::move(precision);
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

const std::string buckets = "reduce_bucket_size = 3000\n";
const std::string wide_sums = "grad_accum_dtype = \"fp32\"\n";
// What was gathered goes after each module.
const std::string releasing =
    "stage3_prefetch_bucket_size = 2000\nstage3_max_live_parameters = 20000\nstage3_max_reuse_distance = 1000\n"
    "stage3_param_persistence_threshold = 40\n";

class ArithmeticOfZero : public testing::TestWithParam<MathCase> {};

TEST_P(ArithmeticOfZero, IsThatOfOneRank) { expect_what_one_rank_computes(GetParam()); }

std::string name_of(const testing::TestParamInfo<MathCase>& row) { return row.param.name; }

INSTANTIATE_TEST_SUITE_P(Stage1, ArithmeticOfZero,
                         testing::Values(zero("two", 1, 2, buckets), zero("three", 1, 3, buckets),
                                         twice(zero("accumulating", 1, 2, buckets)),
                                         zero("overlapped", 1, 2, buckets + "overlap_comm = true"),
                                         zero("not_contiguous", 1, 2, buckets + "contiguous_gradients = false"),
                                         in(zero("bf16_optimizer", 1, 3, wide_sums), "bf16"),
                                         twice(in(zero("bf16_optimizer_accumulating", 1, 2, wide_sums), "bf16")),
                                         in(zero("bf16_optimizer_clipped", 1, 2, wide_sums + "gradient_clipping = 0.5"),
                                            "bf16"),
                                         of(zero("tied", 1, 2, buckets), "qwen3-8b",
                                            "num_key_value_heads = 2\nhead_dim = 8\ntie_word_embeddings = true")),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Stage2, ArithmeticOfZero,
    testing::Values(zero("two", 2, 2, buckets), zero("three", 2, 3, buckets), zero("eight", 2, 8, buckets),
                    twice(zero("accumulating", 2, 2, buckets)),
                    zero("overlapped", 2, 2, buckets + "overlap_comm = true"),
                    twice(zero("overlapped_accumulating", 2, 2, buckets + "overlap_comm = true")),
                    zero("not_contiguous", 2, 2, buckets + "contiguous_gradients = false"),
                    zero("all_reduced", 2, 2, buckets + "reduce_scatter = false"),
                    zero("round_robin", 2, 2, buckets + "round_robin_gradients = true"),
                    zero("clipped", 2, 2, buckets + "gradient_clipping = 0.5"),
                    zero("checkpointed", 2, 2, buckets, "recompute = \"full\""),
                    zero("reentrant", 2, 2, buckets + "use_reentrant = true", "recompute = \"full\""),
                    in(zero("bf16", 2, 2, buckets), "bf16"),
                    twice(in(zero("accumulated_in_fp32", 2, 2, buckets + "grad_accum_dtype = \"fp32\""), "bf16"))),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Stage3, ArithmeticOfZero,
    testing::Values(zero("two", 3, 2, "reduce_bucket_size = 100000\n"), zero("releasing", 3, 2, buckets + releasing),
                    zero("uneven", 3, 3, buckets + releasing), zero("eight", 3, 8, buckets + releasing),
                    zero("not_overlapped", 3, 2, buckets + releasing + "overlap_comm = false"),
                    twice(zero("accumulating", 3, 2, buckets + releasing)),
                    zero("clipped", 3, 2, buckets + releasing + "gradient_clipping = 0.5"),
                    zero("all_reduced", 3, 2, "reduce_bucket_size = 100000\nreduce_scatter = false\n" + releasing),
                    zero("checkpointed", 3, 2, buckets + releasing, "recompute = \"full\""),
                    zero("reentrant", 3, 2, buckets + releasing + "use_reentrant = true", "recompute = \"full\""),
                    zero("sub_groups", 3, 2, buckets + releasing + "sub_group_size = 5000"),
                    zero("secondary", 3, 4, buckets + releasing + "zero_hpz_partition_size = 2"),
                    twice(zero("secondary_uneven", 3, 6, buckets + releasing + "zero_hpz_partition_size = 3")),
                    zero("secondary_checkpointed", 3, 4, buckets + releasing + "zero_hpz_partition_size = 4",
                         "recompute = \"full\""),
                    in(zero("bf16", 3, 2, buckets + releasing), "bf16"),
                    of(zero("tied", 3, 2, buckets + releasing), "qwen3-8b",
                       "num_key_value_heads = 2\nhead_dim = 8\ntie_word_embeddings = true")),
    name_of);

}  // namespace
}  // namespace tidemark::tests::zero_test
