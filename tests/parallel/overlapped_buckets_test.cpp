#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/frameworks/megatron/worker.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::overlapped_buckets_test {
namespace {

TestJob overlapping_job(std::int32_t pipeline, std::int32_t chunks = 1) {
  TestJob job;
  job.layout.data = 2;
  job.layout.pipeline = pipeline;
  job.layout.chunks = chunks;
  if (chunks > 1) job.layout.schedule = ScheduleKind::Interleaved;
  job.layout.sharding = Sharding::Zero1;
  job.model.layers.resize(4);
  job.train.steps = 2;
  job.train.global_batch = 8;
  job.settings.overlap = {.gradients = true, .parameters = true, .bucket_elements = 3'000'000};
  return job;
}

// Where data goes beside the passes, in the order of the host thread: passes by micro-batch (F0, B0), begun gathers (g)
// and reductions (r) by bucket, counted from the end of the buffer that they lie in, and what passes wait for (|).
std::string beside_passes(const Program& program, std::int32_t step) {
  std::map<BufferId, std::set<std::int64_t>> places;  // of buckets, by the buffer that they lie in
  std::map<BufferId, std::string> chunks;             // of buffers
  for (const Op& op : program.ops) {
    if (const auto* its = std::get_if<Collective>(&op); its != nullptr && its->stream == megatron::data_stream)
      places[its->in.buffer].insert(program[its->in.offset].count());
    if (const auto* its = std::get_if<Alloc>(&op)) {
      const std::string& label = program[its->label];
      if (label.ends_with(']')) chunks[its->buffer] = label.substr(label.rfind('['));
    }
  }
  const auto bucket = [&](const Collective& its) {
    const std::set<std::int64_t>& all = places.at(its.in.buffer);
    return fmt::format("{}{}", std::distance(all.begin(), all.find(program[its.in.offset].count())),
                       chunks[its.in.buffer]);
  };
  std::string reported, pass;
  const auto tell = [&](const std::string& what) { reported += (reported.empty() ? "" : " ") + what; };
  std::map<EventId, std::string> recorded;
  std::string last;
  bool here = false;
  for (const Op& op : program.ops) {
    if (const auto* mark = std::get_if<Mark>(&op)) {
      here = mark->step == step;
      const bool passes = mark->phase == Phase::Forward || mark->phase == Phase::Backward;
      if (!here || !passes || mark->micro_batch < 0) continue;
      const std::string its = fmt::format("{}{}", mark->phase == Phase::Forward ? "F" : "B", mark->micro_batch);
      if (its != pass) tell(its);
      pass = its;
    } else if (const auto* collective = std::get_if<Collective>(&op); collective != nullptr && here) {
      if (collective->stream != megatron::data_stream) continue;
      last = fmt::format("{}{}", collective->kind == CollectiveKind::AllGather ? "g" : "r", bucket(*collective));
      tell(last);
    } else if (const auto* record = std::get_if<Record>(&op); record != nullptr && here) {
      if (record->stream == megatron::data_stream) recorded[record->event] = last;
    } else if (const auto* wait = std::get_if<Wait>(&op); wait != nullptr && here) {
      if (const auto found = recorded.find(wait->event); found != recorded.end()) tell("|" + found->second);
    }
  }
  return reported;
}

// Of a program's end: whether passes go on after a reduction has begun.
bool reduces_before_the_last_p2p(const Program& program) {
  std::size_t reduced = 0, handed_over = 0;
  for (std::size_t i = program.ops.size(); i-- > 0;) {
    const auto* its = std::get_if<Collective>(&program.ops[i]);
    if (its != nullptr && its->stream == megatron::data_stream && reduces(its->kind) && reduced == 0) reduced = i;
    if (std::holds_alternative<Exchange>(program.ops[i]) && handed_over == 0) handed_over = i;
  }
  return reduced < handed_over;
}

TEST(OverlappedBuckets, GoOnceTheyAreCompleteAndComeBeforeTheyAreRead) {
  const Lowered lowered(overlapping_job(1));
  const Program program = lowered.stage(0);
  EXPECT_EQ(beside_passes(program, 1), "F0 B0 F1 B1 F2 B2 F3 B3 r0 r1 r2 r3 r4 |r0 |r1 |r2 |r3 |r4");
  EXPECT_EQ(beside_passes(program, 2),
            "F0 g4 |g4 g3 |g3 g2 |g2 g1 |g1 g0 |g0 B0 F1 B1 F2 B2 F3 B3 r0 r1 r2 r3 r4 |r0 |r1 |r2 |r3 |r4");
}

TEST(OverlappedBuckets, OfLaterStagesGoWhenTheirPassesAreOver) {
  TestJob job = overlapping_job(2);
  EXPECT_EQ(beside_passes(Lowered(job).stage(0), 2),
            "F0 g2 |g2 g1 |g1 g0 |g0 F1 B0 F2 B1 F3 B2 B3 r0 r1 r2 |r0 |r1 |r2");
  EXPECT_EQ(beside_passes(Lowered(job).stage(1), 2), "F0 g0 |g0 B0 F1 B1 F2 B2 F3 B3 r0 |r0");
  EXPECT_FALSE(reduces_before_the_last_p2p(Lowered(job).stage(1)));
  job.settings.overlap.gradients_aligned = false;
  EXPECT_EQ(beside_passes(Lowered(job).stage(1), 2), "F0 g0 |g0 B0 F1 B1 F2 B2 F3 B3 r0 |r0");
  EXPECT_TRUE(reduces_before_the_last_p2p(Lowered(job).stage(1)));
}

TEST(OverlappedBuckets, OfInterleavedStagesGoTogether) {
  TestJob job = overlapping_job(2, 2);
  EXPECT_EQ(beside_passes(Lowered(job).stage(0), 2),
            "g0[0] g1[0] g0[1] F0 |g1[0] |g0[0] F1 F0 |g0[1] F1 F2 B0 F3 B1 F2 B0 F3 B1 B2 B3 r0[1] B2 B3 r0[0] r1[0] "
            "|r0[0] |r1[0] |r0[1]");
  EXPECT_EQ(beside_passes(Lowered(job).stage(1), 2),
            "g0[0] g0[1] F0 |g0[0] F1 F0 |g0[1] B0 F1 B1 F2 B0 F3 B1 F2 B2 F3 B3 B2 r0[1] B3 r0[0] |r0[0] |r0[1]");
  job.settings.overlap.gradients_aligned = job.settings.overlap.parameters_aligned = false;
  EXPECT_EQ(beside_passes(Lowered(job).stage(1), 2),
            "F0 g0[0] |g0[0] F1 F0 g0[1] |g0[1] B0 F1 B1 F2 B0 F3 B1 F2 B2 F3 B3 r0[1] B2 B3 r0[0] |r0[0] |r0[1]");
}

}  // namespace
}  // namespace tidemark::tests::overlapped_buckets_test
