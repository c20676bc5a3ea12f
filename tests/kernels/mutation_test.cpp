#include "kernels/execute/mutation/mutation.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "kernels/arithmetic/meaning_mutation.hpp"
#include "kernels/execute/memory_points.hpp"
#include "sim/program/liveness.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/kernels/job_runs.hpp"

namespace tidemark::tests::mutation_test {
namespace {

constexpr PageScale scale{4};

// The largest difference of resident bytes over moments and phases.
Bytes difference(const MemoryPoints& a, const MemoryPoints& b) {
  Bytes largest;
  const auto look = [&](const std::vector<MemoryPoint>& x, const std::vector<MemoryPoint>& y) {
    ASSERT_EQ(x.size(), y.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      largest = std::max({largest, x[i].resident - y[i].resident, y[i].resident - x[i].resident});
  };
  look(a.samples, b.samples);
  look(a.phases, b.phases);
  return largest;
}

class MemoryMutation : public testing::TestWithParam<Mutation> {};

TEST_P(MemoryMutation, ChangesAPredictionByAPercentOfThePeak) {
  for (const std::int32_t stages : {1, 2}) {
    TestJob job;
    job.layout.pipeline = stages;
    job.train.sequence_length = 4096;  // activations of some size
    const Lowered lowered(job);
    for (std::int32_t stage = 0; stage < stages; ++stage) {
      const Program program = lowered.stage(stage);
      const std::vector<std::size_t> moments = sample_moments(program, scale);
      const std::optional<Program> wrong = mutated_prediction(program, GetParam(), scale, moments);
      ASSERT_TRUE(wrong);
      const MemoryPoints before = predicted_points(program, scale, moments);
      const MemoryPoints after = predicted_points(*wrong, scale, moments);
      EXPECT_GE(difference(before, after) * 100, before.peak.resident) << "stage " << stage << " of " << stages;
      // As the executor will see it: ops keep their numbers.
      EXPECT_EQ(without_frees(*wrong).ops.size(), without_frees(program).ops.size());
    }
  }
}

TEST_P(MemoryMutation, FindsNothingWhereThereIsNoBuffer) {
  EXPECT_FALSE(mutated_prediction(parse_program("mark forward 1 0 a\nmark backward 1 0 a\n"), GetParam(), {}, {0, 1}));
}

INSTANTIATE_TEST_SUITE_P(Kinds, MemoryMutation,
                         testing::Values(Mutation::DeleteFree, Mutation::DelayFree, Mutation::DropBuffer,
                                         Mutation::HalveSize),
                         [](const auto& test) {
                           std::string name(mutation_names[static_cast<std::size_t>(test.param)]);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// b0 stays; b1 is 3 % of the peak, b2 10 %, b3 1 %: all live at op 6.
const Program some_buffers = with_frees(parse_program(R"(mark forward 1 0 a
alloc b0 10485760 parameters s0 weight
bind weight b0
alloc b1 327680 temporaries s0 x
alloc b2 1048576 temporaries s0 y
alloc b3 102400 temporaries s0 z
launch s0 fill(value=0) -> b1:bool[1] b2:bool[1] b3:bool[1]
launch s0 add b1:bool[1] b2:bool[1] b3:bool[1] -> b0:bool[1]
mark backward 1 0 a
launch s0 fill(value=0) -> b0:bool[1]
mark forward 2 0 a
)"));
const std::vector<std::size_t> some_moments{2, 6, 9};

std::vector<Bytes> sizes(const Program& program) {
  std::vector<Bytes> all;
  for (const Op& op : program.ops)
    if (const auto* alloc = std::get_if<Alloc>(&op)) all.push_back(alloc->size);
  return all;
}
std::vector<BufferId> freed(const Program& program) {
  std::vector<BufferId> all;
  for (const Op& op : program.ops)
    if (const auto* free = std::get_if<Free>(&op)) all.push_back(free->buffer);
  return all;
}

TEST(Mutation, TakesTheSmallestBufferOfTwoPercent) {
  using namespace literals;
  const auto halved = mutated_prediction(some_buffers, Mutation::HalveSize, {}, some_moments);
  ASSERT_TRUE(halved);
  EXPECT_EQ(sizes(*halved), (std::vector{10_MiB, 160_KiB, 1_MiB, 100_KiB}));
  const auto dropped = mutated_prediction(some_buffers, Mutation::DropBuffer, {}, some_moments);
  ASSERT_TRUE(dropped);
  EXPECT_EQ(sizes(*dropped), (std::vector{10_MiB, 1_MiB, 100_KiB}));
  EXPECT_EQ(freed(*dropped), (std::vector{BufferId{2}, BufferId{3}}));
  const auto deleted = mutated_prediction(some_buffers, Mutation::DeleteFree, {}, some_moments);
  ASSERT_TRUE(deleted);
  EXPECT_EQ(freed(*deleted), (std::vector{BufferId{2}, BufferId{3}}));
}

TEST(Mutation, ADelayedFreePassesTheMomentThatMustSeeIt) {
  using namespace literals;
  const auto delayed = mutated_prediction(some_buffers, Mutation::DelayFree, {}, some_moments);
  ASSERT_TRUE(delayed);
  EXPECT_EQ(freed(*delayed), (std::vector{BufferId{2}, BufferId{3}, BufferId{1}}));
  const MemoryPoints before = predicted_points(some_buffers, {}, some_moments);
  const MemoryPoints after = predicted_points(*delayed, {}, some_moments);
  EXPECT_EQ(after.samples[2].resident - before.samples[2].resident, 320_KiB);
}

TEST(Mutation, FreesAreSpoiledOnlyWhereThereAreSome) {
  const Program kept = with_frees(parse_program("alloc b0 10485760 parameters s0 w\nbind w b0\nmark forward 1 0 a\n"));
  EXPECT_FALSE(mutated_prediction(kept, Mutation::DeleteFree, {}, {1, 2}));
  EXPECT_FALSE(mutated_prediction(kept, Mutation::DelayFree, {}, {1, 2}));
  EXPECT_TRUE(mutated_prediction(kept, Mutation::HalveSize, {}, {1, 2}));
}

// ---- groups

Workload lowered_without_frees(const Layout& layout) {
  TestJob job;
  job.layout = layout;
  const Lowered lowered(job);
  return without_frees(lower(lowered.input));
}

TEST(Mutation, GroupsAreThoseOfTheWorkload) {
  const Workload workload = lowered_without_frees({.tensor = 2, .pipeline = 2, .data = 2});
  for (Rank rank{0}; rank.value < 8; ++rank.value) {
    const std::vector<Group> groups = groups_of(workload, rank);
    ASSERT_EQ(groups.size(), workload.communicators.size());
    for (CommSlot slot{0}; slot.index() < groups.size(); ++slot.value) {
      EXPECT_EQ(groups[slot.index()].members, group_members(workload.communicators[slot.index()], rank));
      EXPECT_EQ(groups[slot.index()].at(groups[slot.index()].me), rank);
      EXPECT_EQ(groups[slot.index()].tag, World::first_payload_tag + slot.value);
    }
  }
}

TEST(Mutation, ARunAloneHasNobodyToConfuse) {
  const Workload workload = lowered_without_frees({});
  EXPECT_FALSE(without_a_collective(workload));
  for (const Mutation m : {Mutation::SwapRanks, Mutation::WrongPeer, Mutation::WrongAxis})
    EXPECT_FALSE(mutated_groups(workload, {0}, m));
}

TEST(Mutation, AxesOfUnequalSizeAreNotConfused) {
  EXPECT_FALSE(mutated_groups(lowered_without_frees({.tensor = 2, .data = 4}), {0}, Mutation::WrongAxis));
  EXPECT_FALSE(mutated_groups(lowered_without_frees({.tensor = 2, .data = 2}), {0}, Mutation::WrongPeer));
}

TEST(Mutation, AnAxisIsTakenAlongWhichTheRunEnds) {
  // Tensor and data, not tensor and pipeline, whichever comes first.
  for (const auto& order : {Layout{}.order, std::array{MeshAxis::Pipeline, MeshAxis::Tensor, MeshAxis::Context,
                                                       MeshAxis::Expert, MeshAxis::Data}}) {
    const Workload workload = lowered_without_frees({.tensor = 2, .pipeline = 2, .data = 2, .order = order});
    for (Rank rank{0}; rank.value < 8; ++rank.value) {
      const auto wrong = mutated_groups(workload, rank, Mutation::WrongAxis);
      ASSERT_TRUE(wrong);
      const std::vector<Group> right = groups_of(workload, rank);
      int changed = 0;
      for (std::size_t slot = 0; slot < right.size(); ++slot) {
        if ((*wrong)[slot].members == right[slot].members) continue;
        ++changed;
        EXPECT_EQ((*wrong)[slot].tag, right[slot].tag);
        EXPECT_EQ((*wrong)[slot].at((*wrong)[slot].me), rank);
        for (const Rank other : (*wrong)[slot].members) {
          const auto stage = [&](Rank r) { return workload.program(r).ops.size(); };
          EXPECT_EQ(stage(other), stage(rank)) << "ranks of two stages meet";
        }
      }
      EXPECT_EQ(changed, 1);
    }
  }
}

// Tensor and context, though stages are the first other group of two: their tensor-parallel ranks ask different things.
TEST(Mutation, AnAxisAlongWhichTheRunHangsIsPassedOver) {
  const Workload workload = lowered_without_frees({.tensor = 2, .context = 2, .pipeline = 2, .data = 2});
  const auto wrong = mutated_groups(workload, {0}, Mutation::WrongAxis);
  ASSERT_TRUE(wrong);
  const std::vector<Group> right = groups_of(workload, {0});
  int changed = 0;
  for (std::size_t slot = 0; slot < right.size(); ++slot) {
    if ((*wrong)[slot].members == right[slot].members) continue;
    ++changed;
    EXPECT_EQ((*wrong)[slot].members, (std::vector{Rank{0}, Rank{2}}));
  }
  EXPECT_EQ(changed, 1);
}

TEST(Mutation, WrongPeersFindEachOther) {
  const Workload workload = lowered_without_frees({.tensor = 2, .pipeline = 4});
  bool someone_changed = false;
  for (Rank rank{0}; rank.value < 8; ++rank.value) {
    const auto mine = mutated_groups(workload, rank, Mutation::WrongPeer);
    ASSERT_TRUE(mine);
    const std::vector<Group> right = groups_of(workload, rank);
    for (std::size_t slot = 0; slot < right.size(); ++slot) {
      const Group& group = (*mine)[slot];
      someone_changed |= group.members != right[slot].members;
      EXPECT_EQ(group.at(group.me), rank);
      for (const std::int64_t step : {-1, 1}) {
        const Group its = (*mutated_groups(workload, group.at(group.me + step), Mutation::WrongPeer))[slot];
        EXPECT_EQ(its.at(its.me - step), rank);
      }
    }
  }
  EXPECT_TRUE(someone_changed);
}

TEST(Mutation, ADroppedCollectiveKeepsTheNumbersOfOps) {
  const Workload workload = lowered_without_frees({.tensor = 2, .data = 2, .sharding = Sharding::Zero1});
  const auto wrong = without_a_collective(workload);
  ASSERT_TRUE(wrong);
  std::size_t dropped = 0;
  for (std::size_t p = 0; p < workload.programs.size(); ++p) {
    ASSERT_EQ(wrong->programs[p].ops.size(), workload.programs[p].ops.size());
    for (std::size_t i = 0; i < workload.programs[p].ops.size(); ++i) {
      if (wrong->programs[p].ops[i] == workload.programs[p].ops[i]) continue;
      EXPECT_TRUE(std::holds_alternative<Collective>(workload.programs[p].ops[i]));
      EXPECT_TRUE(std::holds_alternative<Mark>(wrong->programs[p].ops[i]));
      ++dropped;
    }
  }
  EXPECT_EQ(dropped, workload.programs.size());
}

// The weight was there before the first step: nobody gathered it.
TEST(Mutation, WhatIsReshardedEarlyWasGathered) {
  const Workload workload{{parse_program(R"(mark construction 0 -1 setup
alloc b0 512 parameters s0 weight
launch s0 fill(value=0) -> b0:bool[1]
mark forward 1 0 a
alloc b1 512 parameters s0 gathered
alloc b2 512 temporaries s0 out
launch s0 fill(value=0) -> b1:bool[1]
launch s0 add b0:bool[1] -> b2:bool[1]
free b0
launch s0 add b1:bool[1] -> b2:bool[1]
free b1
)")},
                          {0},
                          {}};
  const auto wrong = with_wrong_meaning(workload, {0}, Mutation::EarlyReshard);
  ASSERT_TRUE(wrong);
  EXPECT_NE(wrong->what.find("gathered is resharded before"), std::string::npos) << wrong->what;
}

// Rows of 8 bytes, of which each rank sends three to itself and two to the other.
TEST(Mutation, AWrongCountIsOneTokenMoreForOneRankAndOneFewerForAnother) {
  Workload workload{{parse_program(R"(mark forward 1 0 a
alloc b0 40 temporaries s0 sent
alloc b1 40 comm_ep s0 received
launch s0 fill(value=0) -> b0:bf16[5x4]
collective s0 g0 all_to_all bf16 40 b0 -> b1 m0 sends 24 16 receives 24 16
launch s0 copy b1:bf16[5x4] -> b0:bf16[5x4]
)"),
                     parse_program(R"(mark forward 1 0 a
alloc b0 40 temporaries s0 sent
alloc b1 40 comm_ep s0 received
launch s0 fill(value=0) -> b0:bf16[5x4]
collective s0 g0 all_to_all bf16 40 b0 -> b1 m0 sends 16 24 receives 16 24
launch s0 copy b1:bf16[5x4] -> b0:bf16[5x4]
)")},
                    {0, 1},
                    {{"ep", {{2, 1}}}}};
  const std::optional<GroupCall> dispatch = first_dispatch(workload);
  ASSERT_TRUE(dispatch);
  const auto call = [&](Rank rank) {
    const std::string text = sim::text(with_wrong_count(workload, *dispatch, rank));
    const std::size_t at = text.find("sends");
    return text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_EQ(call({0}), "sends 16 24 receives 16 16");
  EXPECT_EQ(call({1}), "sends 16 24 receives 24 24");
}

}  // namespace
}  // namespace tidemark::tests::mutation_test
