#include "parallel/torch/tensor.hpp"

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::tensor_test {
namespace {

using namespace parallel::torch;

Tensor laid_out(Shape sizes, Shape strides) {
  return {nullptr, std::move(sizes), std::move(strides), 0, DType::BF16, {}};
}
Tensor contiguous(Shape sizes) {
  Shape strides = contiguous_strides(sizes);
  return laid_out(std::move(sizes), std::move(strides));
}
// batch, heads, sequence, width, as a projection's output transposed: heads lie within the sequence.
Tensor transposed_heads(std::int64_t batch) { return laid_out({batch, 4, 8, 16}, {8 * 64, 16, 64, 1}); }

TEST(EagerTensor, StridesOfContiguousTensors) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_TRUE(contiguous({2, 3, 4}).contiguous());
  EXPECT_FALSE(transposed_heads(2).contiguous());
  EXPECT_TRUE(transposed_heads(2).dense());
  EXPECT_FALSE(laid_out({2, 3}, {6, 1}).dense());
}

TEST(EagerTensor, AViewKeepsTheMemoryWhereDimensionsMerge) {
  EXPECT_EQ(strides_of_view(contiguous({2, 3, 4}), {6, 4}), (Shape{4, 1}));
  EXPECT_EQ(strides_of_view(contiguous({6, 4}), {2, 3, 2, 2}), (Shape{12, 4, 2, 1}));
  // Heads of one sequence stay apart by one stride, those of two do not.
  EXPECT_EQ(strides_of_view(transposed_heads(1), {4, 8, 16}), (Shape{16, 64, 1}));
  EXPECT_TRUE(strides_of_view(transposed_heads(2), {8, 8, 16}).empty());
  EXPECT_TRUE(strides_of_view(transposed_heads(1), {1, 8, 64}).empty());
}

TEST(EagerTensor, ElementwiseOutputsLieAsTheirOperandsDo) {
  const Tensor q = transposed_heads(2), cosine = contiguous({1, 1, 8, 16});
  EXPECT_EQ(elementwise_strides({&q, &cosine}, q.sizes), q.strides);
  EXPECT_EQ(elementwise_strides({&cosine, &q}, q.sizes), q.strides);
  const Tensor plain = contiguous(q.sizes);
  EXPECT_EQ(elementwise_strides({&plain, &q}, q.sizes), plain.strides);
  // What is repeated says nothing of the order.
  const Tensor weight = contiguous({16});
  EXPECT_EQ(elementwise_strides({&weight, &q}, q.sizes), q.strides);
}

TEST(EagerTensor, ShapesSpreadOverEachOther) {
  EXPECT_EQ(broadcast({2, 1, 4}, {3, 1}), (Shape{2, 3, 4}));
  EXPECT_EQ(broadcast({}, {5}), (Shape{5}));
}

}  // namespace
}  // namespace tidemark::tests::tensor_test
