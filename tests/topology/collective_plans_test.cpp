#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sim/program/random_matrix.hpp"
#include "tests/topology/collective_figures.hpp"

namespace tidemark::tests::collective_plans_test {
namespace {

using namespace literals;
using namespace collective_figures;

constexpr CollectiveKind all_kinds[] = {CollectiveKind::AllReduce, CollectiveKind::AllGather,
                                        CollectiveKind::ReduceScatter, CollectiveKind::Broadcast,
                                        CollectiveKind::AllToAll};

// What memory of communicators takes for granted (nccl_memory.cpp).
TEST(Collective, LittleOfSeveralNodesGoesByNoSwitch) {
  for (const std::int32_t capability : {90, 100})
    for (const std::int32_t nodes : {2, 3, 4, 8, 16, 64, 256}) {
      const Fabric fabric = build_fabric(hgx(capability), 8 * nodes);
      const std::vector<CollectivePlan> plans =
          eligible_plans(fabric, devices(fabric.devices), CollectiveKind::AllReduce);
      EXPECT_EQ(plans.back().algorithm, Algorithm::Nvls);
      for (const Bytes size : {1_B, 4_B, 4_KiB, little})
        EXPECT_NE(plans[best_plan(plans, size)].algorithm, Algorithm::Nvls) << nodes << " nodes, " << size.count();
      for (const CollectiveKind kind : {CollectiveKind::AllGather, CollectiveKind::ReduceScatter})
        for (const CollectivePlan& plan : eligible_plans(fabric, devices(fabric.devices), kind))
          EXPECT_EQ(plan.algorithm, Algorithm::Ring);
    }
}

// Over groups that lie anyhow: links come once and in order, sizes are never rounded down, no part is lost between a
// leaf and its spines, several sizes of one plan agree with prices made one by one.
TEST(Collective, PlansHoldOnGeneratedGroups) {
  std::mt19937 random(11);
  for (const Cluster& cluster : {hgx(), leaf_spine(2, one * 2), rails(2), workstation(), bridged_workstation()}) {
    const Fabric fabric = build_fabric(cluster, 6 * cluster.node.devices);
    const Fabric spread = build_fabric(cluster, 6 * cluster.node.devices, {.spines = 4});
    for (int round = 0; round < 20; ++round) {
      std::vector<std::int32_t> group = devices(fabric.devices);
      std::shuffle(group.begin(), group.end(), random);
      group.resize(2 + random() % 12);
      for (const CollectiveKind kind : all_kinds) {
        const Bytes bytes{1 + static_cast<std::int64_t>(random() % 1'000'000'000)};
        const std::vector<CollectivePlan> plans = collective_plans(fabric, group, kind);
        const std::vector<CollectivePlan> spread_plans = collective_plans(spread, group, kind);
        ASSERT_EQ(plans.size(), spread_plans.size());
        for (std::size_t i = 0; i < plans.size(); ++i) {
          const TransferCost cost = cost_of(plans[i], bytes);
          EXPECT_GT(cost.latency, 0_ps);
          ASSERT_FALSE(cost.loads.empty());
          for (std::size_t k = 0; k < cost.loads.size(); ++k) {
            EXPECT_GT(cost.loads[k].bytes, 0_B);
            EXPECT_EQ(cost.loads[k].sharers, 1);
            EXPECT_TRUE(k == 0 || cost.loads[k - 1].link < cost.loads[k].link);
          }
          // The same with spines one by one, to the rounding of a byte per spine.
          const TransferCost spread_cost = cost_of(spread_plans[i], bytes);
          for (const Duration apart :
               {spread_cost.latency - cost.latency, alone(spread_cost, spread) - alone(cost, fabric)}) {
            EXPECT_LT(apart, 1_ns);
            EXPECT_GT(apart, -1_ns);
          }
        }
        const std::size_t best = best_plan(plans, bytes);
        EXPECT_EQ(cost_of(plans[best], bytes), collective_cost(fabric, group, kind, bytes));
        EXPECT_EQ(cost_of(plans, bytes), collective_cost(fabric, group, kind, bytes));
        for (const CollectivePlan& plan : plans)
          EXPECT_EQ(alone(fabric, plan, bytes), alone(cost_of(plan, bytes), fabric));
      }
    }
  }
}

TEST(Collective, EligiblePlansAreThoseThatOptionsChooseAmong) {
  const auto algorithms = [](const std::vector<CollectivePlan>& plans) {
    std::vector<Algorithm> found;
    for (const CollectivePlan& plan : plans) found.push_back(plan.algorithm);
    return found;
  };
  using enum Algorithm;
  const Fabric fabric = build_fabric(hgx(), 16);
  const std::vector<std::int32_t> two_nodes = devices(16), one_node = devices(8);
  const CollectiveKind kind = CollectiveKind::AllReduce;
  EXPECT_EQ(algorithms(collective_plans(fabric, two_nodes, kind)), (std::vector{Ring, Tree, Hierarchical, Nvls}));
  EXPECT_EQ(algorithms(eligible_plans(fabric, two_nodes, kind)), (std::vector{Ring, Tree, Nvls}));
  EXPECT_EQ(algorithms(eligible_plans(fabric, one_node, kind)), (std::vector{Ring, Nvls}));
  EXPECT_EQ(algorithms(eligible_plans(fabric, two_nodes, kind, {.algorithm = Hierarchical})),
            (std::vector{Ring, Tree, Hierarchical, Nvls}));
}

// NCCL_ALGO, NCCL_NVLS_ENABLE and NCCL_PROTO.
TEST(Collective, PlansAreThoseThatNcclMayTake) {
  const std::vector<std::int32_t> two_nodes = devices(16), one_node = devices(8), apart = {0, 8};
  using enum Algorithm;
  const auto algorithms = [](const NcclSettings& nccl, const std::vector<std::int32_t>& group, CollectiveKind kind) {
    std::vector<Algorithm> found;
    for (const CollectivePlan& plan : eligible_plans(build_fabric(hgx(), 16, fabric_options(nccl)), group, kind))
      found.push_back(plan.algorithm);
    return found;
  };
  const CollectiveKind reduce = CollectiveKind::AllReduce, gather = CollectiveKind::AllGather;
  const NcclSettings no_ring{.algorithms = {.ring = false}},
      trees{.algorithms = {.ring = false, .nvls = false, .nvls_tree = false}};
  EXPECT_EQ(algorithms(no_ring, two_nodes, reduce), (std::vector{Tree, Nvls}));
  EXPECT_EQ(algorithms(no_ring, one_node, gather), (std::vector{Nvls}));
  EXPECT_EQ(algorithms(no_ring, two_nodes, gather), (std::vector{Ring})) << "nothing else is left";
  EXPECT_EQ(algorithms(trees, one_node, reduce), (std::vector{Tree}));
  EXPECT_EQ(algorithms({.nvls = false}, two_nodes, reduce), (std::vector{Ring, Tree}));
  EXPECT_EQ(algorithms({.nvls = false}, one_node, gather), (std::vector{Ring}));
  EXPECT_EQ(algorithms({.protocols = {.simple = false}}, one_node, reduce), (std::vector{Ring})) << "NVLS is Simple";

  const auto protocols = [](const NcclSettings& nccl, const std::vector<std::int32_t>& group, CollectiveKind kind) {
    const auto plans = eligible_plans(build_fabric(hgx(), 16, fabric_options(nccl)), group, kind);
    std::vector<Protocol> found;
    for (const ProtocolTime& way : std::get<std::vector<ProtocolTime>>(plans.front().time))
      found.push_back(way.protocol);
    return found;
  };
  const auto all = std::vector{Protocol::Ll, Protocol::Ll128, Protocol::Simple};
  EXPECT_EQ(protocols({}, two_nodes, reduce), all);
  EXPECT_EQ(protocols({.protocols = {.ll = false}}, two_nodes, reduce),
            (std::vector{Protocol::Ll128, Protocol::Simple}));
  EXPECT_EQ(protocols({.protocols = {.ll = false, .ll128 = false}}, two_nodes, gather),
            (std::vector{Protocol::Simple}));
  EXPECT_EQ(protocols({}, apart, gather).size(), 4U) << "and PAT";
  EXPECT_EQ(protocols({.algorithms = {.pat = false}}, apart, gather), all);
  EXPECT_EQ(protocols({.algorithms = {.ring = false}}, apart, gather).size(), 1U) << "PAT alone";
}

// NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS, NCCL_NVLS_NCHANNELS, NCCL_MAX_P2P_NCHANNELS and NCCL_NCHANNELS_PER_NET_PEER.
TEST(Collective, FewChannelsMoveNoMoreThanEachCan) {
  const std::vector<std::int32_t> one_node = devices(8), two_nodes = devices(16);
  const auto on = [&](const NcclSettings& nccl) { return build_fabric(hgx(), 16, fabric_options(nccl)); };
  const auto gathered = [&](const NcclSettings& nccl) {
    const Fabric fabric = on(nccl);
    return alone(collective_cost(fabric, one_node, CollectiveKind::AllGather, 1_GiB), fabric);
  };
  const auto by_switch = [&](const NcclSettings& nccl, CollectiveKind kind) {
    const Fabric fabric = on(nccl);
    return alone(collective_cost(fabric, one_node, kind, 1_GiB, {.algorithm = Algorithm::Nvls, .model = {}}), fabric);
  };
  const auto reduced = [&](const NcclSettings& nccl, const std::vector<std::int32_t>& group) {
    const Fabric fabric = on(nccl);
    return alone(collective_cost(fabric, group, CollectiveKind::AllReduce, 1_GiB), fabric);
  };
  const auto sent = [&](const NcclSettings& nccl, std::int32_t from, std::int32_t to) {
    const Fabric fabric = on(nccl);
    return alone(message_cost(fabric, from, to, 1_GiB), fabric);
  };
  const NcclSettings no_switch{.nvls = false};
  NcclSettings four = no_switch, many = no_switch, ctas, in_switch, for_messages, for_peers;
  four.channels.max_channels = 4;
  many.channels.min_channels = 32;
  ctas.channels.max_ctas = 4;
  in_switch.channels.nvls_channels = 4;
  for_messages.channels.max_p2p_channels = 2;
  for_peers.channels.channels_per_net_peer = 1;

  // Seven eighths of it go round, by four channels.
  const Duration moving = Bytes{(1_GiB).count() / 8 * 7} / (4 * channel_rate(90));
  EXPECT_GT(gathered(four), moving);
  EXPECT_LT(gathered(four), moving + 200_us);
  EXPECT_LT(3 * gathered(no_switch), gathered(four)) << "24 fill the links";
  EXPECT_EQ(gathered(many), gathered(no_switch)) << "and more are no faster";
  EXPECT_LT(2 * reduced(no_switch, two_nodes), reduced(four, two_nodes));
  EXPECT_LT(2 * reduced({}, one_node), reduced(in_switch, one_node));
  EXPECT_GT(reduced(ctas, one_node), reduced({}, one_node)) << "of both kinds";
  for (const CollectiveKind kind : {CollectiveKind::AllGather, CollectiveKind::ReduceScatter}) {
    EXPECT_LT(2 * by_switch({}, kind), by_switch(in_switch, kind));
    EXPECT_EQ(by_switch(ctas, kind), by_switch(in_switch, kind));
  }
  EXPECT_LT(2 * sent({}, 0, 1), sent(for_messages, 0, 1));
  EXPECT_LT(sent({}, 0, 8), sent(for_peers, 0, 8));
}

// Rings one by one, member by member: the c-th begins at the c-th member, and odd nodes are walked backwards.
TEST(Collective, RingsTogetherAreEachRing) {
  for (const Cluster& cluster : {hgx(), leaf_spine(2), rails(2), workstation()}) {
    const std::int32_t per_node = cluster.node.devices;
    const Fabric fabric = build_fabric(cluster, 7 * per_node);
    for (const std::int32_t local : {2, 3, 4}) {
      for (const std::int32_t nodes : {2, 3, 6, 7}) {
        std::vector<std::int32_t> group;
        for (std::int32_t n = 0; n < nodes; ++n)
          for (std::int32_t k = 0; k < local; ++k) group.push_back(n * per_node + k);
        std::map<LinkId, std::int64_t> parts;
        for (std::int32_t c = 0; c < local; ++c) {
          std::vector<std::int32_t> order;
          for (std::int32_t n = 0; n < nodes; ++n)
            for (std::int32_t k = 0; k < local; ++k)
              order.push_back(n * per_node + (n % 2 == 0 ? c + k : c - 1 - k + 2 * local) % local);
          for (std::size_t i = 0; i < order.size(); ++i)
            for (const LinkShare& share : route(fabric, order[i], order[(i + 1) % order.size()]).shares)
              parts[share.link] += nodes * local - 1;
        }
        const CollectivePlan ring = collective_plans(fabric, group, CollectiveKind::AllGather).front();
        ASSERT_EQ(ring.algorithm, Algorithm::Ring);
        ASSERT_EQ(ring.links.size(), parts.size());
        for (const CollectivePlan::Part& part : ring.links) EXPECT_EQ(part.parts, parts[part.link]);
      }
    }
  }
}

// ---- uneven collectives and copies

TransferCost uneven(const Fabric& fabric, const std::vector<std::int32_t>& group, CollectiveKind kind,
                    const std::vector<MatrixRow>& rows, CollectiveCostModel model = CollectiveCostModel::Routed) {
  std::vector<const MatrixRow*> by_place;
  for (const MatrixRow& row : rows) by_place.push_back(&row);
  return uneven_cost(fabric, group, kind, by_place, model);
}

// Gathers and scatters are broadcasts and reductions then, which NCCL does by Simple only.
TEST(UnevenCollective, OfEqualPartsCostsWhatTheEvenOneDoes) {
  const Fabric fabric = build_fabric(hgx(), 8);
  for (const std::int32_t n : {2, 3, 8}) {
    const auto members = static_cast<std::size_t>(n);
    const std::vector<Bytes> parts(members, 3_MiB);
    const std::vector<MatrixRow> rows(members, {{0}, parts, parts});
    for (const CollectiveKind kind :
         {CollectiveKind::AllToAll, CollectiveKind::AllGather, CollectiveKind::ReduceScatter}) {
      const CollectivePlan even = collective_plans(fabric, devices(n), kind).front();
      const TransferCost its = uneven(fabric, devices(n), kind, rows), like = cost_of(even, 3_MiB * n);
      EXPECT_EQ(its.loads, like.loads) << name(kind) << " of " << n;
      EXPECT_EQ(its.latency, kind == CollectiveKind::AllToAll ? like.latency : (n - 1) * nvlink_step);
    }
  }
}

// Each message by itself: no plan, no ring.
TEST(UnevenCollective, AnAllToAllPutsOnEveryLinkWhatItsMessagesDo) {
  std::mt19937 random(8);
  const Fabric fabric = build_fabric(rails(2), 32);
  for (int seed = 0; seed < 20; ++seed) {
    const std::vector<std::int32_t> group = devices(4, seed % 8 + 1, seed % 8);
    const std::vector<MatrixRow> rows = random_matrix(random, CollectiveKind::AllToAll, group.size(), 1 << 20);
    std::map<LinkId, Bytes> expected;
    for (std::size_t i = 0; i < group.size(); ++i)
      for (std::size_t j = 0; j < group.size(); ++j)
        if (i != j)
          for (const LinkLoad& load :
               message_cost(fabric, group[i], group[j], rows[i].sends[j], CollectiveCostModel::Routed,
                            message_way(fabric, group, group[i], group[j]))
                   .loads)
            expected[load.link] += load.bytes;
    std::map<LinkId, Bytes> found;
    const TransferCost cost = uneven(fabric, group, CollectiveKind::AllToAll, rows);
    for (const LinkLoad& load : cost.loads) found[load.link] += load.bytes;
    EXPECT_EQ(found, expected);
    EXPECT_EQ(alone(uneven(fabric, group, CollectiveKind::AllToAll, rows, CollectiveCostModel::AlphaBeta), fabric),
              alone(cost, fabric));
  }
}

// Round the ring every link carries all parts but the one that ends, or begins, behind it.
TEST(UnevenCollective, GathersAndScattersGoRoundTheRing) {
  const Fabric fabric = build_fabric(hgx(), 8);
  const std::vector<Bytes> parts{1_MiB, 0_B, 5_MiB, 2_MiB};
  std::vector<MatrixRow> gather, scatter;
  for (const Bytes part : parts) {
    gather.push_back({{0}, std::vector<Bytes>(4, part), parts});
    scatter.push_back({{0}, parts, std::vector<Bytes>(4, part)});
  }
  const TransferCost all = uneven(fabric, devices(4), CollectiveKind::AllGather, gather);
  EXPECT_EQ(on(fabric, all, "node0.gpu0.nvlink_up"), 8_MiB);  // nothing to rank 1, which has none of its own
  EXPECT_EQ(on(fabric, all, "node0.gpu1.nvlink_up"), 3_MiB);
  EXPECT_EQ(on(fabric, all, "node0.gpu3.nvlink_down"), 6_MiB);
  EXPECT_EQ(all.latency, 3 * nvlink_step);
  const TransferCost sum = uneven(fabric, devices(4), CollectiveKind::ReduceScatter, scatter);
  EXPECT_EQ(on(fabric, sum, "node0.gpu2.nvlink_up"), 3_MiB);  // its own sum ends there
  EXPECT_EQ(on(fabric, sum, "node0.gpu0.nvlink_down"), 6_MiB);
}

TEST(Copy, GoesOverTheDevicesLinkToItsHostAndTheHost) {
  const Cluster cluster = hgx();
  const Fabric fabric = build_fabric(cluster, 16);
  const TransferCost out = copy_cost(fabric, 9, MemorySpace::Device, MemorySpace::Pinned, 63_MiB);
  EXPECT_EQ(out.latency, cluster.host.latency);
  EXPECT_EQ(on(fabric, out, "node1.gpu1.host_up"), 63_MiB);
  EXPECT_EQ(on(fabric, out, "node1.host_bridge"), 63_MiB);
  EXPECT_EQ(out.loads.size(), 2u);
  const TransferCost in = copy_cost(fabric, 9, MemorySpace::Pageable, MemorySpace::Device, 63_MiB);
  EXPECT_EQ(on(fabric, in, "node1.gpu1.host_down"), 63_MiB);
  EXPECT_EQ(
      copy_cost(fabric, 9, MemorySpace::Device, MemorySpace::Pinned, 63_MiB, CollectiveCostModel::AlphaBeta).latency,
      alone(out, fabric));
}

}  // namespace
}  // namespace tidemark::tests::collective_plans_test
