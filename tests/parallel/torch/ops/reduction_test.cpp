#include "parallel/torch/ops/reduction.hpp"

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

// What a sum takes besides its result, as the null device recorded it (tests/ground_truth; an A100 with PyTorch 2.15).

namespace tidemark::tests::reduction_test {
namespace {

using namespace parallel::torch;

constexpr std::int64_t a100 = 108 * 2048;  // threads at once

Tensor laid_out(Shape sizes, Shape strides) {
  return {nullptr, std::move(sizes), std::move(strides), 0, DType::BF16, {}};
}
Tensor contiguous(Shape sizes) {
  Shape strides = contiguous_strides(sizes);
  return laid_out(std::move(sizes), std::move(strides));
}

TEST(EagerReduction, RowsThatManyBlocksShare) {
  const ReductionScratch scratch = sum_scratch(contiguous({2, 1024, 1024}), {1024}, a100);
  EXPECT_EQ(scratch.partial_sums, Bytes{16 << 20});
  EXPECT_EQ(scratch.counters, Bytes{32});
  EXPECT_EQ(sum_scratch(contiguous({2, 16, 1024}), {1024}, a100).partial_sums, Bytes{});
}

TEST(EagerReduction, DimensionsCountAsTheyLieInMemory) {
  // Norms of each head's queries: batch, sequence, heads, width; or the same memory with heads before the sequence.
  const Tensor plain = contiguous({2, 1024, 16, 128});
  const Tensor turned = laid_out({2, 16, 1024, 128}, {1024 * 16 * 128, 128, 16 * 128, 1});
  const ReductionScratch scratch = sum_scratch(plain, {128}, a100);
  EXPECT_GT(scratch.partial_sums, Bytes{});
  EXPECT_EQ(sum_scratch(turned, {128}, a100).partial_sums, scratch.partial_sums);
  EXPECT_EQ(sum_scratch(turned, {1, 1, 1, 128}, a100).counters, scratch.counters);
}

TEST(EagerReduction, PartialSumsAreAsWideAsWhatIsSummed) {
  const Tensor x = contiguous({2992184});  // a gradient of which DeepSpeed takes the norm in fp64
  const ReductionScratch narrow = sum_scratch(x, {}, a100), wide = sum_scratch(x, {}, a100, fp64_sum);
  EXPECT_EQ(wide.partial_sums, Bytes{2928});
  EXPECT_EQ(narrow.partial_sums, Bytes{1464});
  EXPECT_EQ(wide.counters, Bytes{4});
}

TEST(EagerReduction, SumsOfNothingTakeNothing) {
  const Tensor x = contiguous({4, 8});
  EXPECT_EQ(sum_scratch(x, x.sizes, a100).partial_sums, Bytes{});
}

}  // namespace
}  // namespace tidemark::tests::reduction_test
