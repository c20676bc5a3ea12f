#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/frameworks/pytorch/fsdp/flat_parameter.hpp"

namespace tidemark::parallel::pytorch {

/// torch.distributed.fsdp.FullyShardedDataParallel (FSDP1) of PyTorch 2.15 around each layer and the model, as its
/// _runtime_utils.py and _exec_order_utils.py have it: wrappers, whose hooks run outside of what is checkpointed.
class FullyShardedDataParallel final : public ShardedModel {
 public:
  FullyShardedDataParallel(Session& session, const ShardMesh& mesh, const EagerBehavior& behavior, DType kept)
      : s_(session),
        mesh_(mesh),
        behavior_(*behavior.flat),
        kept_(kept),
        around_checkpoint_(!behavior.checkpoints_wrappers) {}

  [[nodiscard]] std::shared_ptr<Leaf> parameter(const std::string& name, const Shape& sizes, DType computed) override;
  void shard(CausalLM& model) override;
  void root_pre_forward() override;
  void root_post_forward(CausalLM::Outputs& outputs) override;
  /// _post_backward_final_callback.
  void finish_backward() override;
  void set_requires_gradient_sync(bool reduces) override { reduces_gradients_ = reduces; }
  bool clip_grad_norm() override;
  void before_zero_grad() override;
  [[nodiscard]] bool on_host() const override { return behavior_.offload; }
  [[nodiscard]] Parameters parameters() const override;
  [[nodiscard]] std::vector<ShardPiece> pieces() const override;

 private:
  /// _FSDPState and its handle: what is unsharded, and whose gradients are reduced, together.
  struct Unit {
    std::unique_ptr<FlatParameter> flat;
    bool root = false;
    std::shared_ptr<void> hooked_input;  ///< what the hook refers to that reshards a frozen unit
    bool prefetched = false, needs_pre_forward_unshard = false, needs_pre_backward_unshard = false;
    bool ran_pre_backward = false;
    std::optional<std::size_t> pre_forward_index, post_forward_index;
  };

  void init();
  void unshard(Unit& unit);
  void unshard_for_backward(Unit& unit);
  void reshard(Unit& unit, FlatParameter::Unsharded whole);
  [[nodiscard]] FlatParameter::Unsharded left_by_backward() const;
  void pre_forward(Unit& unit);
  void post_forward(Unit& unit, const Tensor& output);
  void pre_backward(Unit& unit);
  void post_backward(Unit& unit);
  void reshard_after_backward(Unit& unit);
  void follow_input(Unit& unit, const Tensor& input);
  [[nodiscard]] ForwardHooks hooks_of(Unit* unit);
  [[nodiscard]] DType kept_as(const Leaf& parameter) const;
  void reduce(Unit& unit, Tensor gradient);
  [[nodiscard]] Tensor norm_of(const std::vector<Tensor>& gradients);
  void divide(const Tensor& gradient, double divisor);
  void prefetch_forward(const Unit& unit);
  void prefetch_backward(const Unit& unit);

  struct MadeOnHost {
    std::string name;
    std::shared_ptr<Leaf> leaf;
    DType kept;
    Tensor made{};  ///< where memory of the host is counted
  };

  Session& s_;
  const ShardMesh mesh_;
  const FlatParameterBehavior& behavior_;
  DType kept_;  ///< of shards
  bool around_checkpoint_;
  CausalLM* model_ = nullptr;
  std::vector<MadeOnHost> on_host_;
  std::vector<std::unique_ptr<Unit>> units_;  ///< the root's is the first
  bool initialized_ = false, first_pass_ = true, reduces_gradients_ = true;
  std::vector<Unit*> pre_forward_order_, post_forward_order_;
  std::deque<EventId> frees_;  ///< _FreeEventQueue
  Tensor zero_scalar_;         ///< the norm of a rank without gradients
};

}  // namespace tidemark::parallel::pytorch
