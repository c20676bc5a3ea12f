#include "sim/base/in_parallel.hpp"

#include <algorithm>
#include <thread>

#include "sim/base/own_threads.hpp"

// In the place of sim/base/in_parallel.cpp: Debian has no static oneTBB.

namespace tidemark::sim {
namespace {

OwnThreads& threads() {
  static OwnThreads all(cores());
  return all;
}

}  // namespace

void in_parallel(std::size_t begin, std::size_t end, const std::function<void(std::size_t)>& body) {
  threads().loop(begin, end, body);
}

std::size_t cores() { return std::max(std::thread::hardware_concurrency(), 1U); }

// The command line limits them once, before its first loop.
ThreadLimit::ThreadLimit(std::size_t most) { threads().limit(most); }

}  // namespace tidemark::sim
