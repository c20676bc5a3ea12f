#include "scenarios/plan/plan.hpp"

#include <algorithm>
#include <mutex>

#include <oneapi/tbb/parallel_for.h>

#include "scenarios/plan/figures.hpp"
#include "scenarios/plan/front.hpp"
#include "scenarios/prediction.hpp"

namespace tidemark {

Plan plan(const Space& space, const PlanOptions& options, const PlanProgress& progress) {
  Plan answer;
  answer.combinations = space.size();
  std::mutex adding;
  std::int64_t done = 0;
  std::vector<Found> fitting;
  std::vector<Miss> misses;
  oneapi::tbb::parallel_for(std::int64_t{0}, answer.combinations, [&](std::int64_t index) {
    const std::variant<Scenario, Dropped> made = candidate(space, index);
    Figures figures;
    if (const auto* scenario = std::get_if<Scenario>(&made)) figures = figures_of(predict(*scenario));
    const std::lock_guard lock(adding);
    if (progress) progress("simulating", ++done, answer.combinations);
    if (const auto* dropped = std::get_if<Dropped>(&made)) {
      ++answer.dropped[dropped->reason];
      return;
    }
    ++answer.candidates;
    const auto& scenario = std::get<Scenario>(made);
    if (fits(scenario, figures))
      fitting.push_back({index, figures});
    else
      misses.push_back({index, lack(scenario, figures.device_upper), true, figures.throughput});
  });
  answer.fitting = static_cast<std::int64_t>(fitting.size());
  std::sort(fitting.begin(), fitting.end(), better);
  answer.front = pareto_front(fitting);
  fitting.resize(std::min(fitting.size(), options.top));
  answer.best = std::move(fitting);
  std::sort(misses.begin(), misses.end(), [](const Miss& a, const Miss& b) {
    return a.lacks != b.lacks ? a.lacks < b.lacks : a.candidate < b.candidate;
  });
  misses.resize(std::min(misses.size(), options.top));
  answer.near_misses = std::move(misses);
  return answer;
}

}  // namespace tidemark
