#include "parallel/model/expert_routing.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::expert_routing_test {
namespace {

using Counts = std::vector<std::int64_t>;

std::int64_t sum(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

Counts choices(const Experts& experts, const ExpertRouting& routing, std::int64_t tokens, std::int32_t ranks) {
  return LayerRouting(experts, routing, 0, tokens, ranks).choices();
}
Counts rows(const Experts& experts, const ExpertRouting& routing, std::int64_t tokens, std::int32_t ranks) {
  return LayerRouting(experts, routing, 0, tokens, ranks).rows();
}

TEST(ExpertRouting, EqualSharesAreAsEqualAsWholeNumbers) {
  const Experts experts{.count = 8, .chosen = 2};
  EXPECT_EQ(choices(experts, {}, 16, 1), Counts(8, 4));
  const Counts counts = choices(experts, {}, 15, 4);
  EXPECT_EQ(sum(counts), 30);
  for (const std::int64_t count : counts) EXPECT_TRUE(count == 3 || count == 4);
}

TEST(ExpertRouting, TheFirstRankGetsWhatIsStated) {
  const Experts experts{.count = 8, .chosen = 2};
  const Counts counts = choices(experts, {.loads = LoadOfOneRank{1.5}}, 64, 4);
  EXPECT_EQ(counts[0] + counts[1], 48);  // of 128, a rank's share is 32
  EXPECT_EQ(sum(counts), 128);
  // No expert is chosen by one token twice.
  EXPECT_EQ(choices(experts, {.loads = LoadOfOneRank{100}}, 64, 4)[0], 64);
}

TEST(ExpertRouting, ListedLoadsAreKeptInProportion) {
  const Experts experts{.count = 4, .chosen = 2};
  EXPECT_EQ(choices(experts, {.loads = ListedLoads{{{1, 2, 2, 3}}}}, 16, 1), (Counts{4, 8, 8, 12}));
}

TEST(ExpertRouting, NoExpertIsChosenByMoreThanAllTokens) {
  // Half of all choices are as many as there are tokens; the others share out the rest as they would.
  const Experts experts{.count = 4, .chosen = 2};
  EXPECT_EQ(choices(experts, {.loads = ListedLoads{{{90, 6, 3, 1}}}}, 10, 1), (Counts{10, 6, 3, 1}));
  EXPECT_EQ(choices(experts, {.loads = ListedLoads{{{90, 80, 3, 1}}}}, 10, 1), (Counts{10, 9, 0, 1}));
}

TEST(ExpertRouting, LayersHaveLoadsOfTheirOwn) {
  const Layer with_experts{.mlp = Experts{.count = 2, .chosen = 1}};
  Model model;
  model.layers = LayerList(4);
  model.layers.replace(1, with_experts);
  model.layers.replace(3, with_experts);
  const ExpertRouting routing{.loads = ListedLoads{{{3, 1}, {1, 3}}}};
  EXPECT_EQ(LayerRouting(model, routing, 1, 8, 1).choices(), (Counts{6, 2}));
  EXPECT_EQ(LayerRouting(model, routing, 3, 8, 1).choices(), (Counts{2, 6}));
}

TEST(ExpertRouting, TokensChooseDifferentExpertsUntilTheCountsAreReached) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const std::int64_t chosen = 1 + static_cast<std::int64_t>(random() % 4), ranks = 1 << (random() % 3);
    const Experts experts{.count = ranks * (4 + static_cast<std::int64_t>(random() % 4)), .chosen = chosen};
    const std::int64_t tokens = 1 + static_cast<std::int64_t>(random() % 40);
    ExpertRouting routing{.loads = LoadOfOneRank{1 + 0.1 * static_cast<double>(random() % 20)}};
    if (i % 3 == 1) routing.loads = ZipfLoads{0.2 * static_cast<double>(random() % 20), random()};
    if (i % 3 == 2) routing.loads = DirichletLoads{0.1 * static_cast<double>(1 + random() % 50), random()};
    const Counts counts = choices(experts, routing, tokens, static_cast<std::int32_t>(ranks));
    const Counts all = top_k_experts(experts, counts, tokens).value();
    Counts found(counts.size());
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::set<std::int64_t> its;
      for (std::int64_t choice = 0; choice < chosen; ++choice)
        its.insert(all[static_cast<std::size_t>(token * chosen + choice)]);
      ASSERT_EQ(static_cast<std::int64_t>(its.size()), chosen);
      for (const std::int64_t expert : its) ++found[static_cast<std::size_t>(expert)];
    }
    EXPECT_EQ(found, counts);
  }
}

TEST(ExpertRouting, TokensChooseExpertsOfAsManyGroupsAsTheyMay) {
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    const std::int64_t of_group = 3 + static_cast<std::int64_t>(random() % 4),
                       kept = 2 + static_cast<std::int64_t>(random() % 2),
                       groups = kept + 1 + static_cast<std::int64_t>(random() % 3);
    const Experts grouped{.count = of_group * groups,
                          .chosen = kept * (1 + static_cast<std::int64_t>(random() % 2)),
                          .groups = groups,
                          .topk_group = kept};
    const std::int64_t tokens = 8 + static_cast<std::int64_t>(random() % 40);
    ExpertRouting routing{};
    if (i % 2 == 1) routing.loads = ZipfLoads{0.4, random()};
    const Counts counts = choices(grouped, routing, tokens, 1);
    const std::optional<Counts> all = top_k_experts(grouped, counts, tokens);
    ASSERT_TRUE(all);
    Counts found(counts.size());
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::set<std::int64_t> its, of_groups;
      for (std::int64_t choice = 0; choice < grouped.chosen; ++choice) {
        const std::int64_t expert = (*all)[static_cast<std::size_t>(token * grouped.chosen + choice)];
        its.insert(expert), of_groups.insert(expert / of_group);
        ++found[static_cast<std::size_t>(expert)];
      }
      ASSERT_EQ(static_cast<std::int64_t>(its.size()), grouped.chosen);
      ASSERT_LE(static_cast<std::int64_t>(of_groups.size()), kept);
    }
    EXPECT_EQ(found, counts);
  }
  // A token chooses both experts of one group: they cannot be chosen unlike.
  const Experts both{.count = 4, .chosen = 2, .groups = 2, .topk_group = 1};
  EXPECT_EQ(top_k_experts(both, {3, 2, 1, 2}, 4), std::nullopt);
  EXPECT_EQ(top_k_experts(both, {3, 3, 1, 1}, 4), (Counts{0, 1, 0, 1, 0, 1, 2, 3}));
}

// Megatron-LM core 0.14, core/transformer/moe/moe_utils.py get_capacity: rounded up.
TEST(ExpertRouting, CapacityDropsAndPads) {
  const Experts experts{.count = 8, .chosen = 2};
  const ExpertRouting drops{.capacity_factor = 1.1, .loads = LoadOfOneRank{2}};
  EXPECT_EQ(capacity_of(experts, drops, 16), 5);
  const Counts kept = rows(experts, drops, 16, 4);
  EXPECT_EQ(kept[0], 5);
  EXPECT_LE(kept[7], 4);
  EXPECT_EQ(rows(experts, {.capacity_factor = 1.1, .pads_to_capacity = true}, 16, 4), Counts(8, 5));
}

TEST(ExpertRouting, ARankGetsWhatAllSendToItsExperts) {
  const Experts experts{.count = 4, .chosen = 2};
  const LayerRouting layer(experts, {.loads = ListedLoads{{{1, 2, 2, 3}}}}, 0, 16, 2);
  EXPECT_EQ(layer.received(0, 2), (Counts{8, 16}));
  EXPECT_EQ(layer.received(1, 2), (Counts{16, 24}));
}

// ---- what comes beyond the stated loads

const Experts one_of_four{.count = 4, .chosen = 1};

TEST(WorstCaseRouting, AsManyTokensComeAsBernsteinsInequalityAllows) {
  // Of 1,600 tokens each chooses an expert with a chance of 1/4: a variance of 300. By exp(-12) no more than
  // 12/3 + sqrt((12/3)^2 + 2 x 12 x 300) = 88.9 come beyond the 400 that are expected.
  const LayerRouting layer(one_of_four, {.overload_probability = std::exp(-12)}, 0, 400, 4);
  EXPECT_EQ(layer.received(0, 4), Counts{489});
  EXPECT_EQ(layer.choices(), Counts(4, 100)) << "what is sent is stated";
}

TEST(WorstCaseRouting, WhatAllRanksGetTogetherIsKnown) {
  // Of two ranks, the first's deviation is the second's, however its choices are spread over its experts.
  const ExpertRouting routing{.loads = ListedLoads{{{2, 2, 4, 0}}}, .overload_probability = std::exp(-12)};
  const LayerRouting layer({.count = 4, .chosen = 2}, routing, 0, 400, 2);
  // A variance of 2 x 1,600 x 1/2 x 1/2 = 800, and of 1,600 x (1 x 0 + 0 x 1) = 0: what is left is 2 x 12/3.
  EXPECT_EQ(sum(layer.received(0, 4)), 1600 + 8);
  EXPECT_EQ(LayerRouting({.count = 4, .chosen = 2}, routing, 0, 400, 1).received(0, 4), (Counts{800, 800, 1600, 0}));
}

TEST(WorstCaseRouting, NoMoreComeThanThereAreNorThanCapacityTakes) {
  EXPECT_EQ(LayerRouting(one_of_four, {.overload_probability = 1e-300}, 0, 4, 4).received(0, 4), Counts{16});
  const ExpertRouting drops{.capacity_factor = 1.25, .overload_probability = 1e-300};
  EXPECT_EQ(LayerRouting(one_of_four, drops, 0, 400, 4).received(0, 4), Counts{500});
  const ExpertRouting pads{.capacity_factor = 1.25, .pads_to_capacity = true, .overload_probability = 1e-300};
  EXPECT_EQ(LayerRouting(one_of_four, pads, 0, 400, 4).received(0, 4), Counts{500});
  EXPECT_FALSE(left_to_tokens(pads));
}

// Two experts of eight for each token, at loads that are far from equal.
TEST(WorstCaseRouting, SampledTokensKeepToTheRate) {
  constexpr double rate = 0.05;
  constexpr int samples = 4000, tokens = 256;
  const Experts experts{.count = 8, .chosen = 2};
  const ExpertRouting routing{.loads = ZipfLoads{0.7, 3}, .overload_probability = rate};
  const LayerRouting layer(experts, routing, 0, tokens, 4);
  const Counts& stated = layer.choices();
  std::mt19937_64 random(7);
  std::array<int, 4> exceeded{};
  for (int i = 0; i < samples; ++i) {
    // Systematic sampling (Madow 1949): different experts, each as often as stated.
    std::array<std::int64_t, 4> got{};
    for (int token = 0; token < tokens; ++token) {
      std::array<std::size_t, 8> order{0, 1, 2, 3, 4, 5, 6, 7};
      std::ranges::shuffle(order, random);
      double at = std::uniform_real_distribution<double>(0, 1)(random), before = 0;
      for (const std::size_t expert : order) {
        before += static_cast<double>(stated[expert]) / tokens;
        if (before <= at) continue;
        ++got[expert / 2];
        at += 1;
      }
    }
    for (std::size_t rank = 0; rank < 4; ++rank)
      exceeded[rank] += got[rank] > sum(layer.received(static_cast<std::int32_t>(rank), 1)) ? 1 : 0;
  }
  int all = 0;
  for (const int count : exceeded) {
    EXPECT_LE(count, rate * samples);
    all += count;
  }
  EXPECT_GT(all, 0) << "an end that is never reached says nothing";
}

// ---- drawn loads

TEST(DrawnLoads, ZipfsLawHoldsOfEveryLayerInAnOrderOfItsOwn) {
  const Experts experts{.count = 64, .chosen = 6};
  const ZipfLoads loads{1, 5};
  Counts first = weights_of_experts(experts, loads, 0), second = weights_of_experts(experts, loads, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, weights_of_experts(experts, loads, 0));
  EXPECT_NE(first, weights_of_experts(experts, ZipfLoads{1, 6}, 0));
  std::ranges::sort(first, std::greater<>());
  std::ranges::sort(second, std::greater<>());
  EXPECT_EQ(first, second);
  for (std::size_t n = 1; n <= first.size(); ++n)
    EXPECT_NEAR(static_cast<double>(first[n - 1]), static_cast<double>(first[0]) / static_cast<double>(n), 1);
  EXPECT_EQ(weights_of_experts(experts, ZipfLoads{0, 5}, 3), Counts(64, first[0])) << "no skew: all alike";
}

// Shares of n experts have the mean 1/n and the variance (1/n)(1 - 1/n)/(n x concentration + 1).
TEST(DrawnLoads, DirichletSharesDeviateAsTheyShould) {
  const Experts experts{.count = 16, .chosen = 2};
  for (const double concentration : {0.3, 1.0, 20.0}) {
    double squares = 0, count = 0;
    for (std::int32_t layer = 0; layer < 2000; ++layer) {
      const Counts weights = weights_of_experts(experts, DirichletLoads{concentration, 11}, layer);
      for (const std::int64_t weight : weights) {
        const double share = static_cast<double>(weight) / static_cast<double>(sum(weights));
        squares += (share - 1.0 / 16) * (share - 1.0 / 16), ++count;
      }
    }
    const double expected = (1.0 / 16) * (15.0 / 16) / (16 * concentration + 1);
    EXPECT_NEAR(squares / count / expected, 1, 0.05) << concentration;
  }
}

Model of_one_layer(const Experts& experts) {
  Model model;
  model.layers = LayerList(1, {.mlp = experts});
  return model;
}

TEST(ExpertRouting, ByChanceExpertsAreChosenAsOftenAsIsStatedAndTogetherAsChanceHasIt) {
  const Experts experts{.count = 32, .chosen = 4};
  for (const ExpertLoads& loads : {ExpertLoads{EqualLoads{}}, ExpertLoads{ZipfLoads{0.8, 3}}}) {
    const std::int64_t tokens = 2000;
    const Counts counts = choices(experts, {.loads = loads}, tokens, 8);
    const Counts all = top_k_experts(experts, counts, tokens, ChosenTogether::ByChance).value();
    Counts found(32, 0), of_places(8, 0);
    for (std::int64_t token = 0; token < tokens; ++token) {
      const auto first = all.begin() + 4 * token;
      const std::set<std::int64_t> its(first, first + 4);
      EXPECT_EQ(its.size(), 4U);
      std::set<std::int64_t> places;
      for (const std::int64_t expert : its) ++found[static_cast<std::size_t>(expert)], places.insert(expert / 4);
      for (const std::int64_t place : places) ++of_places[static_cast<std::size_t>(place)];
    }
    EXPECT_EQ(found, counts);
    const Model model = of_one_layer(experts);
    const ExpertRouting routing{.dispatcher = TokenDispatcher::Flex, .loads = loads};
    const TokensOfPlaces spread = tokens_of_places(model, routing, tokens, 8, 2).value().front();
    EXPECT_EQ(spread.ranks, of_places);
    EXPECT_EQ(spread.eights.size(), 2U);  // of sixteen ranks
    if (!std::holds_alternative<EqualLoads>(loads)) continue;
    // Of 32 experts, four that are not a place's four: 28 of 32, 27 of 31, 26 of 30, 25 of 29.
    const double expected = 1 - 28.0 / 32 * 27 / 31 * 26 / 30 * 25 / 29;
    const double deviation = std::sqrt(expected * (1 - expected) / tokens);
    for (const std::int64_t count : of_places)
      EXPECT_NEAR(static_cast<double>(count) / tokens, expected, 4 * deviation);
  }
}

TEST(ExpertRouting, ByChanceGroupsAreNoMoreThanATokenMayChooseFrom) {
  const Experts experts{.count = 32, .chosen = 4, .groups = 8, .topk_group = 2};
  const std::int64_t tokens = 501;
  const Counts counts = choices(experts, {}, tokens, 8);
  const Counts all = top_k_experts(experts, counts, tokens, ChosenTogether::ByChance).value();
  Counts found(32, 0);
  for (std::int64_t token = 0; token < tokens; ++token) {
    std::set<std::int64_t> groups;
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int64_t expert = all[static_cast<std::size_t>(4 * token + i)];
      ++found[static_cast<std::size_t>(expert)], groups.insert(expert / 4);
    }
    EXPECT_LE(groups.size(), 2U);
  }
  EXPECT_EQ(found, counts);
}

TEST(ExpertRouting, TokensThatComeOnceAreNoMoreThanTheirRows) {
  const Experts experts{.count = 32, .chosen = 4};
  const Model model = of_one_layer(experts);
  ExpertRouting routing{.dispatcher = TokenDispatcher::Flex};
  routing.tokens = tokens_of_places(model, routing, 512, 8, 1).value();
  EXPECT_TRUE(routing.tokens.front().eights.empty());  // they reach each other by NVLink
  const LayerRouting stated(experts, routing, 0, 512, 8);
  routing.overload_probability = 1e-6;
  const LayerRouting worst_case(experts, routing, 0, 512, 8);
  for (std::int32_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(stated.received_tokens(rank, 8), 8 * stated.tokens().ranks[static_cast<std::size_t>(rank)]);
    EXPECT_LT(stated.received_tokens(rank, 8), sum(stated.received(rank, 8)));
    EXPECT_GT(worst_case.received_tokens(rank, 8), stated.received_tokens(rank, 8));
    EXPECT_LE(worst_case.received_tokens(rank, 8), 8 * 512);
  }
}

}  // namespace
}  // namespace tidemark::tests::expert_routing_test
