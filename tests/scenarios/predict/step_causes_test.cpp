#include "scenarios/predict/time/step_causes.hpp"

#include <filesystem>
#include <numeric>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lowering/flops.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/text/time_text.hpp"
#include "sim/clock/class_timeline.hpp"
#include "sim/clock/engine.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::step_causes_test {
namespace {

using namespace literals;

// Four layers of Llama-3.1 8B on two nodes: two stages of two data-parallel ranks of two tensor-parallel ones of two
// context-parallel ones.
Scenario scenario(std::string_view train = "") {
  return parse_scenario(fmt::format(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 16
[model_override]
num_hidden_layers = 4
[layout]
tensor = 2
sequence_parallel = true
context = 2
pipeline = 2
sharding = "zero1"
[train]
sequence_length = 4096
micro_batch = 1
global_batch = 8
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
{}[runtime]
name = "megatron"
)",
                                    train),
                        "small.toml", folders);
}

Duration sum_of(const CauseTimes& causes) { return std::accumulate(causes.begin(), causes.end(), Duration{}); }

Duration of(const CauseTimes& causes, StepCause cause) { return causes[static_cast<std::size_t>(cause)]; }

TEST(StepCauses, AddUpToTheStepToThePicosecond) {
  const Job job(scenario());
  const Trace trace = simulate_time(job);
  const CauseTimes causes = cause_times(job.communicators(), job.folding, account_of(job, trace).classes);
  EXPECT_EQ(sum_of(causes), last_step(trace));
  for (const StepCause cause : {StepCause::Compute, StepCause::Tensor, StepCause::Data, StepCause::Bubble})
    EXPECT_GT(of(causes, cause), Duration{}) << name(cause);
  for (const StepCause cause : {StepCause::Expert, StepCause::Copies})
    EXPECT_EQ(of(causes, cause), Duration{}) << name(cause);
}

TEST(StepCauses, OfThreeRanksWhatDividesByNoneOfThemStillAddsUp) {
  const std::vector<Communicator> communicators{{"pipeline", {}}, {"data", {}}, {"world", {}}};
  const StepTimes a{.step = 100_ps,
                    .kernels = 50_ps,
                    .transferring = {10_ps, 5_ps, 1_ps},
                    .waiting = {20_ps, 7_ps, 0_ps},
                    .idle = 7_ps};
  StepTimes b = a;
  b.kernels = 57_ps, b.idle = 0_ps;
  const CauseTimes found = cause_times(communicators, {{1, a}, {2, b}});
  EXPECT_EQ(sum_of(found), 100_ps);
  EXPECT_EQ(of(found, StepCause::Pipeline), 10_ps);
  EXPECT_EQ(of(found, StepCause::Data), 5_ps);
  EXPECT_EQ(of(found, StepCause::Statistics), 1_ps);
  EXPECT_EQ(of(found, StepCause::Bubble), 20_ps) << "it waits for a neighbour";
  EXPECT_EQ(of(found, StepCause::OtherRanks), 7_ps) << "it waits for others to come";
  EXPECT_EQ(of(found, StepCause::Host), 2_ps) << "7 / 3, rounded down";
  EXPECT_EQ(of(found, StepCause::Compute), 55_ps) << "164 / 3, and what rounding has left";
}

Scenario layers_of_llama(std::string_view gpus_and_layout, std::string_view tokens, std::int64_t global_batch = 1) {
  return parse_scenario(fmt::format(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
model_override.num_hidden_layers = 8
{}sharding = "zero1"
[train]
{}micro_batch = 1
global_batch = {}
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
)",
                                    gpus_and_layout, tokens, global_batch),
                        "small.toml", folders);
}

CauseTimes causes_of(const Job& job) {
  return cause_times(job.communicators(), job.folding, account_of(job, simulate_time(job)).classes);
}

// What the compute stream waits for stands on a stream of kernels, and waits for all-to-alls.
TEST(StepCauses, ExposedAllToAllsOfHeadsAreOfContext) {
  const Job job(
      layers_of_llama("gpus = 8\n[layout]\ncontext = 8\ncontext_kind = \"a2a\"\n", "sequence_length = 16384\n"));
  EXPECT_GT(of(causes_of(job), StepCause::Context), Duration{});
}

// Halves of a causal sequence are as long on each rank, and two kernels of attention do not run at once.
TEST(StepCauses, AttentionOnTwoStreamsTakesTheDeviceInTurns) {
  for (const char* kind : {"p2p", "all_gather"}) {
    SCOPED_TRACE(kind);
    const Job job(layers_of_llama(fmt::format("gpus = 4\n[layout]\ncontext = 4\ncontext_kind = \"{}\"\n", kind),
                                  "sequence_length = 65536\n"));
    const CauseTimes causes = causes_of(job);
    EXPECT_LT(100 * of(causes, StepCause::OtherRanks), of(causes, StepCause::Compute));
    const Workload workload = unrolled(job.outline);
    const Trace trace = simulate(workload, job.folding, job.times);
    for (const ClassTimeline& its : timelines(workload, job.folding, job.times, trace)) {
      const Program& program = workload.programs.front();
      std::vector<Span> attention;
      for (const Span& span : its.spans)
        if (const auto* launch = std::get_if<Launch>(&program.ops[span.op]))
          if (const Operation what = program[launch->kernel].operation;
              what == Operation::Attention || what == Operation::AttentionBackward)
            attention.push_back(span);
      std::ranges::sort(attention, {}, &Span::begin);
      ASSERT_GT(attention.size(), 8u);
      for (std::size_t i = 1; i < attention.size(); ++i) EXPECT_LE(attention[i - 1].end, attention[i].begin);
      break;
    }
  }
}

// Few micro-batches go through four stages and back: each waits for a part of the step, and messages take next to
// nothing, on the compute stream and, of the interleaved schedule, beside it.
TEST(StepCauses, WaitingForANeighbourIsABubbleHoweverMessagesGoOut) {
  for (const auto& [layout, batch] : {std::pair{"pipeline = 4\n", 1}, std::pair{"pipeline = 4\nchunks = 2\n", 4}}) {
    SCOPED_TRACE(layout);
    const CauseTimes causes = causes_of(
        Job(layers_of_llama(fmt::format("gpus = 4\n[layout]\n{}", layout), "sequence_length = 8192\n", batch)));
    EXPECT_LT(10 * of(causes, StepCause::Pipeline), of(causes, StepCause::Bubble));
    EXPECT_GT(4 * of(causes, StepCause::Bubble), of(causes, StepCause::Compute));
  }
}

// What a pass of the warm-up reads has been asked for a pass before, and it waits for nothing that comes later.
TEST(StepCauses, WhatIsReceivedAPassAheadMakesNoStepLonger) {
  const auto step = [](bool ahead) {
    Scenario s = layers_of_llama("gpus = 4\n[layout]\npipeline = 4\nchunks = 2\n", "sequence_length = 8192\n", 8);
    s.runtime.overlaps_flush = ahead;
    return last_step(simulate_time(Job(s)));
  };
  EXPECT_LE(step(true), step(false));
}

TEST(StepCauses, EveryStageOfAJobHasRowsThatAddUp) {
  const Job job(scenario());
  const std::string text = time_text(job, simulate_time(job));
  EXPECT_NE(text.find("stage 1"), std::string::npos) << text;
  EXPECT_NE(text.find("bubble"), std::string::npos) << text;
  const std::string step = fmt::format("{:.3f}", static_cast<double>(last_step(simulate_time(job)).count()) / 1e9);
  const std::size_t sums = text.find("in all");
  ASSERT_NE(sums, std::string::npos);
  EXPECT_NE(text.find(step, text.find(step, sums) + 1), std::string::npos) << "of both stages\n" << text;
}

TEST(HardwareUtilization, CountsWhatIsComputedAgain) {
  const auto executed = [](std::string_view train) {
    const Job job(scenario(train));
    double sum = 0;
    for (const RankClass& its : job.folding.classes)
      sum += static_cast<double>(its.size) *
             operations_of_step({job.program(static_cast<std::size_t>(its.program)), {}}, job.scenario.train.steps);
    return sum;
  };
  const Scenario s = scenario();
  const double of_model =
      3 * forward_operations(s.model, s.train.sequence_length).all() * static_cast<double>(s.train.global_batch);
  const double plain = executed(""), again = executed("recompute = \"full\"\n");
  EXPECT_GE(plain, of_model) << "rows of padding";
  EXPECT_LT(plain, 1.3 * of_model) << "and parts of scores that context-parallel ranks mask";
  // The forward passes of all layers once more, the head's not.
  EXPECT_GT(again, 1.1 * plain);
  EXPECT_LT(again, plain * 4 / 3);
}

}  // namespace
}  // namespace tidemark::tests::step_causes_test
