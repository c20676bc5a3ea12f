#include "parallel/frameworks/torchtitan/decoder.hpp"

#include <utility>

#include <fmt/format.h>

#include "parallel/torch/checkpoint.hpp"
#include "parallel/torch/operation.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::parallel::torchtitan {
namespace {

// Its tables and norms of heads differ from Llama 3's.
bool qwen3(const Model& model) { return model.architecture.starts_with("qwen3"); }

// activation_checkpoint.py _apply_op_sac, and the list that parallelize.py hands it: attention's results are kept where
// its kernel is listed, every second matrix product's, beginning with the first, and in DeepSeek-V3's list, not in
// Qwen3's, tokens that came to experts and came back.
KeepsResult every_second_product(bool attention, bool exchanged_tokens) {
  return [attention, exchanged_tokens, products = 0](Dispatched what) mutable {
    switch (what) {
      case Dispatched::MatrixProduct:
        return ++products % 2 == 1;
      case Dispatched::FusedAttention:
        return attention;
      case Dispatched::AllToAll:
        return exchanged_tokens;
      case Dispatched::ReduceScatter:
      case Dispatched::CopyToHost:
        return true;
      case Dispatched::AddedProduct:
        return false;
    }
    return false;
  };
}

}  // namespace

// ---- construction --------------------------------------------------------------------------------------------------

std::shared_ptr<Leaf> Decoder::parameter(const std::string& name, Shape sizes) {
  parameters_.push_back(make_ ? make_(name, sizes, dtype_) : initialized_parameter(s_, name, std::move(sizes), dtype_));
  return parameters_.back();
}

Linear Decoder::make_linear(const std::string& name, std::int64_t outputs, std::int64_t inputs) {
  return {name, parameter(name + ".weight", {outputs, inputs}), nullptr};
}

Norm Decoder::make_norm(const std::string& name, std::int64_t width) {
  partial_.push_back(parameters_.size());
  return {name, parameter(name + ".weight", {width}), nullptr};
}

void Decoder::end_part(std::string name, bool is_end) {
  parts_.push_back({std::move(name), parts_.empty() ? 0 : parts_.back().end, parameters_.size(), is_end});
}

void Decoder::make_attention(const std::string& at, Layer& layer) {
  const std::int64_t q_width = model_.heads * model_.head_dim / tensor_.ranks,
                     kv_width = model_.kv_heads * model_.head_dim / tensor_.ranks;
  if (qwen3(model_)) {
    layer.query_norm = make_norm(at + ".attention.q_norm", model_.head_dim);
    layer.key_norm = make_norm(at + ".attention.k_norm", model_.head_dim);
  }
  layer.query = make_linear(at + ".attention.wq", q_width, model_.hidden);
  layer.key = make_linear(at + ".attention.wk", kv_width, model_.hidden);
  layer.value = make_linear(at + ".attention.wv", kv_width, model_.hidden);
  layer.output = make_linear(at + ".attention.wo", model_.hidden, q_width);
}

void Decoder::make_multi_latent_attention(const std::string& at, const parallel::MultiLatentAttention& its,
                                          Layer& layer) {
  MultiLatentAttention made;
  made.fused_norms = behavior_.fused_norms;
  made.tensor = tensor_;
  const std::int64_t heads = model_.heads / tensor_.ranks, queries = heads * its.query_head();
  const auto norm_of_all = [&](const std::string& name, std::int64_t width) {
    alike_.push_back(parameters_.size());
    return Norm{name, parameter(name + ".weight", {width}), nullptr};
  };
  if (its.query_rank > 0) {
    alike_.push_back(parameters_.size());
    made.query_down = make_linear(at + ".attention.wq_a", its.query_rank, model_.hidden);
    made.query_norm = norm_of_all(at + ".attention.q_norm", its.query_rank);
    made.query = make_linear(at + ".attention.wq_b", queries, its.query_rank);
  } else {
    made.query = make_linear(at + ".attention.wq", queries, model_.hidden);
  }
  partial_.push_back(parameters_.size());
  made.kv_down = make_linear(at + ".attention.wkv_a", its.kv_rank + its.qk_rope_head_dim, model_.hidden);
  made.kv_norm = norm_of_all(at + ".attention.kv_norm", its.kv_rank);
  made.kv_up = make_linear(at + ".attention.wkv_b", heads * (its.qk_nope_head_dim + its.value_head), its.kv_rank);
  made.output = make_linear(at + ".attention.wo", model_.hidden, heads * its.value_head);
  layer.latent = std::make_unique<MultiLatentAttention>(std::move(made));
}

void Decoder::make_norms(const std::string& at, Layer& layer) {
  layer.attention_norm = make_norm(at + ".attention_norm", model_.hidden);
  layer.mlp_norm = make_norm(at + ".ffn_norm", model_.hidden);
}

// DeepSeek-V3's blocks have their norms before what comes of the second one.
void Decoder::make_layer(std::int32_t index) {
  const std::string at = fmt::format("layers.{}", index);
  Layer layer;
  const parallel::Layer& kinds = model_.layer(index);
  std::visit(Overloaded{
                 [&](const parallel::Attention&) { make_attention(at, layer); },
                 [&](const parallel::MultiLatentAttention& its) {
                   make_multi_latent_attention(at, its, layer);
                   make_norms(at, layer);
                 },
                 [](const MegatronAlone auto&) { ensure(false, "torchtitan's layers are of its kinds"); },
             },
             kinds.mixer);
  const std::size_t experts_begin = parameters_.size();
  std::size_t experts_end = experts_begin;
  std::visit(Overloaded{
                 [&](const parallel::DenseMlp& its) {
                   layer.mlp = make_feed_forward(at + ".feed_forward", its.width(model_) / tensor_.ranks);
                 },
                 [&](const parallel::Experts& its) { experts_end = make_experts(at + ".moe", index, its, layer); },
                 [](const MegatronAlone auto&) { ensure(false, "torchtitan's layers are of its kinds"); },
             },
             kinds.mlp);
  if (layer.latent == nullptr) make_norms(at, layer);
  end_part(at, false);
  if (layer.moe) {
    Part& part = parts_.back();
    part.moe = layer.moe.get();
    part.experts_begin = experts_begin, part.experts_end = experts_end;
  }
  layers_.push_back(std::move(layer));
}

FeedForward Decoder::make_feed_forward(const std::string& at, std::int64_t width) {
  FeedForward made;
  made.gate = make_linear(at + ".w1", width, model_.hidden);
  made.down = make_linear(at + ".w2", model_.hidden, width);
  made.up = make_linear(at + ".w3", width, model_.hidden);
  return made;
}

std::size_t Decoder::make_experts(const std::string& at, std::int32_t index, const parallel::Experts& its,
                                  Layer& layer) {
  const std::int64_t count = its.count / experts_.ranks, ffn = its.ffn / experts_.parts.ranks;
  MixtureOfExperts::Weights made;
  made.gate = parameter(at + ".experts.w1", {count, ffn, model_.hidden});
  made.down = parameter(at + ".experts.w2", {count, model_.hidden, ffn});
  made.up = parameter(at + ".experts.w3", {count, ffn, model_.hidden});
  const std::size_t end = parameters_.size();
  alike_.push_back(end);
  made.router = make_linear(at + ".router.gate", its.count, model_.hidden);
  if (its.shared_ffn > 0) made.shared = make_feed_forward(at + ".shared_experts", its.shared_ffn / tensor_.ranks);
  layer.moe = std::make_unique<MixtureOfExperts>(s_, model_, train_, index, experts_, tensor_);
  layer.moe->set(std::move(made));
  layer.moe->make_buffers(at);
  return end;
}

// precompute_freqs_cis: complex numbers, each as two of fp32.
void Decoder::make_frequencies() {
  const std::int64_t pairs = model_.rotary_dim() / 2;
  frequencies_ = s_.empty({train_.sequence_length, pairs, 2}, DType::FP32, "freqs_cis", Category::Parameters);
  const Tensor angles = s_.empty({train_.sequence_length, pairs, 1}, DType::FP32, "angles", Category::Temporaries);
  s_.launch({Operation::RotaryTable, {usual_rotary_base}}, {}, {sized(angles, {train_.sequence_length, pairs})});
  s_.launch(Operation::Cosine, {angles}, {narrowed(frequencies_, -1, 0, 1)});
  s_.launch(Operation::Sine, {angles}, {narrowed(frequencies_, -1, 1, 1)});
}

// precompute_rope_cache.
void Decoder::make_halves() {
  const std::int64_t sequence = train_.sequence_length, width = model_.head_dim, pairs = width / 2;
  frequencies_ = s_.empty({sequence, 2 * width}, DType::FP32, "rope_cache", Category::Parameters);
  const Tensor angles = s_.empty({sequence, pairs}, DType::FP32, "angles", Category::Temporaries);
  s_.launch({Operation::RotaryTable, {usual_rotary_base}}, {}, {angles});
  const Tensor twice = s_.empty({sequence, width}, DType::FP32, "angles", Category::Temporaries);
  s_.launch(Operation::Copy, {angles, angles}, {narrowed(twice, -1, 0, pairs), narrowed(twice, -1, pairs, pairs)});
  s_.launch(Operation::Cosine, {twice}, {narrowed(frequencies_, -1, 0, width)});
  s_.launch(Operation::Sine, {twice}, {narrowed(frequencies_, -1, width, width)});
}

// pipeline_parallel.py pipeline_module_split: what a stage has not is deleted, but for the rotary tables.
Decoder::Decoder(Session& session, const Model& model, const Stage& stage, std::int64_t vocabulary, const Train& train,
                 const EagerBehavior& behavior, const TensorGroup& tensor, const ContextGroup& context,
                 const ExpertGroup& experts, DType dtype, MakeParameter make)
    : s_(session),
      model_(model),
      stage_(stage),
      train_(train),
      behavior_(*behavior.titan),
      tensor_(tensor),
      context_(context),
      experts_(experts),
      dtype_(dtype),
      make_(std::move(make)) {
  if (stage.embedding) {
    tokens_ = parameter("tok_embeddings.weight", {vocabulary / tensor.ranks, model.hidden});
    // fully_shard takes its rows of the gradient; else it is kept as embedding_dense_backward gives it, Replicate.
    if (!make_ && tensor.ranks > 1) tokens_->rows_of_whole_gradient = vocabulary / tensor.ranks * tensor.rank;
    end_part("tok_embeddings", true);
  }
  qwen3(model) ? make_halves() : make_frequencies();
  for (std::int32_t i = stage.first; i < stage.last; ++i) make_layer(i);
  if (stage.head) {
    norm_ = make_norm("norm", model_.hidden);
    head_ = make_linear("output", vocabulary / tensor.ranks, model.hidden);
    end_part("output", true);
  }
}

// ---- a layer -------------------------------------------------------------------------------------------------------

Tensor Decoder::normed(const Norm& norm, const Tensor& x) {
  return behavior_.fused_norms ? rms_norm(s_, x, norm.weight->value) : norm(s_, x);
}

// reshape_for_broadcast with positions: rows are picked out, for all sequences at once where they are one.
Tensor Decoder::rows_of_table(const Tensor& table, std::int64_t width) {
  const NoGrad no_grad(s_);
  Shape sizes = positions_.sizes;
  sizes.push_back(width);
  const Tensor rows = s_.empty(sizes, table.dtype, "rows_of_table");
  const Tensor flat = sized(table, {table.sizes.front(), width});
  if (positions_.sizes.front() > 1) {  // torch.gather
    s_.launch(Operation::Embedding, {positions_, flat}, {rows});
  } else {
    const Tensor numbers = to(s_, positions_, DType::INT64);
    s_.launch(Operation::Embedding, {numbers, flat}, {rows});
  }
  return rows;
}

// reshape_for_broadcast, of complex numbers.
Tensor Decoder::pairs_of(const Tensor& frequencies, std::int64_t sequence) {
  const std::int64_t pairs = frequencies.sizes[1];
  const Tensor rows =
      positions_.defined() ? rows_of_table(frequencies, 2 * pairs) : narrowed(frequencies, 0, 0, sequence);
  return sized(rows, {rows.elements() / (2 * pairs * sequence), sequence, 1, pairs, 2});
}

// apply_rotary_emb, of Llama's complex numbers.
Decoder::Heads Decoder::turned(const Tensor& query, const Tensor& key, const Tensor& frequencies) {
  const auto as_complex = [&](const Tensor& x) {
    const Tensor wide = to(s_, x, DType::FP32);
    Shape pairs = wide.sizes;
    pairs.back() /= 2;
    pairs.push_back(2);
    return reshape(s_, wide, std::move(pairs));
  };
  const Tensor q = as_complex(query), k = as_complex(key);
  const Tensor table = pairs_of(frequencies, q.sizes[1]);
  const auto times_table = [&](const Tensor& x, const Shape& sizes) {
    return reshape(s_, complex_mul(s_, x, table), sizes);
  };
  const Tensor q_out = times_table(q, query.sizes), k_out = times_table(k, key.sizes);
  const Tensor q_narrow = to(s_, q_out, query.dtype);
  return {q_narrow, to(s_, k_out, key.dtype)};
}

// The same of Qwen3's halves of heads.
Decoder::Heads Decoder::turned_halves(const Tensor& query, const Tensor& key, const Tensor& frequencies) {
  const std::int64_t sequence = query.sizes[1], width = model_.head_dim;
  const Tensor rows = positions_.defined() ? rows_of_table(frequencies, 2 * width) : frequencies;
  const Tensor table = view(s_, rows, {rows.elements() / (2 * width * sequence), sequence, 1, 2 * width});
  const Tensor cosine = to(s_, slice(s_, table, -1, 0, width), query.dtype);
  const Tensor sine = to(s_, slice(s_, table, -1, width, 2 * width), query.dtype);
  const Tensor q_out = transformers::turned(s_, query, cosine, sine);
  return {q_out, transformers::turned(s_, key, cosine, sine)};
}

// repeat_kv: [batch, sequence, heads, width], each head as often as query heads share it.
Tensor Decoder::repeated(const Tensor& x) {
  const std::int64_t times = model_.heads / model_.kv_heads;
  if (times == 1) return x;
  const Shape& z = x.sizes;
  const Tensor wide = expand(s_, unsqueeze(s_, x, 3), {z[0], z[1], z[2], times, z[3]});
  return reshape(s_, wide, {z[0], z[1], z[2] * times, z[3]});
}

Tensor Decoder::attention(const Layer& layer, const Tensor& part, const Tensor& table) {
  if (layer.latent) return (*layer.latent)(s_, model_, part, pairs_of(table, part.sizes[1] * tensor_.ranks));
  const Session::Scope scope(s_, "attention");
  const Tensor x = gathered(s_, tensor_, part);
  const std::int64_t batch = x.sizes[0], sequence = x.sizes[1], width = model_.head_dim;
  Tensor query = layer.query(s_, x), key = layer.key(s_, x), value = layer.value(s_, x);
  const auto by_head = [&](const Tensor& t) { return view(s_, t, {batch, sequence, t.size(-1) / width, width}); };
  query = by_head(query), key = by_head(key), value = by_head(value);
  if (layer.query_norm.weight) query = normed(layer.query_norm, query), key = normed(layer.key_norm, key);
  {
    Heads heads = qwen3(model_) ? turned_halves(query, key, table) : turned(query, key, table);
    query = std::move(heads.query), key = std::move(heads.key);
  }
  const auto heads_first = [&](const Tensor& t) { return transpose(s_, t, 1, 2); };
  Tensor keys, values;
  if (behavior_.repeats_keys) {
    keys = repeated(key), values = repeated(value);
    query = heads_first(query), key = heads_first(keys), value = heads_first(values);
  } else {
    query = heads_first(query), key = heads_first(key), value = heads_first(value);
  }
  const DType attended = s_.autocast.value_or(query.dtype);
  const bool flash = train_.attention == AttentionKernel::Flash && attended != DType::FP32;
  Tensor output = context_.ranks > 1 ? ring_attention(s_, context_, query, key, value)
                  : flash            ? flash_attention(s_, query, key, value, 0)
                                     : scaled_dot_product_attention(s_, query, key, value, {}, 0);
  output = contiguous(s_, transpose(s_, output, 1, 2));
  output = view(s_, output, {batch, sequence, output.elements() / (batch * sequence)});
  return scattered(s_, tensor_, layer.output(s_, output));
}

Tensor Decoder::feed_forward(const Layer& layer, const Tensor& part) {
  const Session::Scope scope(s_, "feed_forward");
  const Tensor x = gathered(s_, tensor_, part);
  return scattered(s_, tensor_, layer.mlp.down(s_, layer.mlp.gated(s_, x)));  // whose input its hooks hold
}

Tensor Decoder::block(const Layer& layer, const Tensor& x, const Tensor& table) {
  const auto through_attention = [&] { return attention(layer, normed(layer.attention_norm, x), table); };
  const Tensor h = add(s_, x, through_attention());
  const auto through_mlp = [&] {
    const Tensor part = normed(layer.mlp_norm, h);
    return layer.moe ? (*layer.moe)(part) : feed_forward(layer, part);
  };
  return add(s_, h, through_mlp());
}

// A layer reads its parameters wherever it is told they are.
Tensor Decoder::run_compiled(std::size_t index, const Tensor& x, const Tensor& table,
                             const CheckpointOptions* checkpointed) {
  const Part& part = part_of(index);
  const auto exchange = [&](std::vector<Tensor>& others) {
    for (std::size_t p = part.begin; p < part.end; ++p) std::swap(parameters_[p]->value, others[1 + p - part.begin]);
  };
  const auto region = [&](const std::vector<Tensor>& given) {
    std::vector<Tensor> others = given;
    exchange(others);
    Tensor out = block(layers_[index], given.front(), given.back());
    exchange(others);
    return out;
  };
  std::vector<Tensor> inputs{x};
  for (std::size_t p = part.begin; p < part.end; ++p) inputs.push_back(parameters_[p]->value);
  inputs.push_back(table);
  if (checkpointed == nullptr) return compiled_(s_, inputs, region, {});
  return compiled_checkpointed_(s_, inputs, region, {.checkpointed = true, .policy = checkpointed->policy});
}

// activation_checkpoint.py _apply_ac_to_transformer_block.
bool Decoder::checkpoints(std::size_t layer) const {
  const std::int32_t every = behavior_.requested.checkpointed_layers;
  switch (train_.recompute.kind) {
    case Recompute::None:
      return false;
    case Recompute::Full:
      return true;
    case Recompute::Selective:
      return every == 0 || (static_cast<std::int32_t>(layers_before_ + layer) + 1) % every == 0;
  }
  return false;
}

// ptd_checkpoint_wrapper around a block, torch.compile around that, and fully_shard around both.
Tensor Decoder::run_layer(std::size_t index, const Tensor& hidden) {
  const Part& part = part_of(index);
  const Session::Scope scope(s_, part.name);
  s_.mark(Phase::Forward, part.name);
  const ForwardHooks& hooks = part.hooks;
  // _fsdp_state.py _pre_forward casts what a unit is handed (cast_forward_inputs), but for complex numbers.
  const Tensor table = hooks.before && qwen3(model_) ? to(s_, frequencies_, dtype_) : frequencies_;
  s_.keep(table);
  const Tensor x = hooks.before ? hooks.before(hidden) : hidden;
  const Region region = [this, &layer = layers_[index], table](const Tensor& in) { return block(layer, in, table); };
  CheckpointOptions options{.early_stop = behavior_.requested.early_stop};
  // Without a graph there is nothing to partition: a pipeline's first look at what stages make.
  const bool compiles = behavior_.requested.compile_layers && s_.grad_enabled;
  const auto plain = [&] { return compiles ? run_compiled(index, x, table, nullptr) : region(x); };
  const auto checkpointed = [&] {
    return compiles ? run_compiled(index, x, table, &options) : checkpoint(s_, x, region, options);
  };
  const auto run = [&] {
    if (!checkpoints(index)) return plain();
    if (train_.recompute.kind == Recompute::Selective && behavior_.requested.checkpointed_layers == 0) {
      const bool listed = model_.latent() || train_.attention == AttentionKernel::Flash || behavior_.keeps_cudnn;
      options.policy = [listed, all = model_.latent() != nullptr] { return every_second_product(listed, all); };
    }
    return checkpointed();
  };
  const Tensor out = run();
  return hooks.after ? hooks.after(out) : out;
}

std::vector<CountedExperts> Decoder::counted_experts() const {
  std::vector<CountedExperts> all;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer)
    if (layers_[layer].moe) all.push_back({layers_[layer].moe.get(), checkpoints(layer)});
  return all;
}

// ---- the whole model -----------------------------------------------------------------------------------------------

Tensor Decoder::run_embedding(const Tensor& tokens) {
  s_.mark(Phase::Forward, "tok_embeddings");
  const ForwardHooks& hooks = parts_.front().hooks;
  if (hooks.before) (void)hooks.before({});
  const Tensor out = scattered(s_, tensor_, embedding(s_, tensor_, tokens, tokens_->value));
  return hooks.after ? hooks.after(out) : out;
}

Tensor Decoder::run_head(Tensor hidden) {
  const ForwardHooks& hooks = parts_.back().hooks;
  s_.mark(Phase::Forward, "norm");
  {
    const Tensor x = hooks.before ? hooks.before(hidden) : hidden;
    hidden = normed(norm_, x);
  }
  s_.mark(Phase::Forward, "output");
  const Session::Scope scope(s_, "output", Category::LogitsLoss);
  const auto whole = [&] {
    const Tensor x = gathered(s_, tensor_, hidden);
    return head_(s_, x);
  };
  Tensor logits = whole();
  if (!behavior_.requested.loss_parallel) logits = whole_last(s_, tensor_, logits);
  return hooks.after ? hooks.after(logits) : logits;
}

Tensor Decoder::operator()(const Tensor& input, const Tensor& positions) {
  positions_ = positions;
  Tensor hidden = stage_.embedding ? run_embedding(input) : input;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) hidden = run_layer(layer, hidden);
  return stage_.head ? run_head(std::move(hidden)) : hidden;
}

}  // namespace tidemark::parallel::torchtitan
