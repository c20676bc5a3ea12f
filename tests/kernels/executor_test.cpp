// Programs that run for real, on threads and host memory: what they count is what a replay says, to the byte, and every
// payload is what it should be. And what is wrong is found.
#include "kernels/execute/executor.hpp"

#include <gtest/gtest.h>

#include "sim/program/verify.hpp"
#include "tests/kernels/job_runs.hpp"
#include "tests/kernels/uneven_workload.hpp"
#include "tests/kernels/words.hpp"

namespace tidemark::tests::executor_test {
namespace {

// Op, step, phase, allocated: all that a back end counts by itself.
void expect_equal_counts(const std::vector<MemoryPoint>& counted, const std::vector<MemoryPoint>& predicted) {
  ASSERT_EQ(counted.size(), predicted.size());
  for (std::size_t i = 0; i < counted.size(); ++i) {
    MemoryPoint point = predicted[i];
    point.resident = counted[i].resident;
    EXPECT_EQ(counted[i], point) << "op " << point.op;
  }
}

void expect_as_predicted(const std::vector<RankRun>& runs) {
  for (const RankRun& run : runs) {
    EXPECT_EQ(run.end, "");
    EXPECT_EQ(run.record.findings.count, 0);
    EXPECT_EQ(run.record.findings.first, std::vector<std::string>{});
    expect_equal_counts(run.record.memory.samples, run.predicted.samples);
    expect_equal_counts(run.record.memory.phases, run.predicted.phases);
    EXPECT_EQ(run.record.memory.reserved, run.predicted.reserved);
  }
}

std::int64_t wrong_payloads(const std::vector<RankRun>& runs) {
  std::int64_t wrong = 0;
  for (const RankRun& run : runs) wrong += run.record.findings.count;
  return wrong;
}

struct NamedLayout {
  std::string name;
  Layout layout;
};
void PrintTo(const NamedLayout& layout, std::ostream* out) { *out << layout.name; }

TestJob job_of(const Layout& layout) {
  TestJob job;
  job.layout = layout;
  return job;
}

class LoweredJob : public testing::TestWithParam<NamedLayout> {};

TEST_P(LoweredJob, RunsAsPredicted) {
  const Lowered lowered(job_of(GetParam().layout));
  const std::vector<RankRun> runs = run_on_threads(lower(lowered.input), {16});
  expect_as_predicted(runs);
  for (const RankRun& run : runs) {
    EXPECT_GE(run.record.memory.samples.size(), 20u);
    EXPECT_EQ(run.record.steps.size(), static_cast<std::size_t>(1 + lowered.job.train.steps));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, LoweredJob,
                         testing::Values(NamedLayout{"one_rank", {}},
                                         NamedLayout{"tp2_sp", {.tensor = 2, .sequence_parallel = true}},
                                         NamedLayout{"tp2", {.tensor = 2}}, NamedLayout{"pp2", {.pipeline = 2}},
                                         NamedLayout{"pp4", {.pipeline = 4}}, NamedLayout{"dp2", {.data = 2}},
                                         NamedLayout{"dp2_zero1", {.data = 2, .sharding = Sharding::Zero1}},
                                         NamedLayout{"tp2_pp2_dp2_zero1",
                                                     {.tensor = 2,
                                                      .sequence_parallel = true,
                                                      .pipeline = 2,
                                                      .data = 2,
                                                      .sharding = Sharding::Zero1,
                                                      .order = {MeshAxis::Data, MeshAxis::Pipeline, MeshAxis::Tensor,
                                                                MeshAxis::Context, MeshAxis::Expert}}}),
                         [](const auto& test) { return test.param.name; });

TEST(LoweredJob, WithTiedEmbeddingsRunsAsPredicted) {
  TestJob job = job_of({.pipeline = 2, .data = 2});
  job.model.tied_embeddings = true;
  const Lowered lowered(job);
  expect_as_predicted(run_on_threads(lower(lowered.input), {16}));
}

TEST(LoweredJob, WithWholePagesRunsAsPredicted) {
  TestJob job = job_of({.tensor = 2, .sequence_parallel = true});
  job.model.layers.resize(1);
  const Lowered lowered(job);
  expect_as_predicted(run_on_threads(lower(lowered.input), {}));
}

// ---- every kind of op, whether or not a lowering emits it

class EveryCollective : public testing::TestWithParam<std::tuple<CollectiveKind, bool, int>> {};

TEST_P(EveryCollective, LeavesWhatIsExpected) {
  const auto [kind, in_place, ranks] = GetParam();
  // More than a chunk for each of them, and odd.
  const std::string size = std::to_string((32768 * ranks + 4109) * 8);
  std::string program = "create communicator g0\n";
  for (const char* b : {"b0", "b1", "b2"}) program += "alloc " + std::string(b) + " " + size + " temporaries s0 x\n";
  program += "launch s0 fill(value=0) -> b0:bool[1] b1:bool[1]\n";
  program += "collective s0 g0 " + std::string(name(kind)) + (reduces(kind) ? " sum" : "") + " bool " + size +
             " b0 -> " + (in_place ? "b0" : "b1") + "\n";
  // What came of it goes on: read, added, sent.
  program += "launch s0 copy b1:bool[1] -> b2:bool[1]\n";
  program += "collective s0 g0 all_reduce sum bool " + size + " b0 -> b0\n";
  program += "exchange s0 g0 send +1 b0 send -1 b1 receive -1 b2 receive +1 b1\n";
  program += "launch s0 add b0:bool[1] b1:bool[1] b2:bool[1] -> b2:bool[1]\n";
  Workload workload = one_group(std::vector<std::string>(static_cast<std::size_t>(ranks), program));
  for (Program& one : workload.programs) one = with_frees(std::move(one));
  const std::vector<RankRun> runs = run_on_threads(workload, {});
  expect_as_predicted(runs);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryCollective,
                         testing::Combine(testing::Values(CollectiveKind::AllReduce, CollectiveKind::AllGather,
                                                          CollectiveKind::ReduceScatter, CollectiveKind::Broadcast),
                                          testing::Bool(), testing::Values(2, 3, 4)));
INSTANTIATE_TEST_SUITE_P(AllToAll, EveryCollective,
                         testing::Combine(testing::Values(CollectiveKind::AllToAll), testing::Values(false),
                                          testing::Values(2, 3, 4)));

TEST(Executor, StreamsEventsAndBorrowsRunToo) {
  Workload workload = one_group({R"(create context
alloc b0 5000 temporaries s0 x
launch s0 fill(value=0) -> b0:bool[1]
record e0 s0
wait s1 e0
borrow b0 s1
launch s1 copy b0:bool[1] -> b0:bool[1]
bind kept b0
sync e0
mark forward 1 0 a
alloc b1 100000 temporaries s0 y
launch s0 copy b0:bool[1] -> b1:bool[1]
mark backward 1 0 a
unbind kept
mark forward 2 0 a
)"});
  for (Program& one : workload.programs) one = with_frees(std::move(one));
  const std::vector<RankRun> runs = run_on_threads(workload, {});
  expect_as_predicted(runs);
  EXPECT_EQ(runs.front().record.steps.size(), 3u);
  EXPECT_EQ(runs.front().record.memory.phases.size(), 4u);
}

TEST(Executor, DescribesAPlaceInAProgram) {
  const Program program = parse_program(R"(alloc b0 5000 temporaries s0 x
mark backward 2 1 layers.3.norm
launch s0 fill(value=0) -> b0:bool[1]
)");
  EXPECT_EQ(describe(program, std::size_t{2}), "layers.3.norm at op 2 (step 2, backward, micro-batch 1)");
  EXPECT_EQ(describe(program, std::size_t{0}), "start at op 0 (step 0, construction, micro-batch -1)");
  EXPECT_EQ(describe(program, BufferId{0}), "x");
}

// ---- what is wrong is found

TEST(Executor, FindsAStaleRead) {
  // The run releases b0 after op 1; the prediction's program reads it once more.
  const Program read_again = parse_program(R"(alloc b0 5000 temporaries s0 weight
launch s0 fill(value=0) -> b0:bool[1]
mark forward 1 0 layers.0.norm
)");
  Workload workload = one_group({R"(alloc b0 5000 temporaries s0 weight
launch s0 fill(value=0) -> b0:bool[1]
mark forward 1 0 layers.0.norm
launch s0 copy b0:bool[1] -> b0:bool[1]
)"});
  const Expectation expectation(workload, {});
  const auto ends = on_ranks(1, [&](World& world) {
    HostBackend backend(world, 1, {},
                        {[](std::size_t op, BufferId) { return "op " + std::to_string(op); },
                         [&](std::uint64_t word) { return expectation.author(word); }});
    NoProbe probe;
    const std::vector<Group> groups = groups_of(workload, {0});
    Executor executor(read_again, groups, expectation, Rank{0}, backend, probe);
    std::vector<std::pair<std::size_t, std::size_t>> reported;
    executor.progress = [&](std::size_t done, std::size_t all) { reported.emplace_back(done, all); };
    (void)executor.run({});
    const std::size_t all = read_again.ops.size();
    EXPECT_EQ(reported, (std::vector<std::pair<std::size_t, std::size_t>>{{2, all}, {all, all}}));
    const std::array reading{Reading{BufferId{0}, expectation.before({0}, 3, {0}), 3}};
    backend.check({0}, reading);
    ASSERT_EQ(backend.findings().count, 1);
    EXPECT_EQ(backend.findings().first.front(),
              "rank 0, op 3: word 0 is zero: memory that was given back, or that nobody wrote; expected rank 0, weight "
              "at op 1 (start, step 0, micro-batch -1), word 0");
  });
  EXPECT_EQ(ends, all_well(1));
}

Layout two_by_two() { return {.tensor = 2, .sequence_parallel = true, .data = 2, .sharding = Sharding::Zero1}; }

TEST(Executor, FindsADroppedCollective) {
  const Lowered lowered(job_of(two_by_two()));
  const auto runs = run_on_threads(lower(lowered.input), {16},
                                   [](const Workload& written, Rank rank, Program& program, std::vector<Group>&) {
                                     const auto wrong = without_a_collective(written);
                                     ASSERT_TRUE(wrong);
                                     program = wrong->program(rank);
                                   });
  EXPECT_GT(wrong_payloads(runs), 0);
  for (const RankRun& run : runs) EXPECT_EQ(run.end, "");
}

class WrongGroups : public testing::TestWithParam<std::tuple<Mutation, Layout>> {};

TEST_P(WrongGroups, AreFound) {
  const auto [mutation, layout] = GetParam();
  const Lowered lowered(job_of(layout));
  const auto runs =
      run_on_threads(lower(lowered.input), {16},
                     [mutation = mutation](const Workload& written, Rank rank, Program&, std::vector<Group>& groups) {
                       const auto wrong = mutated_groups(written, rank, mutation);
                       ASSERT_TRUE(wrong);
                       groups = *wrong;
                     });
  EXPECT_GT(wrong_payloads(runs), 0);
  for (const RankRun& run : runs) EXPECT_EQ(run.end, "");  // found in payloads, not by waiting
  for (const RankRun& run : runs) EXPECT_LE(run.record.findings.first.size(), Findings::most);
}

INSTANTIATE_TEST_SUITE_P(
    Mutations, WrongGroups,
    testing::Values(std::tuple(Mutation::SwapRanks, two_by_two()), std::tuple(Mutation::WrongAxis, two_by_two()),
                    std::tuple(Mutation::WrongPeer, Layout{.tensor = 2, .sequence_parallel = true, .pipeline = 2}),
                    std::tuple(Mutation::WrongPeer, Layout{.pipeline = 2, .data = 2}),
                    std::tuple(Mutation::WrongAxis, Layout{.tensor = 2, .pipeline = 2, .data = 2})),
    [](const auto& test) {
      std::string name(mutation_names[static_cast<std::size_t>(std::get<0>(test.param))]);
      std::replace(name.begin(), name.end(), '-', '_');
      return name + "_" + std::to_string(test.index);
    });

TEST(Executor, ARankWithoutMemoryEndsAllOthers) {
  Workload workload =
      one_group({"create communicator g0\nalloc b0 512 temporaries s0 x\n"
                 "collective s0 g0 all_reduce sum bool 512 b0 -> b0\n",
                 "create communicator g0\nalloc b0 70368744177664 temporaries s0 x\n"
                 "collective s0 g0 all_reduce sum bool 512 b0 -> b0\n"});
  for (Program& one : workload.programs) one = with_frees(std::move(one));
  for (const RankRun& run : run_on_threads(workload, {1 << 30}))
    EXPECT_EQ(run.end.find("rank 1: out of memory"), 0u) << run.end;
}

// ---- uneven collectives, and copies to the host and back

class Uneven : public testing::TestWithParam<std::tuple<int, int, std::int64_t>> {};

TEST_P(Uneven, CollectivesAndCopiesLeaveWhatIsExpected) {
  const auto [ranks, members, most] = GetParam();
  const Workload workload = uneven_workload(static_cast<std::uint32_t>(ranks), ranks, members, most);
  ASSERT_EQ(verify(workload), std::vector<std::string>{});
  const std::vector<RankRun> runs = run_on_threads(workload, {});
  expect_as_predicted(runs);
  for (const RankRun& run : runs) EXPECT_GT(run.record.memory.samples.size(), 5u);
}

INSTANTIATE_TEST_SUITE_P(Jobs, Uneven,
                         testing::Values(std::tuple(2, 2, 100), std::tuple(4, 2, 3000), std::tuple(6, 3, 20'000),
                                         std::tuple(4, 4, 400'000)));

// What one rank puts where another one's part belongs is found by whoever receives it.
TEST(Executor, FindsRowsThatDoNotFit) {
  const Workload workload = uneven_workload(4, 4, 2, 3000);
  const std::vector<RankRun> runs = run_on_threads(
      workload, {},
      [](const Workload&, Rank rank, Program& program, std::vector<Group>&) {
        if (rank.value > 0) return;
        for (MatrixRow& row : program.rows)  // as large in all
          if (row.sends.size() == 2) std::swap(row.receives[0], row.receives[1]);
      },
      std::chrono::seconds{20});
  bool failed = false;
  for (const RankRun& run : runs) failed |= !run.end.empty();
  EXPECT_TRUE(failed || wrong_payloads(runs) > 0);
}

TEST(Executor, FindsAnUnevenCollectiveThatWasLeftOut) {
  const Workload workload = uneven_workload(4, 4, 2, 3000);
  const std::optional<Workload> wrong = without_a_collective(without_frees(workload));
  ASSERT_TRUE(wrong);
  EXPECT_GT(wrong_payloads(run_on_threads(workload, {},
                                          [&](const Workload&, Rank rank, Program& program, std::vector<Group>&) {
                                            program = wrong->program(rank);
                                          })),
            0);
}

TEST(Executor, TheHostThreadComputesOnWhatWasCopied) {
  Workload workload = one_group({R"(alloc b0 40000 temporaries s0 x
alloc b1 40000 temporaries s0 y pinned
alloc b2 40000 temporaries s0 z pageable
launch s0 fill(value=0) -> b0:bool[1]
compute fill(value=0) -> b1:bool[1] b2:bool[1]
memcpy s0 16384 b0+8192 -> b1+4096
record e0 s0
sync e0
compute add b1:bool[1] b2:bool[1] -> b1:bool[1]
memcpy s0 40000 b1 -> b0
)"});
  const Expectation expectation(workload, {});
  const Words copied = words_of(expectation.after({0}, 5, {1}), 5120);
  EXPECT_EQ(copied[0], left_by({0}, 4, {1}, 0));
  EXPECT_EQ(copied[512], left_by({0}, 3, {0}, 1024));
  EXPECT_EQ(copied[2048], left_by({0}, 3, {0}, 2560));
  EXPECT_EQ(copied[2560], left_by({0}, 4, {1}, 2560));
  for (Program& one : workload.programs) one = with_frees(std::move(one));
  expect_as_predicted(run_on_threads(workload, {}));
}

TEST(Executor, ACopyMovesTheBeginningOfABuffer) {
  Workload workload = one_group({R"(alloc b0 40000 temporaries s0 x
alloc b1 40000 temporaries s0 y pinned
alloc b2 40000 temporaries s0 z
launch s0 fill(value=0) -> b0:bool[1] b2:bool[1]
memcpy s0 20480 b0 -> b1
memcpy s0 12288 b1 -> b2
launch s0 add b0:bool[1] b2:bool[1] -> b0:bool[1]
)"});
  const Expectation expectation(workload, {});
  const Content halves = expectation.before({0}, 6, {2});
  const Words words = words_of(halves, 5120);
  EXPECT_EQ(words[0], left_by({0}, 3, {0}, 0));
  EXPECT_EQ(words[1024], left_by({0}, 3, {0}, 1024));
  EXPECT_EQ(words[1536], left_by({0}, 3, {2}, 1536));
  for (Program& one : workload.programs) one = with_frees(std::move(one));
  expect_as_predicted(run_on_threads(workload, {}));
}

}  // namespace
}  // namespace tidemark::tests::executor_test
