#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "parallel/generation/namespace.hpp"
#include "parallel/job/built_model.hpp"
#include "parallel/job/train.hpp"
#include "parallel/torch/session.hpp"

// What generation takes of the devices that train: an engine with its weights and its paged cache of keys and values.
// Its kernels are not modelled, and so neither is their time. And what frozen models beside the trained one take.

namespace tidemark::parallel::generation {

/// Bytes of one token's keys and values on a rank of the engine, of all layers: of a latent as wide as it is, on every
/// rank; else of the rank's heads, of which it has one at least.
[[nodiscard]] Bytes cache_of_token(const Model& model, const Rollout& rollout);
/// Blocks of a sequence of so many tokens.
[[nodiscard]] std::int64_t blocks_of(const Rollout& rollout, std::int64_t tokens);

/// A rank's part of each weight as engines cut them: whole layers, no pipeline; heads of keys that are fewer than ranks
/// on several of these; vocabularies padded to 64 (vllm/model_executor/layers/vocab_parallel_embedding.py, which SGLang
/// took over).
[[nodiscard]] std::vector<std::int64_t> weight_parts(const BuiltModel& built, const Rollout& rollout);

/// An engine of the job's, as far as one rank runs it, in the process that trains.
class Engine {
 public:
  /// All live as long; the training has a rollout.
  Engine(Session& session, const BuiltModel& built, const Train& train);

  /// It comes up, and goes to sleep where it does.
  void construct();
  /// Answers the prompts of a step: the cache is there as long as that takes.
  void generate();

 private:
  void make_weights();
  void wake();
  void fill_cache();
  void sleep();
  void wait_for_engine();
  [[nodiscard]] Tensor cache_blocks(std::int64_t blocks) const;

  Session& s_;
  const Model& model_;
  const Rollout& requested_;
  DType precision_;
  StreamId stream_;                  ///< whose pool has its memory
  std::vector<std::int64_t> parts_;  ///< elements of the rank's weights
  std::vector<Tensor> weights_, on_host_;
  Tensor pool_;  ///< reserved for the cache
};

/// A weight that a rank holds of the trained model; its head's rows are the vocabulary.
struct TrainedWeight {
  Shape shape;
  bool of_head = false;
};
/// Weights of the job's frozen models, which stay.
[[nodiscard]] std::vector<Tensor> frozen(Session& session, const BuiltModel& built, const Train& train,
                                         const std::vector<TrainedWeight>& trained);

}  // namespace tidemark::parallel::generation
