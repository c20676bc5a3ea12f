#include "scenarios/timing_classes.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <oneapi/tbb/parallel_for.h>

#include "sim/program/timing.hpp"

namespace tidemark::scenarios {

LowerRole lower_role_of(const LoweringInput& input) {
  return {[input](const Role& role) { return lower_repeating(input, role); },
          [input](const Role& role) { return lower_shortest(input, role); }};
}

TimingClasses timing_classes(const std::vector<Role>& roles, const LowerRole& lower) {
  TimingClasses found;
  found.of_role.resize(roles.size());
  std::vector<std::size_t> left(roles.size());
  std::iota(left.begin(), left.end(), std::size_t{0});
  while (!left.empty()) {
    // The first that is left, and those of its pipeline rank that are like it.
    const std::size_t first = left.front();
    std::vector<char> alike(left.size(), 0);
    alike.front() = 1;
    const auto is_near = [&](std::size_t i) { return roles[left[i]].first.pipeline == roles[first].first.pipeline; };
    if (left.size() > 1 && is_near(1)) {
      const Program its = lower.shortest(roles[first]);
      oneapi::tbb::parallel_for(std::size_t{1}, left.size(), [&](std::size_t i) {
        if (is_near(i)) alike[i] = timed_like(its, lower.shortest(roles[left[i]])).has_value() ? 1 : 0;
      });
    }
    std::vector<std::size_t> others;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (alike[i] != 0)
        found.of_role[left[i]] = found.first_role.size();
      else
        others.push_back(left[i]);
    }
    found.first_role.push_back(first);
    left = std::move(others);
  }
  found.programs.resize(found.first_role.size());
  oneapi::tbb::parallel_for(std::size_t{0}, found.programs.size(),
                            [&](std::size_t c) { found.programs[c] = lower.whole(roles[found.first_role[c]]); });
  return found;
}

}  // namespace tidemark::scenarios
