#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/frameworks/pytorch/fsdp/fully_shard.hpp"
#include "parallel/frameworks/transformers/adapters.hpp"

namespace tidemark::parallel::pytorch {

/// A model of transformers under fully_shard: each layer is a unit, and the model itself, which has the rest.
class FullyShardedLayers final : public ShardedModel {
 public:
  /// Shards are kept in a type, and gathered in what is computed in; adapters have a type of their own where these are
  /// one (MixedPrecisionPolicy without a param_dtype).
  FullyShardedLayers(Session& session, const ShardMesh& mesh, const FullyShardBehavior& behavior, DType kept,
                     DType computed)
      : s_(session), behavior_(behavior), kept_(kept), computed_(computed), shards_(session, mesh, behavior, kept) {}

  [[nodiscard]] std::shared_ptr<Leaf> parameter(const std::string& name, const Shape& sizes, DType dtype) override {
    if (!transformers::is_adapter(name)) return shards_.parameter(name, sizes, dtype);
    return shards_.adapter(name, sizes, kept_ != computed_ ? computed_ : dtype, dtype);
  }
  void shard(CausalLM& model) override;
  void root_pre_forward() override { shards_.root_pre_forward(); }
  void root_post_forward(CausalLM::Outputs& outputs) override {
    outputs.loss = shards_.root_post_forward(outputs.loss);
  }
  void finish_backward() override { shards_.finish_backward(); }
  void set_requires_gradient_sync(bool reduces) override { shards_.set_requires_gradient_sync(reduces); }
  [[nodiscard]] bool on_host() const override { return behavior_.offload.has_value(); }
  void before_zero_grad() override { shards_.before_zero_grad(); }
  [[nodiscard]] Parameters parameters() const override { return shards_.parameters(); }
  [[nodiscard]] std::vector<ShardPiece> pieces() const override;

 private:
  void prefetch(std::span<UnitParameters* const> layers) const;

  Session& s_;
  const FullyShardBehavior& behavior_;
  DType kept_, computed_;
  FullyShard shards_;
};

}  // namespace tidemark::parallel::pytorch
