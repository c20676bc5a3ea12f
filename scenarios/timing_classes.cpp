#include "scenarios/timing_classes.hpp"

#include <cstdint>
#include <optional>
#include <utility>

#include <oneapi/tbb/parallel_for.h>

#include "sim/program/timing.hpp"

namespace tidemark::scenarios {

namespace {

// Roles that share passes and are like the first of them.
struct Alike {
  std::size_t first = 0;
  std::vector<std::size_t> roles;
};

std::vector<Alike> alike_by_passes(const std::vector<Role>& roles, const LowerRole& lower) {
  std::vector<Alike> found;
  for (std::size_t begin = 0, end = 0; begin < roles.size(); begin = end) {
    for (end = begin + 1; end < roles.size() && roles[end].passes == roles[begin].passes;) ++end;
    std::vector<char> alike(end - begin, 1);
    if (end - begin > 1) {
      const std::optional<Program> state = lower.state(roles[begin]);
      // Where in a vocabulary or a sequence its own rows lie is a matter of passes, too.
      const Coordinates& at = roles[begin].first;
      const auto is_seen = [&](std::size_t r) {
        const Coordinates& other = roles[r].first;
        return !state || r + 1 == end || other.tensor != at.tensor || other.context != at.context;
      };
      const Program shortest = lower.shortest(roles[begin]);
      oneapi::tbb::parallel_for(begin + 1, end, [&](std::size_t r) {
        const std::optional<Program> other = is_seen(r) ? lower.shortest(roles[r]) : lower.state(roles[r]);
        alike[r - begin] = other && timed_like(is_seen(r) ? shortest : *state, *other) ? 1 : 0;
      });
    }
    const std::size_t of_first = found.size();
    found.push_back({begin, {}});
    for (std::size_t r = begin; r < end; ++r) {
      if (alike[r - begin] == 0)
        found.push_back({r, {r}});
      else
        found[of_first].roles.push_back(r);
    }
  }
  return found;
}

}  // namespace

TimingClasses timing_classes(const LoweringInput& input, const std::vector<Role>& roles, const LowerRole& lower) {
  TimingClasses found;
  found.workload.communicators = communicators_of(input).table;
  found.workload.program_of_rank.resize(static_cast<std::size_t>(input.layout.world_size()));
  std::vector<Alike> left = alike_by_passes(roles, lower);
  while (!left.empty()) {
    // The first that is left, and those of its pipeline rank that are like it.
    const std::size_t first = left.front().first;
    std::vector<char> alike(left.size(), 0);
    alike.front() = 1;
    const auto is_near = [&](std::size_t i) {
      return roles[left[i].first].first.pipeline == roles[first].first.pipeline;
    };
    if (left.size() > 1 && is_near(1)) {
      const Program its = lower.shortest(roles[first]);
      oneapi::tbb::parallel_for(std::size_t{1}, left.size(), [&](std::size_t i) {
        if (is_near(i)) alike[i] = timed_like(its, lower.shortest(roles[left[i].first])).has_value() ? 1 : 0;
      });
    }
    std::vector<Alike> others;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (alike[i] == 0) {
        others.push_back(std::move(left[i]));
        continue;
      }
      for (const std::size_t role : left[i].roles)
        for (const Rank rank : roles[role].ranks)
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
