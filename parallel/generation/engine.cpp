#include "parallel/generation/engine.hpp"

#include <algorithm>
#include <utility>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel::generation {
namespace {

constexpr std::int64_t vocabulary_padding = 64;  // vLLM: vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE

// An engine that sleeps has a pool of its own (vLLM's device_allocator/cumem.py, SGLang's torch_memory_saver): what
// training leaves of its segments is of no use to it. A stream has such a pool.
constexpr StreamId engine_stream{16};

std::int64_t parts(std::int64_t whole, std::int64_t ranks) { return (whole + ranks - 1) / ranks; }

bool joint_projection(const Model& model, const Parameter& parameter) {
  return !model.latent() && parameter.cut == WeightCut::Rows &&
         parameter.rows == (model.heads + 2 * model.kv_heads) * model.head_dim &&
         (parameter.name.ends_with(".qkv.weight") || parameter.name.ends_with(".qkv.bias"));
}

std::int64_t rows_of(const Model& model, const Parameter& parameter, std::int64_t ranks) {
  if (parameter.vocabulary) return parts((parts(parameter.rows, vocabulary_padding)) * vocabulary_padding, ranks);
  if (joint_projection(model, parameter))
    return (parts(model.heads, ranks) + 2 * parts(model.kv_heads, ranks)) * model.head_dim;
  return parameter.cut == WeightCut::Rows ? parts(parameter.rows, ranks) : parameter.rows;
}

}  // namespace

Bytes cache_of_token(const Model& model, const Rollout& rollout) {
  const std::int64_t heads = parts(model.kv_heads, rollout.tensor);
  std::int64_t elements = 0;
  for (std::int64_t i = 0; i < model.layers.size(); ++i)
    elements += std::visit([&](const auto& its) { return its.cached(heads, model.head_dim); }, model.layers[i].mixer);
  return elements * size_of(rollout.kv_dtype);
}

std::int64_t blocks_of(const Rollout& rollout, std::int64_t tokens) { return parts(tokens, rollout.block_size); }

std::vector<std::int64_t> weight_parts(const BuiltModel& built, const Rollout& rollout) {
  std::vector<std::int64_t> elements;
  for (const Parameter& parameter : built.parameters) {
    if (parameter.spare) continue;
    const std::int64_t rows = rows_of(built.model, parameter, rollout.tensor);
    const std::int64_t columns =
        parameter.cut == WeightCut::Columns ? parts(parameter.columns, rollout.tensor) : parameter.columns;
    elements.push_back(parameter.matrix() ? rows * columns : rows);
  }
  return elements;
}

Engine::Engine(Session& session, const BuiltModel& built, const Train& train)
    : s_(session),
      model_(built.model),
      requested_(*train.rollout),
      precision_(train.precision),
      stream_(train.rollout->sleeps() ? engine_stream : Process::compute_stream) {
  if (requested_.weights == EngineWeights::Own) parts_ = weight_parts(built, requested_);
}

void Engine::construct() {
  s_.process.mark(Phase::Construction, "build_engine");
  wake();
  sleep();
}

void Engine::generate() {
  s_.process.mark(Phase::Rollout, "wake");
  // TRL's generation/vllm_generation.py before wake_up.
  if (requested_.sleeps()) s_.process.empty_cache();
  wake();
  s_.process.mark(Phase::Rollout, "generate");
  if (!pool_.defined()) fill_cache();
  wait_for_engine();
  s_.process.mark(Phase::Rollout, "sleep");
  sleep();
}

void Engine::make_weights() {
  const Session::Scope scope(s_, "rollout");
  const OnStream stream(s_, stream_);
  for (const std::int64_t elements : parts_) {
    weights_.push_back(s_.empty({elements}, precision_, "weights", Category::Parameters));
    if (on_host_.empty())
      s_.launch({Operation::Fill, {0}}, {}, {weights_.back()});
    else
      s_.copy(on_host_[weights_.size() - 1], weights_.back());
  }
  if (!on_host_.empty()) wait_for_engine();
  on_host_.clear();
}

void Engine::wake() {
  if (weights_.empty()) make_weights();
  if (requested_.memory_fraction == 0 || pool_.defined()) return;
  Bytes weights;
  for (const Tensor& its : weights_) weights += its.bytes();
  const Bytes block = cache_of_token(model_, requested_) * requested_.block_size;
  const std::int64_t blocks = (requested_.reserved - weights).count() / block.count();
  if (blocks > 0) pool_ = cache_blocks(blocks);
}

Tensor Engine::cache_blocks(std::int64_t blocks) const {
  const Session::Scope scope(s_, "rollout");
  const OnStream stream(s_, stream_);
  const Bytes block = cache_of_token(model_, requested_) * requested_.block_size;
  Tensor made = s_.empty({blocks, block.count() / size_of(requested_.kv_dtype).count()}, requested_.kv_dtype,
                         "kv_cache", Category::KvCache);
  s_.launch({Operation::Fill, {0}}, {}, {made});
  return made;
}

// All answers grow together, to the longest there may be; each has its prompt's blocks for itself.
void Engine::fill_cache() {
  const std::int64_t prompt = blocks_of(requested_, requested_.prompt_length);
  const std::int64_t all = blocks_of(requested_, requested_.prompt_length + requested_.response_length);
  std::vector<Tensor> blocks;
  if (prompt > 0) blocks.push_back(cache_blocks(requested_.sequences() * prompt));
  for (std::int64_t i = prompt; i < all; ++i) blocks.push_back(cache_blocks(requested_.sequences()));
}

void Engine::sleep() {
  if (!requested_.sleeps()) return;
  pool_ = {};
  if (requested_.sleep == EngineSleep::WeightsToHost) {
    const Session::Scope scope(s_, "rollout");
    for (const Tensor& its : weights_) {
      const OnHost host(s_, MemorySpace::Pinned);
      on_host_.push_back(s_.empty(its.sizes, its.dtype, "weights_on_host", Category::Parameters));
    }
    const OnStream stream(s_, stream_);
    for (std::size_t i = 0; i < weights_.size(); ++i) s_.copy(weights_[i], on_host_[i]);
  }
  wait_for_engine();
  weights_.clear();
  s_.process.empty_cache();  // CuMemAllocator.sleep gives its memory back, and ends so
}

void Engine::wait_for_engine() {
  if (stream_ != Process::compute_stream) s_.process.join(s_.process.record(stream_));
  s_.process.synchronize();
}

std::vector<Tensor> frozen(Session& session, const BuiltModel& built, const Train& train,
                           const std::vector<TrainedWeight>& trained) {
  std::vector<Tensor> weights;
  for (const FrozenModel& model : train.frozen) {
    const Session::Scope scope(session, model.name());
    for (const auto& [shape, of_head] : trained) {
      const Shape its = of_head && model.scalar_head() ? Shape{built.model.hidden} : shape;
      weights.push_back(session.empty(its, train.precision, "weights", Category::Parameters));
      session.launch({Operation::Fill, {0}}, {}, {weights.back()});
    }
  }
  return weights;
}

}  // namespace tidemark::parallel::generation
