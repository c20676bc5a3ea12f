#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

namespace tidemark::sim {

/// Loops on threads that are started for them and end with them. `in_parallel` of programs that are linked without
/// oneTBB.
class OwnThreads {
 public:
  /// The threads that call `loop` are not counted in `most`, but for one.
  explicit OwnThreads(std::size_t most) { limit(most); }

  /// From now on, while no loop runs.
  void limit(std::size_t most) { free_ = most > 0 ? static_cast<std::ptrdiff_t>(most) - 1 : 0; }

  /// As `in_parallel`. A nested loop runs on the thread that calls it, and on those that other loops have let go of.
  void loop(std::size_t begin, std::size_t end, const std::function<void(std::size_t)>& body);

 private:
  bool take();

  std::atomic<std::ptrdiff_t> free_ = 0;
};

}  // namespace tidemark::sim
