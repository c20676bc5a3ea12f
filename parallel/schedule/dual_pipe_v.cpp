#include <algorithm>
#include <array>
#include <deque>

#include "parallel/schedule/schedule.hpp"

namespace tidemark::parallel {
namespace {

enum class Parts : std::uint8_t { Together, Apart };  // of a backward pass

// Lists passes of two chunks. Weight gradients that are apart come in the order of their backward passes.
class DualPipeVLister {
 public:
  void forward(std::int32_t chunk) { schedule_.push_back({ActionKind::Forward, forwards_[place(chunk)]++, chunk}); }
  void backward(std::int32_t chunk, Parts parts = Parts::Together) {
    const Action weights{ActionKind::WeightGradient, backwards_[place(chunk)], chunk};
    const bool apart = parts == Parts::Apart;
    schedule_.push_back({apart ? ActionKind::InputGradient : ActionKind::Backward, backwards_[place(chunk)]++, chunk});
    if (apart) waiting_.push_back(weights);
  }
  void weights() {
    if (waiting_.empty()) return;
    schedule_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  void joined(std::int32_t forward_chunk, std::int32_t backward_chunk) {
    forward(forward_chunk);
    schedule_.back().joined = true;
    backward(backward_chunk);
  }
  [[nodiscard]] Schedule take() { return std::move(schedule_); }

 private:
  static std::size_t place(std::int32_t chunk) { return static_cast<std::size_t>(chunk); }

  std::array<std::int32_t, 2> forwards_{}, backwards_{};  // next micro-batch of each chunk
  std::deque<Action> waiting_;
  Schedule schedule_;
};

}  // namespace

// The steps are numbered as there.
Schedule dual_pipe_v(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches) {
  const std::int32_t after = stages - stage - 1;
  DualPipeVLister list;
  for (std::int32_t i = 0; i < 2 * after; ++i) list.forward(0);  // 1
  for (std::int32_t i = 0; i <= stage; ++i) {                    // 2
    list.forward(0);
    list.forward(1);
  }
  for (std::int32_t i = 0; i < after; ++i) {  // 3
    list.backward(1, Parts::Apart);
    list.weights();
    list.forward(1);
  }
  for (std::int32_t i = 0; i < micro_batches - 2 * stages + stage + 1; ++i) {  // 4
    if (i > 0 || after > 0) {
      list.joined(0, 1);
    } else {  // the last rank waits for less so
      list.forward(0);
      list.backward(1);
    }
    list.joined(1, 0);
  }
  for (std::int32_t i = 0; i < after; ++i) {  // 5
    list.backward(1);
    list.joined(1, 0);
  }
  // 6: in the second half of them weight gradients are left for later.
  const std::int32_t half = (stage + 1) / 2;
  const bool odd = stage % 2 == 1;
  Parts parts = Parts::Together;
  for (std::int32_t i = 0; i <= stage; ++i) {
    if (i == half && odd) parts = Parts::Apart;
    list.backward(1, parts);
    if (i == half && !odd) parts = Parts::Apart;
    list.backward(0, parts);
  }
  for (std::int32_t i = 0; i < after; ++i) {  // 7
    list.weights();
    list.backward(0, parts);
  }
  for (std::int32_t i = 0; i <= stage; ++i) list.weights();  // 8
  return list.take();
}

}  // namespace tidemark::parallel
