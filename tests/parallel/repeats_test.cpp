#include "sim/program/structure/repeats.hpp"

#include <optional>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "sim/clock/timed_program.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/verify.hpp"
#include "tests/parallel/sharded_job.hpp"
#include "tests/parallel/test_job.hpp"
#include "tests/seeds.hpp"
#include "tests/sim/clock/written_out.hpp"

namespace tidemark::tests::repeats_test {
namespace {

// Where two programs part, for messages.
std::string difference(const Program& a, const Program& b) {
  for (std::size_t i = 0; i < std::min(a.ops.size(), b.ops.size()); ++i)
    if (!(a.ops[i] == b.ops[i])) return "op " + std::to_string(i) + " of " + std::to_string(a.ops.size());
  if (a.ops.size() != b.ops.size()) return "number of ops";
  if (a.names.size() != b.names.size()) return "number of names";
  for (std::size_t i = 0; i < a.names.size(); ++i)
    if (a.names[i] != b.names[i]) return "name " + std::to_string(i) + ": " + a.names[i] + ", not " + b.names[i];
  return a == b ? "" : "tables";
}

std::optional<TestJob> random_job(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::initializer_list<std::int64_t> values) {
    return *(values.begin() + random() % values.size());
  };
  TestJob job;
  job.model.layers.resize(12);
  job.layout.tensor = static_cast<std::int32_t>(pick({1, 2}));
  job.layout.sequence_parallel = job.layout.tensor > 1 && pick({0, 1}) == 1;
  job.layout.pipeline = static_cast<std::int32_t>(pick({1, 2, 3, 4, 6}));
  job.layout.data = static_cast<std::int32_t>(pick({1, 2}));
  job.layout.sharding = pick({0, 1}) == 0 ? Sharding::None : Sharding::Zero1;
  const std::int64_t schedule = pick({0, 0, 1, 2});
  if (schedule == 1) job.layout.schedule = ScheduleKind::GPipe;
  if (schedule == 2 && job.layout.pipeline > 1) {
    job.layout.schedule = ScheduleKind::Interleaved;
    job.layout.chunks = static_cast<std::int32_t>(12 / job.layout.pipeline > 1 ? 2 : 1);
  }
  const std::int64_t recompute = pick({0, 0, 1, 2, 3});
  if (recompute == 1) job.train.recompute = {.kind = Recompute::Full, .method = RecomputeMethod::Block};
  if (recompute == 2) job.train.recompute = {.kind = Recompute::Full, .layers = 2};
  if (recompute == 3)
    job.train.recompute = {.kind = Recompute::Selective,
                           .modules = {RecomputedModule::CoreAttention, RecomputedModule::Mlp}};
  const std::int64_t micro_batches = pick({3, 17, 48, 61, 72});
  if (job.layout.schedule == ScheduleKind::Interleaved && micro_batches % job.layout.pipeline != 0) return std::nullopt;
  job.train.micro_batch = pick({1, 2});
  job.train.global_batch = micro_batches * job.train.micro_batch * job.layout.data;
  return job;
}

TestJob random_pytorch_job(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::initializer_list<std::int64_t> values) {
    return *(values.begin() + random() % values.size());
  };
  TestJob job;
  job.framework = "pytorch";
  job.layout.data = static_cast<std::int32_t>(pick({1, 2}));
  job.train.attention = pick({0, 1}) == 0 ? AttentionKernel::Unfused : AttentionKernel::Fused;
  job.train.precision = pick({0, 1}) == 0 ? DType::FP16 : DType::BF16;
  job.train.master_dtype = pick({0, 1}) == 0 ? DType::FP32 : job.train.precision;
  job.train.optimizer = pick({0, 1}) == 0 ? Optimizer::AdamW : Optimizer::SgdMomentum;
  if (pick({0, 0, 1}) == 1) job.train.recompute.kind = Recompute::Full;
  EagerSettings& eager = job.settings.eager;
  eager.reentrant_checkpoint = pick({0, 1}) == 1;
  eager.gradients_view_buckets = pick({0, 1}) == 1;
  eager.caches_keys = pick({0, 1}) == 1;
  eager.keeps_outputs = pick({0, 1}) == 1;
  if (pick({0, 0, 1}) == 1) job.versions.torch = {2, 15};
  job.train.steps = static_cast<std::int32_t>(pick({1, 2, 3}));
  job.train.global_batch = pick({1, 4, 17, 48}) * job.layout.data;
  return job;
}

// The ops that are told, one after the other, without what their lists point to.
std::vector<Op> reported(const RepeatingProgram& program) {
  std::vector<Op> all;
  tell_unrolled(program, [&](std::span<const Op> ops) {
    all.insert(all.end(), ops.begin(), ops.end());
    return true;
  });
  return all;
}
std::vector<Op> without_lists(std::vector<Op> ops) {
  for (Op& op : ops) {
    if (Launch* launch = std::get_if<Launch>(&op))
      launch->inputs.first = launch->outputs.first = launch->scratch.first = 0;
    if (Exchange* exchange = std::get_if<Exchange>(&op)) exchange->transfers.first = 0;
  }
  return ops;
}

// What is said once and unrolled is what lowering every pass by itself gives: each op, number and text.
enum class Tables : std::uint8_t { Same, Any };

void expect_what_every_pass_gives(const Lowered& lowered, const Role& role, Tables tables = Tables::Same) {
  const RepeatingProgram program = lower_repeating(lowered.input, role);
  const Program all = lower_every_pass(lowered.input, role);
  const std::string parts = difference(unrolled(program), all);
  if (tables == Tables::Same || parts != "tables") {
    ASSERT_EQ(parts, "") << role.first.pipeline;
  }
  ASSERT_TRUE(without_lists(reported(program)) == without_lists(all.ops)) << role.first.pipeline;
  for (const Duration launch : {Duration{1}, Duration{4'000'000}}) {
    const std::vector<Duration> kernels(program.rolled.kernels.size(), Duration{2'000'000});
    EXPECT_EQ(written_out(timed(program, launch, kernels, Kernels::Each)),
              timed(unrolled(program), launch, kernels, Kernels::Each));
    Beside beside{kernels, {}};
    for (const Op& op : program.rolled.ops)
      if (const auto* call = std::get_if<Collective>(&op))
        beside.collectives[key_of(program.rolled, *call)] = Duration{3'100'000};
    EXPECT_EQ(written_out(timed(program, launch, kernels, Kernels::Each, beside)),
              timed(unrolled(program), launch, kernels, Kernels::Each, beside));
  }
  const TestJob& job = lowered.job;
  const bool many = micro_batches_of(job.train, job.layout) >= 48 && job.layout.schedule != ScheduleKind::GPipe;
  if (many) {
    EXPECT_EQ(program.repeats.size(), static_cast<std::size_t>(job.train.steps)) << "a part of each step";
  }
}

TEST(Repeats, UnrollToWhatEveryPassByItselfGives) {
  int repeating = 0, checked = 0;
  for (std::uint32_t seed = 1; checked < seeds(80); ++seed) {
    const std::optional<TestJob> job = random_job(seed);
    if (!job) continue;
    SCOPED_TRACE(seed);
    const Lowered lowered(*job);
    for (const Role& role : lowered.roles) {
      if (role.first.data > 0) continue;
      expect_what_every_pass_gives(lowered, role);
      repeating += lower_repeating(lowered.input, role).repeats.empty() ? 0 : 1;
      ++checked;
    }
  }
  EXPECT_GT(repeating, seeds(20));
}

TEST(Repeats, OfPlainPyTorchUnrollToo) {
  for (std::uint32_t seed = 1; seed <= 60; seed += seed_step()) {
    SCOPED_TRACE(seed);
    const Lowered lowered(random_pytorch_job(seed));
    expect_what_every_pass_gives(lowered, lowered.roles.front());
  }
}

TEST(Repeats, OfShardedRuntimesUnrollToo) {
  for (std::uint32_t seed = 1; seed <= 60; seed += seed_step()) {
    SCOPED_TRACE(seed);
    const Lowered lowered(random_sharded_job(seed));
    // TODO: under DeepSpeed a table has entries that no op refers to, in one of the two (seeds 7, 16, 44); which is not
    // known yet.
    const Tables tables = lowered.job.framework == "deepspeed" ? Tables::Any : Tables::Same;
    expect_what_every_pass_gives(lowered, lowered.roles.front(), tables);
    expect_what_every_pass_gives(lowered, lowered.roles.back(), tables);
  }
}

// One micro-batch after the other: a buffer each, freed two later, and a name that counts.
Program queue_of(std::int64_t second_size) {
  ProgramBuilder builder;
  const LabelId label = builder.label("tensor");
  builder.mark(Phase::Construction, 0, -1, label);
  std::vector<BufferId> buffers;
  builder.mark(Phase::Forward, 1, -1, label);
  for (std::int32_t m = 0; m < 8; ++m) {
    builder.mark(Phase::Forward, 1, m, label);
    buffers.push_back(builder.alloc(Bytes{m == 5 ? second_size : 512}, Category::Temporaries, label));
    builder.bind(builder.name("list[" + std::to_string(m) + "]"), buffers.back());
    if (m < 2) continue;
    builder.unbind(builder.name("list[" + std::to_string(m - 2) + "]"));
    builder.push(Free{buffers[static_cast<std::size_t>(m) - 2]});
  }
  return std::move(builder).finish();
}

// Memory is replayed op by op without the ops: to the end, and to where a device is full.
TEST(Repeats, ReplayAsWhatTheyUnrollTo) {
  int full = 0;
  for (std::uint32_t seed = 1; seed < 24; seed += seed_step()) {
    const std::optional<TestJob> job = random_job(seed);
    if (!job) continue;
    SCOPED_TRACE(seed);
    const Lowered lowered(*job);
    for (const Role& role : lowered.roles) {
      const RepeatingProgram program = lower_repeating(lowered.input, role);
      const Program all = unrolled(program);
      for (const CrossStreamFrees cross_stream : {CrossStreamFrees::AtOnce, CrossStreamFrees::AtNextSync}) {
        const MemoryRecord record = replay(all, no_driver_memory(), {.cross_stream = cross_stream});
        EXPECT_EQ(replay(program, no_driver_memory(), {.cross_stream = cross_stream}), record);
        const ReplayOptions limited{.capacity = record.device.bytes - Bytes{1}, .cross_stream = cross_stream};
        const MemoryRecord within = replay(all, no_driver_memory(), limited);
        EXPECT_EQ(replay(program, no_driver_memory(), limited), within);
        full += within.failure ? 1 : 0;
      }
    }
  }
  EXPECT_GT(full, seeds(10));
}

TEST(Repeats, OfShardedRuntimesReplayAsWhatTheyUnrollTo) {
  for (std::uint32_t seed = 101; seed <= 130; seed += seed_step()) {
    SCOPED_TRACE(seed);
    const Lowered lowered(random_sharded_job(seed));
    const RepeatingProgram program = lower_repeating(lowered.input, lowered.roles.back());
    const Program all = unrolled(program);
    ASSERT_TRUE(verify(all).empty());
    for (const CrossStreamFrees cross_stream : {CrossStreamFrees::AtOnce, CrossStreamFrees::AtNextSync}) {
      const MemoryRecord record = replay(all, no_driver_memory(), {.cross_stream = cross_stream});
      EXPECT_EQ(replay(program, no_driver_memory(), {.cross_stream = cross_stream}), record);
      const ReplayOptions limited{.capacity = record.device.bytes - Bytes{1}, .cross_stream = cross_stream};
      EXPECT_EQ(replay(program, no_driver_memory(), limited), replay(all, no_driver_memory(), limited));
    }
  }
}

TEST(Repeats, AreFoundWhereMicroBatchesDoTheSame) {
  Program rolled = queue_of(512);
  const auto repeats = find_repeats(rolled, {{100, 1}});
  ASSERT_TRUE(repeats);
  ASSERT_EQ(repeats->size(), 1U);
  EXPECT_EQ(repeats->front().more, 100);
  EXPECT_EQ(repeats->front().distance, 2);
  const Program all = unrolled({rolled, *repeats});
  EXPECT_EQ(all.ops.size(), rolled.ops.size() + 100 * (repeats->front().last - repeats->front().first));
  EXPECT_EQ(all.names.size(), 108U);
  EXPECT_EQ(all.names.back(), "list[107]");
  EXPECT_TRUE(verify(all).empty());
}

TEST(Repeats, AreNotFoundWhereOneIsAnother) { EXPECT_FALSE(find_repeats(queue_of(1024), {{100, 1}})); }

}  // namespace
}  // namespace tidemark::tests::repeats_test
