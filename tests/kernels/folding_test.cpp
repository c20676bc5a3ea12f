#include "sim/clock/folding.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cost/cost_time.hpp"
#include "sim/clock/class_timeline.hpp"
#include "sim/clock/engine.hpp"
#include "sim/program/calls.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/verify.hpp"
#include "tests/parallel/sharded_job.hpp"
#include "tests/parallel/test_job.hpp"
#include "tests/seeds.hpp"
#include "tests/sim/program/random_matrix.hpp"
#include "tests/topology/test_clusters.hpp"
#include "topology/route/cost.hpp"
#include "topology/route/traffic.hpp"

// Folding must not change an answer: generated jobs on fabrics whose links groups share in every way there is.

namespace tidemark::tests::folding_test {
namespace {

struct Case {
  std::string name;
  TestJob job;
  Cluster cluster;
};

Cluster small_nodes(Cluster cluster, std::int32_t devices, std::int32_t nics) {
  cluster.node.devices = devices;
  cluster.node.nics = nics;
  return cluster;
}

std::vector<std::pair<std::string, Cluster>> fabrics() {
  Cluster pairs = small_nodes(leaf_spine(1, Ratio{3'000'000}), 4, 2);
  pairs.node.link = NodeLink::NvLink;
  return {
      {"hgx", hgx()},
      {"four_to_a_node", small_nodes(hgx(), 4, 1)},
      {"leaf_spine", small_nodes(leaf_spine(2, Ratio{4'000'000}), 4, 2)},
      {"rails", small_nodes(rails(2, Ratio{2'000'000}), 4, 4)},
      {"bridged_pairs_on_leaves", pairs},
      {"workstation", workstation()},
      {"bridged_workstation", bridged_workstation()},
      {"three_to_a_node", small_nodes(workstation(), 3, 2)},
  };
}

std::vector<Case> generated(std::uint32_t seed, std::size_t count) {
  std::mt19937 random(seed);
  const auto pick = [&](std::vector<std::int32_t> from) { return from[random() % from.size()]; };
  const std::vector<std::pair<std::string, Cluster>> on = fabrics();
  std::vector<Case> cases;
  while (cases.size() < count) {
    const auto& [fabric, cluster] = on[cases.size() % on.size()];
    Case made{fabric, {}, cluster};
    Layout& layout = made.job.layout;
    layout.tensor = pick({1, 2, 4});
    layout.pipeline = pick({1, 2, 4});
    layout.data = pick({1, 2, 3, 4});
    layout.sequence_parallel = layout.tensor > 1 && pick({0, 1}) == 1;
    layout.sharding = pick({0, 1}) == 1 ? Sharding::Zero1 : Sharding::None;
    std::shuffle(layout.order.begin(), layout.order.end(), random);
    if (layout.world_size() <= 8 && pick({0, 1}) == 1) {
      layout.context = pick({2, 4});
      layout.context_kind = static_cast<ContextKind>(pick({0, 1, 2, 3}));
      layout.context_inner = 2;
      const bool heads_divide = made.job.model.kv_heads / layout.tensor % layout.ulysses() == 0;
      const bool several = layout.context_kind != ContextKind::AllToAllAndRing || layout.context > layout.context_inner;
      if (!heads_divide || !several) layout.context_kind = ContextKind::Ring;
      // Megatron refuses orders in which experts would cut a stage's ranks in another way.
      if (dense_mesh(layout).along(axis::pp) != expert_mesh(layout).along(axis::pp)) layout.context = 1;
    }
    if (layout.world_size() == 1) continue;
    made.job.train.global_batch = std::int64_t{layout.data} * pick({1, 2, 5});
    if (layout.pipeline > 1 && pick({0, 1, 2}) == 0) {
      layout.schedule = ScheduleKind::Interleaved;
      layout.chunks = 2;
      made.job.model.layers.resize(layout.pipeline * layout.chunks);
      made.job.train.global_batch = std::int64_t{layout.data} * layout.pipeline * pick({1, 2});
    }
    made.job.train.recompute.kind = pick({0, 1}) == 1 ? Recompute::Full : Recompute::None;
    made.cluster.host.launch = Duration{pick({0, 1'000'000, 5'000'000})};
    made.job.target.devices_per_node = cluster.node.devices;
    made.name += "_tp" + std::to_string(layout.tensor) + "_dp" + std::to_string(layout.data) + "_pp" +
                 std::to_string(layout.pipeline);
    cases.push_back(std::move(made));
  }
  return cases;
}

// Jobs whose experts' ranks get the same numbers of tokens, others, or those of a list.
std::vector<Case> generated_with_experts(std::uint32_t seed, std::size_t count) {
  std::mt19937 random(seed);
  const auto pick = [&](std::vector<std::int32_t> from) { return from[random() % from.size()]; };
  std::vector<std::pair<std::string, Cluster>> on = fabrics();
  std::erase_if(on, [](const auto& fabric) { return fabric.second.node.devices % 2 != 0; });
  std::vector<Case> cases;
  while (cases.size() < count) {
    const auto& [fabric, cluster] = on[cases.size() % on.size()];
    Case made{fabric, {}, cluster};
    Layout& layout = made.job.layout;
    layout.tensor = pick({1, 1, 2});
    layout.sequence_parallel = layout.tensor > 1;
    layout.pipeline = pick({1, 2});
    layout.data = pick({2, 4, 8});
    layout.expert = pick({1, 2, 4, 8});
    layout.expert_tensor = 1;
    if (layout.tensor * layout.data % layout.expert != 0 || layout.world_size() > 32) continue;
    layout.sharding = pick({0, 1}) == 1 ? Sharding::Zero1 : Sharding::None;
    layout.order = {MeshAxis::Tensor, MeshAxis::Context, MeshAxis::Expert, MeshAxis::Data, MeshAxis::Pipeline};
    Experts experts{.count = 8, .chosen = pick({1, 2, 3}), .ffn = 256, .shared_ffn = pick({0, 128})};
    set_mlp(made.job.model, experts);
    made.job.model.layers.replace(0, {});
    ExpertRouting& routing = made.job.train.routing;
    switch (pick({0, 1, 2})) {
      case 0:
        break;
      case 1:
        routing.loads = LoadOfOneRank{1.5};
        break;
      default:
        routing.loads = DirichletLoads{.concentration = 8, .seed = static_cast<std::uint64_t>(random())};
    }
    if (pick({0, 1, 2}) == 0) {
      routing.capacity_factor = 1.0;
      routing.pads_to_capacity = pick({0, 1}) == 1;
    }
    made.job.settings.experts.fused_permutation = pick({0, 1}) == 1;
    made.job.train.global_batch = std::int64_t{layout.data} * pick({1, 2, 5});
    made.job.train.recompute.kind = pick({0, 1}) == 1 ? Recompute::Full : Recompute::None;
    made.cluster.host.launch = Duration{pick({0, 1'000'000, 5'000'000})};
    made.job.target.devices_per_node = cluster.node.devices;
    made.name += "_tp" + std::to_string(layout.tensor) + "_dp" + std::to_string(layout.data) + "_ep" +
                 std::to_string(layout.expert) + "_pp" + std::to_string(layout.pipeline);
    cases.push_back(std::move(made));
  }
  return cases;
}

std::vector<Case> generated_sharded(std::uint32_t seed, std::size_t count) {
  const std::vector<std::pair<std::string, Cluster>> on = fabrics();
  std::vector<Case> cases;
  while (cases.size() < count) {
    const auto& [fabric, cluster] = on[cases.size() % on.size()];
    Case made{fabric, random_sharded_job(seed + static_cast<std::uint32_t>(cases.size())), cluster};
    made.job.target.devices_per_node = cluster.node.devices;
    made.name += "_" + made.job.framework + "_" + std::to_string(made.job.layout.data);
    cases.push_back(std::move(made));
  }
  return cases;
}

struct Timed {
  Timed(const Workload& workload, const Case& of, bool folds, CollectiveCostModel model = CollectiveCostModel::Routed) {
    const std::vector<std::int32_t> entries = cost(workload, of.cluster).entry_of_rank;
    Router router(workload, of.cluster, {.algorithm = {}, .model = model});
    folding = folds ? fold(workload, entries, router.traffic()) : unfolded(workload, entries);
    costs = cost_time(workload, folding, of.cluster, router);
    trace = simulate(workload, folding, costs);
    timelines = tidemark::sim::timelines(workload, folding, costs, trace);
  }
  [[nodiscard]] std::size_t class_of(Rank rank) const {
    return static_cast<std::size_t>(folding.class_of_rank[rank.index()]);
  }
  [[nodiscard]] const ClassTimeline& of(Rank rank) const { return timelines[class_of(rank)]; }
  [[nodiscard]] const std::vector<Instant>& step_ends(Rank rank) const {
    return trace.classes[class_of(rank)].step_ends;
  }
  Folding folding;
  TimeCosts costs;
  Trace trace;
  std::vector<ClassTimeline> timelines;
};

std::vector<Span> in_order(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::tuple(a.stream, a.begin, a.op) < std::tuple(b.stream, b.begin, b.op);
  });
  return spans;
}

std::size_t some(int all) { return static_cast<std::size_t>(seeds(all)); }

// More than so many of the jobs have fewer classes than ranks.
void expect_the_same_folded(const std::vector<Case>& cases, std::size_t more_than) {
  std::size_t folded_cases = 0;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Workload workload = lower_passes(Lowered(c.job).input);
    ASSERT_TRUE(verify(workload).empty());
    const Timed folded(workload, c, true), each(workload, c, false);
    ASSERT_TRUE(std::holds_alternative<Completed>(each.trace.outcome));
    ASSERT_TRUE(std::holds_alternative<Completed>(folded.trace.outcome));
    folded_cases += folded.folding.classes.size() < each.folding.classes.size() ? 1U : 0U;
    EXPECT_EQ(folded.trace.end, each.trace.end);
    for (std::int32_t r = 0; r < workload.world_size(); ++r) {
      ASSERT_EQ(folded.step_ends({r}), each.step_ends({r})) << "rank " << r;
      ASSERT_EQ(folded.of({r}).host, each.of({r}).host) << "rank " << r;
      ASSERT_EQ(in_order(folded.of({r}).spans), in_order(each.of({r}).spans)) << "rank " << r;
    }
  }
  EXPECT_GT(folded_cases, more_than);
}

TEST(Folding, ChangesNoTimeOfAnyRank) { expect_the_same_folded(generated(2'024, some(160)), some(40)); }

TEST(Folding, ChangesNoTimeOfRanksWithExperts) {
  expect_the_same_folded(generated_with_experts(1, some(64)), some(16));
}

TEST(Folding, ChangesNoTimeOfShardedRanks) { expect_the_same_folded(generated_sharded(1, some(64)), some(8)); }

TEST(Folding, ChangesNoTimeOfPlainCostsEither) {
  for (const Case& c : generated(5, some(24))) {
    SCOPED_TRACE(c.name);
    const Workload workload = lower_passes(Lowered(c.job).input);
    const Timed folded(workload, c, true, CollectiveCostModel::AlphaBeta),
        each(workload, c, false, CollectiveCostModel::AlphaBeta);
    for (std::int32_t r = 0; r < workload.world_size(); ++r)
      ASSERT_EQ(in_order(folded.of({r}).spans), in_order(each.of({r}).spans)) << "rank " << r;
  }
}

TEST(Folding, TwoRunsAreIdentical) {
  for (const Case& c : generated(7, some(16))) {
    SCOPED_TRACE(c.name);
    const Workload workload = lower_passes(Lowered(c.job).input);
    const Timed first(workload, c, true), second(workload, c, true);
    EXPECT_EQ(first.folding.class_of_rank, second.folding.class_of_rank);
    EXPECT_EQ(first.trace, second.trace);
  }
}

// What one transfer puts on a link, and when at the earliest and latest.
struct Passage {
  Instant from, to;
  Bytes bytes;
};

// Of all collectives of an unfolded run, by link. Each is noted by the lowest rank of its group.
std::map<LinkId, std::vector<Passage>> passages(const Workload& workload, const Timed& run) {
  std::map<LinkId, std::vector<Passage>> found;
  for (std::int32_t r = 0; r < workload.world_size(); ++r) {
    const Program& program = workload.program({r});
    for (const Span& span : run.of({r}).spans) {
      const auto* o = std::get_if<Collective>(&program.ops[span.op]);
      if (o == nullptr || group_leader(workload.communicators[o->comm.index()], {r}) != Rank{r}) continue;
      const std::int32_t group = run.folding.classes[static_cast<std::size_t>(r)].groups[o->comm.index()];
      const TransferCost& cost = run.costs.collectives[static_cast<std::size_t>(group)].at(key_of(program, *o));
      for (const LinkLoad& load : cost.loads)
        found[load.link].push_back({span.begin + cost.latency, span.end, load.bytes});
    }
  }
  return found;
}

TEST(Folding, NoLinkCarriesMoreThanItCan) {
  for (const Case& c : generated(99, some(24))) {
    SCOPED_TRACE(c.name);
    const Workload workload = lower_passes(Lowered(c.job).input);
    const Timed run(workload, c, false);
    for (auto& [link, all] : passages(workload, run)) {
      std::sort(all.begin(), all.end(), [](const Passage& a, const Passage& b) { return a.from > b.from; });
      // What begins and ends within a time must fit into it. Later begins are already in `within`.
      std::vector<Passage> within;
      for (const Passage& passage : all) {
        within.insert(std::upper_bound(within.begin(), within.end(), passage,
                                       [](const Passage& a, const Passage& b) { return a.to < b.to; }),
                      passage);
        Bytes sum;
        for (const Passage& p : within) {
          sum += p.bytes;
          ASSERT_LE(sum / run.costs.links[link.index()], p.to - passage.from + Duration{1}) << "link " << link.value;
        }
      }
    }
  }
}

TEST(Folding, LinksThatGroupsShareAreOneWithSharers) {
  // Four cards, two groups of two, one host bridge between them.
  Case c{"workstation", {}, workstation()};
  c.job.layout.tensor = 2;
  c.job.layout.data = 2;
  const Workload workload = lower_passes(Lowered(c.job).input);
  const Timed folded(workload, c, true);
  EXPECT_EQ(folded.folding.classes.size(), 1U);
  bool bridge = false;
  for (const auto& of_group : folded.costs.collectives)
    for (const auto& [key, transfer] : of_group)
      for (const LinkLoad& load : transfer.loads) bridge |= load.sharers == 2;
  EXPECT_TRUE(bridge);
}

// ---- uneven collectives and copies

// Groups of four on nodes of eight. The first two and the fourth say the same, the third another thing.
TEST(Folding, TellsApartRanksWhoseCountsDiffer) {
  std::mt19937 random(6);
  const std::vector<MatrixRow> same = random_matrix(random, CollectiveKind::AllToAll, 4, 1 << 20);
  std::vector<MatrixRow> other = random_matrix(random, CollectiveKind::AllToAll, 4, 1 << 20);
  other[0] = same[0];  // by its own row the first member cannot be told apart
  for (std::size_t j = 1; j < 4; ++j) {
    other[j].receives[0] = same[0].sends[j];
    other[j].sends[0] = same[0].receives[j];
  }
  Workload workload;
  workload.communicators = {{"expert", {{4, 1, 1}}}};
  for (std::size_t which = 0; which < 7; ++which) {
    ProgramBuilder program;
    program.push(CreateCommunicator{CommSlot{0}});
    const BufferId in = program.alloc(Bytes{4 << 20}, Category::Temporaries, program.label("in"));
    const BufferId out = program.alloc(Bytes{4 << 20}, Category::Temporaries, program.label("out"));
    const BufferId kept =
        program.alloc(Bytes{4 << 20}, Category::Temporaries, program.label("kept"), StreamId{0}, MemorySpace::Pinned);
    program.mark(Phase::Forward, 1, 0, program.label("step"));
    program.collective(CommSlot{0}, {CollectiveKind::AllToAll, DType::BOOL}, in, out,
                       which < 4 ? same[which] : other[which - 3]);
    program.push(Memcpy{{0}, out, kept, Bytes{4 << 20}});
    workload.programs.push_back(std::move(program).finish());
  }
  workload.program_of_rank = {0, 1, 2, 3, 0, 1, 2, 3, 0, 4, 5, 6, 0, 1, 2, 3};
  ASSERT_EQ(verify(workload), std::vector<std::string>{});

  const Case c{"two nodes", {}, hgx()};
  for (const CollectiveCostModel model : {CollectiveCostModel::Routed, CollectiveCostModel::AlphaBeta}) {
    const Timed folded(workload, c, true, model), all(workload, c, false, model);
    const auto class_of = [&](std::int32_t rank) {
      return folded.folding.class_of_rank[static_cast<std::size_t>(rank)];
    };
    EXPECT_EQ(class_of(1), class_of(5));
    EXPECT_NE(class_of(0), class_of(8));  // one program, and groups that differ
    EXPECT_NE(class_of(1), class_of(9));
    EXPECT_LT(folded.folding.classes.size(), 16u);
    for (Rank rank{0}; rank.value < 16; ++rank.value)
      EXPECT_EQ(in_order(folded.of(rank).spans), in_order(all.of(rank).spans)) << "rank " << rank.value;
    EXPECT_EQ(simulate(calls_of(workload), folded.folding, folded.costs).end, all.trace.end);
  }
}

}  // namespace
}  // namespace tidemark::tests::folding_test
