#include "scenarios/predict/time/timing_classes.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "sim/base/ensure.hpp"
#include "sim/base/in_parallel.hpp"
#include "sim/program/structure/timing.hpp"

namespace tidemark::scenarios {

namespace {

// Roles that share passes and are like the first of them.
struct Alike {
  std::size_t first = 0;
  std::vector<std::size_t> roles;
  std::optional<Program> shortest;  // of the first, where it was lowered
};

// Whether the framework's claim that roles share passes is compared with what they do.
enum class Claim : std::uint8_t { Checked, Taken };

// Of roles that share passes, [begin, end).
std::vector<Alike> alike_by_passes(const std::vector<Role>& roles, std::size_t begin, std::size_t end, Claim claim,
                                   const LowerRole& lower) {
  std::vector<Alike> found;
  found.push_back({begin, {begin}, {}});
  if (end - begin == 1) return found;
  const std::optional<Program> state = lower.state(roles[begin]);
  // Where in a vocabulary or a sequence its own rows lie is a matter of passes, too.
  const Coordinates& at = roles[begin].first;
  const auto is_seen = [&](std::size_t r) {
    const Coordinates& other = roles[r].first;
    return !state || (claim == Claim::Checked && r + 1 == end) || other.tensor != at.tensor ||
           other.context != at.context;
  };
  // What pieces take is all that tells states apart: those of one size are as the first of that size.
  std::vector<std::size_t> like(end - begin);
  std::map<std::int32_t, std::size_t> known;
  if (roles[begin].sizes) known[*roles[begin].sizes] = begin;
  bool any_is_seen = false;
  for (std::size_t r = begin + 1; r < end; ++r) {
    any_is_seen |= is_seen(r);
    like[r - begin] = is_seen(r) || !roles[r].sizes ? r : known.try_emplace(*roles[r].sizes, r).first->second;
  }
  if (any_is_seen) found.front().shortest = lower.shortest(roles[begin]);
  std::vector<char> alike(end - begin, 1);
  in_parallel(begin + 1, end, [&](std::size_t r) {
    if (like[r - begin] != r) return;
    const std::optional<Program> other = is_seen(r) ? lower.shortest(roles[r]) : lower.state(roles[r]);
    alike[r - begin] = other && timed_like(is_seen(r) ? *found.front().shortest : *state, *other) ? 1 : 0;
  });
  for (std::size_t r = begin + 1; r < end; ++r) {
    if (alike[like[r - begin] - begin] == 0)
      found.push_back({r, {r}, {}});
    else
      found.front().roles.push_back(r);
  }
  return found;
}

// Of roles of one pipeline rank, [begin, end). Those that get other numbers of tokens do otherwise the same: the
// framework's claim is seen in the first of them.
std::vector<Alike> alike_by_passes_among(const std::vector<Role>& roles, std::size_t begin, std::size_t end,
                                         const LowerRole& lower) {
  std::vector<std::size_t> firsts;
  for (std::size_t r = begin; r < end; ++r)
    if (firsts.empty() || roles[r].passes != roles[firsts.back()].passes) firsts.push_back(r);
  std::vector<std::vector<Alike>> by_passes(firsts.size());
  in_parallel(0, firsts.size(), [&](std::size_t i) {
    const Claim claim = roles[firsts[i]].tokens == roles[begin].tokens ? Claim::Checked : Claim::Taken;
    by_passes[i] = alike_by_passes(roles, firsts[i], i + 1 < firsts.size() ? firsts[i + 1] : end, claim, lower);
  });
  std::vector<Alike> all;
  for (std::vector<Alike>& its : by_passes) std::ranges::move(its, std::back_inserter(all));
  return all;
}

// Of `among`, which get the same numbers of tokens, those that take equally long, by index into `near`; the first comes
// first. Programs are lowered once, some at a time, and kept for as long as others may be like them.
std::vector<std::vector<std::size_t>> alike_among(std::vector<Alike>& near, const std::vector<std::size_t>& among,
                                                  const std::vector<Role>& roles, const LowerRole& lower) {
  constexpr std::size_t at_a_time = 16;
  if (among.size() == 1) return {among};
  std::vector<std::vector<std::size_t>> found;
  std::vector<Program> firsts;  // of those found
  for (std::size_t begin = 0; begin < among.size(); begin += at_a_time) {
    std::vector<Program> next(std::min(at_a_time, among.size() - begin));
    in_parallel(0, next.size(), [&](std::size_t i) {
      Alike& its = near[among[begin + i]];
      next[i] = its.shortest ? *std::exchange(its.shortest, {}) : lower.shortest(roles[its.first]);
    });
    for (std::size_t i = 0; i < next.size(); ++i) {
      const auto known =
          std::ranges::find_if(firsts, [&](const Program& its) { return timed_like(its, next[i]).has_value(); });
      if (known != firsts.end()) {
        found[static_cast<std::size_t>(known - firsts.begin())].push_back(among[begin + i]);
        continue;
      }
      found.push_back({among[begin + i]});
      firsts.push_back(std::move(next[i]));
    }
  }
  return found;
}

// The same of all of them, in order of the first.
std::vector<std::vector<std::size_t>> alike_among(std::vector<Alike>& near, const std::vector<Role>& roles,
                                                  const LowerRole& lower) {
  std::map<std::int32_t, std::vector<std::size_t>> by_tokens;
  for (std::size_t i = 0; i < near.size(); ++i) by_tokens[roles[near[i].first].tokens].push_back(i);
  std::vector<std::vector<std::size_t>> found;
  for (const auto& [tokens, among] : by_tokens)
    std::ranges::move(alike_among(near, among, roles, lower), std::back_inserter(found));
  std::ranges::sort(found, {}, [](const std::vector<std::size_t>& its) { return its.front(); });
  return found;
}

// Programs of one pipeline rank and place in tensor and context parallelism, the first of which is lowered.
std::vector<std::vector<std::size_t>> programs_alike(const std::vector<Role>& roles, const TimingClasses& classes) {
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::vector<std::size_t>> by_place;
  for (std::size_t p = 0; p < classes.role_of_program.size(); ++p) {
    const Coordinates& at = roles[classes.role_of_program[p]].first;
    by_place[{at.pipeline, at.tensor, at.context}].push_back(p);
  }
  std::vector<std::vector<std::size_t>> all;
  for (auto& [place, programs] : by_place) all.push_back(std::move(programs));
  return all;
}

// What the others are made of. Nothing where few micro-batches are not much shorter.
std::shared_ptr<const OtherSizes> sizes_of(const std::shared_ptr<const RepeatingProgram>& whole, Program shortest) {
  constexpr std::size_t much_shorter = 3;
  if (whole->rolled.ops.size() < much_shorter * shortest.ops.size()) return nullptr;
  std::optional<OtherSizes> found = OtherSizes::of(whole, std::move(shortest));
  return found ? std::make_shared<const OtherSizes>(std::move(*found)) : nullptr;
}

// Of another rank of the stage, if it only differs by sizes: few micro-batches are kept.
std::optional<Outline> outline_of(const std::shared_ptr<const OtherSizes>& sizes, Program shortest) {
  if (!sizes->fits(shortest)) return std::nullopt;
  const auto few = std::make_shared<const Program>(std::move(shortest));
  return Outline(few, [sizes, few] {
    std::optional<RepeatingProgram> its = sizes->as(*few);
    ensure(its.has_value(), "a program whose passes fit can be made");
    return std::move(*its);
  });
}

void make_programs(const std::vector<Role>& roles, const LowerRole& lower, TimingClasses& classes) {
  std::vector<std::optional<Outline>> programs(classes.role_of_program.size());
  classes.sizes.resize(programs.size());
  const auto role_of = [&](std::size_t p) -> const Role& { return roles[classes.role_of_program[p]]; };
  const std::vector<std::vector<std::size_t>> alike = programs_alike(roles, classes);
  const auto make_first = [&](std::size_t a) {
    const std::size_t first = alike[a].front();
    const auto whole = std::make_shared<const RepeatingProgram>(lower.whole(role_of(first)));
    programs[first].emplace(whole);
    if (alike[a].size() > 1) classes.sizes[first] = sizes_of(whole, lower.shortest(role_of(first)));
  };
  std::mutex telling;
  std::size_t done = 0;
  const auto tell = [&] {
    const std::lock_guard lock(telling);
    if (lower.made) lower.made(++done, programs.size());
  };
  make_first(0);
  if (lower.before_all) lower.before_all(programs.size(), *programs.front()->get(), classes.sizes.front().get());
  tell();
  in_parallel(1, alike.size(), [&](std::size_t a) {
    make_first(a);
    tell();
  });
  std::vector<std::pair<std::size_t, std::size_t>> others;  // and the first of those like it
  for (const std::vector<std::size_t>& its : alike)
    for (std::size_t i = 1; i < its.size(); ++i) others.emplace_back(its[i], its.front());
  in_parallel(0, others.size(), [&](std::size_t i) {
    const auto [p, first] = others[i];
    if (classes.sizes[first]) programs[p] = outline_of(classes.sizes[first], lower.shortest(role_of(p)));
    if (programs[p])
      classes.sizes[p] = classes.sizes[first];
    else
      programs[p].emplace(lower.whole(role_of(p)));
    tell();
  });
  for (std::optional<Outline>& its : programs) classes.workload.programs.push_back(std::move(*its));
}

}  // namespace

TimingClasses timing_classes(const LoweringInput& input, const std::vector<Role>& roles, const LowerRole& lower) {
  TimingClasses found;
  found.workload.communicators = communicators_of(input).table;
  found.workload.program_of_rank.resize(static_cast<std::size_t>(input.layout.world_size()));
  for (std::size_t begin = 0, end = 0; begin < roles.size(); begin = end) {
    const std::int32_t pipeline = roles[begin].first.pipeline;
    for (end = begin + 1; end < roles.size() && roles[end].first.pipeline == pipeline;) ++end;
    std::vector<Alike> near = alike_by_passes_among(roles, begin, end, lower);
    for (const std::vector<std::size_t>& alike : alike_among(near, roles, lower)) {
      for (const std::size_t i : alike)
        for (const std::size_t role : near[i].roles)
          for (const Rank rank : roles[role].ranks)
            found.workload.program_of_rank[rank.index()] = static_cast<std::int32_t>(found.role_of_program.size());
      found.role_of_program.push_back(near[alike.front()].first);
    }
  }
  make_programs(roles, lower, found);
  return found;
}

}  // namespace tidemark::scenarios
