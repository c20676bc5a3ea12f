#include "sim/workload.hpp"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tidemark {
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

TEST(Workload, ARankRunsTheProgramOfItsRole) {
  Workload workload;
  workload.programs.resize(2);
  workload.programs[1].buffers = 5;
  workload.program_of_rank = {0, 1, 1};
  EXPECT_EQ(workload.world_size(), 3);
  EXPECT_EQ(workload.program(Rank{2}).buffers, 5);
}

}  // namespace
}  // namespace tidemark
