#include <algorithm>
#include <cstddef>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/predict/prediction.hpp"
#include "scenarios/predict/role_program.hpp"
#include "scenarios/predict/upper_ends/deferred_frees.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "sim/clock/class_timeline.hpp"
#include "sim/clock/engine.hpp"
#include "sim/clock/summary.hpp"
#include "sim/clock/trace_times.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/structure/leave_out.hpp"
#include "sim/program/structure/of_memory.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// What the clock leaps over is what it would have played: every instant of every op, and all that is summed up of them.

namespace tidemark::tests::cycles_test {
namespace {

struct LongJob {
  const char* name;
  const char* gpus_and_layout;
  std::int64_t global_batch;
  const char* rest;
  bool leaps;
  bool repeats_memory;
  bool shows_cycles = true;  ///< in timelines, where it leaps
};
void PrintTo(const LongJob& job, std::ostream* out) { *out << job.name; }

Scenario scenario_of(const LongJob& job) {
  return parse_scenario(fmt::format(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
model_override.num_hidden_layers = 8
{}
[train]
sequence_length = 2048
micro_batch = 1
global_batch = {}
{})",
                                    job.gpus_and_layout, job.global_batch, job.rest),
                        "long.toml", folders);
}

class Cycles : public testing::TestWithParam<LongJob> {
 protected:
  Cycles()
      : job_(scenario_of(GetParam())),
        trace_(simulate_time(job_)),
        workload_(unrolled(job_.outline)),
        played_(simulate(workload_, job_.folding, job_.times)) {}

  [[nodiscard]] const Program& program(std::size_t rank_class) const {
    return workload_.programs[static_cast<std::size_t>(job_.folding.classes[rank_class].program)];
  }
  [[nodiscard]] ClassTimeline timeline(std::size_t c, const Trace& trace) const {
    return timeline_of(program(c), job_.times.classes[c], trace.classes[c]);
  }

  Job job_;
  Trace trace_;
  Workload workload_;
  Trace played_;
};

TEST_P(Cycles, AreAsIfTheyHadBeenPlayed) {
  EXPECT_EQ(trace_.leapt > 0, GetParam().leaps);
  EXPECT_EQ(played_.leapt, 0);
  EXPECT_EQ(trace_.end, played_.end);
  EXPECT_EQ(trace_.events, played_.events);
  for (std::size_t c = 0; c < trace_.classes.size(); ++c) {
    EXPECT_EQ(trace_.classes[c].step_ends, played_.classes[c].step_ends);
    EXPECT_TRUE(timeline(c, trace_) == timeline(c, played_)) << c;
  }
}

TEST_P(Cycles, AreOnceInShortTimelines) {
  bool any = false;
  for (std::size_t c = 0; c < trace_.classes.size(); ++c) {
    const ClassTrace& its = trace_.classes[c];
    any |= !its.cycles.empty();
    const RepeatingProgram outline =
        *job_.outline.programs[static_cast<std::size_t>(job_.folding.classes[c].program)].get();
    const ClassTimeline all = timeline(c, played_);
    for (const std::int64_t kept : {1, 3}) {
      const ClassTimeline few =
          short_timeline_of(unrolled(without_cycles(outline, its, kept)), job_.times.classes[c], its, kept);
      if (!its.cycles.empty()) {
        EXPECT_LT(few.host.size(), all.host.size());
      }
      const ProgramTimes whole = times_of(all), in_short = times_of(few);
      for (std::size_t op = 0; op < all.host.size(); ++op) {
        ASSERT_EQ(in_short.host_at(op), all.host[op]) << op;
        if (op % 5 != 0) continue;
        for (std::size_t s = 0; s < whole.streams.size(); ++s) {
          const StreamId stream{static_cast<std::int32_t>(s)};
          ASSERT_EQ(in_short.done(stream, op), whole.done(stream, op)) << "op " << op << ", stream " << s;
        }
      }
    }
  }
  EXPECT_EQ(any, GetParam().leaps && GetParam().shows_cycles);
}

TEST_P(Cycles, AddUpToWhatTheWholeStepTakes) {
  const StepAccount account = account_of(job_, trace_);
  for (std::size_t c = 0; c < trace_.classes.size(); ++c)
    EXPECT_EQ(account.classes[c], step_times(program(c), timeline(c, played_), played_, job_.communicators().size()))
        << c;
}

// What few bodies of a loop show of memory is what all of them do; where they show nothing, nobody says so.
TEST_P(Cycles, AreOnceInMemory) {
  std::int64_t known = 0;
  for (std::size_t c = 0; c < trace_.classes.size(); ++c) {
    const ClassTrace& reported = trace_.classes[c];
    const auto index = static_cast<std::size_t>(job_.folding.classes[c].program);
    const DriverCosts& costs = job_.costs.entries[static_cast<std::size_t>(job_.folding.classes[c].costs)];
    const RepeatingProgram& outline = *job_.outline.programs[index].get();
    const ClassTimeline all = timeline(c, played_);
    const ClassTimeline leapt =
        short_timeline_of(unrolled(without_cycles(outline, reported, 1)), job_.times.classes[c], reported, 1);
    const ProgramTimes times = times_of(all);
    std::vector<LeaptCycle> clock = reported.cycles;
    for (LeaptCycle& its : clock) its.cycle.more -= 1;
    for (const bool asks_the_clock : {false, true}) {
      RepeatingProgram few = outline;
      const std::vector<LeftOut> left_out = asks_the_clock ? leave_out(few, clock) : leave_out(few);
      if (left_out.empty()) continue;
      const Program written = unrolled(std::move(few));
      EXPECT_EQ(op_of_whole(left_out, written.ops.size()), program(c).ops.size());
      ProgramTimes in_short = times_of(leapt);
      in_short.left_out = left_out;
      std::vector<CrossStreamReturn> ways{CrossStreamFrees::AtOnce, CrossStreamFrees::AtNextSync};
      if (asks_the_clock) ways.emplace_back(ByClock{&in_short});
      for (const CrossStreamReturn& way : ways) {
        ReplayOptions options{.cross_stream = way, .queue = launch_queue_of(job_.scenario)}, of_whole = options;
        if (std::holds_alternative<ByClock>(way)) of_whole.cross_stream = ByClock{&times};
        const MemoryRecord expected = replay(program(c), costs, of_whole);
        // Devices without a limit, that are too small, and that are just about large enough.
        for (const std::int64_t thousandths : {0, 500, 900, 990, 1000}) {
          if (thousandths > 0)
            of_whole.capacity = options.capacity = Bytes{expected.device.bytes.count() / 1000 * thousandths};
          const std::optional<MemoryRecord> found = replay(written, left_out, costs, options);
          known += found && thousandths == 0 ? 1 : 0;
          if (found) {
            EXPECT_TRUE(*found == replay(program(c), costs, of_whole)) << c << ", " << thousandths;
          }
        }
      }
    }
  }
  EXPECT_EQ(known > 0, GetParam().repeats_memory);
}

// Ops of memory alone, a body of a loop at a time, show what all ops do that are written out.
TEST_P(Cycles, AreOnceInOpsOfMemory) {
  for (std::size_t c = 0; c < trace_.classes.size(); ++c) {
    const DriverCosts& costs = job_.costs.entries[static_cast<std::size_t>(job_.folding.classes[c].costs)];
    const auto index = static_cast<std::size_t>(job_.folding.classes[c].program);
    const MemoryOutline outline = of_memory(*job_.outline.programs[index].get());
    EXPECT_LT(outline.places.size(), program(c).ops.size());
    const ProgramTimes times = times_of(timeline(c, played_));
    for (const CrossStreamReturn& way :
         {CrossStreamReturn{CrossStreamFrees::AtOnce}, CrossStreamReturn{ByClock{&times}}}) {
      ReplayOptions options{.cross_stream = way};
      const MemoryRecord expected = replay(program(c), costs, options);
      EXPECT_TRUE(replay(outline, costs, options) == expected) << c;
      options.capacity = Bytes{expected.device.bytes.count() / 1000 * 950};
      EXPECT_TRUE(replay(outline, costs, options) == replay(program(c), costs, options)) << c;
    }
  }
}

// Whatever few bodies show, and of roles that share passes, the figures are those of all ops of a rank's program.
TEST_P(Cycles, DoNotShowInPredictions) {
  const Prediction prediction = predict(job_, trace_);
  for (const RankGroup& group : prediction.groups) {
    const Rank rank = group.ranks.front();
    const RoleProgram its(job_, job_.role_of(rank));
    const MemoryRecord whole =
        replay(its.program(), group.costs, {.allocator = without_limit(judged_device(job_.scenario).allocator)});
    EXPECT_EQ(group.memory.peak_reserved, whole.peak_reserved) << rank.value;
    // Ops and labels are numbered otherwise where a role's program holds memory's ops alone.
    const auto is_same = [&](const Peak& found, const Peak& expected) {
      const Mark &at = found.at.mark, &there = expected.at.mark;
      EXPECT_EQ(found.bytes, expected.bytes) << rank.value;
      EXPECT_TRUE(found.composition == expected.composition) << rank.value;
      EXPECT_EQ(std::tuple(at.step, at.phase, at.micro_batch), std::tuple(there.step, there.phase, there.micro_batch));
    };
    is_same(group.memory.allocated, whole.allocated);
    is_same(group.memory.device, whole.device);
    for (std::size_t phase = 0; phase < phase_count; ++phase)
      is_same(group.memory.allocated_by_phase[phase], whole.allocated_by_phase[phase]);
    EXPECT_EQ(group.allocated_peak_op, its.program()[whole.allocated.at.mark.label]) << rank.value;
    const ClassTimeline timeline = its.timeline(played_, rank);
    EXPECT_EQ(group.allocated_peak_time, its.host_time(timeline, whole.allocated.at.op)) << rank.value;
    EXPECT_EQ(group.device_peak_time, its.host_time(timeline, whole.device.at.op)) << rank.value;
  }
}

constexpr const char* megatron =
    "hidden_dropout = 0.0\nattention_dropout = 0.0\ncross_entropy = \"te\"\n[runtime]\nname = \"megatron\"\n";
constexpr const char* overlapping =
    "hidden_dropout = 0.0\nattention_dropout = 0.0\ncross_entropy = \"te\"\n[runtime]\nname = "
    "\"megatron\"\n[runtime.switches]\noverlap-grad-reduce = true\noverlap-param-gather = true\n";

INSTANTIATE_TEST_SUITE_P(
    Jobs, Cycles,
    testing::Values(
        LongJob{"one_forward_one_backward", "gpus = 8\n[layout]\ntensor = 2\nsequence_parallel = true\npipeline = 4\n",
                48, megatron, true, false},
        LongJob{"one_forward_one_backward_of_two", "gpus = 2\n[layout]\npipeline = 2\n", 96, megatron, true, true,
                false},
        LongJob{"interleaved", "gpus = 4\n[layout]\npipeline = 2\nchunks = 2\n", 96, megatron, true, false},
        LongJob{"interleaved_and_overlapping", "gpus = 4\n[layout]\npipeline = 2\nchunks = 2\nsharding = \"zero1\"\n",
                192, overlapping, true, false},
        LongJob{"interleaved_in_uneven_shards", "gpus = 6\n[layout]\npipeline = 2\nchunks = 2\nsharding = \"zero1\"\n",
                288, megatron, true, false},
        LongJob{"torchtitans_pipeline", "gpus = 4\n[layout]\npipeline = 2\nschedule = \"interleaved\"\n", 64,
                "[runtime]\nname = \"torchtitan\"\n", false, false},
        LongJob{"fully_sharded", "gpus = 4\n[layout]\nsharding = \"zero3\"\n", 192,
                "[runtime]\nname = \"torchtitan\"\n", false, false},
        LongJob{"offloaded", "gpus = 2\n[layout]\nsharding = \"zero2\"\n", 64,
                "[offload]\noptimizer = \"cpu\"\n[runtime]\nname = \"deepspeed\"\n", true, true},
        LongJob{"one_class", "gpus = 2\n[layout]\nsharding = \"zero1\"\n", 64, megatron, false, true},
        LongJob{"few_micro_batches", "gpus = 2\n[layout]\npipeline = 2\n", 4, megatron, false, false}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests::cycles_test
