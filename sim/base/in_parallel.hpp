#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace tidemark::sim {

/// Calls `body` with every index of [begin, end), on as many threads as there are. Either every call has returned, or
/// the exception of one that threw comes out of here. Loops may be nested: an exception ends the loop that it comes out
/// of, and no other. (oneTBB's own parallel_for runs a nested loop in the context of the task that calls it. When a
/// sibling of that task throws, the context is cancelled, and the nested loop returns, without an exception, with part
/// of its calls never made.)
void in_parallel(std::size_t begin, std::size_t end, const std::function<void(std::size_t)>& body);

/// How many threads this process can run at once, 1 at least.
[[nodiscard]] std::size_t cores();

/// While it lives, loops of this process run on at most so many threads.
class ThreadLimit {
 public:
  explicit ThreadLimit(std::size_t most);

 private:
  std::shared_ptr<const void> held_;
};

}  // namespace tidemark::sim
