// Roles that hold tensors of the same sizes between passes are replayed once, for all of them: each, lowered and
// replayed by itself, has the memory that it is said to have.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/predict/upper_ends/deferred_frees.hpp"
#include "sim/memory/replay.hpp"
#include "tests/scenarios/random_layout.hpp"
#include "tests/seeds.hpp"

namespace tidemark::tests::same_memory_test {
namespace {

const RankGroup& group_of(const Prediction& prediction, Rank rank) {
  for (const RankGroup& group : prediction.groups)
    if (std::ranges::binary_search(group.ranks, rank)) return group;
  throw std::out_of_range("a rank is in no group");
}

class SameMemory {
 public:
  void expect(const Scenario& scenario) {
    const Job job(scenario);
    const Prediction prediction = predict(job, simulate_time(job), {}, {.reported = PredictionDetail::Figures});
    const AllocatorOptions options = without_limit(allocator_options_of(scenario));
    roles += job.roles.size();
    std::set<std::pair<std::int32_t, std::int32_t>> different;
    for (const Role& role : job.roles) different.emplace(role.passes, role.sizes.value());
    replayed += different.size();
    for (const Role& role : job.roles) {
      const Rank rank = role.ranks.back();
      const RankGroup& group = group_of(prediction, rank);
      if (group.failure) continue;
      const MemoryRecord alone = replay(lower_role(job.lowering(), role), job.costs.of(rank), {.allocator = options});
      if (alone.device.bytes > scenario.cluster.device.capacity) continue;  // run within the device
      for (const Peak MemoryRecord::*peak : {&MemoryRecord::allocated, &MemoryRecord::device}) {
        EXPECT_EQ((group.memory.*peak).bytes, (alone.*peak).bytes) << rank.value;
        // Not at which op: those of another role are counted among those of its memory alone, and so are labels.
        const Mark &at = (group.memory.*peak).at.mark, &its = (alone.*peak).at.mark;
        EXPECT_EQ(std::tie(at.phase, at.step, at.micro_batch), std::tie(its.phase, its.step, its.micro_batch))
            << rank.value;
        EXPECT_EQ((group.memory.*peak).composition, (alone.*peak).composition) << rank.value;
      }
      EXPECT_EQ(group.memory.peak_reserved, alone.peak_reserved) << rank.value;
      EXPECT_EQ(group.memory.final_allocated, alone.final_allocated) << rank.value;
    }
  }
  std::size_t roles = 0, replayed = 0;
};

TEST(RolesOfTheSameSizes, HaveTheMemoryThatEachHasAlone) {
  SameMemory same;
  const int requested = seeds(12);
  int jobs = 0;
  // Until one of them has such roles.
  for (std::uint32_t seed = 36; jobs < requested || (same.replayed == same.roles && jobs < 12); ++seed) {
    std::optional<Scenario> scenario = seed % 3 == 0 ? random_scenario(seed) : random_parts(seed);
    if (!scenario || scenario->layout.sharding == Sharding::None) continue;
    SCOPED_TRACE(seed);
    same.expect(*scenario);
    ++jobs;
  }
  EXPECT_LT(same.replayed, same.roles);
  std::cout << fmt::format("{} jobs, {} roles, {} replayed\n", jobs, same.roles, same.replayed);
}

}  // namespace
}  // namespace tidemark::tests::same_memory_test
