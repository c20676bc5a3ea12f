#include "parallel/frameworks/megatron/optimizer/hybrid_device_optimizer.hpp"

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "parallel/torch/operation.hpp"

namespace tidemark::parallel::megatron {

using torch::OnHost;
using torch::OnStream;
using torch::Process;

HybridDeviceOptimizer::HybridDeviceOptimizer(Session& session, const OptimizerBehavior& behavior,
                                             std::vector<Updated> parameters)
    : s_(session), behavior_(behavior), to_host_(Process::compute_stream), to_device_(Process::compute_stream) {
  static constexpr StreamId streams_of_its_own[] = {StreamId{7}, StreamId{8}};
  if (behavior_.overlaps_copies) to_host_ = streams_of_its_own[0], to_device_ = streams_of_its_own[1];
  std::int64_t all = 0, moved = 0;
  for (const Updated& parameter : parameters) all += parameter.value.elements();
  const double enough = static_cast<double>(all) * behavior_.offloaded.value_or(0);
  for (Updated& parameter : parameters) {
    Inner& inner = inners_.emplace_back(Inner{std::move(parameter)});
    inner.on_host = static_cast<double>(moved) < enough;
    inner.value = inner.its.value;
    if (inner.on_host) {
      moved += inner.value.elements();
      inner.value = moved_to_host(inner.its);
    }
    if (inner.value.dtype != DType::FP32) inner.value = in_fp32(inner.its, inner.value, inner.on_host);
  }
}

LabelId HybridDeviceOptimizer::label(const Updated& parameter, std::string_view what) const {
  return s_.process.label(fmt::format("{}.{}", parameter.name, what));
}

// param.detach().clone().cpu().pin_memory(), whatever pin_cpu_params says.
Tensor HybridDeviceOptimizer::moved_to_host(const Updated& parameter) const {
  const Tensor& value = parameter.value;
  Tensor moved;
  {
    const Tensor clone = s_.empty(value.sizes, value.dtype, label(parameter, "clone"), Category::Temporaries);
    s_.launch(Operation::Copy, {value}, {clone});
    {
      const OnHost host(s_);
      moved = s_.empty(value.sizes, value.dtype, label(parameter, "moved"), Category::Temporaries);
    }
    s_.copy(clone, moved);
    s_.process.synchronize(s_.process.record(s_.stream()));
  }
  const OnHost host(s_, MemorySpace::Pinned);
  const Category category = value.dtype == DType::FP32 ? Category::OptimizerMaster : Category::Temporaries;
  const Tensor pinned = s_.empty(value.sizes, value.dtype, label(parameter, "on_host"), category);
  s_.launch(Operation::Copy, {moved}, {pinned});
  return pinned;
}

// param.detach().clone().float()
Tensor HybridDeviceOptimizer::in_fp32(const Updated& parameter, const Tensor& value, bool on_host) const {
  std::optional<OnHost> host;
  if (on_host) host.emplace(s_);
  const Tensor clone = s_.empty(value.sizes, value.dtype, label(parameter, "clone"), Category::Temporaries);
  s_.launch(Operation::Copy, {value}, {clone});
  const Tensor made = s_.empty(value.sizes, DType::FP32, label(parameter, "main"), Category::OptimizerMaster);
  s_.launch(Operation::Copy, {clone}, {made});
  return made;
}

// _set_sub_optimizer_grads
void HybridDeviceOptimizer::take_gradients(const std::vector<Tensor>& gradients) {
  const OnStream on(s_, to_host_);
  for (std::size_t i = 0; i < inners_.size(); ++i) {
    Inner& inner = inners_[i];
    if (inner.on_host) continue;
    const Tensor& gradient = gradients[i];
    if (gradient.dtype == inner.value.dtype) {
      inner.gradient = gradient;
      continue;
    }
    const Tensor made = s_.empty(gradient.sizes, inner.value.dtype, label(inner.its, "gradient"), Category::Gradients);
    s_.launch(Operation::Copy, {gradient}, {made});
    inner.gradient = made;
    s_.process.join(s_.process.record(to_host_));
  }
  for (std::size_t i = 0; i < inners_.size(); ++i)
    if (inners_[i].on_host) take_to_host(inners_[i], gradients[i]);
}

// ATen/native/cuda/Copy.cu copy_kernel_cuda: what is not to wait is converted on the device.
void HybridDeviceOptimizer::take_to_host(Inner& inner, const Tensor& gradient) {
  if (!inner.gradient.defined()) {
    const OnHost host(s_, behavior_.pins_gradients ? MemorySpace::Pinned : MemorySpace::Pageable);
    inner.gradient = s_.empty(inner.value.sizes, inner.value.dtype, label(inner.its, "gradient"), Category::Gradients);
  }
  Tensor converted = gradient;
  if (gradient.dtype != inner.gradient.dtype) {
    converted = s_.empty(gradient.sizes, inner.gradient.dtype, label(inner.its, "converted"), Category::Temporaries);
    s_.launch(Operation::Copy, {gradient}, {converted});
  }
  s_.copy(converted, inner.gradient);
  inner.copied = s_.process.record(to_host_);
  // Pageable memory is written while the host waits.
  if (!behavior_.pins_gradients) s_.process.synchronize(inner.copied);
}

void HybridDeviceOptimizer::make_state(Inner& inner) const {
  if (!inner.moments.empty()) return;  // made in the first step
  if (inner.on_host) {
    inner.count = s_.empty({}, DType::FP32, label(inner.its, "step"), Category::OptimizerMoments);
    s_.launch({Operation::Fill, {0}}, {}, {inner.count});
  }
  for (const std::string_view what : {"exp_avg", "exp_avg_sq"}) {
    inner.moments.push_back(
        s_.empty(inner.value.sizes, inner.value.dtype, label(inner.its, what), Category::OptimizerMoments));
    s_.launch({Operation::Fill, {0}}, {}, {inner.moments.back()});
  }
}

void HybridDeviceOptimizer::update(const std::vector<Inner*>& inners) const {
  for (Inner* const inner : inners) make_state(*inner);
  std::vector<Tensor> read, written;
  for (const Inner* const inner : inners) {
    const Tensor &mean = inner->moments[0], &squares = inner->moments[1];
    read.insert(read.end(), {inner->value, inner->gradient, mean, squares, Tensor{}, inner->count});
    written.insert(written.end(), {inner->value, mean, squares, Tensor{}, inner->count});
  }
  s_.launch({Operation::Adam, {usual_learning_rate}}, read, written);
}

void HybridDeviceOptimizer::update_on_device() {
  std::vector<Inner*> its;
  std::vector<Tensor> copies, values;
  for (Inner& inner : inners_) {
    if (inner.on_host) continue;
    its.push_back(&inner);
    if (!inner.copies()) continue;
    copies.push_back(inner.value);
    values.push_back(inner.its.value);
  }
  if (its.empty()) return;
  update(its);
  if (!copies.empty()) s_.launch(Operation::Copy, copies, values);
}

// param_copy_back_gpu_hook. Until core 0.15 the compute stream waits for the other one of the two streams.
void HybridDeviceOptimizer::copy_back(const Inner& inner) {
  const OnStream on(s_, to_device_);
  Tensor received = inner.its.value;
  if (received.dtype != inner.value.dtype)
    received = s_.empty(received.sizes, inner.value.dtype, label(inner.its, "received"), Category::Temporaries);
  s_.copy(inner.value, received);
  if (received.dtype != inner.its.value.dtype) s_.launch(Operation::Copy, {received}, {inner.its.value});
}

void HybridDeviceOptimizer::update_on_host(const std::vector<Inner*>& inners) {
  s_.process.synchronize(inners.back()->copied);
  {
    const OnHost host(s_);
    update(inners);
  }
  if (to_device_ != Process::compute_stream) s_.process.wait(to_device_, s_.process.record(Process::compute_stream));
  for (const Inner* const inner : inners) copy_back(*inner);
  if (to_device_ != Process::compute_stream) s_.process.join(s_.process.record(to_device_));
}

void HybridDeviceOptimizer::step(const std::vector<Tensor>& gradients) {
  if (to_host_ != Process::compute_stream) s_.process.wait(to_host_, s_.process.record(Process::compute_stream));
  take_gradients(gradients);
  update_on_device();
  std::vector<Inner*> on_host;
  for (Inner& inner : inners_)
    if (inner.on_host) on_host.push_back(&inner);
  // build_cpu_optimizer_list: to overlap, each parameter has an optimizer of its own.
  if (behavior_.overlaps_copies)
    for (Inner* const inner : on_host) update_on_host({inner});
  else if (!on_host.empty())
    update_on_host(on_host);
}

}  // namespace tidemark::parallel::megatron
