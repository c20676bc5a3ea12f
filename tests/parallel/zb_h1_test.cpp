#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/schedule/dry_run.hpp"
#include "parallel/schedule/schedule.hpp"
#include "sim/memory/flat.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::zb_h1_test {
namespace {

std::vector<Schedule> of_all(std::int32_t stages, std::int32_t micro_batches) {
  std::vector<Schedule> all;
  for (std::int32_t stage = 0; stage < stages; ++stage) all.push_back(zb_h1(stage, stages, micro_batches));
  return all;
}

TEST(ZeroBubbleH1, FourStagesEightMicroBatches) {
  EXPECT_EQ(text(zb_h1(0, 4, 8)), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  EXPECT_EQ(text(zb_h1(1, 4, 8)), "F0 F1 F2 B0 F3 BW1 F4 BW2 F5 BW3 F6 BW4 F7 B5 W0 B6 W5 B7 W6 W7");
  EXPECT_EQ(text(zb_h1(2, 4, 8)), "F0 F1 B0 F2 B1 F3 BW2 F4 BW3 F5 BW4 F6 BW5 F7 B6 W0 B7 W1 W6 W7");
  EXPECT_EQ(text(zb_h1(3, 4, 8)), "F0 B0 F1 B1 F2 B2 F3 BW3 F4 BW4 F5 BW5 F6 BW6 F7 B7 W0 W1 W2 W7");
}

TEST(ZeroBubbleH1, FewerMicroBatchesThanStages) {
  EXPECT_EQ(text(zb_h1(0, 4, 2)), "F0 F1 B0 B1");
  EXPECT_EQ(text(zb_h1(2, 4, 2)), "F0 F1 B0 B1 W0 W1");
  EXPECT_EQ(text(zb_h1(3, 4, 2)), "F0 B0 F1 B1 W0 W1");
}

// Stage i (from 0) has no more than p - i micro-batches between forward and backward, and i whose weight gradients are
// to come, so that each holds p at most, as 1F1B's first stage does (section 2.1 of the paper).
TEST(ZeroBubbleH1, HoldsAsMuchAsTheFirstStageOfOneFOneB) {
  for (std::int32_t p = 1; p <= 8; ++p)
    for (std::int32_t m = 1; m <= 20; ++m)
      for (std::int32_t stage = 0; stage < p; ++stage) {
        SCOPED_TRACE(fmt::format("stage {} of {}, {} micro-batches", stage, p, m));
        const Schedule schedule = zb_h1(stage, p, m);
        std::int32_t open = 0, most_open = 0, late = 0, most_late = 0;
        for (const Action& action : schedule) {
          if (is_forward(action.kind)) ++open;
          if (action.kind == ActionKind::InputGradient || action.kind == ActionKind::Backward) --open;
          if (action.kind == ActionKind::InputGradient) ++late;
          if (action.kind == ActionKind::WeightGradient) --late;
          most_open = std::max(most_open, open);
          most_late = std::max(most_late, action.kind == ActionKind::Forward ? late : 0);
        }
        EXPECT_EQ(open, 0);
        EXPECT_EQ(late, 0);
        EXPECT_EQ(most_open, std::min(p - stage, m));
        EXPECT_LE(most_late, stage);
        EXPECT_EQ(most_in_flight(schedule), stage == 0 || m <= p ? std::min(p, m) : p);
      }
}

// The paper's bubble, (p - 1)(F + B - W), both where messages go by themselves and where ranks wait for them in pairs.
TEST(ZeroBubbleH1, TheBubbleIsTheClosedForm) {
  for (const auto& [f, b, w] : {std::array<std::int32_t, 3>{10, 10, 10}, {10, 12, 8}, {10, 14, 6}, {7, 13, 5}})
    for (std::int32_t p = 1; p <= 8; ++p)
      for (std::int32_t m = p; m <= 20; ++m)
        for (const P2pMode mode : {P2pMode::Free, P2pMode::Batched}) {
          SCOPED_TRACE(fmt::format("F {} B {} W {}, {} stages, {} micro-batches", f, b, w, p, m));
          const StagePlacement placement{PlacementShape::Loop, p, 1};
          const auto span = [f = f, b = b, w = w](std::int32_t, const Action& action) {
            switch (action.kind) {
              case ActionKind::Forward:
                return Duration{f};
              case ActionKind::InputGradient:
                return Duration{b};
              case ActionKind::WeightGradient:
                return Duration{w};
              case ActionKind::Backward:
                return Duration{b + w};
            }
            return Duration{};
          };
          const DryRun run = dry_run(with_messages(of_all(p, m), placement, mode), placement,
                                     {span, {}, std::vector<Duration>(static_cast<std::size_t>(p))});
          ASSERT_TRUE(run.stuck.empty());
          EXPECT_EQ(*std::max_element(run.ends.begin(), run.ends.end()),
                    Duration{m * (f + b + w) + (p - 1) * (f + b - w)});
        }
}

TestJob job_of(std::int32_t pipeline, std::int32_t tensor, std::int64_t micro_batches, ScheduleKind schedule) {
  TestJob job;
  job.layout.pipeline = pipeline;
  job.layout.tensor = tensor;
  job.layout.sequence_parallel = tensor > 1;
  job.layout.schedule = schedule;
  job.train.global_batch = micro_batches;
  return job;
}

// Text of each kernel that a program launches, sorted.
std::vector<std::string> kernels(const Program& program) {
  std::vector<std::string> all;
  for (const Op& op : program.ops)
    if (const auto* launch = std::get_if<Launch>(&op)) all.push_back(text(program, program[launch->kernel]));
  std::sort(all.begin(), all.end());
  return all;
}

TEST(ZeroBubbleH1, RanksComputeWhatThoseOfOneFOneBDoInAnotherOrder) {
  for (const std::int32_t tensor : {1, 2})
    for (const bool fused : {true, false}) {
      TestJob job = job_of(4, tensor, 9, ScheduleKind::ZeroBubbleH1),
              other = job_of(4, tensor, 9, ScheduleKind::OneFOneB);
      job.settings.gradient_accumulation_fusion = other.settings.gradient_accumulation_fusion = fused;
      const Lowered parted(job), whole(other);
      for (std::size_t r = 0; r < parted.roles.size(); ++r) {
        SCOPED_TRACE(fmt::format("tensor {}, rank {}, fused {}", tensor, r, fused));
        const Program a = lower_every_pass(parted.input, parted.roles[r]);
        const Program b = lower_every_pass(whole.input, whole.roles[r]);
        EXPECT_EQ(kernels(a), kernels(b));
        EXPECT_EQ(a == b, r == 0) << "only the first stage parts nothing";
      }
    }
}

// What waits holds the input of each linear and the gradient of its output, and gives all of it back.
TEST(ZeroBubbleH1, WhatWaitsHoldsWhatItReads) {
  TestJob job = job_of(4, 1, 9, ScheduleKind::ZeroBubbleH1), other = job_of(4, 1, 9, ScheduleKind::OneFOneB);
  job.train.sequence_length = other.train.sequence_length = 4096;
  const Lowered parted(job), whole(other);
  for (std::size_t r = 1; r < parted.roles.size(); ++r) {
    const Effect a = effect_of(flat_changes(lower_every_pass(parted.input, parted.roles[r])));
    const Effect b = effect_of(flat_changes(lower_every_pass(whole.input, whole.roles[r])));
    EXPECT_GT(a.highest, b.highest) << r;
    EXPECT_EQ(a.net, b.net) << r;
  }
}

TEST(ZeroBubbleH1, ManyMicroBatchesUnrollToWhatEveryPassGives) {
  for (const std::int64_t micro_batches : {5, 17, 40}) {
    const Lowered lowered(job_of(4, 1, micro_batches, ScheduleKind::ZeroBubbleH1));
    for (const Role& role : lowered.roles)
      EXPECT_TRUE(lower_role(lowered.input, role) == lower_every_pass(lowered.input, role)) << role.first.pipeline;
  }
}

TEST(ZeroBubbleH1, NobodyWaitsForEver) {
  for (std::int32_t p = 1; p <= 8; ++p)
    for (std::int32_t m = 1; m <= 20; ++m) {
      const StagePlacement placement{PlacementShape::Loop, p, 1};
      EXPECT_EQ(deadlock(with_messages(of_all(p, m), placement, P2pMode::Batched), placement), "");
    }
}

}  // namespace
}  // namespace tidemark::tests::zb_h1_test
