#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/math/compute.hpp"
#include "parallel/job/job.hpp"
#include "scenarios/scenario/scenario.hpp"

// What ranks draw at random, so that those which share a model draw what one rank would. A number follows from what it
// is for: which module drops out, in which step and of which micro-batch of the whole batch (the launch's key), and
// where its element stands in the tensor that one rank would hold. Who draws it, when and how often makes no
// difference: a forward pass that is run again drops what it dropped before. JAX draws so (jax_threefry_partitionable;
// Flax folds a module's path into its key).
//
// Megatron (core/tensor_parallel/random.py) draws by states of generators instead: tensor-parallel ranks share one
// where all hold the same, and have one each where tensors are cut (attention, and with sequence parallelism the
// residual stream); replicas have the same; recomputation puts states back. What tensor-parallel ranks draw alike there
// they draw alike here, and what differs differs. But there no rank draws a part of what one rank would, and replicas
// drop alike of other batches, so that losses could not be compared.

namespace tidemark::scenarios {

/// Which micro-batch of the one rank's a rank runs, or which of equal parts of it, sequence by sequence.
struct BatchPart {
  std::int64_t micro_batch = 0, part = 0, parts = 1;
};
/// How replicas share a batch with regard to the one rank's micro-batches.
enum class Replicas : std::uint8_t {
  InTurn,    ///< each has some of them
  Together,  ///< each has a part of all of them
};

/// Of one rank.
class Draws {
 public:
  Draws(const Layout& layout, const Train& train, Replicas replicas, const Coordinates& place);

  [[nodiscard]] BatchPart batch(std::int32_t micro_batch) const;
  /// Says what a launch at that place of a step draws; `made` is the label of its first output. Nothing of one that
  /// draws nothing.
  void describe(const Program& program, const Kernel& kernel, const Mark& at, std::string_view made,
                math::Setting& setting) const;

 private:
  [[nodiscard]] math::PartOfWhole drawn(const Shape& sizes, const BatchPart& batch) const;

  Coordinates place_;
  std::int64_t replicas_, tensor_ranks_;
  std::int64_t micro_batches_;  ///< of a replica; of the one rank where each has a part of all
  Replicas how_;
  bool cut_sequence_;  ///< the residual stream is cut along the sequence
};

}  // namespace tidemark::scenarios
