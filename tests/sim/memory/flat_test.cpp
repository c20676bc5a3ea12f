#include "sim/memory/flat.hpp"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/memory/replay.hpp"
#include "sim/program/liveness.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/sim/program/random_program.hpp"

namespace tidemark::tests::flat_test {
namespace {

using namespace literals;

TEST(Flat, ChangesAreRoundedRequests) {
  const Program program = parse_program(R"(alloc b0 1 temporaries s0 a
launch s0 fill(value=0) -> b0:bool[1]
alloc b1 513 temporaries s0 a
free b0
mark forward 1 0 a
free b1
)");
  EXPECT_EQ(flat_changes(program), (std::vector<std::int64_t>{512, 0, 1024, -512, 0, -1024}));
  EXPECT_EQ(effect_of(flat_changes(program)), (Effect{0_B, 1536_B}));
}

TEST(Flat, ARunThatOnlyFreesHasItsHighestPointAtItsStart) {
  EXPECT_EQ(effect_of(std::vector<std::int64_t>{-5, -3}), (Effect{Bytes{-8}, 0_B}));
  EXPECT_EQ(effect_of({}), (Effect{0_B, 0_B}));
}

TEST(Flat, EffectsCompose) {
  std::mt19937_64 random(11);
  const auto run = [&] {
    std::vector<std::int64_t> changes(random() % 20);
    for (std::int64_t& change : changes) change = static_cast<std::int64_t>(random() % 2001) - 1000;
    return changes;
  };
  for (int i = 0; i < 500; ++i) {
    const std::vector<std::int64_t> a = run(), b = run(), c = run();
    std::vector<std::int64_t> all = a;
    all.insert(all.end(), b.begin(), b.end());
    EXPECT_EQ(then(effect_of(a), effect_of(b)), effect_of(all));
    EXPECT_EQ(then(then(effect_of(a), effect_of(b)), effect_of(c)),
              then(effect_of(a), then(effect_of(b), effect_of(c))));
  }
}

TEST(Flat, ThePeakIsALowerBoundOfTheAllocators) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Program program = with_frees(random_program(seed));
    const Effect flat = effect_of(flat_changes(program));
    const MemoryRecord record = replay(program, free_of_charge(), {});
    EXPECT_GT(flat.highest, 0_B) << seed;
    EXPECT_LE(flat.highest, record.allocated.bytes) << seed;
    EXPECT_LE(flat.net, record.final_allocated) << seed;
  }
}

// The small pool cuts its blocks exactly.
TEST(Flat, SmallRequestsHaveNoSlack) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Program program = with_frees(random_program(seed, {.largest = 700 << 10}));
    EXPECT_EQ(effect_of(flat_changes(program)).highest, replay(program, free_of_charge(), {}).allocated.bytes) << seed;
  }
}

}  // namespace
}  // namespace tidemark::tests::flat_test
