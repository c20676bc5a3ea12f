#include "kernels/execute/world/forked_world.hpp"

#include <array>
#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::forked_world_test {
namespace {

using std::chrono::seconds;

// Codes that bodies end with; what a child process finds wrong, the test sees as its code.
constexpr int right = 0, wrong = 7, failed = 3;
// Longer than any wait of a sound run, on a busy machine too.
constexpr seconds in_time{600};

TEST(ForkedWorld, GathersAndBroadcasts) {
  const int code = run_forked(5, in_time, [](World& world) {
    world.barrier();
    const std::vector<std::string> all = world.gather("from " + std::to_string(world.rank().value));
    if (world.rank().value != 0 && !all.empty()) return wrong;
    if (world.rank().value == 0 && (all.size() != 5 || all[3] != "from 3")) return wrong;
    const std::string large(1 << 20, 'x');
    return world.broadcast(world.rank().value == 0 ? large : "") == large ? right : wrong;
  });
  EXPECT_EQ(code, right);
}

TEST(ForkedWorld, TagsKeepMessagesApart) {
  const int code = run_forked(2, in_time, [](World& world) {
    int first = 1, second = 2, got_first = 0, got_second = 0;
    const Rank peer{1 - world.rank().value};
    // Sent in one order, asked for in the other.
    world.exchange(std::array{Message{Direction::Send, peer, 20, &first, sizeof first},
                              Message{Direction::Send, peer, 21, &second, sizeof second}},
                   "sending");
    world.exchange(std::array{Message{Direction::Receive, peer, 21, &got_second, sizeof got_second}}, "the second");
    world.exchange(std::array{Message{Direction::Receive, peer, 20, &got_first, sizeof got_first}}, "the first");
    return got_first == 1 && got_second == 2 ? right : wrong;
  });
  EXPECT_EQ(code, right);
}

// Waits for a message that never comes, and returns what ended the wait.
int wait_for_ever(World& world, const std::string& expected) {
  int never = 0;
  try {
    world.exchange(std::array{Message{Direction::Receive, {0}, 20, &never, sizeof never}}, "a message");
  } catch (const RunFailure& failure) {
    return std::string(failure.what()).find(expected) == std::string::npos ? wrong : failed;
  }
  return wrong;
}

TEST(ForkedWorld, ARankThatGivesUpEndsTheOthers) {
  const int code = run_forked(3, in_time, [](World& world) {
    if (world.rank().value != 0) return wait_for_ever(world, "rank 0: no more memory");
    try {
      world.report_failure("no more memory");
    } catch (const RunFailure&) {
      return failed;
    }
    return wrong;
  });
  EXPECT_EQ(code, failed);
}

TEST(ForkedWorld, ARankThatDiesEndsTheOthers) {
  const int code = run_forked(3, in_time, [](World& world) {
    if (world.rank().value == 0) std::raise(SIGKILL);
    return wait_for_ever(world, "rank 0 is gone");
  });
  EXPECT_EQ(code, failed);
}

TEST(ForkedWorld, NobodyWaitsForEver) {
  const int code = run_forked(2, seconds(1), [](World& world) {
    if (world.rank().value == 0) {
      // Alive, and silent until the other gives up.
      try {
        for (;; usleep(50'000)) world.listen();
      } catch (const RunFailure&) {
        return failed;
      }
    }
    return wait_for_ever(world, "waited 1 s for a message");
  });
  EXPECT_EQ(code, failed);
}

}  // namespace
}  // namespace tidemark::tests::forked_world_test
