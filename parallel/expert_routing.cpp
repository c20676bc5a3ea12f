#include "parallel/expert_routing.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel {
namespace {

using Counts = std::vector<std::int64_t>;

// So many, in proportion to weights as far as whole numbers go, none more than `most`; what that takes from some, the
// others get.
Counts shared_out(std::int64_t all, std::int64_t most, const Counts& weights) {
  Counts shares(weights.size(), -1);  // below zero: still to be found
  std::int64_t rest = all;
  const auto weight_of_rest = [&] {
    double whole = 0;
    for (std::size_t e = 0; e < weights.size(); ++e)
      if (shares[e] < 0) whole += static_cast<double>(weights[e]);
    return whole;
  };
  double whole = weight_of_rest();
  for (std::size_t e = 0; e < weights.size();) {
    if (shares[e] >= 0 ||
        static_cast<double>(rest) * static_cast<double>(weights[e]) <= static_cast<double>(most) * whole) {
      ++e;
      continue;
    }
    shares[e] = most;
    rest -= most;
    whole = weight_of_rest();
    e = 0;  // the others' shares have become larger
  }
  const double left = whole > 0 ? whole : static_cast<double>(std::ranges::count(shares, -1));
  double before = 0;
  std::int64_t given = 0;
  for (std::size_t e = 0; e < weights.size(); ++e) {
    if (shares[e] >= 0) continue;
    before += whole > 0 ? static_cast<double>(weights[e]) : 1;
    shares[e] = static_cast<std::int64_t>(std::floor(static_cast<double>(rest) * before / left)) - given;
    given += shares[e];
  }
  return shares;
}

// The first rank's part, no larger than what its experts can take and no smaller than what the others leave.
Counts with_one_rank(const LoadOfOneRank& one, std::int64_t all, std::int64_t tokens, std::int64_t experts,
                     std::int32_t ranks) {
  const std::int64_t held = experts / ranks, most = std::min(all, held * tokens),
                     least = std::max<std::int64_t>(0, all - (experts - held) * tokens);
  const auto equal = static_cast<double>(all) / ranks;
  const std::int64_t first =
      std::clamp(std::llround(equal * one.factor), static_cast<long long>(least), static_cast<long long>(most));
  Counts counts = shared_out(first, tokens, Counts(static_cast<std::size_t>(held), 1));
  std::ranges::copy(shared_out(all - first, tokens, Counts(static_cast<std::size_t>(experts - held), 1)),
                    std::back_inserter(counts));
  return counts;
}

}  // namespace

LayerRouting::LayerRouting(const Experts& experts, const ExpertRouting& routing, std::int32_t layer,
                           std::int64_t tokens, std::int32_t ranks)
    : tokens_(tokens), chosen_(experts.chosen), held_(experts.count / ranks), most_(tokens) {
  const std::int64_t all = tokens * experts.chosen;
  const auto* const one = std::get_if<LoadOfOneRank>(&routing.loads);
  choices_ = one != nullptr && ranks > 1 ? with_one_rank(*one, all, tokens, experts.count, ranks)
                                         : shared_out(all, tokens, weights_of_experts(experts, routing.loads, layer));
  rows_ = choices_;
  if (routing.more_come && left_to_tokens(routing) && ranks > 1) rarity_ = -std::log(*routing.more_come);
  if (routing.capacity_factor == 0) return;
  most_ = capacity_of(experts, routing, tokens);
  for (std::int64_t& count : rows_) count = routing.pads_to_capacity ? most_ : std::min(count, most_);
}

Counts LayerRouting::of_rank(const Counts& all, std::int32_t rank) const {
  const auto first = all.begin() + rank * held_;
  return {first, first + held_};
}

// Of how many of one rank's tokens choose any of these, where tokens choose each expert as often as they do here.
double LayerRouting::variance(const Counts& choices) const {
  double found = 0;
  for (const std::int64_t count : choices) {
    const double often = static_cast<double>(count) / static_cast<double>(tokens_);
    found += static_cast<double>(tokens_) * often * (1 - often);
  }
  return found;
}

// Of independent tokens, which choose different experts each: choices that are independent or hinder each other, so
// that Bernstein's inequality holds of their sum (Joag-Dev and Proschan, Negative association of random variables,
// 1983; Dubhashi and Ranjan, Balls and bins: a study in negative dependence, 1998). All experts together get what is
// known: a rank's deviation is that of the others.
Counts LayerRouting::received(std::int32_t rank, std::int64_t senders) const {
  Counts own = of_rank(rows_, rank);
  for (std::int64_t& count : own) count *= senders;
  if (rarity_ == 0) return own;
  const Counts chosen = of_rank(choices_, rank);
  const double of_own = variance(chosen), of_others = variance(choices_) - of_own, third = rarity_ / 3,
               least = static_cast<double>(senders) * std::min(of_own, of_others);
  const auto more = static_cast<std::int64_t>(std::ceil(third + std::sqrt(third * third + 2 * rarity_ * least)));
  const std::int64_t each = senders * tokens_,
                     stated = senders * std::accumulate(chosen.begin(), chosen.end(), std::int64_t{0});
  own = shared_out(std::min(stated + more, each * std::min(chosen_, held_)), each, chosen);
  for (std::int64_t& count : own) count = std::min(count, senders * most_);
  return own;
}

namespace {

// Choices stand in a row, those of the first expert first, and tokens take them in turn: no expert is chosen more often
// than there are tokens, so none meets it twice.
std::vector<std::int64_t> in_turn(const Counts& counts, std::int64_t tokens, std::int64_t chosen) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(tokens * chosen));
  std::int64_t place = 0;
  for (std::size_t expert = 0; expert < counts.size(); ++expert)
    for (std::int64_t i = 0; i < counts[expert]; ++i, ++place)
      all[static_cast<std::size_t>(place % tokens * chosen + place / tokens)] = static_cast<std::int64_t>(expert);
  ensure(place == tokens * chosen, "experts are chosen as often as tokens choose");
  return all;
}

// Of each token as the router does it, by how often experts are left to be chosen in the place of scores.
std::optional<std::vector<std::int64_t>> by_groups(const Experts& experts, Counts left, std::int64_t tokens) {
  const std::int64_t of_group = experts.count / experts.groups, best = experts.chosen / experts.chosen_groups;
  const auto most_left = [&](std::int64_t a, std::int64_t b) {
    return left[static_cast<std::size_t>(a)] > left[static_cast<std::size_t>(b)];
  };
  const auto first_of = [&](std::int64_t group) { return group * of_group; };
  std::vector<std::int64_t> all, by_left(static_cast<std::size_t>(experts.groups));
  for (std::int64_t token = 0; token < tokens; ++token) {
    Counts scores(by_left.size());
    for (std::int64_t group = 0; group < experts.groups; ++group) {
      const auto begin = left.begin() + first_of(group);
      Counts its(begin, begin + of_group);
      std::ranges::sort(its, std::greater{});
      scores[static_cast<std::size_t>(group)] = std::accumulate(its.begin(), its.begin() + best, std::int64_t{0});
    }
    std::iota(by_left.begin(), by_left.end(), 0);
    std::ranges::stable_sort(by_left, std::greater{},
                             [&](std::int64_t g) { return scores[static_cast<std::size_t>(g)]; });
    std::vector<std::int64_t> open;
    for (std::int64_t i = 0; i < experts.chosen_groups; ++i)
      for (std::int64_t e = 0; e < of_group; ++e) open.push_back(first_of(by_left[static_cast<std::size_t>(i)]) + e);
    std::ranges::stable_sort(open, most_left);
    for (std::int64_t choice = 0; choice < experts.chosen; ++choice) {
      const std::int64_t expert = open[static_cast<std::size_t>(choice)];
      if (left[static_cast<std::size_t>(expert)]-- == 0) return std::nullopt;
      all.push_back(expert);
    }
  }
  return all;
}

}  // namespace

std::optional<std::vector<std::int64_t>> chosen_experts(const Experts& experts, const Counts& counts,
                                                        std::int64_t tokens) {
  if (experts.groups == 0) return in_turn(counts, tokens, experts.chosen);
  return by_groups(experts, counts, tokens);
}

std::int64_t capacity_of(const Experts& experts, const ExpertRouting& routing, std::int64_t tokens) {
  const double share = static_cast<double>(tokens * experts.chosen) / static_cast<double>(experts.count);
  return static_cast<std::int64_t>(std::ceil(share * routing.capacity_factor));
}

}  // namespace tidemark::parallel
