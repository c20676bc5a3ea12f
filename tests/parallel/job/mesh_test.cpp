#include "parallel/job/mesh.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::mesh_test {
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
  const Communicators made = communicators(layout, {});
  const auto of = [&](CommSlot slot) { return groups(made.table[slot.index()], 8); };
  EXPECT_EQ(of(made.world), "0 1 2 3 4 5 6 7");
  EXPECT_EQ(of(made.tensor), "0 1 | 2 3 | 4 5 | 6 7");
  EXPECT_EQ(of(made.data), "0 2 | 1 3 | 4 6 | 5 7");
  EXPECT_EQ(of(made.pipeline), "0 4 | 1 5 | 2 6 | 3 7");
  EXPECT_EQ(of(made.norm), "0 1 4 5 | 2 3 6 7");
  EXPECT_FALSE(made.embedding.valid());
}

TEST(Mesh, ContextParallelRanksHoldTheSameParameters) {
  Layout layout{.tensor = 2, .context = 2, .data = 2, .sharding = Sharding::Zero1};
  const auto of = [&](CommSlot Communicators::*slot) {
    const Communicators made = communicators(layout, {});
    return (made.*slot).valid() ? groups(made.table[(made.*slot).index()], layout.world_size()) : "none";
  };
  EXPECT_EQ(of(&Communicators::data), "0 2 4 6 | 1 3 5 7");
  EXPECT_EQ(of(&Communicators::context), "0 2 | 1 3 | 4 6 | 5 7");
  EXPECT_EQ(of(&Communicators::heads), "none");
  layout.context_kind = ContextKind::AllToAll;
  EXPECT_EQ(of(&Communicators::context), "none");
  EXPECT_EQ(of(&Communicators::heads), "0 2 | 1 3 | 4 6 | 5 7");
  layout = {.context = 8, .context_kind = ContextKind::AllToAllAndRing, .context_inner = 2};
  EXPECT_EQ(of(&Communicators::heads), "0 1 | 2 3 | 4 5 | 6 7");
  EXPECT_EQ(of(&Communicators::context), "0 2 4 6 | 1 3 5 7");
}

TEST(Mesh, AReplicasNumberIsItsPlaceInTheGroupOfGradients) {
  for (const auto& order :
       {std::array{MeshAxis::Tensor, MeshAxis::Context, MeshAxis::Expert, MeshAxis::Data, MeshAxis::Pipeline},
        std::array{MeshAxis::Data, MeshAxis::Tensor, MeshAxis::Context, MeshAxis::Expert, MeshAxis::Pipeline}}) {
    const Layout layout{.tensor = 2, .context = 3, .data = 2, .order = order};
    const Communicators made = communicators(layout, {});
    for (Rank rank{0}; rank.value < layout.world_size(); ++rank.value) {
      const std::vector<Rank> members = group_members(made.table[made.data.index()], rank);
      EXPECT_EQ(members[static_cast<std::size_t>(replica(layout, coordinates(layout, rank)))], rank);
    }
  }
}

TEST(Mesh, AShardedOptimizersNormGoesOverAllRanks) {
  const Layout layout{.tensor = 2, .pipeline = 2, .data = 2, .sharding = Sharding::Zero1};
  const Communicators made = communicators(layout, {});
  EXPECT_EQ(groups(made.table[made.norm.index()], 8), "0 1 2 3 4 5 6 7");
  EXPECT_NE(made.norm, made.world);  // a communicator of its own, with memory of its own
}

// core/parallel_state.py: an instance is the first ranks of every group that shares parameters, dense or experts.
TEST(Mesh, OptimizerInstancesShareOutAmongThemselves) {
  const Layout layout{
      .tensor = 2, .expert = 2, .expert_tensor = 1, .data = 4, .sharding = Sharding::Zero1, .shard_group = 2};
  const Communicators made = communicators(layout, {.embedding_at_both_ends = false, .experts = true});
  const auto of = [&](CommSlot slot) { return groups(made.table[slot.index()], 8); };
  EXPECT_EQ(of(made.data), "0 2 4 6 | 1 3 5 7");
  EXPECT_EQ(of(made.shard), "0 2 | 1 3 | 4 6 | 5 7");
  EXPECT_EQ(of(made.expert_data), "0 2 4 6 | 1 3 5 7");
  EXPECT_EQ(of(made.expert_shard), "0 2 | 1 3 | 4 6 | 5 7");
  EXPECT_EQ(of(made.replicate), "0 4 | 1 5 | 2 6 | 3 7");
  EXPECT_EQ(of(made.norm), "0 1 2 3 | 4 5 6 7");
  EXPECT_EQ(made.expert_norm, made.norm);
}

TEST(Mesh, TheEndsOfAPipelineShareTiedEmbeddings) {
  const Layout layout{.tensor = 2, .pipeline = 4, .data = 1};
  const Communicators made = communicators(layout, {.embedding_at_both_ends = true});
  ASSERT_TRUE(made.embedding.valid());
  const Communicator& ends = made.table[made.embedding.index()];
  EXPECT_EQ(group_size(ends), 2);
  EXPECT_EQ(group_members(ends, Rank{0}), (std::vector<Rank>{Rank{0}, Rank{6}}));
  EXPECT_EQ(group_members(ends, Rank{7}), (std::vector<Rank>{Rank{1}, Rank{7}}));
  for (std::int32_t r = 0; r < 8; ++r) EXPECT_EQ(is_member(ends, Rank{r}), r < 2 || r >= 6) << r;  // not the middle
  EXPECT_FALSE(communicators({.tensor = 2, .data = 4}, {.embedding_at_both_ends = true})
                   .embedding.valid());  // one stage has one copy
}

TEST(Mesh, ValuesOfTokensThatFollowGoBetweenPairsOfTheRingOrOfAllContexts) {
  const auto made = [](ContextKind kind, MessageRoute ring) {
    return communicators({.context = 4, .context_kind = kind}, {.further_tokens = true}, Alone::Skips, ring);
  };
  const Communicators ring = made(ContextKind::Ring, MessageRoute::Pairs);
  EXPECT_EQ(ring.neighbours, ring.context);
  for (const Communicators& its :
       {made(ContextKind::Ring, MessageRoute::Group), made(ContextKind::AllGather, MessageRoute::Pairs),
        made(ContextKind::AllToAll, MessageRoute::Pairs)}) {
    ASSERT_TRUE(its.neighbours.valid());
    EXPECT_NE(its.neighbours, its.context);
    EXPECT_EQ(its.table[its.neighbours.index()].messages, MessageRoute::Pairs);
    EXPECT_EQ(group_size(its.table[its.neighbours.index()]), 4);
  }
  EXPECT_FALSE(communicators({.context = 4}, {}).neighbours.valid());
}

TEST(Mesh, UserBuffersAreOfTensorRanksAndSetUpByAll) {
  const Communicators made = communicators({.tensor = 2, .data = 2}, {.user_buffers = true});
  EXPECT_EQ(group_size(made.table[made.user_buffers.index()]), 2);
  EXPECT_EQ(made.table[made.user_buffers.index()].messages, MessageRoute::CopyEngines);
  EXPECT_EQ(group_size(made.table[made.user_buffers_world.index()]), 4);
  EXPECT_EQ(group_size(made.table[made.user_buffers_domain.index()]), 2);
  EXPECT_FALSE(communicators({.tensor = 2}, {.user_buffers = true}).user_buffers_domain.valid()) << "that is the world";
  EXPECT_FALSE(communicators({.data = 2}, {.user_buffers = true}).user_buffers.valid());
}

TEST(Mesh, AGroupOfOneHasNoCommunicator) {
  EXPECT_TRUE(communicators({}, {.embedding_at_both_ends = true}).table.empty());
  const Communicators data_only = communicators({.data = 8}, {});
  EXPECT_FALSE(data_only.tensor.valid());
  EXPECT_FALSE(data_only.pipeline.valid());
  EXPECT_FALSE(data_only.norm.valid());  // tensor x pipeline
  EXPECT_TRUE(data_only.data.valid());
  EXPECT_TRUE(data_only.world.valid());
}

TEST(Mesh, SlotsNumberTheTable) {
  const Communicators made = communicators({.tensor = 2, .pipeline = 2, .data = 2}, {.embedding_at_both_ends = true});
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
  layout.order = {MeshAxis::Pipeline, MeshAxis::Tensor, MeshAxis::Context, MeshAxis::Expert, MeshAxis::Data};
  EXPECT_EQ(coordinates(layout, Rank{4}), (Coordinates{.tensor = 1, .data = 0, .pipeline = 1}));
  for (std::int32_t r = 0; r < layout.world_size(); ++r)
    EXPECT_EQ(rank_at(layout, coordinates(layout, Rank{r})), Rank{r});
  const Communicators comms = communicators(layout, {.embedding_at_both_ends = true});
  EXPECT_EQ(group_members(comms.table[comms.pipeline.index()], Rank{4}), (std::vector<Rank>{{3}, {4}, {5}}));
  EXPECT_EQ(group_members(comms.table[comms.embedding.index()], Rank{5}), (std::vector<Rank>{{3}, {5}}));
}

// NCCL sets communicators of one rank up too, where the framework calls collectives without looking at the group.
TEST(Mesh, GroupsOfOneAreMadeWhereCollectivesAreCalledInThem) {
  const Communicators made =
      communicators({.data = 8, .sharding = Sharding::Zero1}, {.embedding_at_both_ends = true}, Alone::Calls);
  EXPECT_EQ(group_size(made.table[made.tensor.index()]), 1);
  EXPECT_EQ(group_size(made.table[made.model.index()]), 1);
  EXPECT_EQ(group_size(made.table[made.data.index()]), 8);
  EXPECT_FALSE(made.pipeline.valid());   // nobody sends to itself
  EXPECT_FALSE(made.embedding.valid());  // Megatron looks at this one's size
  EXPECT_LT(made.data, made.tensor);     // after those that others share
  EXPECT_EQ(communicators({}, {.embedding_at_both_ends = true}, Alone::Calls).table.size(),
            4u);  // world, tensor, data, model_parallel
}

TEST(Mesh, PartsOfAModelAgreeInAGroupOfTheirOwn) {
  const Communicators made = communicators({.tensor = 2, .data = 4, .sharding = Sharding::Zero1}, {});
  EXPECT_NE(made.model, made.norm);
  EXPECT_EQ(made.table[made.model.index()].name, "model_parallel");
  EXPECT_EQ(communicators({.tensor = 2, .data = 4}, {}).norm, communicators({.tensor = 2, .data = 4}, {}).model);
}

TEST(Mesh, InterleavedStagesSendThroughCommunicatorsOfTwo) {
  Layout layout{.pipeline = 4};
  EXPECT_EQ(communicators(layout, {}).table[communicators(layout, {}).pipeline.index()].messages, MessageRoute::Group);
  layout.schedule = ScheduleKind::Interleaved;
  EXPECT_EQ(communicators(layout, {}).table[communicators(layout, {}).pipeline.index()].messages, MessageRoute::Pairs);
}

// Counts through all ranks, the first axis fastest, as an odometer does.
std::vector<std::vector<std::int32_t>> counted(const Mesh& mesh) {
  std::vector<std::vector<std::int32_t>> places;
  std::vector<std::int32_t> at(mesh.axes().size(), 0);
  for (;;) {
    places.push_back(at);
    std::size_t a = 0;
    while (a < at.size() && ++at[a] == mesh.axes()[a].size) at[a++] = 0;
    if (a == at.size()) return places;
  }
}

Mesh random_mesh(std::mt19937& random) {
  static constexpr std::array<std::string_view, 6> names{"a", "b", "shard", "replica", "e", "pipeline"};
  std::vector<Mesh::Axis> axes;
  for (std::size_t count = 1 + random() % names.size(); axes.size() < count;)
    axes.push_back({names[axes.size()], static_cast<std::int32_t>(1 + random() % 4)});
  std::shuffle(axes.begin(), axes.end(), random);
  return Mesh(axes);
}

TEST(Mesh, CoordinatesOfAnyNumberOfAxesCountThroughTheRanks) {
  std::mt19937 random(1);
  for (int seed = 0; seed < 60; ++seed) {
    const Mesh mesh = random_mesh(random);
    const std::vector<std::vector<std::int32_t>> places = counted(mesh);
    ASSERT_EQ(places.size(), static_cast<std::size_t>(mesh.size()));
    for (Rank rank{0}; rank.value < mesh.size(); ++rank.value) {
      Rank back{0};
      for (std::size_t a = 0; a < mesh.axes().size(); ++a) {
        const std::string_view name = mesh.axes()[a].name;
        EXPECT_EQ(mesh.coordinate(rank, name), places[rank.index()][a]) << name << " of rank " << rank.value;
        back.value += mesh.rank_at({{name, mesh.coordinate(rank, name)}}).value;
      }
      EXPECT_EQ(back, rank);
    }
  }
}

TEST(Mesh, GroupsAlongSomeAxesHoldTheRanksThatAgreeInTheOthers) {
  std::mt19937 random(2);
  for (int seed = 0; seed < 60; ++seed) {
    const Mesh mesh = random_mesh(random);
    const std::vector<std::vector<std::int32_t>> places = counted(mesh);
    std::vector<std::size_t> chosen;
    for (std::size_t a = 0; a < mesh.axes().size(); ++a)
      if (random() % 2 == 0) chosen.push_back(a);
    Communicator group{"group", {}, {}};
    for (const std::size_t a : chosen) group.axes.push_back(mesh.along(mesh.axes()[a].name));
    if (chosen.size() == 2) {  // in either order
      EXPECT_EQ(group.axes, mesh.along({mesh.axes()[chosen[1]].name, mesh.axes()[chosen[0]].name}));
    }
    for (Rank rank{0}; rank.value < mesh.size(); ++rank.value) {
      std::vector<Rank> alike;  // in order of rank, which is that of the group
      for (Rank other{0}; other.value < mesh.size(); ++other.value) {
        bool agrees = true;
        for (std::size_t a = 0; a < mesh.axes().size(); ++a)
          agrees = agrees && (std::ranges::count(chosen, a) > 0 || places[rank.index()][a] == places[other.index()][a]);
        if (agrees) alike.push_back(other);
      }
      EXPECT_EQ(group_members(group, rank), alike);
    }
  }
}

// Ranks of a stage are cut twice: for what all tokens go through, and for experts.
TEST(Mesh, BothMeshesOfAJobAgreeOnThePipeline) {
  std::mt19937 random(3);
  const auto pick = [&](std::vector<std::int32_t> from) { return from[random() % from.size()]; };
  int uneven = 0;
  for (int seed = 0; seed < 400; ++seed) {
    Layout layout;
    layout.tensor = pick({1, 2, 4});
    layout.context = pick({1, 2});
    layout.expert_tensor = pick({0, 1, 2});
    layout.expert = pick({1, 2, 4});
    layout.data = pick({1, 2, 4, 8});
    layout.pipeline = pick({1, 2, 3});
    if (layout.tensor * layout.context * layout.data % (layout.expert_tensor_parallel() * layout.expert) != 0) continue;
    std::shuffle(layout.order.begin(), std::prev(layout.order.end()), random);  // the pipeline stays last
    const Mesh dense = dense_mesh(layout), experts = expert_mesh(layout);
    uneven += layout.experts_data() != layout.data ? 1 : 0;
    EXPECT_EQ(dense.size(), layout.world_size());
    EXPECT_EQ(experts.size(), layout.world_size());
    for (Rank rank{0}; rank.value < layout.world_size(); ++rank.value) {
      EXPECT_EQ(rank_at(layout, coordinates(layout, rank)), rank);
      EXPECT_EQ(dense.coordinate(rank, axis::pp), experts.coordinate(rank, axis::pp));
    }
  }
  EXPECT_GT(uneven, 50);
}

TEST(Mesh, ExpertsHaveAxesOfTheirOwnInTheLayoutsOrder) {
  Layout layout{.tensor = 4, .expert = 4, .expert_tensor = 1, .pipeline = 2, .data = 2};
  const Mesh experts = expert_mesh(layout);
  EXPECT_EQ(experts.axes(), (std::vector<Mesh::Axis>{{"etp", 1}, {"ep", 4}, {"edp", 2}, {"pp", 2}}));
  EXPECT_EQ(dense_mesh(layout).axes(), (std::vector<Mesh::Axis>{{"tp", 4}, {"cp", 1}, {"dp", 2}, {"pp", 2}}));
  EXPECT_EQ(groups({"experts", experts.along({axis::ep}), {}}, 16), "0 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13 14 15");
  layout.expert_tensor = 0;  // as tensor
  layout.expert = 2;
  EXPECT_EQ(groups({"experts", expert_mesh(layout).along({axis::ep}), {}}, 16),
            "0 4 | 1 5 | 2 6 | 3 7 | 8 12 | 9 13 | 10 14 | 11 15");
}

}  // namespace
}  // namespace tidemark::tests::mesh_test
