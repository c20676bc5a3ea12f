#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/job/job.hpp"
#include "parallel/job/mesh.hpp"

namespace tidemark::parallel::pytorch {

/// The ranks over which parameters are sharded, and those that hold the same shard.
struct ShardMesh {
  CommSlot shard, replicate;
  std::int64_t ranks = 1, rank = 0;  ///< of the sharding group
  std::int64_t replicas = 1;
  /// Of the sharding group, those next to each other that have all between them of what is resharded after a forward
  /// pass.
  CommSlot neighbours{};
  std::int64_t few = 1;
};

/// Of the rank at that place; none where ranks hold the model whole, each for itself.
[[nodiscard]] std::optional<ShardMesh> shard_mesh(const LoweringInput& input, const Communicators& groups,
                                                  const Coordinates& place);

/// A part of a parameter that is here, and of its gradient.
struct ShardPiece {
  std::string parameter;
  Tensor value, gradient;  ///< the latter undefined where there is none
  std::int64_t first = 0;  ///< of the parameter's elements
};

/// What was made for a model, in the order in which it registers its parameters: adapters are made last.
template <class Made>
void in_order_of(const Parameters& registered, std::vector<Made>& all) {
  std::map<const Leaf*, std::size_t> places;
  for (std::size_t i = 0; i < registered.size(); ++i) places.emplace(registered[i].get(), i);
  std::ranges::sort(all, {}, [&](const Made& made) { return places.at(made.leaf.get()); });
}

/// What wraps a model, shards its parameters over ranks, and is called by a training loop. The rest it does in hooks.
class ShardedModel {
 public:
  ShardedModel() = default;
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;
  virtual ~ShardedModel() = default;

  /// A parameter while the model is made: nothing but sizes yet.
  [[nodiscard]] virtual std::shared_ptr<Leaf> parameter(const std::string& name, const Shape& sizes,
                                                        DType computed) = 0;
  /// Shards each layer, then the model.
  virtual void shard(CausalLM& model) = 0;

  virtual void root_pre_forward() = 0;
  virtual void root_post_forward(CausalLM::Outputs& outputs) = 0;
  /// Once a backward pass is over.
  virtual void finish_backward() = 0;
  /// Whether the next backward pass reduces gradients over the ranks.
  virtual void set_requires_gradient_sync(bool reduces) = 0;
  /// Clips gradients, where the wrapper has a function of its own for that.
  virtual bool clip_grad_norm() { return false; }
  /// What the optimizer sees, and its gradients, are on the host.
  [[nodiscard]] virtual bool on_host() const { return false; }
  /// To be called before the optimizer gives gradients up.
  virtual void before_zero_grad() = 0;

  /// What the optimizer sees: not what is empty here.
  [[nodiscard]] virtual Parameters parameters() const = 0;
  [[nodiscard]] virtual std::vector<ShardPiece> pieces() const = 0;
};

}  // namespace tidemark::parallel::pytorch
