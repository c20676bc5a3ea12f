#pragma once

#include <vector>

#include "parallel/frameworks/megatron/optimizer/fused_adam.hpp"

namespace tidemark::parallel::megatron {

/// core/optimizer/cpu_offloading/hybrid_optimizer.py: parameters in their order, until a fraction of all elements is
/// reached, are copied to the host, and updated there by torch.optim's fused AdamW; the others by an Adam on the
/// device.
class HybridDeviceOptimizer {
 public:
  /// Makes its copies: fp32, of what is on the host, and of what is not fp32 on the device.
  HybridDeviceOptimizer(Session& session, const OptimizerBehavior& behavior, std::vector<Updated> parameters);

  void step(const std::vector<Tensor>& gradients);

 private:
  struct Inner {
    Updated its;
    bool on_host = false;
    Tensor value{};     ///< that is updated: its own, or a copy
    Tensor gradient{};  ///< of that
    Tensor count{};     ///< of steps, on the host
    std::vector<Tensor> moments{};
    EventId copied{};  ///< the gradient, to the host

    [[nodiscard]] bool copies() const { return on_host || value.dtype != its.value.dtype; }
  };

  [[nodiscard]] Tensor moved_to_host(const Updated& parameter) const;
  [[nodiscard]] Tensor in_fp32(const Updated& parameter, const Tensor& value, bool on_host) const;
  void take_gradients(const std::vector<Tensor>& gradients);
  void take_to_host(Inner& inner, const Tensor& gradient);
  void make_state(Inner& inner) const;
  void update(const std::vector<Inner*>& inners) const;
  void update_on_device();
  void update_on_host(const std::vector<Inner*>& inners);
  void copy_back(const Inner& inner);
  [[nodiscard]] LabelId label(const Updated& parameter, std::string_view what) const;

  Session& s_;
  OptimizerBehavior behavior_;
  StreamId to_host_, to_device_;
  std::vector<Inner> inners_;
};

}  // namespace tidemark::parallel::megatron
