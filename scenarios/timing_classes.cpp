#include "scenarios/timing_classes.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
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

// Those of one pipeline rank that take equally long, by index; the first comes first. Programs are lowered once, some
// at a time, and kept for as long as others may be like them.
std::vector<std::vector<std::size_t>> alike_among(std::span<const Alike> near, const std::vector<Role>& roles,
                                                  const LowerRole& lower) {
  constexpr std::size_t at_a_time = 16;
  std::vector<std::vector<std::size_t>> found;
  if (near.size() == 1) return {{0}};
  std::vector<Program> firsts;  // of those found
  for (std::size_t begin = 0; begin < near.size(); begin += at_a_time) {
    std::vector<Program> next(std::min(at_a_time, near.size() - begin));
    oneapi::tbb::parallel_for(std::size_t{0}, next.size(),
                              [&](std::size_t i) { next[i] = lower.shortest(roles[near[begin + i].first]); });
    for (std::size_t i = 0; i < next.size(); ++i) {
      const auto known =
          std::ranges::find_if(firsts, [&](const Program& its) { return timed_like(its, next[i]).has_value(); });
      if (known != firsts.end()) {
        found[static_cast<std::size_t>(known - firsts.begin())].push_back(begin + i);
        continue;
      }
      found.push_back({begin + i});
      firsts.push_back(std::move(next[i]));
    }
  }
  return found;
}

}  // namespace

TimingClasses timing_classes(const LoweringInput& input, const std::vector<Role>& roles, const LowerRole& lower) {
  TimingClasses found;
  found.workload.communicators = communicators_of(input).table;
  found.workload.program_of_rank.resize(static_cast<std::size_t>(input.layout.world_size()));
  const std::vector<Alike> all = alike_by_passes(roles, lower);
  const auto pipeline_of = [&](const Alike& its) { return roles[its.first].first.pipeline; };
  for (std::size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    for (end = begin + 1; end < all.size() && pipeline_of(all[end]) == pipeline_of(all[begin]);) ++end;
    for (const std::vector<std::size_t>& alike :
         alike_among(std::span(all).subspan(begin, end - begin), roles, lower)) {
      for (const std::size_t i : alike)
        for (const std::size_t role : all[begin + i].roles)
          for (const Rank rank : roles[role].ranks)
            found.workload.program_of_rank[rank.index()] = static_cast<std::int32_t>(found.role_of_program.size());
      found.role_of_program.push_back(all[begin + alike.front()].first);
    }
  }
  found.workload.programs.resize(found.role_of_program.size());
  oneapi::tbb::parallel_for(std::size_t{0}, found.workload.programs.size(), [&](std::size_t p) {
    found.workload.programs[p] = lower.whole(roles[found.role_of_program[p]]);
  });
  return found;
}

}  // namespace tidemark::scenarios
