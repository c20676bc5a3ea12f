#include <algorithm>
#include <array>

#include "parallel/schedule/schedule.hpp"

namespace tidemark::parallel {
namespace {

// Lists passes of two chunks, each kind of each chunk by micro-batch.
class ZeroBubbleVLister {
 public:
  void forward(std::int32_t chunk) { add(ActionKind::Forward, chunk, forwards[place(chunk)]); }
  void backward(std::int32_t chunk) { add(ActionKind::InputGradient, chunk, backwards[place(chunk)]); }
  void weights(std::int32_t chunk) { add(ActionKind::WeightGradient, chunk, made[place(chunk)]); }

  std::array<std::int32_t, 2> forwards{}, backwards{}, made{};  ///< how many there are of each chunk
  Schedule actions;

 private:
  static std::size_t place(std::int32_t chunk) { return static_cast<std::size_t>(chunk); }
  void add(ActionKind kind, std::int32_t chunk, std::int32_t& count) { actions.push_back({kind, count++, chunk}); }
};

}  // namespace

Schedule zero_bubble_v(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches) {
  const std::int32_t all = std::max(2 * stages - 1, micro_batches), after = stages - stage;
  ZeroBubbleVLister list;
  const auto both_parts = [&](std::int32_t chunk) {
    list.backward(chunk);
    list.weights(chunk);
  };
  // Until the second chunk's first micro-batch is here, the first chunk runs ahead; then they take turns.
  for (std::int32_t i = 0; i < 2 * after - 1; ++i) list.forward(0);
  for (std::int32_t i = 0; i < stage; ++i) {
    list.forward(1);
    list.forward(0);
  }
  for (std::int32_t i = 0; i < after; ++i) {
    list.forward(1);
    both_parts(1);
  }
  while (list.forwards[1] < list.forwards[0] || list.forwards[0] < all) {
    if (list.forwards[0] < all) list.forward(0);
    both_parts(0);
    list.forward(1);
    both_parts(1);
  }
  // What others wait for first.
  for (std::int32_t i = 0; i < stage; ++i) {
    list.backward(0);
    list.backward(1);
  }
  for (std::int32_t i = 0; i < after; ++i) both_parts(0);
  while (list.made[1] < list.backwards[1]) list.weights(1);
  while (list.made[0] < list.backwards[0]) list.weights(0);
  std::erase_if(list.actions, [&](const Action& action) { return action.micro_batch >= micro_batches; });
  return list.actions;
}

}  // namespace tidemark::parallel
