#include "parallel/frameworks/megatron/layer_offload.hpp"

#include <algorithm>
#include <utility>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel::megatron {

using torch::OnHost;
using torch::OnStream;
using torch::Process;

namespace {

constexpr StreamId offload_stream{9};

// A tensor without memory that says how another one is looked at.
Tensor look_of(const Tensor& tensor) {
  Tensor look = tensor.detached();
  look.storage = {};
  return look;
}

// _switch_to_base_tensors: a view that does not lie in one piece goes as what it is a view of.
Tensor whole_of(const Session& s, const Tensor& tensor) {
  if (tensor.dense()) return tensor.detached();
  const Bytes size = s.process.allocation(tensor.buffer()).size;
  Tensor whole = tensor.detached();
  whole.sizes = {size / size_of(tensor.dtype)};
  whole.strides = contiguous_strides(whole.sizes);
  whole.offset = 0;
  return whole;
}

}  // namespace

/// What a node holds in place of a tensor that was handed over.
class SavedAside final : public torch::PackedTensor {
 public:
  SavedAside(LayerOffload& offload, std::size_t layer, std::size_t place)
      : offload_(offload), layer_(layer), place_(place) {}
  Tensor unpack(Session&) override { return offload_.pop(layer_, place_); }

 private:
  LayerOffload& offload_;
  std::size_t layer_, place_;
};

LayerOffload::LayerOffload(Session& session, std::size_t layers, std::size_t offloaded)
    : s_(session), offloaded_(offloaded), layers_(layers) {}

Tensor LayerOffload::run(const std::function<Tensor()>& layer) {
  begin_forward();
  Tensor output;
  {
    const torch::SavedTensorsHooks hooks(s_, [this](const Tensor& tensor) { return push(tensor); });
    output = layer();
  }
  torch::register_hook(output, [this, its = *forward_] { begin_backward(its); });
  return output;
}

// push_tensor
std::unique_ptr<torch::PackedTensor> LayerOffload::push(const Tensor& tensor) {
  if (s_.process.allocation(tensor.buffer()).category == Category::Parameters) return nullptr;
  Layer& layer = layers_[*forward_];
  const Tensor whole = whole_of(s_, tensor);
  s_.keep_saved(whole);
  const auto same = std::ranges::find_if(layer.on_device, [&](const Tensor& its) {
    return its.buffer() == whole.buffer() && its.offset == whole.offset && its.elements() == whole.elements();
  });
  Saving saving{static_cast<std::size_t>(same - layer.on_device.begin()), look_of(tensor)};
  saving.view.offset -= whole.offset;
  if (same == layer.on_device.end()) {
    layer.on_device.push_back(whole);
    if (*forward_ < offloaded_) layer.ready.push_back(s_.process.record(s_.stream()));
  }
  layer.saved.push_back(std::move(saving));
  return std::make_unique<SavedAside>(*this, *forward_, layer.saved.size() - 1);
}

// pop_tensor
Tensor LayerOffload::pop(std::size_t number, std::size_t place) {
  Layer& layer = layers_[number];
  const Saving& saving = layer.saved[place];
  const bool returns = layer.state == Layer::State::Returning;
  ensure(returns || layer.state == Layer::State::OnDevice, "what is asked for is there, or on its way");
  if (returns) s_.process.wait(s_.stream(), layer.back[saving.whole]);
  const Tensor& whole = returns ? layer.returned[saving.whole] : layer.on_device[saving.whole];
  Tensor tensor = saving.view;
  tensor.storage = whole.storage;
  tensor.offset += whole.offset;
  return tensor;
}

// fwd_step: the layer before is sent; one layer's memory goes for each that begins once there are enough on the device.
void LayerOffload::begin_forward() {
  if (!forward_ || *forward_ + 1 == layers_.size()) {
    for (Layer& layer : layers_) layer = {};
    forward_ = 0;
    return;
  }
  const std::size_t last = *forward_;
  ++*forward_;
  if (last < offloaded_) send(layers_[last]);
  const std::size_t kept = layers_.size() - offloaded_;
  if (*forward_ >= kept) let_go(layers_[*forward_ - kept]);
}

// bwd_step
void LayerOffload::begin_backward(std::size_t number) {
  finish_backward();
  backward_ = number;
  const std::size_t kept = layers_.size() - offloaded_;
  if (number + 1 >= kept && number + 1 - kept < offloaded_) fetch(layers_[number + 1 - kept]);
}

void LayerOffload::finish_backward() {
  if (backward_) layers_[*backward_] = {};
  backward_ = {};
}

// start_offload
void LayerOffload::send(Layer& layer) {
  layer.state = Layer::State::Leaving;
  const OnStream on(s_, offload_stream);
  for (std::size_t i = 0; i < layer.on_device.size(); ++i) {
    const Tensor& tensor = layer.on_device[i];
    s_.process.wait(offload_stream, layer.ready[i]);
    {
      const OnHost host(s_, MemorySpace::Pinned);
      layer.on_host.push_back(s_.empty(tensor.sizes, tensor.dtype, s_.process.allocation(tensor.buffer()).label,
                                       Category::SavedActivations));
    }
    s_.copy(tensor, layer.on_host.back());
  }
  layer.gone = s_.process.record(offload_stream);
}

// release_activation_forward_gpu_memory
void LayerOffload::let_go(Layer& layer) {
  layer.state = Layer::State::OnHost;
  s_.process.wait(s_.stream(), layer.gone);
  layer.on_device.clear();
}

// start_reload: into memory of the compute stream.
void LayerOffload::fetch(Layer& layer) {
  layer.state = Layer::State::Returning;
  for (const Tensor& tensor : layer.on_host) {
    layer.returned.push_back(
        s_.empty(tensor.sizes, tensor.dtype, s_.process.allocation(tensor.buffer()).label, Category::SavedActivations));
    s_.process.wait(offload_stream, s_.process.record(s_.stream()));
    const OnStream on(s_, offload_stream);
    s_.copy(tensor, layer.returned.back());
    layer.back.push_back(s_.process.record(offload_stream));
  }
}

}  // namespace tidemark::parallel::megatron
