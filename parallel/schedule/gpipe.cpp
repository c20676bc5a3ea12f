#include "parallel/schedule/schedule.hpp"

namespace tidemark::parallel {

Schedule gpipe(std::int32_t micro_batches) {
  // Backward in reverse: what was computed last is at hand first (Huang et al., GPipe, 2019, figure 2c).
  Schedule actions;
  for (std::int32_t m = 0; m < micro_batches; ++m) actions.push_back({ActionKind::Forward, m});
  for (std::int32_t m = micro_batches - 1; m >= 0; --m) actions.push_back({ActionKind::Backward, m});
  return actions;
}

}  // namespace tidemark::parallel
