#include <map>
#include <string>

#include <gtest/gtest.h>

#include "parallel/frameworks/megatron/optimizer/buffers.hpp"
#include "parallel/frameworks/megatron/schedule.hpp"
#include "sim/program/liveness.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::weight_gradients_test {
namespace {

// The passes of a model on one rank, in the order of that text.
Program run(const TestJob& job, const char* schedule) {
  const Lowered lowered(job);
  const Communicators comms = communicators_of(lowered.input);
  torch::Process process(comms.table, lowered.runtime.blas_workspace);
  {
    torch::Session session(process, {.sums_in_place = false});
    megatron::Worker worker(session, lowered.input, comms, Coordinates{});
    megatron::build_model(worker, worker.chunks.front());
    megatron::ParamAndGradBuffer buffer(worker, worker.chunks.front(), ParameterGroup::Dense, "");
    buffer.build();
    megatron::Pipeline pipeline(worker, 0);
    Steps steps;
    for (const Action& action : parse_schedule(schedule)) steps.emplace_back(action);
    pipeline.run(1, steps);
    session.finish();
  }
  return with_frees(std::move(process).finish());
}

std::map<std::string, int> kernels(const Program& program) {
  std::map<std::string, int> found;
  for (const Op& op : program.ops)
    if (const Launch* launch = std::get_if<Launch>(&op)) ++found[text(program, program[launch->kernel])];
  return found;
}

// Of one micro-batch, where the next one's first layer begins.
std::int64_t kept_inputs(const Program& program) {
  for (std::size_t i = 0; i < program.ops.size(); ++i)
    if (const Mark* mark = std::get_if<Mark>(&program.ops[i]))
      if (mark->micro_batch == 1 && program[mark->label] == "layers.0.attention.norm")
        return sum(live(program, i), "layers.0.mlp.norm.out");
  ADD_FAILURE() << "a second micro-batch";
  return 0;
}

TEST(WeightGradients, ThatComeLaterTakeTheSameKernels) {
  for (const bool fused : {true, false}) {
    TestJob job;
    job.settings.gradient_accumulation_fusion = fused;
    EXPECT_EQ(kernels(run(job, "F0 B0 F1 B1")), kernels(run(job, "F0 B0 F1 B1 W0 W1"))) << fused;
  }
}

TEST(WeightGradients, HoldTheInputsOfLinearsUntilTheyAreComputed) {
  const TestJob job;
  const std::int64_t input = job.train.tokens() * job.model.hidden * 2;
  EXPECT_EQ(kept_inputs(run(job, "F0 B0 F1 B1")), 0);
  EXPECT_EQ(kept_inputs(run(job, "F0 B0 F1 B1 W0 W1")), input);
  EXPECT_EQ(kept_inputs(run(job, "F0 B0 W0 F1 B1 W1")), 0);
}

// Where passes are over, and products of the head are left.
std::int64_t kept_logits(const Program& program) {
  for (std::size_t i = 0; i < program.ops.size(); ++i)
    if (const Mark* mark = std::get_if<Mark>(&program.ops[i]))
      if (mark->phase == Phase::Backward && mark->micro_batch < 0) return sum(live(program, i), "head.logits");
  return 0;
}

TEST(WeightGradients, OfTheHeadThatComeAfterAllPassesTakeTheSameKernels) {
  for (const std::int64_t deferred : {std::int64_t{2}, every_micro_batch}) {
    TestJob job;
    const auto each = kernels(run(job, "F0 B0 F1 B1 F2 B2"));
    job.settings.deferred_head_gradients = deferred;
    EXPECT_EQ(kernels(run(job, "F0 B0 F1 B1 F2 B2")), each) << deferred;
  }
}

TEST(WeightGradients, OfTheHeadHoldWhatTheirProductsAreOf) {
  TestJob job;
  const std::int64_t logits = job.train.tokens() * 1024 * 2;  // of a padded vocabulary
  EXPECT_EQ(kept_logits(run(job, "F0 B0 F1 B1 F2 B2")), 0);
  job.settings.deferred_head_gradients = 2;
  EXPECT_EQ(kept_logits(run(job, "F0 B0 F1 B1 F2 B2")), 2 * logits);
  job.settings.deferred_head_gradients = every_micro_batch;
  EXPECT_EQ(kept_logits(run(job, "F0 B0 F1 B1 F2 B2")), 3 * logits);
}

}  // namespace
}  // namespace tidemark::tests::weight_gradients_test
