#include <algorithm>

#include "parallel/schedule/schedule.hpp"

namespace tidemark::parallel {

Schedule one_f_one_b(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches) {
  // Early stages run ahead by their distance to the last stage; that is all 1F1B is.
  const std::int32_t warmup = std::min(stages - 1 - stage, micro_batches);
  Schedule actions;
  for (std::int32_t m = 0; m < warmup; ++m) actions.push_back({ActionKind::Forward, m});
  for (std::int32_t m = warmup; m < micro_batches; ++m) {
    actions.push_back({ActionKind::Forward, m});
    actions.push_back({ActionKind::Backward, m - warmup});
  }
  for (std::int32_t m = micro_batches - warmup; m < micro_batches; ++m) actions.push_back({ActionKind::Backward, m});
  return actions;
}

}  // namespace tidemark::parallel
