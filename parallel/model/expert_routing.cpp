#include "parallel/model/expert_routing.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "sim/base/ensure.hpp"
#include "sim/base/hash.hpp"

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

LayerRouting::LayerRouting(const Model& model, const ExpertRouting& routing, std::int32_t layer, std::int64_t tokens,
                           std::int32_t ranks)
    : LayerRouting(*model.layer(layer).experts(), routing, {layer, model.with_experts_before(layer)}, tokens, ranks) {}

LayerRouting::LayerRouting(const Experts& experts, const ExpertRouting& routing, LayerWithExperts layer,
                           std::int64_t tokens, std::int32_t ranks)
    : tokens_(tokens), chosen_(experts.chosen), held_(experts.count / ranks), most_(tokens) {
  const std::int64_t all = tokens * experts.chosen;
  const auto* const one = std::get_if<LoadOfOneRank>(&routing.loads);
  choices_ = one != nullptr && ranks > 1 ? with_one_rank(*one, all, tokens, experts.count, ranks)
                                         : shared_out(all, tokens, weights_of_experts(experts, routing.loads, layer));
  rows_ = choices_;
  if (routing.overload_probability && left_to_tokens(routing) && ranks > 1)
    rarity_ = -std::log(*routing.overload_probability);
  if (!routing.tokens.empty())
    of_places_ = routing.tokens[routing.tokens.size() == 1 ? 0 : static_cast<std::size_t>(layer.number)];
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

// A token comes or does not, whichever experts it chooses: of independent tokens, Bernstein's inequality again.
std::int64_t LayerRouting::at_most(std::int64_t of_each, std::int64_t senders) const {
  const std::int64_t stated = senders * of_each;
  if (rarity_ == 0) return stated;
  const double often = static_cast<double>(of_each) / static_cast<double>(tokens_), third = rarity_ / 3,
               variance = static_cast<double>(stated) * (1 - often);
  const auto more = static_cast<std::int64_t>(std::ceil(third + std::sqrt(third * third + 2 * rarity_ * variance)));
  return std::min(stated + more, senders * tokens_);
}

std::int64_t LayerRouting::received_tokens(std::int32_t rank, std::int64_t senders) const {
  return at_most(of_places_.ranks.at(static_cast<std::size_t>(rank)), senders);
}

std::int64_t LayerRouting::received_by_eight(std::int32_t eight, std::int64_t senders) const {
  return at_most(of_places_.eights.at(static_cast<std::size_t>(eight)), senders);
}

namespace {

// Numbers that everyone draws alike.
class Chance {
 public:
  std::uint64_t below(std::uint64_t most) { return sim::hash_of(drawn_++) % most; }
  void shuffle(std::vector<std::int64_t>& all) {  // Fisher and Yates
    for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[below(i)]);
  }

 private:
  std::uint64_t drawn_ = 0;
};

// Token after token, each expert as likely as it is left to be chosen by those that are still to come: so many places
// apart on a line on which experts lie in an order drawn anew, each as long as that (Madow, On the theory of systematic
// sampling, 1949). What is left to an expert is never more than there are tokens, so none is met twice, and an expert
// that all of them need is met for certain.
std::vector<std::int64_t> by_chance(Counts left, std::int64_t tokens, std::int64_t chosen) {
  std::vector<std::int64_t> all, order(left.size());
  all.reserve(static_cast<std::size_t>(tokens * chosen));
  std::iota(order.begin(), order.end(), 0);
  Chance chance;
  for (std::int64_t still = tokens; still > 0; --still) {
    chance.shuffle(order);
    auto place = static_cast<std::int64_t>(chance.below(static_cast<std::uint64_t>(still)));
    std::int64_t end = 0;
    for (const std::int64_t expert : order) {
      std::int64_t& its = left[static_cast<std::size_t>(expert)];
      end += its;
      if (place >= end) continue;
      all.push_back(expert);
      --its;
      place += still;
    }
  }
  ensure(std::ssize(all) == tokens * chosen, "experts are chosen as often as tokens choose");
  return all;
}

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

// What tokens choose, each from no more groups than it may. First each chooses as the router does, by how often experts
// are left to be chosen in place of scores; then experts that are chosen too often are exchanged for others.
class ByGroups {
 public:
  ByGroups(const Experts& experts, Counts counts, std::int64_t tokens, ChosenTogether together)
      : experts_(experts),
        of_group_(experts.count / experts.groups),
        together_(together),
        left_(std::move(counts)),
        groups_(index(experts.groups)),
        within_(index(of_group_)) {
    std::iota(groups_.begin(), groups_.end(), 0);
    std::iota(within_.begin(), within_.end(), 0);
    for (std::int64_t token = 0; token < tokens; ++token) choose();
  }

  // Nothing where no exchanges make counts right.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> found() && {
    // Each try ends with a right count more, or gives a part of the way there to the next one.
    const std::size_t tries = chosen_.size() * index(experts_.chosen * experts_.count);
    for (std::size_t i = 0; first_left() != left_.end(); ++i)
      if (i == tries || !take_once_more(first_left() - left_.begin())) return std::nullopt;
    std::vector<std::int64_t> all;
    for (const Counts& its : chosen_) all.insert(all.end(), its.begin(), its.end());
    return all;
  }

 private:
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] Counts::iterator first_left() {
    return std::ranges::find_if(left_, [](std::int64_t left) { return left > 0; });
  }

  void choose() {
    const std::int64_t best = experts_.chosen / experts_.topk_group;
    if (together_ == ChosenTogether::ByChance) chance_.shuffle(groups_), chance_.shuffle(within_);  // of equals
    Counts scores, groups = groups_, open;
    for (auto begin = left_.begin(); begin != left_.end(); begin += of_group_) {
      Counts its(begin, begin + of_group_);
      std::ranges::sort(its, std::greater{});
      scores.push_back(std::accumulate(its.begin(), its.begin() + best, std::int64_t{0}));
    }
    std::ranges::stable_sort(groups, std::greater{}, [&](std::int64_t group) { return scores[index(group)]; });
    for (std::int64_t i = 0; i < experts_.topk_group; ++i)
      for (const std::int64_t e : within_) open.push_back(groups[index(i)] * of_group_ + e);
    if (together_ == ChosenTogether::ByChance) chance_.shuffle(open);
    std::ranges::stable_sort(open, std::greater{}, [&](std::int64_t expert) { return left_[index(expert)]; });
    open.resize(index(experts_.chosen));
    for (const std::int64_t expert : open) --left_[index(expert)];
    chosen_.push_back(std::move(open));
  }

  // Whether a token may take an expert for another one that it has.
  [[nodiscard]] bool may_exchange(const Counts& its, std::int64_t taken, std::int64_t given) const {
    std::set<std::int64_t> groups{taken / of_group_};
    for (const std::int64_t expert : its) {
      if (expert == taken) return false;
      if (expert != given) groups.insert(expert / of_group_);
    }
    return static_cast<std::int64_t>(groups.size()) <= experts_.topk_group;
  }

  struct Exchange {
    std::int64_t taken = 0;
    std::size_t token = 0;
  };

  // Some token takes it for another expert, which some token takes for another, … up to one that is chosen too often.
  bool take_once_more(std::int64_t rare) {
    std::map<std::int64_t, Exchange> given_for;  // by what is given
    std::vector<std::int64_t> reached{rare};
    for (std::size_t at = 0; at < reached.size(); ++at) {
      const std::int64_t taken = reached[at];
      if (left_[index(taken)] < 0) {
        exchange(rare, taken, given_for);
        return true;
      }
      for (std::size_t token = 0; token < chosen_.size(); ++token)
        for (const std::int64_t given : chosen_[token])
          if (given != rare && !given_for.contains(given) && may_exchange(chosen_[token], taken, given)) {
            given_for.emplace(given, Exchange{taken, token});
            reached.push_back(given);
          }
    }
    return false;
  }

  // From the rare one on, as far as exchanges of one token let each other: what is given last is then chosen once less.
  void exchange(std::int64_t rare, std::int64_t last, const std::map<std::int64_t, Exchange>& given_for) {
    std::vector<std::int64_t> path{last};
    while (path.back() != rare) path.push_back(given_for.at(path.back()).taken);
    for (std::size_t i = path.size() - 1; i-- > 0;) {
      Counts& its = chosen_[given_for.at(path[i]).token];
      const std::int64_t given = path[i], taken = path[i + 1];
      const auto place = std::ranges::find(its, given);
      if (place == its.end() || !may_exchange(its, taken, given)) return;
      *place = taken;
      --left_[index(taken)], ++left_[index(given)];
    }
  }

  const Experts& experts_;
  std::int64_t of_group_;
  ChosenTogether together_;
  Counts left_;  // of each expert; below zero: it is chosen too often
  Counts groups_, within_;
  Chance chance_;
  std::vector<Counts> chosen_;
};

}  // namespace

std::optional<std::vector<std::int64_t>> top_k_experts(const Experts& experts, const Counts& counts,
                                                       std::int64_t tokens, ChosenTogether together) {
  if (experts.groups > 0) return ByGroups(experts, counts, tokens, together).found();
  return together == ChosenTogether::ByChance ? by_chance(counts, tokens, experts.chosen)
                                              : in_turn(counts, tokens, experts.chosen);
}

namespace {

// Of so many places that follow each other, each with so many experts.
Counts tokens_of(const Counts& all, std::int64_t chosen, std::int64_t places, std::int64_t experts) {
  Counts counts(static_cast<std::size_t>(places), 0), last(counts.size(), -1);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto place = static_cast<std::size_t>(all[i] / experts), token = i / static_cast<std::size_t>(chosen);
    if (std::exchange(last[place], static_cast<std::int64_t>(token)) != static_cast<std::int64_t>(token))
      ++counts[place];
  }
  return counts;
}

}  // namespace

std::optional<std::vector<TokensOfPlaces>> tokens_of_places(const Model& model, const ExpertRouting& routing,
                                                            std::int64_t tokens, std::int32_t ranks,
                                                            std::int32_t within) {
  const std::int64_t eights = std::int64_t{ranks} * within / 8;
  std::vector<TokensOfPlaces> all;
  for (std::int64_t i = 0; i < model.all_layers(); ++i) {
    all.emplace_back();
    if (!model.has_experts(i)) continue;
    const Experts& experts = *model.layer(i).experts();
    const LayerRouting of_layer(model, routing, static_cast<std::int32_t>(i), tokens, ranks);
    const auto chosen = top_k_experts(experts, of_layer.choices(), tokens, chosen_together(routing.dispatcher));
    if (!chosen) return std::nullopt;
    all.back().ranks = tokens_of(*chosen, experts.chosen, ranks, experts.count / ranks);
    if (eights > 1) all.back().eights = tokens_of(*chosen, experts.chosen, eights, experts.count / eights);
    if (alike_in_all_layers(routing.loads)) return std::vector{all.back()};
  }
  return all;
}

std::int64_t capacity_of(const Experts& experts, const ExpertRouting& routing, std::int64_t tokens) {
  const double share = static_cast<double>(tokens * experts.chosen) / static_cast<double>(experts.count);
  return static_cast<std::int64_t>(std::ceil(share * routing.capacity_factor));
}

}  // namespace tidemark::parallel
