#include "sim/clock/event_queue.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::event_queue_test {
namespace {

using namespace literals;

Instant at(std::int64_t picoseconds) { return Instant{Duration{picoseconds}}; }

/// All that is pending, "instant:payload" each.
template <class Payload>
std::string drained(EventQueue<Payload>& queue) {
  std::string line;
  while (!queue.empty()) {
    const Instant next = queue.next();
    const auto event = queue.pop();
    EXPECT_EQ(next, event.at);
    if (!line.empty()) line += ' ';
    line += std::to_string(event.at.since_start().count()) + ":" + event.payload;
  }
  return line;
}

TEST(EventQueue, SoonestComesFirst) {
  EventQueue<std::string> queue;
  queue.push(at(30), "c");
  queue.push(at(10), "a");
  queue.push(at(20), "b");
  EXPECT_EQ(queue.size(), 3U);
  EXPECT_EQ(queue.next(), at(10));
  EXPECT_EQ(drained(queue), "10:a 20:b 30:c");
  EXPECT_EQ(queue.size(), 0U);
}

TEST(EventQueue, EventsOfOneInstantComeInTheOrderTheyWerePushed) {
  EventQueue<std::string> queue;
  for (const char name : std::string("abcdefghijklm")) queue.push(at(name < 'g' ? 5 : 4), {name});
  EXPECT_EQ(drained(queue), "4:g 4:h 4:i 4:j 4:k 4:l 4:m 5:a 5:b 5:c 5:d 5:e 5:f");
}

TEST(EventQueue, ASuccessorAtTheSameInstantComesAfterWhatWasThere) {
  EventQueue<std::string> queue;
  queue.push(at(1), "a");
  queue.push(at(1), "b");
  EXPECT_EQ(queue.pop().payload, "a");
  queue.push(at(1), "c");
  EXPECT_EQ(drained(queue), "1:b 1:c");
}

TEST(EventQueue, TheFirstAndLastInstantsAreInstants) {
  EventQueue<std::string> queue;
  queue.push(at(std::numeric_limits<std::int64_t>::max()), "last");
  queue.push(at(0), "start");
  queue.push(at(std::numeric_limits<std::int64_t>::min()), "first");
  queue.push(at(-1), "before");
  queue.push(at(std::numeric_limits<std::int64_t>::max()), "end");
  EXPECT_EQ(drained(queue),
            "-9223372036854775808:first -1:before 0:start 9223372036854775807:last 9223372036854775807:end");
}

TEST(EventQueue, PayloadsMayBeMovableOnly) {
  EventQueue<std::unique_ptr<int>> queue;
  queue.push(at(2), std::make_unique<int>(2));
  queue.push(at(1), std::make_unique<int>(1));
  EXPECT_EQ(*queue.pop().payload, 1);
  EXPECT_EQ(*queue.pop().payload, 2);
}

TEST(EventQueue, ClearForgetsWhatIsPending) {
  EventQueue<std::string> queue;
  for (int i = 0; i < 10; ++i) queue.push(at(i), "old");
  static_cast<void>(queue.pop());
  queue.clear();
  EXPECT_TRUE(queue.empty());
  queue.push(at(7), "new");
  EXPECT_EQ(drained(queue), "7:new");
}

/// What is pending in a vector, in the order of pushing; the next is found by a stable sort.
class SortedList {
 public:
  void push(Instant at, int payload) { pending_.emplace_back(at, payload); }
  std::pair<Instant, int> pop() {
    std::stable_sort(pending_.begin(), pending_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const std::pair<Instant, int> soonest = pending_.front();
    pending_.erase(pending_.begin());
    return soonest;
  }
  [[nodiscard]] std::size_t size() const { return pending_.size(); }

 private:
  std::vector<std::pair<Instant, int>> pending_;
};

// Phases that mostly push, mostly pop or hold; instants from few, so that most are ties, to many.
TEST(EventQueueProperty, AgreesWithAStableSortWhateverTheOrderOfPushAndPop) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const std::uint64_t instants = std::uint64_t{1} << (random() % 40);
    EventQueue<int> queue;
    SortedList expected;
    std::uint64_t pushes_in_8 = 5;
    for (int step = 0; step < 1500; ++step) {
      if (step % 100 == 0) pushes_in_8 = 2 + random() % 5;
      if (expected.size() == 0 || random() % 8 < pushes_in_8) {
        const Instant when = at(static_cast<std::int64_t>(random() % instants));
        queue.push(when, step);
        expected.push(when, step);
      } else {
        const std::pair<Instant, int> soonest = expected.pop();
        ASSERT_EQ(queue.next(), soonest.first) << "seed " << seed << " step " << step;
        const auto event = queue.pop();
        ASSERT_EQ(event.at, soonest.first) << "seed " << seed << " step " << step;
        ASSERT_EQ(event.payload, soonest.second) << "seed " << seed << " step " << step;
      }
      ASSERT_EQ(queue.size(), expected.size());
      ASSERT_EQ(queue.empty(), expected.size() == 0);
    }
  }
}

TEST(EventQueueProperty, SortsLikeAStableSort) {
  for (const std::size_t count : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 21U, 22U, 1000U, 50'000U}) {
    std::mt19937_64 random(count);
    std::vector<std::pair<std::int64_t, std::size_t>> events;
    EventQueue<std::size_t> queue;
    for (std::size_t i = 0; i < count; ++i) {
      events.emplace_back(random() % (1 + count / 4), i);
      queue.push(at(events.back().first), i);
    }
    std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [when, payload] : events) {
      const auto event = queue.pop();
      ASSERT_EQ(event.at, at(when));
      ASSERT_EQ(event.payload, payload);
    }
    EXPECT_TRUE(queue.empty());
  }
}

TEST(EventQueueDeathTest, NothingIsPoppedFromAnEmptyQueue) {
  EventQueue<int> queue;
  EXPECT_DEATH(static_cast<void>(queue.pop()), "popped from a queue that has one");
  EXPECT_DEATH(static_cast<void>(queue.next()), "has a next event");
}

}  // namespace
}  // namespace tidemark::tests::event_queue_test
