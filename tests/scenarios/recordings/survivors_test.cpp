#include "scenarios/recordings/survivors.hpp"

#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/report/text/replay_text.hpp"
#include "tests/scenarios/recordings/recorded_program.hpp"

namespace tidemark::tests::survivors_test {
namespace {

using namespace literals;

constexpr std::int32_t forward = 3, logger = 7;

struct Training {
  RecordedTrace trace;
  std::vector<ExternalAnnotation> marks;
  std::vector<std::size_t> ends;  // events behind each step
};

// Each step makes 20 activations and frees them; the first makes optimizer states that stay; each keeps `left` losses.
Training training(int steps, int left, Bytes varying = 0_B) {
  RecordedProgram program;
  Training run;
  for (int step = 0; step < steps; ++step) {
    std::vector<std::uint64_t> activations;
    for (int i = 0; i < 20; ++i) activations.push_back(program.alloc(1_MiB * (i + 1) + varying * step, forward));
    if (step == 0)
      for (int i = 0; i < 5; ++i) program.alloc(30_MiB, forward);
    for (int i = 0; i < left; ++i) program.alloc(100_B, logger);
    for (const std::uint64_t block : activations) program.free(block);
    run.marks.push_back({ExternalAnnotation::Stage::Start, "Optimizer.step#AdamW.step", 0, program.now() - 1});
    run.marks.push_back({ExternalAnnotation::Stage::End, "Optimizer.step#AdamW.step", 0, program.now()});
    run.ends.push_back(program.events());
  }
  run.trace = std::move(program.trace());
  return run;
}

TEST(Steps, EndWhereTheOptimizersMarksEnd) {
  const Training run = training(5, 0, 512_B);
  const Steps steps = steps_of(run.trace, run.marks, 0);
  EXPECT_EQ(steps.evidence, StepEvidence::Annotations);
  EXPECT_EQ(steps.bounds, run.ends);
  EXPECT_EQ(steps_of(run.trace, run.marks, 1).evidence, StepEvidence::None) << "the marks are of another device";
}

TEST(Steps, AreFoundWhereTheSizesAskedForRepeat) {
  const Training run = training(6, 1);
  const Steps steps = steps_of(run.trace, {}, 0);
  EXPECT_EQ(steps.evidence, StepEvidence::Repetition);
  EXPECT_EQ(steps.count(), 5U) << "the first one asks for more";
  EXPECT_EQ(steps.bounds.back(), run.trace.events.size());
}

TEST(Steps, JsonSaysWhatTellsThem) {
  SnapshotReplay answer;
  const auto evidence = [&](StepEvidence its) {
    answer.steps.evidence = its;
    return nlohmann::json::parse(replay_json(answer))["steps"]["evidence"];
  };
  EXPECT_EQ(evidence(StepEvidence::None), "none");
  EXPECT_EQ(evidence(StepEvidence::Annotations), "annotations");
  EXPECT_EQ(evidence(StepEvidence::Repetition), "repetition");
}

TEST(Steps, AreNotMadeUp) {
  EXPECT_EQ(steps_of(training(6, 1, 512_B).trace, {}, 0).evidence, StepEvidence::None) << "sizes vary";
  EXPECT_EQ(steps_of(training(2, 1).trace, {}, 0).evidence, StepEvidence::None);
  EXPECT_EQ(steps_of({}, {}, 0).count(), 0U);
  RecordedProgram flat;  // one size, over and over: any period would do, and none means a step
  for (int i = 0; i < 30; ++i) flat.free(flat.alloc(1_MiB));
  EXPECT_EQ(steps_of(flat.trace(), {}, 0).evidence, StepEvidence::None);
}

TEST(Survivors, AreWhatEveryStepLeavesBehind) {
  for (const Bytes varying : {0_B, 512_B}) {
    const Training run = training(6, 2, varying);
    const std::vector<Survivors> found = survivors(run.trace, steps_of(run.trace, run.marks, 0));
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].size, 100_B);
    EXPECT_EQ(found[0].stack, StackId{logger});
    EXPECT_EQ(found[0].growth(), 200_B);
    EXPECT_EQ(found[0].live, 12);
    EXPECT_EQ(found[0].left_by_step, (std::vector<std::int64_t>{2, 2, 2, 2, 2}));
  }
}

TEST(Survivors, OptimizerStatesAndASoundRunAreNone) {
  const Training run = training(6, 0);
  EXPECT_TRUE(survivors(run.trace, steps_of(run.trace, run.marks, 0)).empty());
}

TEST(Survivors, WhatTheLastStepHoldsIsNotLeftBehind) {
  Training run = training(6, 0);
  RecordedProgram more;
  more.trace() = run.trace;
  const std::uint64_t held = 100;
  more.trace().events.push_back({.action = TraceEvent::Action::Alloc,
                                 .stream = StreamId{0},
                                 .address = {held << 40},
                                 .size = 5_MiB,
                                 .time_us = more.now() + 1,
                                 .stack = StackId{forward}});
  EXPECT_TRUE(survivors(more.trace(), steps_of(more.trace(), run.marks, 0)).empty());
}

TEST(Survivors, AllocatedGrowsByWhatIsLeft) {
  const Training run = training(5, 2, 512_B);
  const Steps steps = steps_of(run.trace, run.marks, 0);
  EXPECT_EQ(allocated_at(run.trace, steps),
            (std::vector<Bytes>{150_MiB + 1_KiB, 150_MiB + 2_KiB, 150_MiB + 3_KiB, 150_MiB + 4_KiB, 150_MiB + 5_KiB}));
}

}  // namespace
}  // namespace tidemark::tests::survivors_test
