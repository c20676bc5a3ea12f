#include "sim/base/own_threads.hpp"

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace tidemark::sim {

bool OwnThreads::take() {
  if (free_.fetch_sub(1) > 0) return true;
  free_.fetch_add(1);
  return false;
}

void OwnThreads::loop(std::size_t begin, std::size_t end, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next = begin;
  std::atomic<bool> failed = false;
  std::exception_ptr error;
  std::mutex of_error;
  const auto one = [&] {
    const std::size_t i = failed ? end : next.fetch_add(1);
    if (i >= end) return false;
    try {
      body(i);
    } catch (...) {
      const std::scoped_lock lock(of_error);
      if (!failed.exchange(true)) error = std::current_exception();
    }
    return true;
  };

  std::vector<std::thread> others;
  bool startable = true;
  do {
    // Before each call of its own, since another loop may have ended meanwhile.
    while (startable && next + 1 < end && take()) {
      try {
        others.emplace_back([&] {
          while (one()) {
          }
          free_.fetch_add(1);
        });
      } catch (const std::system_error&) {  // the machine has no more threads for this process
        free_.fetch_add(1);
        startable = false;
      }
    }
  } while (one());
  for (std::thread& other : others) other.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace tidemark::sim
