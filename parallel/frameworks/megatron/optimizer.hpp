#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/frameworks/megatron/buffers.hpp"

namespace tidemark::parallel::megatron {

/// core/optimizer/: fp32 parameters and moments, of all parameters or of the rank's shard of each buffer.
class MegatronOptimizer {
 public:
  /// `shard` is the rank's place among the data-parallel ranks that share optimizer state.
  MegatronOptimizer(Worker& worker, const std::vector<ParamAndGradBuffer>& buffers, std::int32_t shard);

  void build();
  /// Copies of the last step's gradients go.
  void zero_gradients();
  /// Gradient norm, then the update.
  void step();

 private:
  // One tensor of the optimizer: a whole parameter, or the piece of one that falls into the rank's shard.
  struct Piece {
    const Weight* weight = nullptr;
    const ParamAndGradBuffer* buffer = nullptr;
    std::int64_t elements = 0;
    Tensor main;           ///< fp32 parameter; where parameters are fp32 themselves, the parameter
    Tensor gradient_copy;  ///< fp32 gradient, from one step's update to the next step
    std::vector<Tensor> moments;
    [[nodiscard]] Bytes bytes(DType type) const { return elements * size_of(type); }
  };

  void copy_gradients();
  void reduce_gradient_norm();
  void create_moments();
  [[nodiscard]] bool has_master() const { return w_.train.precision != DType::FP32; }
  [[nodiscard]] bool sharded() const { return w_.layout.sharding == Sharding::Zero1; }
  [[nodiscard]] int moments_per_parameter() const;
  [[nodiscard]] LabelId label(const Piece& piece, std::string_view what) const;
  [[nodiscard]] std::vector<BufferId> all_gradients() const;
  [[nodiscard]] std::int64_t elements() const;  ///< of all chunks' buffers

  Worker& w_;
  const std::vector<ParamAndGradBuffer>& buffers_;
  std::vector<Piece> pieces_;
};

}  // namespace tidemark::parallel::megatron
