#include "sim/clock/fair_share.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::fair_share_test {
namespace {

using namespace literals;
__extension__ using Wide = __int128;

using Loads = std::vector<LinkLoad>;
using Capacities = std::vector<Bandwidth>;

LinkLoad load(std::int32_t link, Bytes bytes, std::int32_t sharers = 1) { return {{link}, bytes, sharers}; }

/// The rates of flows that start together, in the order they are given.
std::vector<Bandwidth> rates(const Capacities& capacities, const std::vector<Loads>& flows) {
  FairShare shares(capacities);
  std::vector<FlowId> ids;
  for (const Loads& flow : flows) ids.push_back(shares.add(flow));
  shares.settle();
  std::vector<Bandwidth> found;
  for (const FlowId id : ids) found.push_back(shares.rate(id));
  return found;
}

template <class Range, class Number>
std::string text(const Range& range, Number number) {
  std::string line;
  for (const auto& each : range) {
    if (!line.empty()) line += ' ';
    line += std::to_string(number(each));
  }
  return line;
}
std::string text(const std::vector<Bandwidth>& rates) {
  return text(rates, [](Bandwidth rate) { return rate.count(); });
}
std::string text(std::span<const FlowId> flows) {
  return text(flows, [](FlowId flow) { return flow.value; });
}

Capacities bytes_per_second(std::initializer_list<std::int64_t> counts) {
  Capacities capacities;
  for (const std::int64_t count : counts) capacities.push_back(Bandwidth{count});
  return capacities;
}

// By hand.

TEST(FairShare, OneFlowTakesItsNarrowestLink) {
  EXPECT_EQ(text(rates(bytes_per_second({100, 40, 70}), {{load(0, 1_B), load(1, 1_B), load(2, 1_B)}})), "40");
}

TEST(FairShare, EqualFlowsSplitALinkAndTheRemainderIsLeft) {
  const Loads flow = {load(0, 8_B)};
  EXPECT_EQ(text(rates(bytes_per_second({100}), {flow, flow, flow})), "33 33 33");
}

// Two links of 10, one flow over both and one on each, and a second one on the first: the first link fills at 10/3.
TEST(FairShare, WhoIsHeldUpElsewhereLeavesItsShareToTheOthers) {
  EXPECT_EQ(text(rates(bytes_per_second({1000, 1000}),
                       {{load(0, 1_B), load(1, 1_B)}, {load(0, 1_B)}, {load(0, 1_B)}, {load(1, 1_B)}})),
            "333 333 333 667");
}

// The example of Bertsekas & Gallager, figure 6.10, in hundredths: rates of 1/3 on the middle link, then 2/3 and 1.
TEST(FairShare, FillsLinkAfterLink) {
  EXPECT_EQ(text(rates(bytes_per_second({300, 300, 300}), {{load(0, 1_B), load(1, 1_B)},
                                                           {load(1, 1_B)},
                                                           {load(1, 1_B), load(2, 1_B)},
                                                           {load(0, 1_B)},
                                                           {load(2, 1_B)}})),
            "100 100 100 200 200");
}

// Rates are of the largest load: 100 on link 0 is 25 on link 1, of which three such flows take 75.
TEST(FairShare, ASmallLoadUsesASmallPartOfItsLink) {
  const auto flow = [](std::int32_t own) { return Loads{load(own, 4_B), load(3, 1_B)}; };
  EXPECT_EQ(text(rates(bytes_per_second({100, 100, 100, 75}), {flow(0), flow(1), flow(2)})), "100 100 100");
  EXPECT_EQ(text(rates(bytes_per_second({100, 100, 100, 60}), {flow(0), flow(1), flow(2)})), "80 80 80");
}

TEST(FairShare, SharersMultiplyTheUse) {
  EXPECT_EQ(text(rates(bytes_per_second({100, 120}), {{load(0, 1_B), load(1, 1_B, 3)}})), "40");
  EXPECT_EQ(text(rates(bytes_per_second({100, 120}), {{load(0, 1_B), load(1, 1_B, 3)}, {load(1, 1_B)}})), "30 30");
}

TEST(FairShare, ALinkWithoutBytesHoldsNoOneUp) {
  EXPECT_EQ(text(rates(bytes_per_second({100, 1}), {{load(0, 1_B), load(1, 0_B)}, {load(1, 1_B)}})), "100 1");
}

TEST(FairShare, NoRateIsBelowOneBytePerSecond) {
  const Loads flow = {load(0, 1_B)};
  EXPECT_EQ(text(rates(bytes_per_second({2}), {flow, flow, flow})), "1 1 1");
  EXPECT_EQ(text(rates(bytes_per_second({2, 50}), {flow, flow, {load(0, 1_B), load(1, 1_B)}, {load(1, 1_B)}})),
            "1 1 1 49");
}

TEST(FairShare, LargestNumbersDoNotOverflow) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  constexpr std::int32_t sharers = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(text(rates(bytes_per_second({most}), {{load(0, Bytes{most})}})), std::to_string(most));
  const std::vector<Loads> worst_case_program(100'000, {load(0, Bytes{most}, sharers), load(1, 1_B)});
  const std::vector<Bandwidth> found = rates(bytes_per_second({most, most}), worst_case_program);
  EXPECT_EQ(found.front(), Bandwidth{most / 100'000 / sharers});
  EXPECT_EQ(found.back(), found.front());
}

TEST(FairShare, LargestLoadIsWhatRatesAreOf) {
  EXPECT_EQ(largest_load(Loads{load(0, 3_B), load(1, 7_B, 2), load(2, 5_B, 9)}), 7_B);
  EXPECT_EQ(largest_load({}), 0_B);
}

// What settle reports.

TEST(FairShare, SettleNamesTheFlowsWhoseRateIsAnother) {
  FairShare shares(bytes_per_second({100, 100, 30}));
  const FlowId a = shares.add(Loads{load(0, 1_B)});
  const FlowId b = shares.add(Loads{load(1, 1_B)});
  EXPECT_EQ(shares.rate(a), Bandwidth{});
  EXPECT_EQ(text(shares.settle()), "0 1");
  EXPECT_EQ(text(shares.settle()), "");

  const FlowId c = shares.add(Loads{load(1, 1_B), load(2, 1_B)});  // 30 of link 1, which leaves 70 to b
  EXPECT_EQ(text(shares.settle()), "1 2");
  EXPECT_EQ(text({shares.rate(a), shares.rate(b), shares.rate(c)}), "100 70 30");
  EXPECT_EQ(text({shares.use({0}), shares.use({1}), shares.use({2})}), "100 100 30");

  shares.remove(b);
  EXPECT_EQ(text(shares.settle()), "");  // c is held up by link 2, as before
  EXPECT_EQ(text({shares.use({0}), shares.use({1}), shares.use({2})}), "100 30 30");
}

TEST(FairShare, WhatComesAndGoesWithinAnInstantIsNotSeen) {
  FairShare shares(bytes_per_second({100}));
  const FlowId stays = shares.add(Loads{load(0, 1_B)});
  shares.settle();
  const FlowId passes = shares.add(Loads{load(0, 1_B)});
  shares.remove(passes);
  EXPECT_EQ(text(shares.settle()), "");
  EXPECT_EQ(shares.rate(stays), Bandwidth{100});
}

TEST(FairShare, IdsAreReused) {
  FairShare shares(bytes_per_second({100}));
  const Loads flow = {load(0, 1_B)};
  EXPECT_EQ(shares.add(flow), FlowId{0});
  EXPECT_EQ(shares.add(flow), FlowId{1});
  shares.settle();
  shares.remove({0});
  EXPECT_EQ(shares.add(flow), FlowId{0});
  EXPECT_EQ(text(shares.settle()), "0");  // it is another flow, if at the same rate
}

// On generated networks.

struct Network {
  Capacities capacities;
  std::vector<Loads> flows;
};

/// A few links per flow, so that chains of bottlenecks come about; half of the flows load all their links alike.
Network generated(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto up_to = [&](std::int64_t n) {
    return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  Network network;
  const std::int64_t links = up_to(20);
  const bool round_numbers = random() % 2 == 0;  // so that many links fill at once
  for (std::int64_t i = 0; i < links; ++i) {
    network.capacities.push_back(round_numbers ? Bandwidth{up_to(3) * 50'000'000'000}
                                               : Bandwidth{1'000'000'000 + up_to(std::int64_t{1} << 44)});
  }
  const std::int64_t flows = up_to(30);
  for (std::int64_t i = 0; i < flows; ++i) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(links));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    order.resize(static_cast<std::size_t>(up_to(std::min<std::int64_t>(links, 4))));
    const Bytes size{up_to(std::int64_t{1} << (10 + random() % 36))};
    const bool alike = random() % 2 == 0;
    Loads loads;
    for (const std::int32_t link : order) {
      const Bytes bytes = alike ? size : std::max(1_B, size / up_to(16));
      loads.push_back(load(link, bytes, random() % 4 == 0 ? static_cast<std::int32_t>(up_to(32)) : 1));
    }
    network.flows.push_back(std::move(loads));
  }
  return network;
}

/// What a flow takes of a link per byte/s of its rate, from the definition.
long double weight(const Loads& flow, LinkId link) {
  Bytes size;
  Wide bytes = 0;
  for (const LinkLoad& load : flow) {
    size = std::max(size, load.bytes);
    if (load.link == link) bytes += Wide{load.bytes.count()} * load.sharers;
  }
  return static_cast<long double>(bytes) / static_cast<long double>(size.count());
}

LinkId link_id(std::size_t index) { return {static_cast<std::int32_t>(index)}; }

/// Progressive filling as the definition has it, in real numbers.
std::vector<long double> progressive_filling(const Network& network) {
  std::vector<long double> rates(network.flows.size(), 0);
  std::vector<bool> frozen(network.flows.size(), false);
  while (std::find(frozen.begin(), frozen.end(), false) != frozen.end()) {
    long double lowest = std::numeric_limits<long double>::infinity();
    std::vector<long double> levels;
    for (std::size_t l = 0; l < network.capacities.size(); ++l) {
      auto left = static_cast<long double>(network.capacities[l].count());
      long double growing = 0;
      for (std::size_t f = 0; f < rates.size(); ++f) {
        const long double w = weight(network.flows[f], link_id(l));
        (frozen[f] ? left : growing) += frozen[f] ? -w * rates[f] : w;
      }
      levels.push_back(growing > 0 ? left / growing : std::numeric_limits<long double>::infinity());
      lowest = std::min(lowest, levels.back());
    }
    const std::vector<bool> before = frozen;
    for (std::size_t l = 0; l < levels.size(); ++l) {
      if (levels[l] > lowest * (1 + 1e-15L)) continue;
      for (std::size_t f = 0; f < rates.size(); ++f) {
        if (before[f] || weight(network.flows[f], link_id(l)) == 0) continue;
        rates[f] = lowest;
        frozen[f] = true;
      }
    }
  }
  return rates;
}

constexpr std::uint64_t seeds = 400;

TEST(FairShareProperty, AgreesWithProgressiveFillingInRealNumbers) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const Network network = generated(seed);
    const std::vector<Bandwidth> found = rates(network.capacities, network.flows);
    const std::vector<long double> expected = progressive_filling(network);
    for (std::size_t f = 0; f < found.size(); ++f) {
      // What rounding takes from some flows, weights apart by up to 16 · 32 may give to others.
      EXPECT_NEAR(static_cast<double>(found[f].count()), static_cast<double>(expected[f]),
                  16 + 1e-7 * static_cast<double>(expected[f]))
          << "seed " << seed << " flow " << f;
    }
  }
}

// Exactly what the header promises, on weights computed here.
TEST(FairShareProperty, EveryFlowHasAFullLinkOnWhichNoOneIsFaster) {
  const auto exact_weight = [](const Loads& flow, const LinkLoad& load) {
    const Wide size = largest_load(flow).count();
    return ((Wide{load.bytes.count()} << 32) + size - 1) / size * load.sharers;
  };
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const Network network = generated(seed);
    const std::vector<Bandwidth> found = rates(network.capacities, network.flows);
    std::vector<Wide> left;
    for (const Bandwidth capacity : network.capacities) left.push_back(Wide{capacity.count()} << 32);
    std::vector<Bandwidth> fastest(left.size());
    std::vector<Wide> weight_of_fastest(left.size());
    for (std::size_t f = 0; f < found.size(); ++f) {
      for (const LinkLoad& load : network.flows[f]) {
        const std::size_t l = load.link.index();
        const Wide w = exact_weight(network.flows[f], load);
        left[l] -= w * found[f].count();
        if (found[f] > fastest[l]) weight_of_fastest[l] = 0;
        fastest[l] = std::max(fastest[l], found[f]);
        if (found[f] == fastest[l]) weight_of_fastest[l] += w;
      }
    }
    for (std::size_t l = 0; l < left.size(); ++l) EXPECT_GE(left[l], 0) << "seed " << seed << " link " << l;
    for (std::size_t f = 0; f < found.size(); ++f) {
      EXPECT_TRUE(std::any_of(network.flows[f].begin(), network.flows[f].end(),
                              [&](const LinkLoad& load) {
                                const std::size_t l = load.link.index();
                                return fastest[l] == found[f] && left[l] < weight_of_fastest[l];
                              }))
          << "seed " << seed << " flow " << f;
    }
  }
}

TEST(FairShareProperty, NoLinkIsExceeded) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const Network network = generated(seed);
    FairShare shares(network.capacities);
    std::vector<FlowId> ids;
    for (const Loads& flow : network.flows) ids.push_back(shares.add(flow));
    shares.settle();
    for (std::size_t l = 0; l < network.capacities.size(); ++l) {
      long double used = 0;
      for (std::size_t f = 0; f < ids.size(); ++f) {
        used += weight(network.flows[f], link_id(l)) * static_cast<long double>(shares.rate(ids[f]).count());
      }
      EXPECT_LE(shares.use(link_id(l)), network.capacities[l]) << "seed " << seed << " link " << l;
      EXPECT_LE(used, static_cast<long double>(shares.use(link_id(l)).count()) * (1 + 1e-17L));
      EXPECT_NEAR(static_cast<double>(used), static_cast<double>(shares.use(link_id(l)).count()),
                  1 + 1e-8 * static_cast<double>(used));
    }
  }
}

TEST(FairShareProperty, ComingAndGoingEndsWhereStartingTogetherDoes) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const Network network = generated(seed);
    std::mt19937_64 random(seed);
    FairShare shares(network.capacities);
    std::vector<Loads> live;
    std::vector<FlowId> ids;
    std::vector<Bandwidth> reported;  // by id: what settle has said
    for (int step = 0; step < 60; ++step) {
      for (std::uint64_t changes = random() % 4; changes > 0; --changes) {
        if (live.empty() || random() % 3 != 0) {
          live.push_back(network.flows[random() % network.flows.size()]);
          ids.push_back(shares.add(live.back()));
          reported.resize(std::max(reported.size(), ids.back().index() + 1));
          reported[ids.back().index()] = {};
        } else {
          const auto at = static_cast<std::ptrdiff_t>(random() % live.size());
          shares.remove(ids[static_cast<std::size_t>(at)]);
          live.erase(live.begin() + at);
          ids.erase(ids.begin() + at);
        }
      }
      const std::span<const FlowId> changed = shares.settle();
      EXPECT_TRUE(std::is_sorted(changed.begin(), changed.end()));
      for (const FlowId flow : changed) {
        EXPECT_NE(std::exchange(reported[flow.index()], shares.rate(flow)), shares.rate(flow));
      }
      const std::vector<Bandwidth> expected = rates(network.capacities, live);
      for (std::size_t f = 0; f < live.size(); ++f) {
        ASSERT_EQ(shares.rate(ids[f]), expected[f]) << "seed " << seed << " step " << step;
        ASSERT_EQ(reported[ids[f].index()], expected[f]) << "seed " << seed << " step " << step;
      }
    }
  }
}

TEST(FairShareProperty, TheOrderOfFlowsAndOfTheirLinksDoesNotMatter) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Network network = generated(seed);
    std::vector<Bandwidth> found = rates(network.capacities, network.flows);
    for (Loads& flow : network.flows) std::reverse(flow.begin(), flow.end());
    std::reverse(network.flows.begin(), network.flows.end());
    std::reverse(found.begin(), found.end());
    EXPECT_EQ(text(rates(network.capacities, network.flows)), text(found)) << "seed " << seed;
  }
}

// One flow with k sharers, on a link that stands for k equal ones and on shared links, is k flows.
TEST(FairShareProperty, AClassOfEqualFlowsRunsAsEachOfThem) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    std::mt19937_64 random(seed);
    const auto up_to = [&](std::uint64_t n) { return static_cast<std::int64_t>(1 + random() % n); };
    const std::int64_t shared_links = up_to(3);
    Network folded;
    for (std::int64_t l = 0; l < shared_links; ++l) folded.capacities.push_back(Bandwidth{up_to(1 << 30) + 1'000'000});
    Network unfolded = folded;
    std::vector<std::size_t> class_of;
    for (std::int64_t classes = up_to(6); classes > 0; --classes) {
      const auto k = static_cast<std::int32_t>(up_to(24));
      const Bandwidth own{up_to(1 << 28)};
      const Bytes own_bytes{up_to(1 << 20)};
      Loads shared;
      for (std::int32_t l = 0; l < shared_links; ++l) {
        if (l == 0 || random() % 2 == 0) shared.push_back(load(l, Bytes{up_to(1 << 20)}));
      }
      const auto with_own = [&](Network& network, std::int32_t sharers) {
        Loads flow = shared;
        for (LinkLoad& each : flow) each.sharers = sharers;
        flow.push_back(load(static_cast<std::int32_t>(network.capacities.size()), own_bytes));
        network.capacities.push_back(own);
        network.flows.push_back(std::move(flow));
      };
      with_own(folded, k);
      for (std::int32_t i = 0; i < k; ++i) {
        with_own(unfolded, 1);
        class_of.push_back(folded.flows.size() - 1);
      }
    }
    const std::vector<Bandwidth> of_class = rates(folded.capacities, folded.flows);
    const std::vector<Bandwidth> of_each = rates(unfolded.capacities, unfolded.flows);
    for (std::size_t f = 0; f < of_each.size(); ++f) {
      EXPECT_EQ(of_each[f], of_class[class_of[f]]) << "seed " << seed << " flow " << f;
    }
  }
}

}  // namespace
}  // namespace tidemark::tests::fair_share_test
