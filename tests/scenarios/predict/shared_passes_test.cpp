// Roles that run the same passes are not lowered again: what is put together for them is what lowering writes.
#include "sim/program/structure/shared_passes.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "scenarios/predict/job.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/structure/timing.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/scenarios/random_layout.hpp"
#include "tests/seeds.hpp"

namespace tidemark::tests::shared_passes_test {
namespace {

// With buffers and events in the order in which they come; and what variables hold at its end in any order.
std::string renumbered(Program program) {
  const auto kept = std::find_if(program.ops.rbegin(), program.ops.rend(),
                                 [](const Op& op) { return !std::holds_alternative<Bind>(op); });
  std::stable_sort(kept.base(), program.ops.end(), [&](const Op& a, const Op& b) {
    return program[std::get<Bind>(a).name] < program[std::get<Bind>(b).name];
  });
  const std::string its = text(program);
  std::string all;
  std::map<std::string, std::size_t> numbers;
  for (std::size_t i = 0; i < its.size(); ++i) {
    const bool begins =
        (i == 0 || std::isspace(static_cast<unsigned char>(its[i - 1])) != 0) && (its[i] == 'b' || its[i] == 'e');
    std::size_t end = i + 1;
    while (begins && end < its.size() && std::isdigit(static_cast<unsigned char>(its[end])) != 0) ++end;
    all += its[i];
    if (!begins || end == i + 1) continue;
    const auto number = numbers.try_emplace(its.substr(i, end - i), numbers.size()).first->second;
    all += std::to_string(number);
    i = end - 1;
  }
  return all;
}

// Of its ops that are no variables kept at its end.
std::uint32_t last(const Program& program) {
  std::size_t end = program.ops.size();
  while (std::holds_alternative<Bind>(program.ops[end - 1])) --end;
  return static_cast<std::uint32_t>(end);
}

class Sharing {
 public:
  void expect(const Scenario& scenario) {
    const Job job(scenario);
    const LoweringInput input = job.lowering();
    std::map<std::pair<std::int32_t, std::pair<std::int32_t, std::int32_t>>, const Role*> first;
    for (const Role& role : job.roles) {
      const auto [known, added] = first.try_emplace({role.passes, {role.first.tensor, role.first.context}}, &role);
      if (added) continue;
      const Program whole = lower_role(input, *known->second), own = lower_role(input, role);
      const std::optional<Program> state = lower_state(input, *known->second), own_state = lower_state(input, role);
      ASSERT_TRUE(state && own_state);
      const std::optional<SharedPasses> shared = SharedPasses::of(whole, *state);
      const std::optional<SharedPasses::Spliced> spliced = shared ? shared->in(*own_state) : std::nullopt;
      ++roles;
      if (!spliced) continue;
      ++put_together;
      EXPECT_EQ(renumbered(spliced->program), renumbered(own));
      expect_memory(*shared, *own_state, own);
      const std::optional<std::vector<std::uint32_t>> places = timed_like(whole, own);
      ASSERT_TRUE(places);
      EXPECT_TRUE(std::ranges::equal(
          spliced->places, *places, {}, [&](std::uint32_t place) { return std::min(place, last(whole)); },
          [&](std::uint32_t place) { return std::min(place, last(whole)); }));
    }
  }
  int roles = 0, put_together = 0;

 private:
  // Those ops alone that memory depends on say of it what all of them do, at the same places of the step.
  static void expect_memory(const SharedPasses& shared, const Program& own_state, const Program& own) {
    const std::optional<SharedPasses::Spliced> part = shared.in(own_state, SharedPasses::Ops::OfMemory);
    ASSERT_TRUE(part);
    EXPECT_EQ(part->places.size(), part->program.ops.size());
    EXPECT_TRUE(part->program.kernels.empty());
    DriverCosts none;
    none.communicators.resize(64);
    const MemoryRecord of_part = replay(part->program, none, {}), of_all = replay(own, none, {});
    EXPECT_EQ(of_part.allocated.bytes, of_all.allocated.bytes);
    EXPECT_EQ(of_part.allocated.composition, of_all.allocated.composition);
    EXPECT_EQ(of_part.peak_reserved, of_all.peak_reserved);
    EXPECT_EQ(of_part.peak_allocated_by_step, of_all.peak_allocated_by_step);
    EXPECT_EQ(of_part.final_allocated, of_all.final_allocated);
    const auto place = [](const Program& program, const Mark& mark) {
      return std::tuple(program[mark.label], mark.phase, mark.step, mark.micro_batch);
    };
    EXPECT_EQ(place(part->program, of_part.allocated.at.mark), place(own, of_all.allocated.at.mark));
  }
};

TEST(PassesOfRoles, PutTogetherAreWhatLoweringWrites) {
  Sharing sharing;
  const int requested = seeds(9);
  int jobs = 0;
  for (std::uint32_t seed = 0; jobs < requested; ++seed) {
    const std::optional<Scenario> scenario = seed % 3 == 0 ? random_scenario(seed) : random_parts(seed);
    if (!scenario || scenario->layout.sharding == Sharding::None) continue;
    SCOPED_TRACE(seed);
    sharing.expect(*scenario);
    ++jobs;
  }
  EXPECT_GT(sharing.put_together, 0);
  std::cout << fmt::format("{} jobs, {} of {} roles put together\n", jobs, sharing.put_together, sharing.roles);
}

}  // namespace
}  // namespace tidemark::tests::shared_passes_test
