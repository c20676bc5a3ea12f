#pragma once

#include <cstdint>
#include <optional>

#include "parallel/job/frozen_model.hpp"
#include "parallel/job/rollout.hpp"
#include "parallel/model/expert_routing.hpp"
#include "parallel/model/fine_tuning.hpp"
#include "parallel/model/module_set.hpp"
#include "parallel/namespace.hpp"
#include "sim/base/dtype.hpp"

namespace tidemark::parallel {

enum class Optimizer : std::uint8_t {
  AdamW,
  Sgd,
  SgdMomentum,
  Adafactor,
  Muon,  ///< of matrices between the embedding and the head; AdamW of the others
  // bitsandbytes'.
  AdamW8Bit,
  Lion,
  Lion8Bit,
  PagedAdamW,
  PagedAdamW8Bit,
  PagedLion,
  PagedLion8Bit,
  ApolloAdamW,  ///< moments of gradients that were projected
  GaloreAdamW,
  GaloreAdamWLayerwise,  ///< of one parameter after the other, while gradients come
};

/// Updates a parameter as soon as its gradient is there, and gives that up.
constexpr bool steps_in_backward(Optimizer kind) { return kind == Optimizer::GaloreAdamWLayerwise; }

/// Which attention runs; Auto is settled by the device. Fused (cuDNN's) and Flash never store scores, Unfused and Local
/// do. Local is the framework's own implementation of whole layers, where the others take a library's.
enum class AttentionKernel : std::uint8_t { Auto, Fused, Flash, Unfused, Local };

/// The attention that keeps scores, probabilities and their dropout mask.
constexpr bool stores_scores(AttentionKernel kernel) {
  return kernel == AttentionKernel::Unfused || kernel == AttentionKernel::Local;
}

/// The three ways Megatron computes the loss: plain vocabulary-parallel, its compiled fusion, TransformerEngine's.
enum class CrossEntropy : std::uint8_t { Unfused, Fused, TransformerEngine };

/// Which forward passes run once more when their backward pass is due, so that they need not save.
enum class Recompute : std::uint8_t { None, Full, Selective };
enum class RecomputeMethod : std::uint8_t { Uniform, Block };

/// A module that can run again by itself, under selective recomputation.
enum class RecomputedModule : std::uint8_t {
  CoreAttention,     ///< attention without its projections
  Mlp,               ///< the MLP and the norm before it
  LayerNorm,         ///< norms that are modules of their own, before attention and MLP; outputs are discarded
  LatentUp,          ///< latent attention from latents to turned heads, which are discarded
  Experts,           ///< a layer's mixture of experts, without the norm before it
  ExpertActivation,  ///< of experts, between their linears; its output is discarded
  SharedExperts,
};

using RecomputedModules = ModuleSet<RecomputedModule>;

struct Recomputation {
  Recompute kind = Recompute::None;
  RecomputeMethod method = RecomputeMethod::Uniform;  ///< full: groups of layers, or the first ones of a stage
  std::int32_t layers = 1;                            ///< full: of a group, or how many of a stage
  RecomputedModules modules = {};                     ///< selective: these

  /// Whether a module runs again by itself.
  [[nodiscard]] bool selects(RecomputedModule module) const {
    return kind == Recompute::Selective && modules.has(module);
  }
  bool operator==(const Recomputation&) const = default;
};

/// One optimizer step of training: batch, precision, optimizer.
struct Train {
  std::int64_t sequence_length = 0;  ///< tokens
  std::int64_t micro_batch = 1;      ///< sequences per forward pass of one data-parallel rank
  std::int64_t global_batch = 0;     ///< sequences per optimizer step of the whole job
  DType precision = DType::BF16;     ///< of parameters and activations
  DType gradient_dtype = DType::FP32;
  DType master_dtype = DType::FP32;  ///< of the parameters that the optimizer updates
  Optimizer optimizer = Optimizer::AdamW;
  AttentionKernel attention = AttentionKernel::Auto;
  CrossEntropy cross_entropy = CrossEntropy::Unfused;
  Recomputation recompute{};
  ExpertRouting routing{};
  double hidden_dropout = 0;     ///< probability, of the embedding's output and of what each branch adds
  double attention_dropout = 0;  ///< probability, of attention's weights
  std::int32_t steps = 2;        ///< optimizer steps to lower: the first differs from the second, later ones repeat it
  std::optional<Rollout> rollout{};            ///< before the passes of each step
  FrozenModels frozen{};                       ///< that the job holds beside the trained one
  std::optional<Adapter> adapter{};            ///< none: the whole model is trained
  std::optional<Quantization> quantization{};  ///< of what is not trained
  std::int64_t packed = 0;  ///< sequences in sequence_length tokens, micro-batches being one row; 0: a row for each

  /// Tokens of one micro-batch, of all context-parallel ranks together.
  [[nodiscard]] std::int64_t tokens() const { return sequence_length * micro_batch; }
  /// Tokens that can see each other.
  [[nodiscard]] std::int64_t tokens_of_sequence() const {
    return packed > 0 ? sequence_length / packed : sequence_length;
  }
  /// Sequences of one micro-batch.
  [[nodiscard]] std::int64_t sequences() const { return micro_batch * (packed > 0 ? packed : 1); }
  bool operator==(const Train&) const = default;
};

}  // namespace tidemark::parallel
