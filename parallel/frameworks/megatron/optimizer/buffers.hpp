#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/frameworks/megatron/worker.hpp"

namespace tidemark::parallel::megatron {

/// Whether a layer's experts are over other ranks than the rest. Where they are not, they are in the same buffers, and
/// one optimizer's (core/tensor_parallel/layers.py, `allreduce`).
[[nodiscard]] inline bool experts_apart(const Layout& layout) {
  return layout.expert > 1 || layout.expert_tensor_parallel() != layout.tensor;
}

/// Makes a chunk's parameters, each in memory of its own.
void build_model(Worker& worker, const Stage& stage);

/// Of one chunk of the model, those that lie in one buffer, and where.
[[nodiscard]] std::vector<ParameterId> parameters_of(const BuiltModel& built, const Stage& stage, const Layout& layout,
                                                     const Runtime& runtime, ParameterGroup group);
[[nodiscard]] BufferLayout layout_of(const BuiltModel& built, const std::vector<ParameterId>& parameters,
                                     const Sizes& sizes, const Runtime& runtime, const Stage& stage,
                                     const Layout& layout, ParameterGroup group);

/// core/distributed/param_and_grad_buffer.py: parameters of one chunk of the model whose gradients go over the same
/// ranks, and the contiguous buffers that they and their gradients lie in.
class ParamAndGradBuffer {
 public:
  /// `suffix` is part of labels, where a rank has several chunks.
  ParamAndGradBuffer(Worker& worker, const Stage& stage, ParameterGroup group, std::string suffix);

  /// Makes the buffers; parameters move into theirs one by one, and each gives up its own memory.
  void build();
  void zero_gradients();
  /// Averages gradients over the data-parallel ranks: of the rank's shard, where there are shards.
  void reduce();
  /// Hands updated parameters round.
  void gather_parameters();
  // The same of one bucket, beside what the compute stream does next.
  [[nodiscard]] EventId reduce_aside(std::size_t bucket);
  [[nodiscard]] EventId gather_aside(std::size_t bucket);

  [[nodiscard]] const std::vector<ParameterId>& parameters() const { return parameters_; }
  [[nodiscard]] const Stage& stage() const { return stage_; }
  [[nodiscard]] ParameterGroup group() const { return group_; }
  /// Which part of each bucket is the rank's own, where optimizer state is sharded.
  [[nodiscard]] ReplicaPlace shard() const { return shard_; }
  [[nodiscard]] const BufferLayout& layout() const { return layout_; }
  /// The whole parameter buffer; undefined where there is none.
  [[nodiscard]] const Tensor& values() const { return values_; }
  /// A part of the parameter buffer, of which there is one where optimizer state is sharded; of the gradient buffer.
  [[nodiscard]] Tensor values(std::int64_t begin, std::int64_t end) const { return part(values_, begin, end); }
  [[nodiscard]] Tensor gradients(std::int64_t begin, std::int64_t end) const { return part(gradients_, begin, end); }

 private:
  [[nodiscard]] static Tensor part(const Tensor& buffer, std::int64_t begin, std::int64_t end) {
    return narrowed(buffer, 0, begin, end - begin);
  }
  /// In place: every rank has its part of each bucket.
  void for_each_bucket(const Tensor& buffer, CollectiveKind kind);
  /// Of what all ranks together have added up, an expert's replica has the sum over those that sent it tokens.
  void scale_by_replicas(const Tensor& gradients);
  [[nodiscard]] EventId aside(CommSlot among, CollectiveKind kind, const Tensor& its);
  [[nodiscard]] Tensor own_part(const BufferLayout::Bucket& bucket) const;
  [[nodiscard]] bool sharded() const { return shards_buffers(w_.layout, w_.runtime); }

  Worker& w_;
  Stage stage_;
  ParameterGroup group_;
  ReplicaPlace shard_;
  CommSlot all_, sharing_;  ///< who hold the same parameters, and who share out their optimizer state
  std::string suffix_;
  std::vector<ParameterId> parameters_;
  BufferLayout layout_;
  Tensor values_, gradients_;
};

/// Gradients are summed over ranks once all micro-batches are done (core/distributed/finalize_model_grads.py).
void finalize_model_gradients(Worker& w, std::vector<ParamAndGradBuffer>& buffers);

}  // namespace tidemark::parallel::megatron
