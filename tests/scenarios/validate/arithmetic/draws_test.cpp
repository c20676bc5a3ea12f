#include "scenarios/validate/arithmetic/draws.hpp"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::draws_test {
namespace {

// Tensor-parallel ranks that cut the sequence, and replicas of four micro-batches.
Draws of(std::int32_t tensor, std::int32_t data, const Coordinates& place, Replicas replicas = Replicas::InTurn) {
  Layout layout;
  layout.tensor = tensor;
  layout.sequence_parallel = tensor > 1;
  layout.data = data;
  return {layout, {.micro_batch = 1, .global_batch = std::int64_t{4} * data}, replicas, place};
}

// A program of one kernel, whose operands are all [2, 4, 6, 8].
struct OneKernel {
  explicit OneKernel(Operation operation) : kernel{operation, {}, {}, {}} {
    program.views.push_back({DType::FP32, {2, 4, 6, 8}, contiguous_strides({2, 4, 6, 8})});
    kernel.inputs.assign(facts_of(operation).inputs.size(), ViewId{0});
    kernel.outputs.assign(facts_of(operation).outputs.size(), ViewId{0});
  }
  [[nodiscard]] math::Setting drawn(const Draws& draws, const Mark& at = {Phase::Forward, 1, 1, {}},
                                    std::string_view made = "layers.3.attention.out") const {
    math::Setting setting;
    draws.describe(program, kernel, at, made, setting);
    return setting;
  }
  Program program;
  Kernel kernel;
};

TEST(Draws, EveryOperationThatDropsOutIsToldWhatItDraws) {
  std::set<Operation> reported, drop;
  const auto operations = all_operations();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const auto operation = static_cast<Operation>(i);
    for (const std::string_view attribute : operations[i].attributes)
      if (attribute == "probability" || attribute == "dropout") drop.insert(operation);
    if (OneKernel(operation).drawn(of(1, 1, {})).key != 0) reported.insert(operation);
  }
  drop.erase(Operation::DropoutBackward);  // it has the mask
  EXPECT_EQ(reported, drop);
}

TEST(Draws, AKeySaysWhichModuleDrawsWhenAndForWhich) {
  const OneKernel one(Operation::Dropout);
  const Draws draws = of(2, 2, {});
  const auto key = [&](std::string_view made, std::int32_t step, std::int32_t micro_batch, Phase phase) {
    return one.drawn(draws, {phase, step, micro_batch, {}}, made).key;
  };
  const std::uint64_t first = key("layers.3.attention.out", 1, 1, Phase::Forward);
  EXPECT_EQ(first, key("layers.3.attention.other", 1, 1, Phase::Backward));
  EXPECT_NE(first, key("layers.2.attention.out", 1, 1, Phase::Forward));
  EXPECT_NE(first, key("layers.3.mlp.out", 1, 1, Phase::Forward));
  EXPECT_NE(first, key("layers.3.attention.out", 2, 1, Phase::Forward));
  EXPECT_NE(first, key("layers.3.attention.out", 1, 2, Phase::Forward));
  // Another tensor rank draws by the same key; the second replica's micro-batch 1 is the whole batch's 5.
  EXPECT_EQ(first, one.drawn(of(2, 2, {.tensor = 1})).key);
  EXPECT_EQ(key("layers.3.attention.out", 1, 5, Phase::Forward), one.drawn(of(2, 2, {.data = 1})).key);
}

TEST(Draws, PartsAreThoseThatTensorRanksHave) {
  const Draws second = of(2, 1, {.tensor = 1});
  // Weights [batch, heads, queries, keys], half of the heads.
  const math::PartOfWhole weights = OneKernel(Operation::Dropout).drawn(second).drawn;
  EXPECT_EQ(weights.place(0), 4 * 6 * 8);
  EXPECT_EQ(weights.place(4 * 6 * 8), (2 * 4 + 4) * 6 * 8);
  // Of attention, whose queries and keys are [batch, sequence, heads, width], the same.
  const math::PartOfWhole fused = OneKernel(Operation::Attention).drawn(second).drawn;
  EXPECT_EQ(fused.place(6 * 4 * 4), (6 * 2 + 6) * 4 * 4);
  EXPECT_EQ(fused.place(0), 6 * 4 * 4);
  EXPECT_EQ(OneKernel(Operation::AttentionBackward).drawn(second).drawn.place(0), 6 * 4 * 4);
  // The residual stream [tokens, width], half of the tokens, or all of them.
  OneKernel residual(Operation::BiasDropoutAdd);
  residual.program.views[0] = {DType::FP32, {4, 8}, {8, 1}};
  EXPECT_EQ(residual.drawn(second).drawn.place(3), 4 * 8 + 3);
  EXPECT_EQ(residual.drawn(of(1, 1, {})).drawn.place(3), 3);
}

TEST(Draws, ReplicasThatShareAMicroBatchHavePartsOfIt) {
  const Draws second = of(1, 2, {.data = 1}, Replicas::Together);
  const OneKernel weights(Operation::Dropout);
  EXPECT_EQ(weights.drawn(second).drawn.place(0), 2 * 4 * 6 * 8);
  EXPECT_EQ(weights.drawn(second).key, weights.drawn(of(1, 1, {})).key);
  OneKernel residual(Operation::Dropout);  // [batch, sequence, width]
  residual.program.views[0] = {DType::FP32, {2, 4, 8}, {32, 8, 1}};
  EXPECT_EQ(residual.drawn(second).drawn.place(0), 2 * 4 * 8);
}

}  // namespace
}  // namespace tidemark::tests::draws_test
