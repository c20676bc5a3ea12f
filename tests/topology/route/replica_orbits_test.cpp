#include "topology/route/replica_orbits.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cost/cost_time.hpp"
#include "sim/clock/class_timeline.hpp"
#include "sim/clock/engine.hpp"
#include "sim/program/verify.hpp"
#include "tests/parallel/test_job.hpp"
#include "tests/seeds.hpp"
#include "tests/topology/test_clusters.hpp"
#include "topology/route/cost.hpp"
#include "topology/route/traffic.hpp"

// One rank of each orbit must tell what all ranks tell: generated jobs, long along the data-parallel axis.

namespace tidemark::tests::replica_orbits_test {
namespace {

Cluster of_nodes(Cluster cluster, std::int32_t devices, std::int32_t nics) {
  cluster.node.devices = devices;
  cluster.node.nics = nics;
  return cluster;
}

std::vector<std::pair<std::string, Cluster>> fabrics() {
  Cluster pairs = of_nodes(leaf_spine(4, Ratio{3'000'000}), 4, 2);
  pairs.node.link = NodeLink::NvLink;
  return {
      {"one_switch", of_nodes(hgx(), 4, 4)},
      {"hgx_on_leaves", leaf_spine(2, Ratio{2'000'000})},
      {"leaves_of_two", of_nodes(leaf_spine(2, Ratio{4'000'000}), 4, 2)},
      {"leaves_of_three", of_nodes(leaf_spine(3), 2, 1)},
      {"leaves_of_four", of_nodes(leaf_spine(4, Ratio{4'000'000}), 2, 2)},
      {"rails_of_two", of_nodes(rails(2, Ratio{2'000'000}), 4, 4)},
      {"rails_of_four", of_nodes(rails(4), 4, 4)},
      {"older_rails", of_nodes(
                          [] {
                            Cluster cluster = rails(2);
                            cluster.device.compute_capability = 80;  // no in-switch operations: trees and rings
                            return cluster;
                          }(),
                          2, 2)},
      {"bridged_pairs_on_leaves", pairs},
      {"workstations", of_nodes(workstation(), 2, 1)},
      {"racks", of_nodes(leaf_spine(1), 16, 16)},
  };
}

struct Case {
  std::string name;
  TestJob job;
  Cluster cluster;
  std::int32_t data_groups = 1;  ///< into which the data-parallel ranks fall
};

std::vector<Case> generated(std::uint32_t seed, int count) {
  std::mt19937 random(seed);
  const auto pick = [&](std::vector<std::int32_t> from) { return from[random() % from.size()]; };
  const std::vector<std::pair<std::string, Cluster>> on = fabrics();
  std::vector<Case> cases;
  while (static_cast<int>(cases.size()) < count) {
    const auto& [fabric, cluster] = on[cases.size() % on.size()];
    Case made{fabric, {}, cluster, pick({1, 1, 1, 2})};
    Layout& layout = made.job.layout;
    layout.tensor = pick({1, 2, 4});
    layout.pipeline = pick({1, 2, 4});
    layout.data = pick({4, 6, 8, 12, 16, 24, 32});
    layout.sequence_parallel = layout.tensor > 1 && pick({0, 1}) == 1;
    layout.sharding = pick({0, 1}) == 1 ? Sharding::Zero1 : Sharding::None;
    std::shuffle(layout.order.begin(), layout.order.end(), random);
    if (layout.world_size() > 128) continue;
    made.job.model.tied_embeddings = pick({0, 1}) == 1;
    made.job.train.global_batch = std::int64_t{layout.data} * pick({1, 2});
    made.cluster.host.launch = Duration{pick({0, 1'000'000})};
    made.job.target.devices_per_node = cluster.node.devices;
    made.name += "_tp" + std::to_string(layout.tensor) + "_dp" + std::to_string(layout.data) + "_pp" +
                 std::to_string(layout.pipeline);
    for (const MeshAxis axis : layout.order) made.name += "_" + std::to_string(static_cast<int>(axis));
    cases.push_back(std::move(made));
  }
  return cases;
}

Workload workload_of(const Case& c) {
  Workload workload = lower_passes(Lowered(c.job).input);
  for (Communicator& communicator : workload.communicators)
    if (communicator.name == "data") communicator.axes[0].size /= c.data_groups;
  EXPECT_TRUE(verify(workload).empty());
  return workload;
}

void expect_equal(const TimeCosts& a, const TimeCosts& b) {
  ASSERT_EQ(a.links, b.links);
  EXPECT_EQ(a.collectives, b.collectives);
  ASSERT_EQ(a.classes.size(), b.classes.size());
  for (std::size_t c = 0; c < a.classes.size(); ++c) {
    EXPECT_EQ(a.classes[c].kernels, b.classes[c].kernels);
    EXPECT_EQ(a.classes[c].messages, b.classes[c].messages);
  }
}

void expect_equal(const Folding& a, const Folding& b) {
  ASSERT_EQ(a.class_of_rank, b.class_of_rank);
  ASSERT_EQ(a.groups, b.groups);
  for (std::size_t c = 0; c < a.classes.size(); ++c) {
    EXPECT_EQ(a.classes[c].first, b.classes[c].first);
    EXPECT_EQ(a.classes[c].size, b.classes[c].size);
    EXPECT_EQ(a.classes[c].groups, b.classes[c].groups);
  }
}

// `kinds`: what tells ranks apart apart from their programs.
void expect_whole(const Workload& workload, const Cluster& cluster, const std::vector<std::int32_t>& kinds,
                  const CollectiveOptions& options = {}) {
  Router whole(workload, cluster, options), part(workload, cluster, kinds, options);
  const Folding by_rank = fold(workload, kinds, whole.traffic()), by_orbit = fold(workload, kinds, part.traffic());
  expect_equal(by_orbit, by_rank);
  expect_equal(cost_time(workload, by_orbit, cluster, part), cost_time(workload, by_rank, cluster, whole));
}

TEST(ReplicaOrbits, OneRankOfEachOrbitTellsWhatAllTell) {
  int smaller = 0, much_smaller = 0;
  for (const Case& c : generated(31, seeds(400))) {
    SCOPED_TRACE(c.name);
    const Workload workload = workload_of(c);
    const std::vector<std::int32_t> entries = cost(workload, c.cluster).entry_of_rank;
    ASSERT_NO_FATAL_FAILURE(expect_whole(workload, c.cluster, entries));
    const Router router(workload, c.cluster, entries);
    if (!router.traffic().symmetry) continue;
    const std::vector<std::int32_t>& sizes = router.traffic().symmetry->sizes;
    EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), 0), workload.world_size());
    smaller += sizes.size() < workload.program_of_rank.size() ? 1 : 0;
    much_smaller += 2 * sizes.size() <= workload.program_of_rank.size() ? 1 : 0;
  }
  EXPECT_GT(smaller, seeds(150));
  EXPECT_GT(much_smaller, seeds(80));
}

TEST(ReplicaOrbits, AnyAlgorithmTellsItself) {
  for (const Algorithm algorithm : {Algorithm::Ring, Algorithm::Tree, Algorithm::Hierarchical, Algorithm::Nvls}) {
    for (const Case& c : generated(32 + static_cast<std::uint32_t>(algorithm), seeds(120))) {
      SCOPED_TRACE(c.name);
      const Workload workload = workload_of(c);
      const std::vector<std::int32_t> entries = cost(workload, c.cluster).entry_of_rank;
      ASSERT_NO_FATAL_FAILURE(
          expect_whole(workload, c.cluster, entries, {.algorithm = algorithm, .model = CollectiveCostModel::Routed}));
    }
  }
}

TEST(ReplicaOrbits, RanksOfDifferentKindsStayApart) {
  std::mt19937 random(33);
  for (const Case& c : generated(34, seeds(200))) {
    SCOPED_TRACE(c.name);
    const Workload workload = workload_of(c);
    std::vector<std::int32_t> kinds(workload.program_of_rank.size(), 0);
    for (int i = 0; i < 2; ++i) kinds[random() % kinds.size()] = 1;
    ASSERT_NO_FATAL_FAILURE(expect_whole(workload, c.cluster, kinds));
  }
}

TEST(ReplicaOrbits, RanksOfDifferentProgramsStayApart) {
  std::mt19937 random(35);
  for (const Case& c : generated(36, seeds(200))) {
    SCOPED_TRACE(c.name);
    Workload workload = workload_of(c);
    const std::vector<std::int32_t> kinds(workload.program_of_rank.size(), 0);
    // The same calls from another program.
    workload.programs.push_back(workload.programs.front());
    std::vector<std::size_t> first;
    for (std::size_t r = 0; r < kinds.size(); ++r)
      if (workload.program_of_rank[r] == 0) first.push_back(r);
    workload.program_of_rank[first[random() % first.size()]] = static_cast<std::int32_t>(workload.programs.size()) - 1;
    ASSERT_NO_FATAL_FAILURE(expect_whole(workload, c.cluster, kinds));
  }
}

TEST(ReplicaOrbits, GroupsOfOtherSharesStayApart) {
  // Two data-parallel groups of four: three of one kind and one of the other, and the reverse.
  Case c{"shares", {}, of_nodes(hgx(), 2, 2)};
  c.job.layout.tensor = 2;
  c.job.layout.data = 4;
  const Workload workload = workload_of(c);
  const std::vector<std::int32_t> kinds{0, 1, 0, 1, 0, 1, 1, 0};
  const CollectiveOptions no_links{.algorithm = {}, .model = CollectiveCostModel::AlphaBeta};
  ASSERT_NO_FATAL_FAILURE(expect_whole(workload, c.cluster, kinds));
  ASSERT_NO_FATAL_FAILURE(expect_whole(workload, c.cluster, kinds, no_links));
  const Router router(workload, c.cluster, kinds, no_links);
  EXPECT_EQ(router.traffic().symmetry->sizes, (std::vector<std::int32_t>{3, 3, 1, 1}));
  EXPECT_EQ(fold(workload, kinds, router.traffic()).classes.size(), 4U);
}

TEST(ReplicaOrbits, ChangeNoTimeOfAnyRank) {
  int smaller = 0;
  for (const Case& c : generated(37, seeds(120))) {
    SCOPED_TRACE(c.name);
    const Workload workload = workload_of(c);
    const std::vector<std::int32_t> entries = cost(workload, c.cluster).entry_of_rank;
    Router part(workload, c.cluster, entries);
    smaller += part.traffic().symmetry && part.traffic().symmetry->ranks.size() < entries.size() ? 1 : 0;
    const Folding folded = fold(workload, entries, part.traffic()), each = unfolded(workload, entries);
    const TimeCosts folded_costs = cost_time(workload, folded, c.cluster, part),
                    each_costs = cost_time(workload, each, c.cluster);
    const Trace folded_trace = simulate(workload, folded, folded_costs),
                each_trace = simulate(workload, each, each_costs);
    const std::vector<ClassTimeline> folded_times = timelines(workload, folded, folded_costs, folded_trace),
                                     each_times = timelines(workload, each, each_costs, each_trace);
    ASSERT_TRUE(std::holds_alternative<Completed>(each_trace.outcome));
    for (std::size_t r = 0; r < entries.size(); ++r) {
      const auto its = static_cast<std::size_t>(folded.class_of_rank[r]);
      ASSERT_EQ(folded_trace.classes[its].step_ends, each_trace.classes[r].step_ends) << "rank " << r;
      ASSERT_EQ(folded_times[its].host, each_times[r].host) << "rank " << r;
    }
  }
  EXPECT_GT(smaller, seeds(40));
}

TEST(ReplicaOrbits, PlainCostsOfAFoldingAreThoseOfAllRanks) {
  const CollectiveOptions plain{.algorithm = {}, .model = CollectiveCostModel::AlphaBeta};
  for (const Case& c : generated(38, seeds(120))) {
    SCOPED_TRACE(c.name);
    const Workload workload = workload_of(c);
    const std::vector<std::int32_t> entries = cost(workload, c.cluster).entry_of_rank;
    const Folding folding = fold(workload, entries, Router(workload, c.cluster, entries).traffic());
    Router whole(workload, c.cluster, plain);
    expect_equal(cost_time(workload, folding, c.cluster, plain), cost_time(workload, folding, c.cluster, whole));
  }
}

Workload meshed(std::int32_t tensor, std::int32_t data, std::int32_t pipeline) {
  TestJob job;
  job.layout.tensor = tensor;
  job.layout.data = data;
  job.layout.pipeline = pipeline;
  job.train.global_batch = data;
  return lower_passes(Lowered(job).input);
}

// `fabric` outlives the replicas.
std::optional<ReplicaOrbits> orbits_along(const GroupAxis& axis, const Workload& workload, const Fabric& fabric) {
  std::vector<bool> messages;
  for (const Communicator& communicator : workload.communicators) messages.push_back(communicator.name == "pipeline");
  return ReplicaOrbits::along(axis, workload, fabric, messages);
}

Fabric fabric_of(const Cluster& cluster, std::int32_t devices_per_node = 4) {
  return build_fabric(of_nodes(cluster, devices_per_node, devices_per_node), 64);
}

TEST(ReplicaOrbits, NeedAnAxisThatEverythingFits) {
  const Workload workload = meshed(4, 8, 2);
  const Fabric fours = fabric_of(leaf_spine(2));
  EXPECT_TRUE(orbits_along({8, 4, 1}, workload, fours));
  EXPECT_FALSE(orbits_along({2, 32, 1}, workload, fours)) << "messages go from replica to replica";
  EXPECT_FALSE(orbits_along({4, 1, 1}, workload, fours)) << "one node holds the whole axis";
  EXPECT_FALSE(orbits_along({2, 4, 7}, workload, fours)) << "some ranks are not on the axis";
  EXPECT_FALSE(orbits_along({16, 4, 1}, workload, fours)) << "half of the axis is another one";
  EXPECT_FALSE(orbits_along({8, 4, 1}, workload, fabric_of(leaf_spine(2), 3))) << "nodes end inside of replicas";
  EXPECT_FALSE(orbits_along({12, 4, 1}, workload, fours)) << "the job is no multiple of it";

  Workload odd = workload;
  odd.communicators[0].axes = {{4, 4, 1}};
  EXPECT_FALSE(orbits_along({8, 4, 1}, odd, fours)) << "groups reach over half of the replicas";
  odd.communicators[0].axes = {{2, 4, 7}};
  EXPECT_FALSE(orbits_along({8, 4, 1}, odd, fours)) << "groups take the first and the last of the axis";
}

TEST(ReplicaOrbits, AreExchangedWithinLeavesAndLeafByLeaf) {
  const Workload workload = meshed(4, 8, 2);
  const auto orbits = [&](const Fabric& fabric) {
    return orbits_along({8, 4, 1}, workload, fabric)->symmetry().ranks.size();
  };
  EXPECT_EQ(orbits(fabric_of(hgx())), 8U) << "one replica of both stages";
  EXPECT_EQ(orbits(fabric_of(leaf_spine(2))), 8U) << "replicas in a leaf, and leaves";
  EXPECT_EQ(orbits(fabric_of(leaf_spine(16))), 8U) << "all on one leaf";
  // Stages of 8 nodes on leaves of 3: replicas hang on leaves 0 and 2, 0 and 3, 1 and 3, 1 and 4, 2 and 4, 2 and 5.
  EXPECT_EQ(orbits(fabric_of(leaf_spine(3))), 8U * 6);
}

TEST(ReplicaOrbits, ThatWereToldApartStayApart) {
  const Workload workload = meshed(4, 8, 2);
  const Fabric fabric = fabric_of(leaf_spine(2));
  std::optional<ReplicaOrbits> orbits = orbits_along({8, 4, 1}, workload, fabric);
  std::vector<std::int32_t> kinds(64, 0);
  kinds[32 + 9] = 1;  // in the third replica: its leaf's other replica, and one of the other leaves
  orbits->refine(kinds);
  EXPECT_EQ(orbits->symmetry().ranks.size(), 8U * 3);
}

}  // namespace
}  // namespace tidemark::tests::replica_orbits_test
