#include <string>
#include <variant>

#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "tests/parallel/test_job.hpp"

// Norms of gradients that DeepSpeed takes before a step.

namespace tidemark::tests::zero_norms_test {
namespace {

TestJob job_of_stage_3(std::int64_t sub_group) {
  TestJob job;
  job.framework = "deepspeed";
  job.layout.data = 4;
  job.layout.sharding = Sharding::Zero3;
  job.train.global_batch = 4;
  job.train.precision = DType::BF16;
  job.settings.eager.zero.sub_group_size = sub_group;
  return job;
}

// Numbers of 8 bytes that are alive when the first parameters are updated: norms of sub-groups, that of all, and what
// it was before gradients were scaled.
int norms_in_the_step(const TestJob& job) {
  const Lowered lowered(job);
  const Program program = lower_role(lowered.input, lowered.roles.front());
  for (std::size_t op = 0; op < program.ops.size(); ++op) {
    const auto* alloc = std::get_if<Alloc>(&program.ops[op]);
    if (alloc == nullptr || !program[alloc->label].ends_with("exp_avg")) continue;
    int found = 0;
    for (const LiveTensor& its : live(program, op))
      found += its.bytes == 8 && (its.label.ends_with("total") || its.label.ends_with("unscaled_norm")) ? 1 : 0;
    return found;
  }
  return -1;
}

// stage3.py step: norm_groups is a list of the function's own.
TEST(ZeroNorms, OfSubGroupsOutliveTheStep) {
  EXPECT_EQ(norms_in_the_step(job_of_stage_3(1'000'000'000)), 3) << "of the only sub-group, of all, unscaled";
  const int of_several = norms_in_the_step(job_of_stage_3(1'000'000));
  EXPECT_GT(of_several, 4);
}

}  // namespace
}  // namespace tidemark::tests::zero_norms_test
