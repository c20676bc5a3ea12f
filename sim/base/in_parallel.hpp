#pragma once

#include <cstddef>
#include <functional>

namespace tidemark::sim {

/// Calls `body` with every index of [begin, end), on as many threads as there are. Either every call has returned, or
/// the exception of one that threw comes out of here. Loops may be nested: an exception ends the loop that it comes out
/// of, and no other. (oneTBB's own parallel_for runs a nested loop in the context of the task that calls it. When a
/// sibling of that task throws, the context is cancelled, and the nested loop returns, without an exception, with part
/// of its calls never made.)
void in_parallel(std::size_t begin, std::size_t end, const std::function<void(std::size_t)>& body);

}  // namespace tidemark::sim
