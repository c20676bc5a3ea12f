#include "sim/base/in_parallel.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <stdexcept>

#include <gtest/gtest.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_group.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::in_parallel_test {
namespace {

TEST(InParallel, CallsEveryIndexOnce) {
  std::array<std::atomic<int>, 1000> calls{};
  in_parallel(3, calls.size(), [&](std::size_t i) { ++calls[i]; });
  for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i], i < 3 ? 0 : 1) << i;
  in_parallel(5, 5, [](std::size_t) { FAIL() << "nothing is in an empty range"; });
}

TEST(InParallel, ThrowsWhatACallThrew) {
  EXPECT_THROW(in_parallel(0, 100,
                           [](std::size_t i) {
                             if (i == 40) throw std::runtime_error("forty");
                           }),
               std::runtime_error);
}

// What a sibling's exception does to the context that this task runs in, without a sibling.
TEST(InParallel, ALoopInACancelledTaskIsWholeAllTheSame) {
  oneapi::tbb::task_group_context around;
  std::atomic<int> calls = 0;
  oneapi::tbb::parallel_for(
      0, 1,
      [&](int) {
        around.cancel_group_execution();
        in_parallel(0, 1000, [&](std::size_t) { in_parallel(0, 2, [&](std::size_t) { ++calls; }); });
      },
      around);
  EXPECT_EQ(calls, 2000);
}

TEST(InParallel, ALoopIsWholeThoughATaskBesideItThrew) {
  std::atomic<bool> thrown = false;
  std::atomic<int> begun = 0, whole = 0;
  const auto task = [&](std::size_t t) {
    if (t == 1) {
      thrown = true;
      throw std::runtime_error("one of them fails");
    }
    ++begun;
    std::atomic<int> calls = 0;
    in_parallel(0, 5000, [&](std::size_t) { ++calls; });
    if (calls == 5000) ++whole;
  };
  EXPECT_THROW(in_parallel(0, 64, task), std::runtime_error);
  EXPECT_TRUE(thrown);
  EXPECT_EQ(whole, begun);
}

}  // namespace
}  // namespace tidemark::tests::in_parallel_test
