#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::gradients_test {
namespace {

TEST(Gradients, OfALinearWithoutANormBeforeItAreDroppedWithItsFunction) {
  // Where norm and linear are one function, it refers to the linear's output gradient until what it gives is summed.
  const auto live_at_sum = [](const TestJob& job, const std::string& sum_label) {
    const Program program = Lowered(job).stage(0);
    for (std::size_t i = 0; i < program.ops.size(); ++i)
      if (const Alloc* alloc = std::get_if<Alloc>(&program.ops[i]);
          alloc != nullptr && program[alloc->label] == sum_label)
        return sum(live(program, i), "layers.1.attention.rotary.mixed_gradient") > 0;
    ADD_FAILURE() << "no " << sum_label;
    return false;
  };
  TestJob job;
  EXPECT_TRUE(live_at_sum(job, "layers.1.attention.norm.gradient_sum"));
  job.model.norms = NormPlacement::After;
  EXPECT_FALSE(live_at_sum(job, "layers.1.attention.qkv.gradient_sum"));
}

// Megatron-LM core 0.14, core/distributed/finalize_model_grads.py: what tensor-parallel ranks add up after a step, each
// sum by its size.
std::vector<std::int64_t> summed_over_tensor_ranks(const TestJob& job, std::int32_t stage = 0) {
  const Lowered lowered(job);
  const Program program = lowered.stage(stage);
  const CommSlot tensor = communicators_of(lowered.input).tensor;
  std::vector<std::int64_t> sums;
  for (std::size_t i = first_mark(program, Phase::Communication, "reduce_gradients");
       i < first_mark(program, Phase::OptimizerStep, "optimizer_step"); ++i)
    if (const Collective* o = std::get_if<Collective>(&program.ops[i]); o != nullptr && o->comm == tensor)
      sums.push_back(o->size.count());
  return sums;
}
using Sums = std::vector<std::int64_t>;

TEST(Gradients, OfNormsAndRowBiasesAreSummedWhereRanksSeePartsOfTheSequence) {
  TestJob job = job_cut({2, true});
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{(4 * 2 + 1) * 768 * 4});
  job.train.gradient_dtype = DType::BF16;
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{(4 * 2 + 1) * 768 * 2});
  EXPECT_EQ(summed_over_tensor_ranks(job_cut({2, false})), Sums{});
  EXPECT_EQ(summed_over_tensor_ranks(job_cut({1, true})), Sums{});
}

// core/tensor_parallel/layers.py param_is_not_tensor_parallel_duplicate: what all tensor-parallel ranks hold, the first
// of them counts.
TEST(Gradients, OfNormsCountOnceInTheNormOfAll) {
  const Lowered lowered(job_cut({2, true}));
  const auto counted = [&](std::int32_t tensor) {
    Role role = lowered.roles.front();
    role.first.tensor = tensor;
    const Program program = lower_role(lowered.input, role);
    std::size_t most = 0;
    for (const Op& op : program.ops)
      if (const auto* launch = std::get_if<Launch>(&op);
          launch != nullptr && program[launch->kernel].operation == Operation::Norm)
        most = std::max(most, program[launch->inputs].size());
    return most;
  };
  EXPECT_EQ(counted(0), counted(1) + 4 * 2 + 1);
}

TEST(Gradients, OfLearnedPositionsAreNotSummed) {
  // Every rank looks positions up whole, and cuts the sequence after that.
  TestJob job = gpt_job();
  job.layout.tensor = 2;
  job.layout.sequence_parallel = true;
  const std::int64_t layer = 2 * 2 * 768 + 2 * 768;  // two norms with biases, and biases of two row-parallel linears
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{(4 * layer + 2 * 768) * 4});
  job.layout.sequence_parallel = false;
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{});
}

TEST(Gradients, OfNormsOfSingleHeadsAreAlwaysSummed) {
  TestJob job = job_cut({2, false});
  job.model.qk_norm = QkNorm::PerHead;
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{4 * 2 * 32 * 4});
  job.layout.sequence_parallel = true;
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{4 * 2 * 32 * 4 + (4 * 2 + 1) * 768 * 4});
  job.layout.tensor = 1;
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{});
  job.layout.tensor = 2;
  job.layout.sequence_parallel = false;
  job.model.qk_norm = QkNorm::AllHeads;  // cut with the heads
  EXPECT_EQ(summed_over_tensor_ranks(job), Sums{});
}

TEST(Gradients, OfOneWholeParameterAreSummedWhereTheyLie) {
  TestJob job = job_cut({2, true});
  job.layout.pipeline = 2;
  job.layout.stage_layers = {4, 0};  // the final norm is left for the last stage
  EXPECT_EQ(summed_over_tensor_ranks(job, 1), Sums{768 * 4});
  EXPECT_EQ(most_at_once(Lowered(job).stage(0), "partial_gradients.flat"), 1);
  EXPECT_EQ(most_at_once(Lowered(job).stage(1), "partial_gradients.flat"), 0);
}

}  // namespace
}  // namespace tidemark::tests::gradients_test
