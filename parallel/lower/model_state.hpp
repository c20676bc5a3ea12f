#pragma once

#include <string>
#include <vector>

#include "parallel/lower/emitter.hpp"

namespace tidemark::parallel {

/// Parameters, gradients and optimizer state of one rank over its life: construction, then the end of every step.
class ModelState {
 public:
  /// `shard` is the rank's place among the data-parallel ranks that share optimizer state.
  ModelState(Emitter& emit, std::int32_t shard);

  /// Builds the model, its contiguous buffers and the optimizer.
  void construct();
  /// What a step starts with: gradients set to zero, copies of the last step's dropped.
  void zero_gradients();
  /// Sums gradients over the ranks that computed parts of them.
  void reduce_gradients();
  /// Gradient norm, optimizer, and the updated parameters handed round.
  void update();

 private:
  // One tensor of the optimizer: a whole parameter, or the piece of one that falls into the rank's shard.
  struct Piece {
    ParameterId parameter;
    std::int64_t elements = 0;
    std::int32_t chunk = 0;
    BufferId main;           ///< fp32 parameter; where parameters are fp32 themselves, the parameter
    BufferId gradient_copy;  ///< fp32 gradient, from one step's update to the next step
    std::vector<BufferId> moments;
    [[nodiscard]] Bytes bytes(DType type) const { return elements * size_of(type); }
  };

  void build_model();
  void build_buffers();
  void build_optimizer();
  void copy_gradients();
  void reduce_gradient_norm();
  void create_moments();
  /// Over tensor-parallel ranks: of parameters that all of them hold, and of whose gradients each computed a part.
  void sum_partial_gradients();
  [[nodiscard]] std::vector<bool> partial_gradients() const;

  [[nodiscard]] bool has_master() const { return emit_.train.precision != DType::FP32; }
  [[nodiscard]] bool sharded() const { return emit_.layout.sharding == Sharding::Zero1; }
  [[nodiscard]] int moments_per_parameter() const;
  [[nodiscard]] std::string piece_name(const Piece& piece, std::string_view what) const;

  // What is kept for each chunk by itself: its parameters, and their contiguous buffers.
  struct Chunk {
    std::vector<ParameterId> parameters;
    BufferLayout buffer;
    BufferId parameter_buffer;
    BufferId gradients;
    std::string suffix;  ///< of labels, where there are several chunks
  };
  [[nodiscard]] Bytes gradient_bytes(const Chunk& chunk) const {
    return chunk.buffer.elements * size_of(emit_.gradient_dtype());
  }
  [[nodiscard]] std::vector<BufferId> all_gradients() const;
  [[nodiscard]] std::int64_t elements() const;  ///< of all chunks' buffers

  Emitter& emit_;
  std::vector<Chunk> chunks_;
  std::vector<Piece> pieces_;
};

}  // namespace tidemark::parallel
