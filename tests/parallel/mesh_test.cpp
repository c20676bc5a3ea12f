#include "parallel/mesh.hpp"

#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests {
namespace {

std::string groups(const Communicator& communicator, std::int32_t world) {
  std::set<Rank> seen;
  std::string out;
  for (std::int32_t r = 0; r < world; ++r) {
    if (seen.contains(Rank{r})) continue;
    std::vector<std::int32_t> members;
    for (const Rank member : group_members(communicator, Rank{r})) {
      seen.insert(member);
      members.push_back(member.value);
    }
    out += fmt::format("{}{}", out.empty() ? "" : " | ", fmt::join(members, " "));
  }
  return out;
}

TEST(Mesh, RanksCountAlongTensorThenDataThenPipeline) {
  const Layout layout{.tensor = 2, .pipeline = 3, .data = 4};
  EXPECT_EQ(layout.world_size(), 24);
  EXPECT_EQ(rank_at(layout, {.tensor = 1, .data = 0, .pipeline = 0}), Rank{1});
  EXPECT_EQ(rank_at(layout, {.tensor = 0, .data = 1, .pipeline = 0}), Rank{2});
  EXPECT_EQ(rank_at(layout, {.tensor = 0, .data = 0, .pipeline = 1}), Rank{8});
  for (std::int32_t r = 0; r < layout.world_size(); ++r)
    EXPECT_EQ(rank_at(layout, coordinates(layout, Rank{r})), Rank{r});
}

TEST(Mesh, EveryGroupHoldsTheRanksOfItsAxes) {
  const Layout layout{.tensor = 2, .pipeline = 2, .data = 2, .sharding = Sharding::None};
  const Communicators made = communicators(layout, false);
  const auto of = [&](CommSlot slot) { return groups(made.table[slot.index()], 8); };
  EXPECT_EQ(of(made.world), "0 1 2 3 4 5 6 7");
  EXPECT_EQ(of(made.tensor), "0 1 | 2 3 | 4 5 | 6 7");
  EXPECT_EQ(of(made.data), "0 2 | 1 3 | 4 6 | 5 7");
  EXPECT_EQ(of(made.pipeline), "0 4 | 1 5 | 2 6 | 3 7");
  EXPECT_EQ(of(made.norm), "0 1 4 5 | 2 3 6 7");
  EXPECT_FALSE(made.embedding.valid());
}

TEST(Mesh, AShardedOptimizersNormGoesOverAllRanks) {
  const Layout layout{.tensor = 2, .pipeline = 2, .data = 2, .sharding = Sharding::Zero1};
  const Communicators made = communicators(layout, false);
  EXPECT_EQ(groups(made.table[made.norm.index()], 8), "0 1 2 3 4 5 6 7");
  EXPECT_NE(made.norm, made.world);  // a communicator of its own, with memory of its own
}

TEST(Mesh, TheEndsOfAPipelineShareTiedEmbeddings) {
  const Layout layout{.tensor = 2, .pipeline = 4, .data = 1};
  const Communicators made = communicators(layout, true);
  ASSERT_TRUE(made.embedding.valid());
  const Communicator& ends = made.table[made.embedding.index()];
  EXPECT_EQ(group_size(ends), 2);
  EXPECT_EQ(group_members(ends, Rank{0}), (std::vector<Rank>{Rank{0}, Rank{6}}));
  EXPECT_EQ(group_members(ends, Rank{7}), (std::vector<Rank>{Rank{1}, Rank{7}}));
  for (std::int32_t r = 0; r < 8; ++r) EXPECT_EQ(is_member(ends, Rank{r}), r < 2 || r >= 6) << r;  // not the middle
  EXPECT_FALSE(communicators({.tensor = 2, .data = 4}, true).embedding.valid());  // one stage has one copy
}

TEST(Mesh, AGroupOfOneHasNoCommunicator) {
  EXPECT_TRUE(communicators({}, true).table.empty());
  const Communicators data_only = communicators({.data = 8}, false);
  EXPECT_FALSE(data_only.tensor.valid());
  EXPECT_FALSE(data_only.pipeline.valid());
  EXPECT_FALSE(data_only.norm.valid());  // tensor x pipeline
  EXPECT_TRUE(data_only.data.valid());
  EXPECT_TRUE(data_only.world.valid());
}

TEST(Mesh, SlotsNumberTheTable) {
  const Communicators made = communicators({.tensor = 2, .pipeline = 2, .data = 2}, true);
  for (const auto& [slot, name] : std::vector<std::pair<CommSlot, std::string>>{{made.world, "world"},
                                                                                {made.tensor, "tensor"},
                                                                                {made.data, "data"},
                                                                                {made.norm, "model_parallel"},
                                                                                {made.pipeline, "pipeline"},
                                                                                {made.embedding, "embedding"}})
    EXPECT_EQ(made.table.at(slot.index()).name, name);
  EXPECT_EQ(made.table.size(), 6u);
}

TEST(Mesh, RanksCountAlongTheAxesInTheLayoutsOrder) {
  Layout layout;
  layout.tensor = 2;
  layout.pipeline = 3;
  layout.data = 4;
  layout.order = {MeshAxis::Pipeline, MeshAxis::Tensor, MeshAxis::Data};
  EXPECT_EQ(coordinates(layout, Rank{4}), (Coordinates{.tensor = 1, .data = 0, .pipeline = 1}));
  for (std::int32_t r = 0; r < layout.world_size(); ++r)
    EXPECT_EQ(rank_at(layout, coordinates(layout, Rank{r})), Rank{r});
  const Communicators comms = communicators(layout, true);
  EXPECT_EQ(group_members(comms.table[comms.pipeline.index()], Rank{4}), (std::vector<Rank>{{3}, {4}, {5}}));
  EXPECT_EQ(group_members(comms.table[comms.embedding.index()], Rank{5}), (std::vector<Rank>{{3}, {5}}));
}

// NCCL sets communicators of one rank up too, where the framework calls collectives without looking at the group.
TEST(Mesh, GroupsOfOneAreMadeWhereCollectivesAreCalledInThem) {
  const Communicators made = communicators({.data = 8, .sharding = Sharding::Zero1}, true, Alone::Calls);
  EXPECT_EQ(group_size(made.table[made.tensor.index()]), 1);
  EXPECT_EQ(group_size(made.table[made.model.index()]), 1);
  EXPECT_EQ(group_size(made.table[made.data.index()]), 8);
  EXPECT_FALSE(made.pipeline.valid());                                // nobody sends to itself
  EXPECT_FALSE(made.embedding.valid());                               // Megatron looks at this one's size
  EXPECT_LT(made.data, made.tensor);                                  // after those that others share
  EXPECT_EQ(communicators({}, true, Alone::Calls).table.size(), 4u);  // world, tensor, data, model_parallel
}

TEST(Mesh, PartsOfAModelAgreeInAGroupOfTheirOwn) {
  const Communicators made = communicators({.tensor = 2, .data = 4, .sharding = Sharding::Zero1}, false);
  EXPECT_NE(made.model, made.norm);
  EXPECT_EQ(made.table[made.model.index()].name, "model_parallel");
  EXPECT_EQ(communicators({.tensor = 2, .data = 4}, false).norm, communicators({.tensor = 2, .data = 4}, false).model);
}

TEST(Mesh, InterleavedStagesSendThroughCommunicatorsOfTwo) {
  Layout layout{.pipeline = 4};
  EXPECT_EQ(communicators(layout, false).table[communicators(layout, false).pipeline.index()].messages,
            MessageRoute::Group);
  layout.schedule = ScheduleKind::Interleaved;
  EXPECT_EQ(communicators(layout, false).table[communicators(layout, false).pipeline.index()].messages,
            MessageRoute::Pairs);
}

}  // namespace
}  // namespace tidemark::tests
