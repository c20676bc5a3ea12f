#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/torch/session.hpp"

namespace tidemark::parallel::megatron {

/// transformer_engine/pytorch/cpu_offload.py DefaultOffloadSynchronizer (from TransformerEngine 2.10 on): what the
/// first layers save goes to pinned memory of the host while later ones run forward, and comes back while these run
/// backward. Of all layers, what was saved stays until the backward pass of the layer before begins.
class LayerOffload {
 public:
  LayerOffload(Session& session, std::size_t layers, std::size_t offloaded);
  LayerOffload(const LayerOffload&) = delete;
  LayerOffload& operator=(const LayerOffload&) = delete;

  /// Runs the next layer, and gives its output.
  [[nodiscard]] Tensor run(const std::function<Tensor()>& layer);
  /// The backward pass is over.
  void finish_backward();

 private:
  friend class SavedAside;

  /// What a saved tensor is of those that were moved: all of one, or a view of it.
  struct Saving {
    std::size_t whole = 0;
    Tensor view;  ///< its sizes, strides and offset; no memory
  };
  struct Layer {
    enum class State : std::uint8_t { OnDevice, Leaving, OnHost, Returning };
    State state = State::OnDevice;
    std::vector<Saving> saved{};
    std::vector<Tensor> on_device{}, on_host{}, returned{};
    std::vector<EventId> ready{}, back{};
    EventId gone{};
  };

  [[nodiscard]] std::unique_ptr<torch::PackedTensor> push(const Tensor& tensor);
  [[nodiscard]] Tensor pop(std::size_t layer, std::size_t place);
  void begin_forward();
  void begin_backward(std::size_t layer);
  void send(Layer& layer);
  void let_go(Layer& layer);
  void fetch(Layer& layer);

  Session& s_;
  std::size_t offloaded_;
  std::vector<Layer> layers_;
  std::optional<std::size_t> forward_, backward_;  ///< the layer that runs
};

}  // namespace tidemark::parallel::megatron
