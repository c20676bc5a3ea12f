#include "sim/base/own_threads.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::own_threads_test {
namespace {

TEST(OwnThreads, CallEveryIndexOnce) {
  for (const std::size_t most : {std::size_t{0}, std::size_t{1}, std::size_t{4}}) {
    OwnThreads threads(most);
    std::array<std::atomic<int>, 1000> calls{};
    threads.loop(3, calls.size(), [&](std::size_t i) { ++calls[i]; });
    for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i], i < 3 ? 0 : 1) << i;
    threads.loop(5, 5, [](std::size_t) { FAIL() << "nothing is in an empty range"; });
  }
}

TEST(OwnThreads, ThrowWhatACallThrewAndLoopOn) {
  OwnThreads threads(3);
  const auto fails = [](std::size_t i) {
    if (i == 40) throw std::runtime_error("forty");
  };
  for (int time = 0; time < 20; ++time) EXPECT_THROW(threads.loop(0, 100, fails), std::runtime_error);
  std::atomic<int> calls = 0;
  threads.loop(0, 100, [&](std::size_t) { ++calls; });
  EXPECT_EQ(calls, 100);
}

TEST(OwnThreads, AreAsManyAsAllowedAndNoMore) {
  OwnThreads threads(3);
  std::mutex lock;
  std::set<std::thread::id> seen;
  std::atomic<int> running = 0, most = 0;
  threads.loop(0, 24, [&](std::size_t) {
    int now = ++running;
    for (int before = most; now > before && !most.compare_exchange_weak(before, now);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::scoped_lock held(lock);
    seen.insert(std::this_thread::get_id());
    --running;
  });
  EXPECT_EQ(most, 3);
  EXPECT_GE(seen.size(), 2U);
  threads.limit(1);
  seen.clear();
  threads.loop(0, 8, [&](std::size_t) { seen.insert(std::this_thread::get_id()); });
  EXPECT_EQ(seen, std::set{std::this_thread::get_id()});
}

TEST(OwnThreads, RunNestedLoopsWhole) {
  OwnThreads threads(4);
  std::atomic<int> begun = 0, whole = 0;
  const auto task = [&](std::size_t t) {
    if (t == 1) throw std::runtime_error("one of them fails");
    ++begun;
    std::atomic<int> calls = 0;
    threads.loop(0, 500, [&](std::size_t) { threads.loop(0, 2, [&](std::size_t) { ++calls; }); });
    if (calls == 1000) ++whole;
  };
  EXPECT_THROW(threads.loop(0, 64, task), std::runtime_error);
  EXPECT_EQ(whole, begun);
}

}  // namespace
}  // namespace tidemark::tests::own_threads_test
