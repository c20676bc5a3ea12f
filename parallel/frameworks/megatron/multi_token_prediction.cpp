#include "parallel/frameworks/megatron/multi_token_prediction.hpp"

#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/recompute.hpp"
#include "parallel/torch/ops/aten.hpp"
#include "parallel/torch/ops/indexing.hpp"

namespace tidemark::parallel::megatron {

using torch::with;

NextTokenLayer::NextTokenLayer(Worker& w, Parameters& parameters, std::int32_t further)
    : tokens(w.name(fmt::format("next_tokens.{}.tokens", further))),
      embedding(w.name(fmt::format("next_tokens.{}.embedding", further))),
      head(w.name(fmt::format("next_tokens.{}.head", further))),
      loss(w.name(fmt::format("next_tokens.{}.loss", further))),
      w_(w),
      name_(w.name(fmt::format("next_tokens.{}", further))),
      embedding_norm_(make_norm(w, parameters, fmt::format("next_tokens.{}.embedding_norm", further))),
      hidden_norm_(make_norm(w, parameters, fmt::format("next_tokens.{}.hidden_norm", further))),
      projection_(make_linear(w, parameters, fmt::format("next_tokens.{}.projection", further), w.model.hidden,
                              2 * w.model.hidden, WeightCut::Rows, GemmBias::None)),
      layer_(w, parameters, static_cast<std::int32_t>(w.model.layers.size()) + further),
      final_norm_(make_norm(w, parameters, fmt::format("next_tokens.{}.final_norm", further))) {}

namespace {

// torch.roll by one token.
Tensor turned(Worker& w, LabelId label, const Tensor& from) {
  const std::int64_t tokens = from.size(1);
  Tensor out = w.temporary(label, from.sizes, from.dtype);
  w.launch(Operation::Copy, {narrowed(from, 1, 1, tokens - 1), narrowed(from, 1, 0, 1)},
           {narrowed(out, 1, 0, tokens - 1), narrowed(out, 1, tokens - 1, 1)});
  return out;
}

Tensor last_of(const Tensor& x) { return narrowed(x, 1, x.size(1) - 1, 1); }

// The second of a rank's two chunks is as far from the end as the first is from the beginning: what follows the first
// is the next rank's first, what follows the second is the second of the rank before.
Tensor rolled_over_ranks(Worker& w, const Name& name, const Tensor& from) {
  const std::int64_t chunk = from.size(1) / 2, sequences = from.size(0);
  const bool begins = w.place.context == 0, ends = w.place.context == w.layout.context - 1;
  std::vector<Tensor> chunks, sent, received;
  for (std::int64_t i = 0; i < 2; ++i) chunks.push_back(turned(w, name("chunk"), narrowed(from, 1, i * chunk, chunk)));
  // contiguous(): one sequence's value is sent from where it is.
  const bool copies = sequences > 1;
  for (const Tensor& its : chunks) {
    sent.push_back(copies ? w.temporary(name("sent"), {sequences, 1}, from.dtype) : its);
    if (copies) w.launch(Operation::Copy, {last_of(its)}, {sent.back()});
    received.push_back(w.temporary(name("received"), {sequences, 1}, from.dtype));
  }
  if (begins) received[1] = {};
  if (ends) received[0] = {};
  std::vector<Transfer> transfers;
  const auto parts = static_cast<std::int32_t>(copies ? 1 : chunk);
  const auto send = [&](std::int32_t step, const Tensor& x) {
    transfers.push_back({sim::Direction::Send, step, x.buffer(), parts - 1, parts});
  };
  const auto receive = [&](std::int32_t step, const Tensor& x) {
    transfers.push_back({sim::Direction::Receive, step, x.buffer()});
  };
  if (!begins) send(-1, sent[0]), receive(-1, received[1]);
  if (!ends) receive(1, received[0]), send(1, sent[1]);
  w.process.exchange(w.comms.neighbours, transfers);
  w.launch(Operation::Copy, {ends ? last_of(chunks[1]) : received[0]}, {last_of(chunks[0])});
  if (begins)
    w.launch({Operation::Fill, {0}}, {}, {last_of(chunks[1])});
  else
    w.launch(Operation::Copy, {received[1]}, {last_of(chunks[1])});
  Tensor out = w.temporary(name(), from.sizes, from.dtype);
  w.launch(Operation::Copy, chunks, {narrowed(out, 1, 0, chunk), narrowed(out, 1, chunk, chunk)});
  return out;
}

}  // namespace

Tensor rolled(Worker& w, const Name& name, const Tensor& x) {
  const Tensor from = sized(x.detached(), {w.sizes.micro_batch, w.sizes.sequence});
  if (w.layout.context > 1) return sized(rolled_over_ranks(w, name, from), x.sizes);
  Tensor out = turned(w, name(), from);
  w.launch({Operation::Fill, {0}}, {}, {last_of(out)});
  return sized(std::move(out), x.sizes);
}

namespace {

// torch.cat of parts of one size, along the last dimension or the first. Gradients of parts are views.
Tensor joined_parts(Worker& w, const Name& name, const Tensors& parts, int dimension) {
  const std::int64_t size = parts.front().size(dimension);
  const auto node = w.node(name("cat"), parts);
  Tensor out = w.temporary(
      name("cat"), torch::with_size(parts.front().sizes, dimension, size * static_cast<std::int64_t>(parts.size())));
  std::vector<Tensor> places;
  for (std::size_t i = 0; i < parts.size(); ++i)
    places.push_back(narrowed(out, dimension, static_cast<std::int64_t>(i) * size, size));
  w.launch(Operation::Copy, parts, places);
  if (!node) return out;
  node->apply = [dimension, size, count = parts.size()](Gradients& gradients) {
    Gradients made;
    for (std::size_t i = 0; i < count; ++i)
      made.push_back(narrowed(gradients.front(), dimension, static_cast<std::int64_t>(i) * size, size));
    return made;
  };
  return with(std::move(out), node);
}

// torch.chunk along the first dimension: views, whose gradients are put together in a tensor, a single one's too.
Tensors parts_of(Worker& w, const Name& name, const Tensor& whole, std::size_t count) {
  const std::int64_t rows = whole.size(0) / static_cast<std::int64_t>(count);
  const auto node = w.node(name("chunk"), {&whole});
  Tensors parts;
  for (std::size_t i = 0; i < count; ++i)
    parts.push_back(with(narrowed(whole.detached(), 0, static_cast<std::int64_t>(i) * rows, rows), node, i));
  if (!node) return parts;
  node->outputs = count;
  node->apply = [&w, &name, rows, sizes = whole.sizes](Gradients& gradients) {
    Tensor made = w.temporary(name("chunk_gradient"), sizes);
    std::vector<Tensor> places;
    for (std::size_t i = 0; i < gradients.size(); ++i)
      places.push_back(narrowed(made, 0, static_cast<std::int64_t>(i) * rows, rows));
    w.launch(Operation::Copy, gradients, places);
    return Gradients{std::move(made)};
  };
  return parts;
}

}  // namespace

// _concat_embeddings, up to the projection.
Tensor NextTokenLayer::joined(Tensor hidden, const Tensor& embedded) {
  const Tensor next = norm(w_, embedding_norm_, embedded);
  hidden = norm(w_, hidden_norm_, std::move(hidden));
  w_.mark(Phase::Forward, name_);
  hidden = joined_parts(w_, name_, {next, hidden}, -1);
  return projected(std::move(hidden));
}

// Its columns are cut: they are gathered, and under sequence parallelism each rank goes on with its tokens, in a view
// of all (core/tensor_parallel/mappings.py gather_from_tensor_model_parallel_region,
// scatter_to_sequence_parallel_region).
Tensor NextTokenLayer::projected(Tensor both) {
  Tensor part = linear(w_, projection_, std::move(both));
  if (!w_.tensor_parallel()) return part;
  w_.mark(Phase::Forward, name_);
  const std::int64_t ranks = w_.sizes.tensor, width = part.size(-1);
  const auto gathering = w_.node(name_("gather"), {&part});
  Tensor by_rank = w_.all_gather(name_("gathered"), std::move(part), {ranks, w_.tokens(), width});
  Tensor whole = w_.temporary(name_("joined"), w_.whole(w_.model.hidden));
  std::vector<Tensor> from, to;
  for (std::int64_t r = 0; r < ranks; ++r) {
    from.push_back(sized(narrowed(by_rank, 0, r, 1), {w_.tokens(), width}));
    to.push_back(narrowed(whole, -1, r * width, width));
  }
  w_.launch(Operation::Copy, from, to);
  from.clear(), to.clear(), by_rank = {};
  if (gathering)
    gathering->apply = [this, width](Gradients& gradients) {
      Tensor own = w_.temporary(name_("gather_gradient"), {w_.tokens(), width});
      w_.launch(Operation::Copy, {narrowed(gradients.front(), -1, w_.first_row(width), width)}, {own});
      return Gradients{std::move(own)};
    };
  whole = with(std::move(whole), gathering);
  if (!w_.sequence_parallel()) return whole;
  const auto scattering = w_.node(name_("scatter"), {&whole});
  const std::int64_t rows = w_.tokens() / ranks;
  Tensor own = narrowed(whole.detached(), 0, w_.first_row(rows), rows);
  if (scattering)
    scattering->apply = [this](Gradients& gradients) {
      return Gradients{
          w_.all_gather(name_("scatter_gradient"), std::move(gradients.front()), w_.whole(w_.model.hidden))};
    };
  return with(std::move(own), scattering);
}

// _proj_and_transformer_layer.
Tensor NextTokenLayer::through_layer(const Tensor& hidden, const Tensor& embedded) {
  return norm(w_, final_norm_, layer_(joined(hidden, embedded)));
}

Tensor NextTokenLayer::operator()(const Tensor& hidden, const Tensor& embedded) {
  const Recomputation& again = w_.train.recompute;
  // Of blocks multi_token_prediction.py says: not supported yet.
  if (again.kind != Recompute::Full || again.method == RecomputeMethod::Block) return through_layer(hidden, embedded);
  return checkpoint(
      w_, [this](const Tensors& of) { return through_layer(of[0], of[1]); }, {hidden, embedded}, saved_inputs(w_));
}

// MultiTokenPredictionBlock.
Tensor GPTModel::further_states(const Tensor& hidden, Tensor tokens, const Tensor& position_ids) {
  Tensors all = parts_of(w_, further_, hidden, 1);
  for (const auto& layer : mtp_layers_) {
    tokens = rolled(w_, layer->tokens, tokens);
    const Tensor embedded = embedding(layer->embedding, tokens, position_ids);
    all.push_back((*layer)(all.back(), embedded));
  }
  w_.mark(Phase::Forward, further_);
  return joined_parts(w_, further_, all, 0);
}

namespace {

// models/common/language_module/language_module.py compute_language_model_loss gives losses as labels lie: sequence by
// sequence.
Tensor sequence_by_sequence(Worker& w, const Name& name, Tensor losses) {
  if (w.sizes.micro_batch == 1) return losses;
  const auto node = w.node(name("losses"), {&losses});
  Tensor out = w.like(name("losses"), losses);
  w.transpose_tokens(losses.detached(), out, w.sizes.sequence);
  if (!node) return out;
  node->apply = [&w, &name](Gradients& gradients) {
    Tensor made = w.like(name("losses_gradient"), gradients.front());
    w.transpose_tokens(std::move(gradients.front()), made, w.sizes.micro_batch);
    return Gradients{std::move(made)};
  };
  return with(std::move(out), node);
}

// MTPLossAutoScaler: x as it is; the sum of the losses joins the model's. It is not multiplied by the number of
// context-parallel ranks, as the model's own is (core/pipeline_parallel/schedules.py forward_step_calc_loss), which is
// taken as 1 here.
Tensor with_loss(Worker& w, const Name& name, const Tensor& x, const Tensor& losses) {
  const auto node = w.node(name("joined"), {&x, &losses});
  if (!node) return x;
  node->apply = [&w, &name, saved = w.session.save(losses)](Gradients& gradients) mutable {
    const Tensor its = w.take(saved);
    Tensor made = w.like(name("gradient"), its);
    w.launch({Operation::Fill, {w.micro_batch_share()}}, {}, {made});
    return Gradients{std::move(gradients.front()), std::move(made)};
  };
  return with(x.detached(), node);
}

constexpr double scaling_factor = 0.1;  // TransformerConfig.mtp_loss_scaling_factor

}  // namespace

// gpt_model.py GPTModel._postprocess: a loss of each module, by the model's own head.
Tensor GPTModel::with_further_losses(const Tensor& hidden, const Batch& batch, Tensor& logits) {
  Session& s = w_.session;
  const Tensors states =
      parts_of(w_, further_, further_states(hidden, batch.tokens, batch.position_ids), mtp_layers_.size() + 1);
  Tensor result = states.front(), labels = batch.labels, mask = batch.loss_mask;
  for (std::size_t i = 0; i < mtp_layers_.size(); ++i) {
    const NextTokenLayer& layer = *mtp_layers_[i];
    logits = head(layer.head, states[i + 1]);
    labels = rolled(w_, layer.loss, labels);
    mask = rolled(w_, layer.loss, mask);
    const Tensor tokens = torch::sum(s, mask, 0);
    Tensor losses = sequence_by_sequence(w_, layer.loss, loss(layer.loss, logits, labels, LossGradient::OfEachToken));
    const Session::Scope scope(s, layer.loss());
    losses = torch::mul(s, mask, losses);
    losses = torch::mul_number(s, losses, scaling_factor / static_cast<double>(mtp_layers_.size()));
    result = with_loss(w_, layer.loss, result, torch::div(s, losses, tokens));
  }
  return result;
}

}  // namespace tidemark::parallel::megatron
