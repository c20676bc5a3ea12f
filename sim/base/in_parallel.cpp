#include "sim/base/in_parallel.hpp"

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_group.h>

namespace tidemark::sim {

void in_parallel(std::size_t begin, std::size_t end, const std::function<void(std::size_t)>& body) {
  oneapi::tbb::task_group_context apart(oneapi::tbb::task_group_context::isolated);
  oneapi::tbb::parallel_for(begin, end, body, apart);
}

}  // namespace tidemark::sim
