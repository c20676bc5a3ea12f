#include <algorithm>

#include "parallel/schedule/schedule.hpp"

namespace tidemark::parallel {
namespace {

// The order in which passes of one direction run: group after group of micro-batches, each through all chunks.
Schedule in_groups(ActionKind kind, std::int32_t micro_batches, std::int32_t chunks, std::int32_t group) {
  Schedule order;
  for (std::int32_t first = 0; first < micro_batches; first += group)
    for (std::int32_t c = 0; c < chunks; ++c)
      for (std::int32_t m = first; m < std::min(first + group, micro_batches); ++m)
        order.push_back({kind, m, is_forward(kind) ? c : chunks - 1 - c});
  return order;
}

}  // namespace

std::int32_t interleaved_warmup(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches,
                                std::int32_t chunks, std::int32_t group) {
  // All but the last chunk of the first group, and twice the distance to the last stage.
  return std::min((stages - stage - 1) * 2 + (chunks - 1) * group, micro_batches * chunks);
}

Schedule interleaved(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches, std::int32_t chunks,
                     std::int32_t group) {
  const Schedule forward = in_groups(ActionKind::Forward, micro_batches, chunks, group);
  const Schedule backward = in_groups(ActionKind::Backward, micro_batches, chunks, group);
  const auto warmup = static_cast<std::size_t>(interleaved_warmup(stage, stages, micro_batches, chunks, group));
  Schedule actions(forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(warmup));
  for (std::size_t k = warmup; k < forward.size(); ++k) {
    actions.push_back(forward[k]);
    actions.push_back(backward[k - warmup]);
  }
  actions.insert(actions.end(), backward.end() - static_cast<std::ptrdiff_t>(warmup), backward.end());
  return actions;
}

Schedule interleaved_zero_bubble(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches,
                                 std::int32_t chunks, std::int32_t group) {
  const Schedule forward = in_groups(ActionKind::Forward, micro_batches, chunks, group);
  const Schedule backward = in_groups(ActionKind::InputGradient, micro_batches, chunks, group);
  const Schedule weights = in_groups(ActionKind::WeightGradient, micro_batches, chunks, group);
  const auto warmup =
                 static_cast<std::size_t>(std::min(stages - stage - 1 + (chunks - 1) * group, micro_batches * chunks)),
             behind = static_cast<std::size_t>(stage);
  Schedule actions(forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(warmup));
  std::size_t made = 0;  // weight gradients
  for (std::size_t k = 0; k < backward.size(); ++k) {
    if (warmup + k < forward.size()) actions.push_back(forward[warmup + k]);
    actions.push_back(backward[k]);
    if (k >= behind) actions.push_back(weights[made++]);
  }
  actions.insert(actions.end(), weights.begin() + static_cast<std::ptrdiff_t>(made), weights.end());
  return actions;
}

}  // namespace tidemark::parallel
