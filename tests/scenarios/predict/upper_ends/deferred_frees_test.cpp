#include "scenarios/predict/upper_ends/deferred_frees.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/plan/bounds/bounds.hpp"
#include "scenarios/plan/bounds/exact_memory.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/plan/plan.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/predict/role_program.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/recordings/memory_snapshot.hpp"
#include "scenarios/report/page/memory_curve.hpp"
#include "scenarios/report/simulated_snapshot.hpp"
#include "sim/clock/summary.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"
#include "tests/scenarios/small_space.hpp"

// Interleaved schedules send beside the passes: what is sent is free again between the end of its pass and the next
// time the host waits for the device. From core 0.14 on gradients go to another stream too; most tests are of 0.13.

namespace tidemark::tests::deferred_frees_test {
namespace {

using namespace literals;

// Hosts that look at no number are as far ahead as they can be.
Scenario llama(const std::string& layout, std::int64_t global_batch = 16) {
  return resolved_scenario(parse_scenario(fmt::format(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 8
[layout]
{}[train]
sequence_length = 2048
micro_batch = 1
global_batch = {}
[runtime]
versions = {{ megatron = "0.13", torch = "2.7" }}  # whose process groups mark what is sent
[runtime.switches]
no-check-for-nan-in-loss-and-grad = true
)",
                                                      layout, global_batch),
                                          "llama.toml", folders));
}

const std::string interleaved = "schedule = \"interleaved\"\n";

std::vector<Scenario> interleaved_jobs() {
  return {llama("pipeline = 4\nchunks = 2\n" + interleaved), llama("pipeline = 2\nchunks = 4\n" + interleaved, 32),
          llama("pipeline = 4\ndata = 1\ntensor = 2\nsequence_parallel = true\nchunks = 2\n" + interleaved, 8),
          llama("pipeline = 4\nchunks = 2\nsharding = \"none\"\n" + interleaved, 24)};
}

ReplayOptions returning(const CrossStreamReturn& frees, const Scenario& scenario) {
  return {.allocator = allocator_options_of(scenario), .cross_stream = frees, .queue = launch_queue_of(scenario)};
}

bool says_so(const Prediction& prediction, std::string_view what = "memory of overlapped sends") {
  return std::any_of(prediction.assumptions.begin(), prediction.assumptions.end(),
                     [&](const std::string& line) { return line.starts_with(what); });
}

TEST(DeferredFrees, UpperEndsHoldBothEndsOfEveryRoleAndTheClock) {
  for (Scenario scenario : interleaved_jobs()) {
    scenario.cluster.device.capacity = 1024_GiB;
    const Job job(scenario);
    const Trace trace = simulate_time(job);
    const Prediction prediction = predict(job, trace);
    bool later_is_more = false;
    for (const RankGroup& group : prediction.groups) {
      const RoleProgram its(job, job.role_of(group.ranks.front()));
      const ProgramTimes times = its.times(trace, group.ranks.front());
      const auto upper = [&](const CrossStreamReturn& frees) {
        return replay(its.program(), group.costs, returning(frees, scenario)).peak_device_upper;
      };
      const Bytes at_once = upper(CrossStreamFrees::AtOnce), by_clock = upper(ByClock{&times});
      const Bytes later = std::max(upper(CrossStreamFrees::AtNextSync), by_clock);
      EXPECT_EQ(group.memory.peak_device_upper, std::max(at_once, later) + group.unexplained);
      EXPECT_EQ(group.of_deferred_frees, std::max(at_once, later) - by_clock);
      EXPECT_EQ(group.of_frees_by_clock, std::max(by_clock - at_once, 0_B));
      later_is_more |= later > at_once;
    }
    EXPECT_TRUE(later_is_more);
    EXPECT_TRUE(says_so(prediction));
  }
}

// A step's sends are pending together at the most: the host waits for the device between steps.
TEST(DeferredFrees, MoreStepsDeferNoMore) {
  Scenario scenario = llama("pipeline = 4\nchunks = 2\n" + interleaved, 32);
  scenario.cluster.device.capacity = 1024_GiB;
  const auto most = [&] {
    Bytes found;
    for (const RankGroup& group : predict(scenario, {}, {.frees = ReportedFrees::AtOnce}).groups)
      found = std::max(found, group.of_deferred_frees);
    return found;
  };
  const Bytes two = most();
  EXPECT_GT(two, 0_B);
  scenario.train.steps = 4;
  EXPECT_LE(most(), two + two / 4);
}

std::set<std::string> lent_to_other_streams(const Job& job) {
  std::set<std::string> found;
  for (const Outline& outline : job.outline.programs) {
    const Program& program = outline.shown();
    std::map<std::int32_t, LabelId> labels;
    for (const Op& op : program.ops) {
      if (const auto* alloc = std::get_if<Alloc>(&op)) labels[alloc->buffer.value] = alloc->label;
      if (const auto* use = std::get_if<CrossStreamUse>(&op); use != nullptr && use->recorded)
        found.insert(program[labels.at(use->buffer.value)]);
    }
  }
  return found;
}

// From PyTorch 2.8 on a ProcessGroupNCCL marks no streams, and from core 0.18 on Megatron waits before it takes an
// output's data away.
TEST(DeferredFrees, AreOfReleasesThatMarkWhatIsSent) {
  Scenario scenario = llama("pipeline = 4\nchunks = 2\n" + interleaved, 32);
  const auto waits = [](const Job& job) {
    const Outline& outline = job.outline.programs.front();
    return std::ranges::count_if(outline.shown().ops, [](const Op& op) { return std::holds_alternative<Wait>(op); });
  };
  EXPECT_TRUE(Job(scenario).has_cross_stream_frees);
  scenario.runtime.versions.torch = {2, 8};
  const Job job(scenario);
  EXPECT_FALSE(job.has_cross_stream_frees);
  scenario.runtime.versions.megatron = {0, 17};
  const auto before = waits(Job(scenario));
  scenario.runtime.versions.megatron = {0, 18};
  EXPECT_EQ(waits(Job(scenario)), before) << "it is another place to wait for the same message";
}

// Megatron-LM's training.py makes DistributedDataParallel on a stream of its own from core 0.14 on. AccumulateGrad
// nodes stay on the stream that they are made on (input_metadata.cpp), and autograd marks what it hands over to another
// stream (input_buffer.cpp): gradients that no GEMM has added to the buffer itself.
TEST(DeferredFrees, GradientsGoToTheStreamOfDistributedDataParallel) {
  Scenario scenario = llama("pipeline = 2\n");
  scenario.runtime.versions.torch = {2, 8};
  EXPECT_EQ(lent_to_other_streams(Job(scenario)), std::set<std::string>{});
  scenario.runtime.versions.megatron = {0, 14};
  const std::set<std::string> lent = lent_to_other_streams(Job(scenario));
  EXPECT_EQ(lent, std::set<std::string>{"embedding.weight_gradient"}) << "norms' are too small to be waited for";
  const Prediction prediction = predict(scenario);
  EXPECT_TRUE(says_so(prediction, "gradients that autograd passes to DistributedDataParallel's stream"));
  EXPECT_FALSE(Job(scenario).asks_the_clock) << "they are free at once";
  for (const RankGroup& group : prediction.groups) EXPECT_EQ(group.of_frees_by_clock, 0_B);
  scenario.runtime.gradient_accumulation_fusion = false;
  EXPECT_GT(lent_to_other_streams(Job(scenario)).size(), lent.size());
}

TEST(DeferredFrees, AreSaidOnlyWhereThereAreSome) {
  for (const Scenario& scenario :
       {llama("pipeline = 4\n"), llama("data = 8\n", 64), llama("pipeline = 2\nschedule = \"gpipe\"\n")}) {
    const Prediction prediction = predict(scenario);
    EXPECT_FALSE(says_so(prediction));
    for (const RankGroup& group : prediction.groups) EXPECT_EQ(group.of_deferred_frees, 0_B);
  }
}

// Before the allocator gives up it waits for the frees that are pending; whether that makes room is replayed.
TEST(DeferredFrees, NeedNotFillADeviceThatIsLargeEnoughWithoutThem) {
  int fitting = 0;
  for (Scenario scenario : interleaved_jobs()) {
    scenario.cluster.device.capacity = 1024_GiB;
    const Bytes upper = predict(scenario).highest().memory.peak_device_upper;
    for (const Bytes less : {16_MiB, 64_MiB, 128_MiB, 256_MiB, 512_MiB}) {
      scenario.cluster.device.capacity = upper - less;
      const Prediction prediction = predict(scenario);
      EXPECT_EQ(prediction.fits, prediction.most_required().required.upper <= scenario.cluster.device.capacity);
      if (prediction.fits && prediction.highest().of_deferred_frees > 0_B) ++fitting;
    }
  }
  EXPECT_GT(fitting, 0);
}

TEST(DeferredFrees, DoNotMakeAJobFitThatNeedsMoreWithoutThem) {
  Scenario scenario = llama("pipeline = 4\nchunks = 2\n" + interleaved, 32);
  scenario.cluster.device.capacity = 1024_GiB;
  Bytes at_once;
  for (const RankGroup& group : predict(scenario).groups) at_once = std::max(at_once, group.required.bytes);
  scenario.cluster.device.capacity = at_once * 99 / 100;
  EXPECT_FALSE(predict(scenario).fits);
}

// By the clock blocks come back before the next sync. What is reserved is mostly no less than at once, and mostly no
// more than at the next sync: which blocks are free decides how requests are cut.
TEST(DeferredFrees, ComeByTheClockBetweenTheEnds) {
  int groups = 0, from_the_near_end = 0, up_to_the_far_end = 0, below_the_far_end = 0, above_the_near_end = 0;
  for (Scenario scenario : interleaved_jobs()) {
    scenario.cluster.device.capacity = 1024_GiB;
    const Job job(scenario);
    const Trace trace = simulate_time(job);
    for (const RankGroup& group : predict(job, trace).groups) {
      const RoleProgram its(job, job.role_of(group.ranks.front()));
      const ProgramTimes times = its.times(trace, group.ranks.front());
      const auto run = [&](const auto& cross_stream) {
        return replay(its.program(), group.costs, returning(cross_stream, scenario));
      };
      const MemoryRecord at_once = run(CrossStreamFrees::AtOnce), by_clock = run(ByClock{&times}),
                         at_sync = run(CrossStreamFrees::AtNextSync);
      MemoryRecord reported = group.memory;
      reported.peak_device_upper = by_clock.peak_device_upper;
      EXPECT_EQ(reported, by_clock);
      EXPECT_EQ(group.of_frees_by_clock, std::max(0_B, by_clock.peak_device_upper - at_once.peak_device_upper));
      ++groups;
      from_the_near_end += by_clock.peak_reserved >= at_once.peak_reserved ? 1 : 0;
      up_to_the_far_end += by_clock.peak_reserved <= at_sync.peak_reserved ? 1 : 0;
      below_the_far_end += by_clock.peak_reserved < at_sync.peak_reserved ? 1 : 0;
      above_the_near_end += by_clock.peak_reserved > at_once.peak_reserved ? 1 : 0;
    }
  }
  EXPECT_GT(2 * from_the_near_end, groups);
  EXPECT_GT(2 * up_to_the_far_end, groups);
  EXPECT_GT(below_the_far_end, 0);
  EXPECT_GT(above_the_near_end, 0);
}

TEST(DeferredFrees, AreInReportsAsInTheAnswer) {
  bool is_more_by_the_clock = false;
  for (Scenario scenario : interleaved_jobs()) {
    scenario.cluster.device.capacity = 1024_GiB;
    const Job job(scenario);
    const Trace trace = simulate_time(job);
    const Prediction prediction = predict(job, trace),
                     at_once = predict(job, trace, {}, {.frees = ReportedFrees::AtOnce});
    for (std::size_t i = 0; i < prediction.groups.size(); ++i) {
      const RankGroup& group = prediction.groups[i];
      const Instant end = last_step_begin(trace) + last_step(trace);
      const std::vector<Bytes> highest = highest_by_time(job, trace, group, Instant{}, end, 8);
      EXPECT_EQ(*std::ranges::max_element(highest), group.memory.device.bytes);
      is_more_by_the_clock |= group.memory.device.bytes != at_once.groups[i].memory.device.bytes;
      std::int64_t reserved = 0, most = 0;
      const MemorySnapshot snapshot = simulated_snapshot(job, trace, group.ranks.front());
      for (const TraceEvent& event : snapshot.device_traces.front()) {
        if (event.action == TraceEvent::Action::SegmentAlloc) reserved += event.size.count();
        if (event.action == TraceEvent::Action::SegmentFree) reserved -= event.size.count();
        most = std::max(most, reserved);
      }
      EXPECT_EQ(Bytes{most}, group.memory.peak_reserved);
    }
  }
  EXPECT_TRUE(is_more_by_the_clock);
}

TEST(DeferredFrees, ComeAtOnceOnADeviceThatDoesNothing) {
  for (Scenario scenario : interleaved_jobs()) {
    scenario.cluster.device.capacity = 1024_GiB;
    const Job job(scenario);
    const Trace trace = simulate_time(job);
    const Prediction by_clock = predict(job, trace),
                     prediction = predict(job, trace, {}, {.frees = ReportedFrees::AtOnce});
    ASSERT_EQ(prediction.groups.size(), by_clock.groups.size());
    for (std::size_t i = 0; i < prediction.groups.size(); ++i) {
      const RankGroup& group = prediction.groups[i];
      MemoryRecord reported = group.memory;
      const RoleProgram its(job, job.role_of(group.ranks.front()));
      const MemoryRecord at_once = replay(its.program(), group.costs, returning(CrossStreamFrees::AtOnce, scenario));
      reported.peak_device_upper = at_once.peak_device_upper;
      EXPECT_EQ(reported, at_once);
      EXPECT_EQ(group.memory.peak_device_upper, by_clock.groups[i].memory.peak_device_upper);
    }
    EXPECT_TRUE(says_so(prediction, "memory of overlapped sends is reused as soon as it is freed"));
  }
}

TEST(DeferredFrees, PlanComesToTheFiguresOfPredict) {
  for (const Scenario& job : interleaved_jobs()) {
    Scenario scenario = job;
    scenario.cluster.device.capacity = 1024_GiB;
    const RankGroup most = predict(scenario).highest();
    const Bytes upper = most.memory.peak_device_upper;
    for (const Bytes capacity : {1024_GiB, upper, upper - 100_MiB, upper - most.of_deferred_frees,
                                 upper - most.of_deferred_frees - 100_MiB, upper - most.of_deferred_frees - 2_GiB}) {
      scenario.cluster.device.capacity = capacity;
      const Prediction prediction = predict(scenario);
      Figures said = figures_of(prediction);
      EXPECT_EQ(whole_figures(scenario), said);
      said.step = {};
      said.throughput = 0;
      EXPECT_EQ(fits(scenario, said), prediction.fits);
      SharedModels models;
      auto [without_clock, dominated, asks_the_clock] = ExactMemory(models).of(scenario);
      if (!asks_the_clock) {  // it was run in full
        EXPECT_EQ(without_clock, figures_of(prediction));
        continue;
      }
      Bounder bounder(models);
      EXPECT_LE(bounder.memory(scenario).device_upper, without_clock.device_upper);
      EXPECT_LE(without_clock.device_upper, said.device_upper);
      without_clock.device_upper = said.device_upper;
      without_clock.allocated = said.allocated, without_clock.device = said.device;
      EXPECT_EQ(without_clock, said);
    }
  }
}

// Nothing but the headroom says how full a device may be.
Scenario with_room_for(Scenario scenario, Bytes bytes) {
  scenario.runtime.headroom = scenario.cluster.device.capacity - bytes;
  return scenario;
}

// A job that the clock gives more than both ends, and what is halfway between. Which one it is depends on when small
// blocks come back: it is the first of a few.
struct LargerByTheClock {
  Scenario scenario;
  Bytes between;
};

const LargerByTheClock& larger_by_the_clock() {
  static const LargerByTheClock found = [] {
    for (const auto& [tokens, sequences] : {std::pair{2048, 16}, {4096, 24}, {4096, 16}, {1024, 64}, {1024, 40}}) {
      Scenario scenario = llama("pipeline = 2\nchunks = 4\n" + interleaved, sequences);
      scenario.train.sequence_length = tokens;
      SharedModels models;
      const Bytes ends = exact_memory(scenario, models).device_upper, by_clock = whole_figures(scenario).device_upper;
      if (by_clock > ends) return LargerByTheClock{scenario, ends + (by_clock - ends) / 2};
    }
    return LargerByTheClock{};
  }();
  return found;
}

TEST(DeferredFrees, MayHoldMoreByTheClockThanAtBothEnds) {
  const auto& [larger, between] = larger_by_the_clock();
  ASSERT_GT(between, 0_B);
  const Scenario scenario = with_room_for(larger, between);
  const Job job(scenario);
  const Prediction prediction = predict(job, simulate_time(job));
  const RankGroup& most = prediction.highest();
  EXPECT_EQ(most.of_deferred_frees, 0_B);
  EXPECT_GT(most.of_frees_by_clock, 0_B);
  SharedModels models;
  EXPECT_LT(exact_memory(scenario, models).device_upper, between);
  EXPECT_GT(most.memory.peak_device_upper, between);
}

// Whether the clock decides what fits, or only how much it takes.
TEST(DeferredFrees, PlanFindsWhatBruteForceFinds) {
  const auto& [larger, between] = larger_by_the_clock();
  ASSERT_GT(between, 0_B);
  SmallSpace small;
  small.train =
      fmt::format("sequence_length = {}\nglobal_batch = {}\n", larger.train.sequence_length, larger.train.global_batch);
  small.axes = {{"layout.schedule", {"\"interleaved\"", "\"1f1b\""}},
                {"layout.chunks", {"4", "1"}},
                {"layout.sharding", {"\"none\"", "\"zero1\""}},
                {"train.micro_batch", {"1", "2"}}};
  for (const Bytes room : {between, 79_GiB}) {
    small.top = fmt::format(
        "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n"
        "model_override.num_hidden_layers = 8\nlayout.pipeline = 2\nruntime.headroom = \"{} B\"\n"
        "runtime.versions.torch = \"2.7\"\nruntime.versions.megatron = "
        "\"0.13\"\nruntime.switches.no-check-for-nan-in-loss-and-grad = true\n",
        with_room_for(larger, room).runtime.headroom.count());
    const std::vector<Fitting> all = brute_force(small);
    const Plan found = plan(space_of(small), {});
    expect_as_by_brute_force(found, all);
    for (const Found& f : found.best) {
      const Scenario its = std::get<Scenario>(candidate(space_of(small), f.candidate));
      EXPECT_EQ(f.figures, figures_of(predict(its)));
    }
    EXPECT_EQ(found.best.size(), all.size());
  }
}

}  // namespace
}  // namespace tidemark::tests::deferred_frees_test
