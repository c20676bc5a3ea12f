#include "sim/program/workload.hpp"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::workload_test {
namespace {

std::string members(const Communicator& communicator, std::int32_t rank) {
  std::vector<std::int32_t> values;
  for (const Rank r : group_members(communicator, Rank{rank})) values.push_back(r.value);
  return fmt::format("{}", fmt::join(values, " "));
}

// tensor 2 x data 3 x pipeline 2
const Communicator tensor{"tensor", {{2, 1}}};
const Communicator data{"data", {{3, 2}}};
const Communicator pipeline{"pipeline", {{2, 6}}};
const Communicator model{"model", {{2, 1}, {2, 6}}};

TEST(Workload, AGroupHoldsTheRanksThatDifferAlongItsAxes) {
  EXPECT_EQ(members(tensor, 4), "4 5");
  EXPECT_EQ(members(tensor, 5), "4 5");
  EXPECT_EQ(members(data, 5), "1 3 5");
  EXPECT_EQ(members(data, 6), "6 8 10");
  EXPECT_EQ(members(pipeline, 9), "3 9");
  EXPECT_EQ(members(model, 9), "2 3 8 9");  // the first axis runs fastest
}

TEST(Workload, TheSizeOfAGroupIsThatOfItsAxes) {
  EXPECT_EQ(group_size(tensor), 2);
  EXPECT_EQ(group_size(model), 4);
  EXPECT_EQ(group_size({"alone", {}}), 1);
  EXPECT_EQ(members({"alone", {}}, 7), "7");
}

TEST(Workload, GroupsPartitionTheWorld) {
  for (const Communicator& communicator : {tensor, data, pipeline, model})
    for (std::int32_t a = 0; a < 12; ++a)
      for (const Rank b : group_members(communicator, Rank{a}))
        EXPECT_EQ(group_members(communicator, b), group_members(communicator, Rank{a}));
}

TEST(Workload, NeighboursGoRoundTheEnd) {
  EXPECT_EQ(group_neighbour(data, Rank{1}, 1), Rank{3});
  EXPECT_EQ(group_neighbour(data, Rank{5}, 1), Rank{1});
  EXPECT_EQ(group_neighbour(data, Rank{1}, -1), Rank{5});
  EXPECT_EQ(group_neighbour(data, Rank{3}, 0), Rank{3});
  EXPECT_EQ(group_neighbour(data, Rank{3}, 7), Rank{5});
  EXPECT_EQ(group_neighbour(data, Rank{3}, -7), Rank{1});
}

// The ends of four stages, tensor 2 x pipeline 4: stages 0 and 3.
const Communicator ends{"ends", {{2, 2, 3}}};

TEST(Workload, AnAxisWithStepsLeavesRanksOut) {
  std::string inside;
  for (std::int32_t r = 0; r < 8; ++r) inside += is_member(ends, Rank{r}) ? 'x' : '.';
  EXPECT_EQ(inside, "xx....xx");
  EXPECT_EQ(group_size(ends), 2);
  EXPECT_EQ(members(ends, 0), "0 6");
  EXPECT_EQ(members(ends, 7), "1 7");
  EXPECT_EQ(group_neighbour(ends, Rank{6}, 1), Rank{0});
}

TEST(Workload, TheLeaderIsTheLowestMember) {
  EXPECT_EQ(group_leader(data, Rank{5}), Rank{1});
  EXPECT_EQ(group_leader(model, Rank{9}), Rank{2});
  EXPECT_EQ(group_leader(ends, Rank{7}), Rank{1});
  for (const Communicator& communicator : {tensor, data, pipeline, model})
    for (std::int32_t r = 0; r < 12; ++r)
      EXPECT_EQ(group_leader(communicator, Rank{r}), group_members(communicator, Rank{r}).front());
}

TEST(WorkloadDeathTest, OnlyMembersAskForTheirGroup) {
  EXPECT_DEATH((void)group_members(ends, Rank{3}), "one of its members");
}

TEST(Workload, ARankRunsTheProgramOfItsRole) {
  Workload workload;
  workload.programs.resize(2);
  workload.programs[1].buffers = 5;
  workload.program_of_rank = {0, 1, 1};
  EXPECT_EQ(workload.world_size(), 3);
  EXPECT_EQ(workload.program(Rank{2}).buffers, 5);
}

}  // namespace
}  // namespace tidemark::tests::workload_test
