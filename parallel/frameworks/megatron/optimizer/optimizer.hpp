#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/frameworks/megatron/optimizer/buffers.hpp"
#include "parallel/frameworks/megatron/optimizer/fused_adam.hpp"
#include "parallel/frameworks/megatron/optimizer/hybrid_device_optimizer.hpp"
#include "parallel/frameworks/megatron/optimizer/muon.hpp"

namespace tidemark::parallel::megatron {

/// That it keeps in fp32 of each parameter, besides the parameter.
[[nodiscard]] int moments_of(Optimizer optimizer);

/// Which parameters an optimizer updates, and as what.
struct Updates {
  std::vector<ParameterGroup> groups;  ///< of their buffers
  Optimizer optimizer;
  bool matrices = true, others = true;  ///< Muon's, and the rest
  CommSlot norm;                        ///< over whom the norm of its gradients is reduced
};

/// core/optimizer/: fp32 parameters and moments, of all that it updates or of the rank's shard of each buffer.
class MegatronOptimizer {
 public:
  MegatronOptimizer(Worker& worker, const std::vector<ParamAndGradBuffer>& buffers, Updates updates);

  void build();
  /// Copies of the last step's gradients go.
  void zero_gradients();
  // Of a step, in this order.
  void copy_gradients();
  void update();
  /// Over whom the norm of its gradients is reduced.
  [[nodiscard]] CommSlot norm() const { return updates_.norm; }
  /// Those that count in the norm.
  [[nodiscard]] std::vector<Tensor> counted_gradients() const;
  /// Of all that it updates, where the gradient is.
  [[nodiscard]] std::vector<StateTensor> gradients() const;
  /// … and where its updated value is.
  [[nodiscard]] std::vector<StateTensor> parameters() const;

 private:
  // One tensor of the optimizer: a whole parameter, or the piece of one that falls into the rank's shard.
  struct Piece {
    const Weight* weight = nullptr;
    const ParamAndGradBuffer* buffer = nullptr;
    std::int64_t begin = 0, end = 0;  ///< in the buffer
    bool counts = true;               ///< in the gradient norm: no other rank has it, too
    Tensor value{};                   ///< of the model, flat
    Tensor main{};                    ///< fp32 parameter; where parameters are fp32 themselves, the parameter
    Tensor gradient_copy{};           ///< fp32 gradient, from one step's update to the next step
    std::vector<Tensor> moments{};

    [[nodiscard]] Shape shape() const { return {end - begin}; }
    /// That the optimizer reads.
    [[nodiscard]] Tensor gradient() const {
      return gradient_copy.defined() ? gradient_copy : buffer->gradients(begin, end);
    }
  };

  [[nodiscard]] std::vector<BufferLayout::Place> held_of(const ParamAndGradBuffer& buffer) const;
  [[nodiscard]] bool updates(ParameterId parameter) const;
  void make_inner();
  void create_moments();
  void update_pieces();
  void copy_to_model();
  [[nodiscard]] bool has_master() const { return w_.train.precision != DType::FP32; }
  /// Here, and not by the optimizer within this one.
  [[nodiscard]] bool makes_master() const { return has_master() && !w_.runtime.optimizer.precision_aware; }
  [[nodiscard]] std::vector<Tensor> own_gradients() const;
  [[nodiscard]] StateTensor state_of(const Piece& piece, const Tensor& its) const;
  [[nodiscard]] bool sharded() const { return shards_buffers(w_.layout, w_.runtime); }
  [[nodiscard]] LabelId label(const Piece& piece, std::string_view what) const;

  Worker& w_;
  Updates updates_;
  std::vector<Piece> pieces_;
  std::vector<const Weight*> weights_;  // whole ones, in the order of their groups
  // What updates instead of this one.
  std::optional<FusedAdam> adam_;
  std::optional<HybridDeviceOptimizer> hybrid_;
  std::optional<HybridDeviceOptimizer> first_hybrid_;
  std::optional<Muon> muon_;
};

/// One for each group of parameters that the model has, on every rank (core/optimizer/__init__.py
/// _get_param_groups): a rank without any has an optimizer of nothing.
[[nodiscard]] std::vector<MegatronOptimizer> make_optimizers(Worker& worker,
                                                             const std::vector<ParamAndGradBuffer>& buffers);
/// Gradient norms, then the updates.
void step(Worker& worker, std::vector<MegatronOptimizer>& optimizers);

}  // namespace tidemark::parallel::megatron
