#pragma once

#include <cstdint>
#include <vector>

#include "parallel/job/built_model.hpp"
#include "parallel/job/layout.hpp"
#include "parallel/job/mesh.hpp"
#include "parallel/job/stages.hpp"
#include "parallel/job/train.hpp"
#include "parallel/runtime/runtime.hpp"
#include "sim/base/units.hpp"

namespace tidemark::parallel {

/// What a rank holds of a model's parameters, and of tokens: the one place where padding and the cuts of tensor,
/// sequence and context parallelism are applied.
struct Sizes {
  std::int64_t sequence = 0;  ///< tokens of each sequence
  std::int64_t tokens = 0;    ///< of one micro-batch
  std::int64_t micro_batch = 1;
  std::int64_t tensor = 1;
  std::int64_t expert_tensor_parallel = 1;  ///< within an expert
  bool sequence_parallel = false;
  DType compute = DType::BF16;
  std::int64_t vocabulary = 0;  ///< padded, whole

  /// Into how many parts tensor parallelism cuts what it cuts.
  [[nodiscard]] std::int64_t parts_of(const Parameter& parameter) const {
    return parameter.of_expert() ? expert_tensor_parallel : tensor;
  }
  /// Rows and columns of the rank's part of a weight.
  [[nodiscard]] std::int64_t rows(const Parameter& parameter) const;
  [[nodiscard]] std::int64_t columns(const Parameter& parameter) const;
  [[nodiscard]] std::int64_t elements(const Parameter& parameter) const { return rows(parameter) * columns(parameter); }
};

[[nodiscard]] Sizes sizes_of(const Model& model, const Layout& layout, const Train& train, const Runtime& runtime);

/// What of a stage's parameters a rank keeps in one buffer, because their gradients go over the same ranks: those that
/// all tokens meet, over data-parallel ranks; those of experts, over the replicas of an expert. Muon's matrices may be
/// apart from the others.
enum class ParameterGroup : std::uint8_t { Dense, DenseMatrices, Experts, ExpertMatrices };
[[nodiscard]] constexpr bool of_experts(ParameterGroup group) {
  return group == ParameterGroup::Experts || group == ParameterGroup::ExpertMatrices;
}
[[nodiscard]] constexpr bool of_matrices(ParameterGroup group) {
  return group == ParameterGroup::DenseMatrices || group == ParameterGroup::ExpertMatrices;
}
/// Muon's: matrices, but for embeddings and heads (core/optimizer/emerging_optimizers.py _is_nonlinear_or_embedding).
[[nodiscard]] inline bool made_orthogonal(const Parameter& parameter) {
  return parameter.matrix() && !parameter.vocabulary;
}
/// Whether buffers are cut into ranks' shares, of which each rank updates its own.
[[nodiscard]] bool shards_buffers(const Layout& layout, const Runtime& runtime);
/// Those that have buffers of their own.
[[nodiscard]] std::vector<ParameterGroup> buffer_groups(const Layout& layout, const Runtime& runtime);

/// The parameters of a stage that a rank holds, in the order in which its modules register them. A tied head's weight
/// counts on the last stage too, as the copy that it is. Every rank numbers the experts that it holds from 0 on.
[[nodiscard]] std::vector<ParameterId> stage_parameters(const BuiltModel& built, const Stage& stage,
                                                        const Layout& layout);
[[nodiscard]] std::vector<ParameterId> of_group(const BuiltModel& built, std::vector<ParameterId> parameters,
                                                ParameterGroup group, bool matrices_apart);
/// What a parameter of a rank whose experts begin with that one is called in the model.
[[nodiscard]] std::string name_in_model(const Parameter& parameter, std::int64_t first_expert);
/// The first expert of the layers that the rank holds.
[[nodiscard]] std::int64_t first_expert(const Model& model, const Layout& layout, const Coordinates& rank);

/// Over how many ranks something goes, and which of them a rank is.
struct ReplicaPlace {
  std::int32_t place = 0, count = 1;
};
/// Gradients of a group of parameters.
[[nodiscard]] ReplicaPlace replicas_of(const Layout& layout, const Coordinates& rank, ParameterGroup group);
/// Optimizer state that is sharded: the replicas of one optimizer instance, which are next to each other.
[[nodiscard]] ReplicaPlace shards_of(const Layout& layout, const Coordinates& rank, ParameterGroup group);

/// A piece of a parameter that one replica keeps optimizer state for.
struct ShardPiece {
  ParameterId parameter;
  std::int64_t elements = 0;
  auto operator<=>(const ShardPiece&) const = default;
};

/// A contiguous buffer that holds every parameter (or gradient) of a rank, last registered first.
struct BufferLayout {
  struct Place {
    ParameterId parameter;
    std::int64_t begin = 0;  ///< element
    std::int64_t end = 0;
  };
  struct Bucket {
    std::int64_t begin = 0;
    std::int64_t end = 0;  ///< padding included
  };
  std::vector<Place> places;  ///< in buffer order
  std::vector<Bucket> buckets;
  std::int64_t elements = 0;  ///< padding included

  /// The bucket that an element of the buffer is in, counted from 0.
  [[nodiscard]] std::size_t bucket_of(std::int64_t element) const;
  /// What falls into part `shard` of every bucket, each cut into `shards` equal ones without regard to the parameters'
  /// borders; in buffer order.
  [[nodiscard]] std::vector<Place> places_in(std::int32_t shard, std::int32_t shards) const;
  /// The same, wherever it lies.
  [[nodiscard]] std::vector<ShardPiece> pieces(std::int32_t shard, std::int32_t shards) const;
};

/// Of how many elements a bucket is full.
[[nodiscard]] std::int64_t bucket_size(const Runtime& runtime, const Layout& layout);

/// Sharded buffers are padded so that each bucket's `shards` equal parts start well aligned; others are not padded at
/// all. `stage` is where the parameters are: later stages have one bucket. How large buckets are is a matter of all
/// replicas, whatever group of parameters they hold (training.py get_model).
[[nodiscard]] BufferLayout buffer_layout(const BuiltModel& built, const std::vector<ParameterId>& parameters,
                                         const Sizes& sizes, const Runtime& runtime, const Stage& stage,
                                         const Layout& layout, std::int32_t shards);

}  // namespace tidemark::parallel
