#include "parallel/schedule/schedule.hpp"

namespace tidemark::parallel {

Schedule looped_breadth_first(std::int32_t micro_batches, std::int32_t chunks) {
  Schedule actions;
  for (std::int32_t c = 0; c < chunks; ++c)
    for (std::int32_t m = 0; m < micro_batches; ++m) actions.push_back({ActionKind::Forward, m, c});
  for (std::int32_t c = chunks - 1; c >= 0; --c)
    for (std::int32_t m = micro_batches - 1; m >= 0; --m) actions.push_back({ActionKind::Backward, m, c});
  return actions;
}

}  // namespace tidemark::parallel
