#include <string>

#include <gtest/gtest.h>

#include "sim/memory/replay.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/sim/program/random_program.hpp"

// torch.cuda.empty_cache(), as programs say it: a mark that empties the cache.

namespace tidemark::tests::empty_cache_test {
namespace {

constexpr const char* loading =
    "mark construction 0 -1 build\n"
    "alloc b0 104857600 parameters s0 whole\n"
    "free b0\n";
constexpr const char* training =
    "mark forward 1 0 train\n"
    "alloc b1 115343360 temporaries s0 activation\n"
    "free b1\n";
constexpr const char* emptied = "mark construction 0 -1 build empty_cache\n";

TEST(EmptiedCache, GoesBackToTheDriver) {
  const auto replayed = [](const std::string& program) { return replay(parse_program(program), free_of_charge(), {}); };
  const MemoryRecord kept = replayed(std::string(loading) + training),
                     given_back = replayed(std::string(loading) + emptied + training);
  EXPECT_EQ(kept.peak_reserved, Bytes{104857600 + 115343360});
  EXPECT_EQ(given_back.peak_reserved, Bytes{115343360});
  EXPECT_EQ(kept.allocated.bytes, given_back.allocated.bytes);
}

TEST(EmptiedCache, IsSaidInAProgramsText) { EXPECT_NE(text(parse_program(emptied)).find(emptied), std::string::npos); }

}  // namespace
}  // namespace tidemark::tests::empty_cache_test
