#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "kernels/execute/world/world.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {

/// What the ranks of a run inside one process share: letters on their way, and the first failure.
struct ThreadPost {
  ThreadPost(std::int32_t of_ranks, std::chrono::milliseconds limit) : ranks(of_ranks), time_limit(limit) {}

  const std::int32_t ranks;
  const std::chrono::milliseconds time_limit;
  std::mutex mutex;
  std::condition_variable news;
  std::map<std::tuple<Rank, Rank, std::int32_t>, std::deque<std::vector<char>>> letters;  // by sender, receiver, tag
  std::optional<RunFailure> failure;
};

/// A rank that is a thread. Sends never wait.
class ThreadWorld final : public World {
 public:
  ThreadWorld(ThreadPost& post, Rank rank) : post_(post), rank_(rank) {}

  [[nodiscard]] Rank rank() const override { return rank_; }
  [[nodiscard]] std::int32_t size() const override { return post_.ranks; }

  void exchange(std::span<const execute::Message> messages, const std::string& doing) override {
    std::unique_lock lock(post_.mutex);
    for (const execute::Message& m : messages) {
      if (m.direction != Direction::Send) continue;
      const char* data = static_cast<const char*>(m.data);  // nothing may be nowhere
      post_.letters[{rank_, m.peer, m.tag}].emplace_back(data, data + m.bytes);
    }
    post_.news.notify_all();
    const auto until = std::chrono::steady_clock::now() + post_.time_limit;
    for (const execute::Message& m : messages) {
      if (m.direction != Direction::Receive) continue;
      std::deque<std::vector<char>>& box = post_.letters[{m.peer, rank_, m.tag}];
      const bool there = post_.news.wait_until(lock, until, [&] { return post_.failure || !box.empty(); });
      if (post_.failure) throw RunFailure(*post_.failure);
      if (!there) report(doing + " took too long");
      if (box.front().size() != m.bytes) report(doing + ": a message is not as long as it should be");
      if (m.bytes > 0) std::memcpy(m.data, box.front().data(), m.bytes);
      box.pop_front();
    }
  }

  void report_failure(const std::string& why) override {
    const std::lock_guard lock(post_.mutex);
    report(why);
  }

 private:
  [[noreturn]] void report(const std::string& why) {
    if (!post_.failure) post_.failure.emplace("rank " + std::to_string(rank_.value) + ": " + why, rank_);
    post_.news.notify_all();
    throw RunFailure(*post_.failure);
  }

  ThreadPost& post_;
  Rank rank_;
};

/// Longer than any wait of a sound run, on a busy machine too.
constexpr std::chrono::minutes long_enough{10};

/// Runs `body(world)` on so many ranks. Returns how it ended on each: "" where it returned, else what the failure says.
template <class Body>
std::vector<std::string> on_ranks(std::int32_t ranks, Body&& body, std::chrono::milliseconds time_limit = long_enough) {
  ThreadPost post(ranks, time_limit);
  std::vector<std::string> ends(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (Rank rank{0}; rank.value < ranks; ++rank.value)
    threads.emplace_back([&, rank] {
      ThreadWorld world(post, rank);
      try {
        try {
          body(world);
        } catch (const RunFailure&) {
          throw;
        } catch (const std::exception& error) {
          world.report_failure(error.what());
        }
      } catch (const RunFailure& failure) {
        ends[rank.index()] = failure.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return ends;
}

/// All returned.
inline std::vector<std::string> all_well(std::int32_t ranks) {
  return std::vector<std::string>(static_cast<std::size_t>(ranks));
}

}  // namespace tidemark::tests
