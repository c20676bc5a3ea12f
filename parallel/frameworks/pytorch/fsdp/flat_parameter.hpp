#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/frameworks/pytorch/fsdp/sharded_model.hpp"

// torch/distributed/fsdp/_flat_param.py in PyTorch 2.15: a unit's parameters, flattened into one that is cut into as
// many equal shards as there are ranks. What its functions are called, functions here are called. What one stream made
// and another one used is tied to the latter by record_stream before it is given up.

namespace tidemark::parallel::pytorch {

/// Streams of FullyShardedDataParallel (_runtime_utils.py _init_streams).
struct FlatStreams {
  static constexpr StreamId unshard{2}, post_backward{3}, pre_unshard{4}, all_reduce{5};
};

/// A parameter that is flattened.
struct FlattenedParameter {
  std::string name;
  std::shared_ptr<Leaf> module;  ///< what the module reads: a view of the flat parameter
  std::int64_t elements = 0;
  std::int64_t depth = 0;  ///< of its module in the unit
  Tensor on_host;          ///< as the model was made, where that is counted
  bool trained = true;
};

/// Multiples of elements at which each parameter begins, and all of them end.
struct FlatAlignment {
  std::int64_t each = 1, all = 1;
};

/// Where the parameters of a unit lie in its flat one, in elements.
class FlatLayout {
 public:
  FlatLayout(const std::vector<std::int64_t>& elements, const FlatAlignment& to, std::int64_t ranks);

  struct Part {
    std::int64_t begin = 0, elements = 0;
    bool padding = false;
  };
  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }
  [[nodiscard]] std::int64_t elements() const { return parts_.back().begin + parts_.back().elements; }
  /// Of each rank, with what is padded at the end.
  [[nodiscard]] std::int64_t of_rank() const { return (elements() + ranks_ - 1) / ranks_; }
  /// Those of a part that lie in a rank's shard.
  struct Overlap {
    std::int64_t in_part = 0, in_shard = 0, elements = 0;
  };
  [[nodiscard]] Overlap in_shard(const Part& part, std::int64_t rank) const;

 private:
  std::vector<Part> parts_;
  std::int64_t ranks_;
};
[[nodiscard]] FlatLayout flat_layout(const FlatParameterBehavior& behavior, const std::vector<std::int64_t>& elements,
                                     DType computed, const ShardMesh& mesh);

/// FlatParamHandle.
class FlatParameter {
 public:
  /// Moves the parameters to the device, flattens them, and keeps the rank's shard.
  FlatParameter(Session& session, const ShardMesh& mesh, const FlatParameterBehavior& behavior, const std::string& name,
                std::vector<FlattenedParameter> parameters, DType kept);

  /// All of its parameters are, or none.
  [[nodiscard]] bool trained() const { return parameters_.front().trained; }

  /// Before the first forward pass.
  void init_attributes();

  // On the streams that the caller has chosen.
  /// Whether there was something to do.
  bool pre_unshard();
  void unshard();
  void post_unshard();
  /// The optimizer's parameters are views of the shard again (_use_sharded_views).
  void use_sharded_views();
  /// Modules read views that autograd knows.
  void use_unsharded_views();
  enum class Unsharded : std::uint8_t { Kept, Freed };
  void reshard(Unsharded whole);

  /// Parameters of the optimizer have views of gradients that are not reduced yet, in place of what they had.
  void use_unsharded_gradient_views();
  /// What was reduced becomes the gradient that the optimizer sees, or is added to it. On the host, it takes its place.
  void keep_reduced(Tensor reduced);
  /// Before the unit is unsharded for its backward pass (_writeback_orig_params), and once it is.
  void write_gradients_back();
  void prepare_gradient_for_backward();
  /// Once gradients have come to where the optimizer wants them.
  void prepare_gradient_for_optim();
  void before_zero_grad();
  /// The gradient goes, where the optimizer has given up all that it sees of it.
  void reset_gradient();

  /// What autograd knows; its gradient is that of the whole.
  [[nodiscard]] Leaf& flat() { return *flat_; }
  [[nodiscard]] bool sharded() const { return !behavior_.whole; }
  [[nodiscard]] bool unsharded() const { return unsharded_; }
  [[nodiscard]] LabelId name() const { return name_; }
  [[nodiscard]] std::int64_t elements() const { return layout_.elements(); }
  [[nodiscard]] std::int64_t of_rank() const { return layout_.of_rank(); }

  struct HeldPiece {
    const Leaf* module;
    std::shared_ptr<Leaf> optimized;  ///< none where the optimizer sees the flat parameter
    ShardPiece piece;
  };
  [[nodiscard]] std::vector<HeldPiece> pieces() const;
  /// What the optimizer sees; none where it sees parameters.
  [[nodiscard]] const std::shared_ptr<Leaf>& optimized() const { return optimized_; }

 private:
  /// What of a parameter lies in the shard.
  struct Held {
    std::size_t parameter = 0;
    FlatLayout::Overlap at;
    std::shared_ptr<Leaf> leaf;  ///< as the optimizer sees it; none where it sees the flat parameter
  };
  [[nodiscard]] std::vector<Tensor> moved_to_device();
  void broadcast(const std::vector<Tensor>& states, CommSlot among) const;
  [[nodiscard]] Tensor flattened(const std::vector<Tensor>& parameters) const;
  void make_shard(Tensor whole);
  void move_to_host();
  void hold_parameters();
  void pin();
  [[nodiscard]] Tensor shaped(const Held& held, const Tensor& shard) const;
  [[nodiscard]] bool mixed() const { return kept_ != computed_; }
  [[nodiscard]] Tensor cast_to_kept(Tensor gradient) const;
  void show_gradient();
  void forget_gradient();

  Session& s_;
  const ShardMesh& mesh_;
  const FlatParameterBehavior& behavior_;
  LabelId name_;
  std::vector<FlattenedParameter> parameters_;
  DType kept_, computed_;
  FlatLayout layout_;
  Tensor shard_;                ///< _local_shard
  Tensor low_precision_shard_;  ///< _mp_shard: has memory only while it is gathered from
  Tensor whole_;                ///< _full_param_padded: has memory only while it is unsharded
  bool unsharded_ = false, shows_unsharded_gradient_ = false;
  std::shared_ptr<Leaf> flat_;
  std::shared_ptr<Leaf> optimized_;
  std::vector<Held> held_;
  Tensor sharded_gradient_;  ///< _saved_grad_shard, then the flat parameter's gradient
  // Where shards are on the host.
  Tensor unpinned_;                    ///< the shard as it was made, while parameters are views of it
  Tensor moved_;                       ///< the shard on the device, where that is gathered as it is kept
  Tensor pinned_gradient_;             ///< _cpu_grad
  Tensor written_back_;                ///< the flat parameter's gradient, where parameters' were thought to be new
  bool has_sharded_gradient_ = false;  ///< the flat parameter has the pinned one
};

}  // namespace tidemark::parallel::pytorch
