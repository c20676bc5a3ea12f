#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "parallel/frameworks/torchtitan/context_parallel.hpp"
#include "parallel/frameworks/torchtitan/experts.hpp"
#include "parallel/frameworks/torchtitan/feed_forward.hpp"
#include "parallel/frameworks/torchtitan/latent_attention.hpp"
#include "parallel/frameworks/torchtitan/tensor_parallel.hpp"
#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/job/stages.hpp"
#include "parallel/torch/compiled.hpp"

// torchtitan's Llama 3, Qwen3 and DeepSeek-V3, module by module as their forward functions run
// (torchtitan/models/llama3, qwen3 and deepseek_v3, model/model.py, 0.1.0 to 0.2.2): a local variable here is one of
// theirs, and lives as long.

namespace tidemark::parallel::torchtitan {

class Decoder {
 public:
  /// What of the model is there is that stage. Parameters are of type `dtype`, and made by `make`, or else at once.
  Decoder(Session& session, const Model& model, const Stage& stage, std::int64_t vocabulary, const Train& train,
          const EagerBehavior& behavior, const TensorGroup& tensor, const ContextGroup& context,
          const ExpertGroup& experts, DType dtype, MakeParameter make = {});

  /// Logits of a batch of sequences, [batch, sequence]; of ranks with parts of layers each has its columns, where the
  /// loss is computed of these. Ranks with parts of sequences are told which places their tokens have. Stages but the
  /// first are handed a hidden state, and all but the last make one.
  Tensor operator()(const Tensor& input, const Tensor& positions = {});

  /// So many layers of other stages are here, too, and were wrapped before these.
  void come_after(std::size_t layers) { layers_before_ = layers; }

  [[nodiscard]] const Parameters& parameters() const { return parameters_; }

  /// What is wrapped by itself: the embedding, each layer, and the last norm with the head; those that are there.
  struct Part {
    std::string name;
    std::size_t begin = 0, end = 0;  ///< of its parameters, by when they were registered
    bool is_end = false;             ///< no layer
    ForwardHooks hooks = {};
    std::size_t experts_begin = 0, experts_end = 0;  ///< of these, routed experts'
    MixtureOfExperts* moe = nullptr;
  };
  [[nodiscard]] std::vector<Part>& parts() { return parts_; }
  /// Parameters that all ranks have whole, and whose gradients each has of its part of the sequence: by registration.
  [[nodiscard]] const std::vector<std::size_t>& partial() const { return partial_; }
  /// Parameters that all ranks have whole, with whole gradients.
  [[nodiscard]] const std::vector<std::size_t>& alike() const { return alike_; }
  [[nodiscard]] std::vector<CountedExperts> counted_experts() const;

 private:
  struct Layer {
    Norm query_norm, key_norm;  ///< of each head; Qwen3
    Linear query, key, value, output;
    std::unique_ptr<MultiLatentAttention> latent;  ///< in place of these
    FeedForward mlp;
    std::unique_ptr<MixtureOfExperts> moe;  ///< in place of this
    Norm attention_norm, mlp_norm;
  };
  struct Heads {
    Tensor query, key;
  };

  std::shared_ptr<Leaf> parameter(const std::string& name, Shape sizes);
  Linear make_linear(const std::string& name, std::int64_t outputs, std::int64_t inputs);
  Norm make_norm(const std::string& name, std::int64_t width);
  void make_layer(std::int32_t index);
  void make_attention(const std::string& at, Layer& layer);
  void make_multi_latent_attention(const std::string& at, const parallel::MultiLatentAttention& its, Layer& layer);
  void make_norms(const std::string& at, Layer& layer);
  FeedForward make_feed_forward(const std::string& at, std::int64_t width);
  /// Up to where its experts' parameters go.
  std::size_t make_experts(const std::string& at, std::int32_t index, const parallel::Experts& its, Layer& layer);
  /// A layer, by its place here.
  [[nodiscard]] bool checkpoints(std::size_t layer) const;
  void make_frequencies();
  void make_halves();
  void end_part(std::string name, bool is_end);

  [[nodiscard]] const Part& part_of(std::size_t layer) const { return parts_[layer + (stage_.embedding ? 1 : 0)]; }
  Tensor run_embedding(const Tensor& tokens);
  Tensor run_layer(std::size_t layer, const Tensor& hidden);
  Tensor run_head(Tensor hidden);
  [[nodiscard]] Tensor rows_of_table(const Tensor& table, std::int64_t width);
  [[nodiscard]] Tensor pairs_of(const Tensor& table, std::int64_t sequence);
  Tensor run_compiled(std::size_t layer, const Tensor& x, const Tensor& table, const CheckpointOptions* checkpointed);
  Tensor block(const Layer& layer, const Tensor& x, const Tensor& table);
  Tensor attention(const Layer& layer, const Tensor& part, const Tensor& table);
  Tensor feed_forward(const Layer& layer, const Tensor& part);
  Tensor normed(const Norm& norm, const Tensor& x);
  Heads turned(const Tensor& query, const Tensor& key, const Tensor& table);
  Heads turned_halves(const Tensor& query, const Tensor& key, const Tensor& table);
  Tensor repeated(const Tensor& x);

  Session& s_;
  const Model& model_;
  const Stage stage_;
  const Train& train_;
  const TitanBehavior& behavior_;
  const TensorGroup tensor_;
  const ContextGroup context_;
  const ExpertGroup experts_;
  DType dtype_;  ///< of parameters
  MakeParameter make_;
  Parameters parameters_;
  std::vector<Part> parts_;
  std::vector<std::size_t> partial_, alike_;
  std::shared_ptr<Leaf> tokens_;
  /// Cosine and sine of each position and pair: side by side (freqs_cis), or all cosines first, each twice
  /// (rope_cache).
  Tensor frequencies_;
  Tensor positions_;  ///< of the tokens of this pass, where they are told
  std::vector<Layer> layers_;
  std::size_t layers_before_ = 0;
  CompiledRegion compiled_, compiled_checkpointed_;  ///< layers are alike
  Norm norm_;
  Linear head_;
};

}  // namespace tidemark::parallel::torchtitan
