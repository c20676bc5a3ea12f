#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/frameworks/deepspeed/swap_files.hpp"
#include "parallel/frameworks/pytorch/optimizers/optimizer.hpp"

// deepspeed/runtime/swap_tensor/optimizer_utils.py, partitioned_optimizer_swapper.py, pipelined_optimizer_swapper.py,
// async_swapper.py.

namespace tidemark::parallel::deepspeed {

/// Parameters that are updated together, with what their optimizer keeps of them, in files: OptimizerStateSwapInfo.
struct SwappedState {
  std::int64_t elements = 0;
  std::shared_ptr<Leaf> master;
  pytorch::TorchOptimizer* optimizer = nullptr;
  std::vector<Tensor> files;                ///< of what is updated, and from the first step on of the moments
  std::map<std::int64_t, Tensor> gradient;  ///< files, by where they begin
  /// What is too small for a file stays on the device, by where it begins.
  std::map<std::int64_t, Tensor> unswapped;
  SwapBuffers::Numbers held;  ///< buffers, the gradient's last
};

/// Brings the state of one sub-group after the other to buffers of the host, and back to files.
class OptimizerSwapper {
 public:
  /// `largest` elements have the most that are updated together.
  OptimizerSwapper(Session& session, const NvmeBehavior& behavior, std::int64_t largest);

  [[nodiscard]] bool swaps(std::int64_t elements) const { return format_.swaps(elements); }
  /// A file for so many elements; what they are, `initialize` writes.
  [[nodiscard]] Tensor file_for(std::int64_t elements);
  /// Of tensors of any type, wherever they are: initialize_parameters.
  void initialize(const std::vector<SwappedState*>& groups, const std::vector<Tensor>& values);

  /// What comes next is read ahead, where that is asked for.
  void swap_in(SwappedState& group, SwappedState* next);
  /// Where `others_follow`, it may be written while they are updated.
  void swap_out(SwappedState& group, bool others_follow);
  /// Parts of a group's gradient in fp32 on the device, by where they begin.
  void swap_out_gradients(SwappedState& group, const std::vector<std::pair<std::int64_t, Tensor>>& parts);

 private:
  void begin_reading(SwappedState& group);
  void read_gradient(SwappedState& group);
  void release(SwappedState& group);
  void complete_writing();
  [[nodiscard]] std::vector<Tensor*> fresh_moments(SwappedState& group) const;
  [[nodiscard]] Tensor part_of(std::size_t buffer, std::int64_t elements) const {
    return narrowed(buffers_[buffer], 0, 0, elements);
  }
  [[nodiscard]] bool pipelines() const { return behavior_.pipeline_read || behavior_.pipeline_write; }
  [[nodiscard]] DriveQueue& reading() { return pipelines() ? read_ : write_; }
  // AsyncTensorSwapper.
  void insert(const Tensor& gradient, const Tensor& file);
  void write_inserted();
  void flush_gradients();

  static constexpr StreamId writes{4}, reads{5};

  Session& s_;
  const NvmeBehavior& behavior_;
  SwapFormat format_;
  std::int64_t largest_;
  SwapBuffers buffers_;
  DriveQueue write_, read_;
  SwappedState* ahead_ = nullptr;  ///< is being read
  std::optional<SwapBuffers::Numbers> writing_;
  // Of gradients, until the next state is read: which buffers, those of them that are free, the one that is being
  // filled, and what is in it.
  SwapBuffers::Numbers gradient_buffers_, free_;
  std::optional<std::size_t> current_;
  std::int64_t filled_ = 0;
  std::vector<std::pair<Tensor, Tensor>> inserted_;
};

}  // namespace tidemark::parallel::deepspeed
