#include "scenarios/timing_classes.hpp"

#include <cstdint>
#include <numeric>
#include <utility>

#include <oneapi/tbb/parallel_for.h>

#include "sim/program/timing.hpp"

namespace tidemark::scenarios {

TimingClasses timing_classes(const LoweringInput& input, const std::vector<Role>& roles, const LowerRole& lower) {
  TimingClasses found;
  found.workload.communicators = communicators_of(input).table;
  found.workload.program_of_rank.resize(static_cast<std::size_t>(input.layout.world_size()));
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
      if (alike[i] == 0) {
        others.push_back(left[i]);
        continue;
      }
      for (const Rank rank : roles[left[i]].ranks)
        found.workload.program_of_rank[rank.index()] = static_cast<std::int32_t>(found.role_of_program.size());
    }
    found.role_of_program.push_back(first);
    left = std::move(others);
  }
  found.workload.programs.resize(found.role_of_program.size());
  oneapi::tbb::parallel_for(std::size_t{0}, found.workload.programs.size(), [&](std::size_t p) {
    found.workload.programs[p] = lower.whole(roles[found.role_of_program[p]]);
  });
  return found;
}

}  // namespace tidemark::scenarios
