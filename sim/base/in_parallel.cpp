#include "sim/base/in_parallel.hpp"

#include <algorithm>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_group.h>

// cmake/portable/in_parallel.cpp is the same without oneTBB.

namespace tidemark::sim {

void in_parallel(std::size_t begin, std::size_t end, const std::function<void(std::size_t)>& body) {
  oneapi::tbb::task_group_context apart(oneapi::tbb::task_group_context::isolated);
  oneapi::tbb::parallel_for(begin, end, body, apart);
}

std::size_t cores() { return static_cast<std::size_t>(std::max(oneapi::tbb::info::default_concurrency(), 1)); }

ThreadLimit::ThreadLimit(std::size_t most)
    : held_(std::make_shared<oneapi::tbb::global_control>(oneapi::tbb::global_control::max_allowed_parallelism, most)) {
}

}  // namespace tidemark::sim
