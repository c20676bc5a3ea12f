#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/frameworks/pytorch/fsdp/fully_shard.hpp"
#include "parallel/frameworks/pytorch/optimizers/optimizer.hpp"
#include "parallel/frameworks/torchtitan/decoder.hpp"

namespace tidemark::parallel::torchtitan {

using pytorch::FullyShard;
using pytorch::ShardMesh;
using pytorch::TorchOptimizer;

/// Where a rank is in the groups that hold parts of a model.
struct RankOfModel {
  std::optional<ShardMesh> mesh;  ///< none where one rank has all
  TensorGroup tensor;
  ContextGroup context;
  ExpertGroup experts;
  ShardMesh expert_mesh;
};

/// What a rank holds of a model, or of one stage of it: made parallel as parallelize.py and its model's variants do
/// (torchtitan/models, infra, 0.1.0 to 0.2.2), with an optimizer of its own.
class ModelPart {
 public:
  /// One of several of a rank, by number; before it are so many layers in others.
  struct Place {
    Stage stage;
    std::int32_t number = 0;
    std::size_t layers_before = 0;
  };
  ModelPart(Session& session, const LoweringInput& input, const RankOfModel& rank, const Place& place);
  ModelPart(const ModelPart&) = delete;
  ModelPart& operator=(const ModelPart&) = delete;

  [[nodiscard]] const Stage& stage() const { return stage_; }
  [[nodiscard]] Decoder& model() { return *model_; }
  [[nodiscard]] FullyShard* shards() { return shards_ ? &*shards_ : nullptr; }
  [[nodiscard]] TorchOptimizer& optimizer() { return *optimizer_; }
  /// What the optimizer sees.
  [[nodiscard]] Parameters parameters() const { return shards_ ? shards_->parameters() : model_->parameters(); }
  /// Once all parts have been made.
  void make_optimizer();

  [[nodiscard]] Tensor forward(const Tensor& tokens, const Tensor& positions);
  void zero_grad();

 private:
  void shard_model();
  [[nodiscard]] pytorch::ShardUnit experts_of(const Decoder::Part& part, pytorch::AfterForward after_forward);

  Session& s_;
  const LoweringInput& input_;
  const EagerBehavior& behavior_;
  const TitanBehavior& titan_;
  const RankOfModel& rank_;
  const Stage stage_;
  std::optional<FullyShard> shards_;
  std::optional<Decoder> model_;
  std::optional<TorchOptimizer> optimizer_;
};

}  // namespace tidemark::parallel::torchtitan
