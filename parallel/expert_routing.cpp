#include "parallel/expert_routing.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel {

std::vector<std::int64_t> choices_of_experts(const Experts& experts, const ExpertRouting& routing, std::int64_t tokens,
                                             std::int32_t ranks) {
  const std::int64_t all = tokens * experts.chosen, held = experts.count / ranks;
  if (!routing.loads.empty()) {
    const std::int64_t whole = std::accumulate(routing.loads.begin(), routing.loads.end(), std::int64_t{0});
    std::vector<std::int64_t> counts;
    std::int64_t before = 0, given = 0;
    for (const std::int64_t load : routing.loads) {  // no choice is lost by rounding
      before += load;
      counts.push_back(all * before / whole - given);
      given += counts.back();
    }
    return counts;
  }
  // The first rank's part, no larger than what its experts can take and no smaller than what the others leave.
  const auto equal = static_cast<double>(all) / ranks;
  const std::int64_t most = std::min(all, held * tokens),
                     least = std::max<std::int64_t>(0, all - (experts.count - held) * tokens);
  const std::int64_t first =
      std::clamp(std::llround(equal * routing.imbalance), static_cast<long long>(least), static_cast<long long>(most));
  std::vector<std::int64_t> counts(static_cast<std::size_t>(experts.count));
  const auto share_out = [&](std::int64_t begin, std::int64_t end, std::int64_t rows) {
    for (std::int64_t e = begin; e < end; ++e)  // as equal as whole numbers are
      counts[static_cast<std::size_t>(e)] = rows * (e - begin + 1) / (end - begin) - rows * (e - begin) / (end - begin);
  };
  share_out(0, held, ranks > 1 ? first : all);
  if (ranks > 1) share_out(held, experts.count, all - first);
  return counts;
}

// Choices stand in a row, those of the first expert first, and tokens take them in turn: no expert is chosen more often
// than there are tokens, so none meets it twice.
std::int64_t chosen_expert(const std::vector<std::int64_t>& counts, std::int64_t tokens, std::int64_t token,
                           std::int64_t choice) {
  std::int64_t before = choice * tokens + token, expert = 0;
  for (const std::int64_t count : counts) {
    if (before < count) return expert;
    before -= count;
    ++expert;
  }
  ensure(false, "experts are chosen as often as tokens choose");
  return 0;
}

std::int64_t capacity_of(const Experts& experts, const ExpertRouting& routing, std::int64_t tokens) {
  const double share = static_cast<double>(tokens * experts.chosen) / static_cast<double>(experts.count);
  return static_cast<std::int64_t>(std::ceil(share * routing.capacity_factor));
}

std::vector<std::int64_t> rows_of_experts(const Experts& experts, const ExpertRouting& routing, std::int64_t tokens,
                                          std::int32_t ranks) {
  std::vector<std::int64_t> rows = choices_of_experts(experts, routing, tokens, ranks);
  if (routing.capacity_factor == 0) return rows;
  const std::int64_t capacity = capacity_of(experts, routing, tokens);
  for (std::int64_t& count : rows) count = routing.pads_to_capacity ? capacity : std::min(count, capacity);
  return rows;
}

}  // namespace tidemark::parallel
