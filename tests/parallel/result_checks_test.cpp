#include <string>
#include <string_view>
#include <variant>

#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "tests/parallel/test_job.hpp"

// When hosts ask their device whether numbers are numbers, and wait for the answer.

namespace tidemark::tests::result_checks_test {
namespace {

// Of one step of a rank: looks at tensors whose label ends so, each with a wait before anything else is launched; and
// norms of buckets of gradients.
struct Requested {
  int losses = 0, norms_looked_at = 0, norms = 0;
  bool operator==(const Requested&) const = default;
};

Requested requested_in(const Program& program, std::int32_t step, std::string_view of_losses = "loss.isnan") {
  Requested found;
  bool here = false;
  std::string_view question;
  for (const Op& op : program.ops) {
    if (const auto* mark = std::get_if<Mark>(&op)) here = mark->step == step;
    if (!here) continue;
    if (const auto* alloc = std::get_if<Alloc>(&op)) {
      const std::string& label = program[alloc->label];
      if (label.ends_with("isnan")) question = label;
      found.norms += label.ends_with("bucket_norm") ? 1 : 0;
    } else if (std::holds_alternative<Sync>(op) && !question.empty()) {
      ++(question.ends_with(of_losses) ? found.losses : found.norms_looked_at);
      question = {};
    }
  }
  return found;
}

TestJob job_of(Version megatron) {
  TestJob job;
  job.layout.pipeline = 2;
  job.layout.data = 2;
  job.train.steps = 2;
  job.train.global_batch = 6;
  job.versions.megatron = megatron;
  return job;
}

// Of the job's first or last stage.
Requested of_stage(const TestJob& job, std::size_t stage, std::int32_t step) {
  const Lowered lowered(job);
  return requested_in(lower(lowered.input).programs.at(stage), step);
}

TEST(ResultChecks, OfMegatronAreThoseOfItsReleases) {
  const auto first = [](const TestJob& job, std::int32_t step) { return of_stage(job, 0, step); };
  const auto last = [](const TestJob& job, std::int32_t step) { return of_stage(job, 1, step); };
  for (const std::int32_t step : {1, 2}) {
    EXPECT_EQ(last(job_of({0, 11}), step), (Requested{0, 0, 1})) << step;
    EXPECT_EQ(last(job_of({0, 12}), step), (Requested{3, 1, 1})) << step;
    EXPECT_EQ(first(job_of({0, 12}), step), (Requested{0, 1, 1})) << step;
  }
  EXPECT_EQ(last(job_of({0, 14}), 1), (Requested{0, 0, 1}));
  EXPECT_EQ(last(job_of({0, 14}), 2), (Requested{3, 1, 1}));
  TestJob unchecked = job_of({0, 14});
  unchecked.settings.checks = {.nan_in_loss = false, .nan_in_grad = false};
  EXPECT_EQ(last(unchecked, 2), (Requested{0, 0, 0}));
}

// Megatron-Bridge's rerun_state_machine.check_for_nan_in_loss and ddp.check_for_nan_in_grad.
TEST(ResultChecks, OfBridgeAreAskedForOneByOne) {
  TestJob job = job_of({0, 14});
  job.settings.checks = {.nan_in_loss = false};
  EXPECT_EQ(of_stage(job, 1, 2), (Requested{0, 1, 1}));
  job.settings.checks = {.nan_in_grad = false};
  EXPECT_EQ(of_stage(job, 1, 2), (Requested{3, 0, 0}));
}

// --check-for-large-grads and --check-for-spiky-loss read the number itself: a wait for each, and no tensor.
TEST(ResultChecks, OfLargeNumbersWaitOnceMore) {
  const auto waits = [](const TestJob& job) {
    const Lowered lowered(job);
    const Workload workload = lower(lowered.input);
    int found = 0;
    bool here = false;
    for (const Op& op : workload.programs.at(1).ops) {
      if (const auto* mark = std::get_if<Mark>(&op)) here = mark->step == 2;
      found += here && std::holds_alternative<Sync>(op) ? 1 : 0;
    }
    return found;
  };
  TestJob job = job_of({0, 14});
  job.settings.checks = {.nan_in_loss = false, .nan_in_grad = false};
  const int without = waits(job);
  job.settings.checks.large_grads = true;
  EXPECT_EQ(of_stage(job, 1, 2), (Requested{0, 0, 1})) << "the norm is taken, and not compared with infinity";
  EXPECT_EQ(waits(job), without + 1);
  job.settings.checks.spiky_loss = true;
  EXPECT_EQ(waits(job), without + 4) << "of three micro-batches, too";
}

TEST(ResultChecks, OfTheTrainerFollowEachMicroBatch) {
  for (const char* framework : {"pytorch", "fsdp2", "fsdp", "deepspeed"}) {
    TestJob job;
    job.framework = framework;
    job.layout.data = 2;
    if (job.framework != "pytorch") job.layout.sharding = Sharding::Zero3;
    job.train.precision = DType::BF16;
    job.train.global_batch = 6;
    job.settings.eager.clips_gradients = false;
    const auto looks = [&] {
      const Lowered lowered(job);
      return requested_in(lower(lowered.input).programs.front(), 1, "nan_inf_filter.isnan").losses;
    };
    EXPECT_EQ(looks(), 0) << framework;
    job.settings.eager.filters_losses = true;
    EXPECT_EQ(looks(), 3) << framework;
  }
}

}  // namespace
}  // namespace tidemark::tests::result_checks_test
