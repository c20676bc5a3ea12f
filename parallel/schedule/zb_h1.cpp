#include <algorithm>
#include <iterator>
#include <vector>

#include "parallel/schedule/schedule.hpp"

namespace tidemark::parallel {

Schedule zb_h1(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches) {
  const Schedule order = one_f_one_b(stage, stages, micro_batches);
  // The first backward pass after which no forward pass waits for this rank.
  const auto last_forward =
      std::find_if(order.rbegin(), order.rend(), [](const Action& action) { return is_forward(action.kind); });
  const std::int32_t ending = last_forward == order.rbegin() ? 0 : std::prev(last_forward)->micro_batch;
  Schedule actions;
  std::vector<std::int32_t> parted;  // micro-batches whose weight gradients are
                                     // made apart, in this order
  std::size_t made = 0;              // of those
  for (const Action& action : order) {
    const std::int32_t m = action.micro_batch;
    const bool as_many_wait_as_may = m >= stage;
    if (is_forward(action.kind) || stage == 0 || (as_many_wait_as_may && m < ending)) {
      actions.push_back(action);
      continue;
    }
    actions.push_back({ActionKind::InputGradient, m});
    parted.push_back(m);
    if (as_many_wait_as_may) actions.push_back({ActionKind::WeightGradient, parted[made++]});
  }
  for (; made < parted.size(); ++made) actions.push_back({ActionKind::WeightGradient, parted[made]});
  return actions;
}

}  // namespace tidemark::parallel
