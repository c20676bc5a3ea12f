#include <algorithm>
#include <cmath>
#include <utility>

#include "parallel/frameworks/megatron/layers.hpp"

namespace tidemark::parallel::megatron {

using torch::with;

namespace {

// The gradient of a table that rows were looked up in: as large as the table. Many rows are sorted by token and summed
// in two steps, the first of which leaves a row of fp32 for every ten of a token (ATen/native/cuda/Embedding.cu,
// EmbeddingBackwardKernel.cu). The sort's own scratch space is left out. The rows to sum are numbered in tensors of
// their own; only these kernels read them.
Tensor dense_gradient(Worker& w, const Name& name, LabelId label, const Weight& table, Tensor ids, Tensor gradient) {
  constexpr std::int64_t summed_at_once = 3072, rows_of_a_part = 10;
  const std::int64_t rows = ids.elements();
  const bool sorts = rows > summed_at_once && !w.runtime.indexes_embedding;
  const auto indices = [&](std::string_view use, std::int64_t count) {
    return sorts ? w.temporary(name(use), {count}, DType::INT64) : Tensor{};
  };
  Tensor sorted_ids = indices("sorted_ids", rows), sorted_places = indices("sorted_places", rows);
  Tensor dense = w.temporary(label, table.shape());
  const std::int64_t tokens = std::min(rows, table.rows), parts = rows / rows_of_a_part + tokens;
  Tensor segments = indices("segments", rows), segment_parts = indices("segment_parts", tokens),
         segment_part_offsets = indices("segment_part_offsets", tokens), part_offsets = indices("part_offsets", parts);
  Tensor partial_sums;
  if (sorts) partial_sums = w.temporary(name("partial_sums"), {parts, table.columns}, DType::FP32);
  w.launch(Operation::EmbeddingBackward, {std::move(gradient), std::move(ids)}, {dense},
           std::vector{std::move(sorted_ids), std::move(sorted_places), std::move(segments), std::move(segment_parts),
                       std::move(segment_part_offsets), std::move(part_offsets), std::move(partial_sums)});
  return dense;
}

// The table is looked up batch first; the layers work sequence first.
Tensor batch_first(Worker& w, LabelId label, Tensor gradient) {
  if (w.sizes.micro_batch == 1) return gradient;
  Tensor copy = w.like(label, gradient);
  w.transpose_tokens(std::move(gradient), copy, w.sizes.sequence);
  return copy;
}

// Rows of tokens that are in other ranks' parts of the vocabulary.
void zero_outside(Worker& w, Tensor rows, Tensor outside, const Tensor& out) {
  w.launch({Operation::MaskedFill, {0}}, {std::move(rows), sized(std::move(outside), {w.tokens(), 1})}, {out});
}

struct MaskedIds {
  Tensor ids, mask;
};

// Tokens of other ranks' parts of the vocabulary are masked.
MaskedIds mask_other_parts(Worker& w, const Name& name, const Weight& words, const Tensor& tokens) {
  Tensor below = w.temporary(name("below"), w.per_token(), DType::BOOL),
         above = w.temporary(name("above"), w.per_token(), DType::BOOL);
  MaskedIds made;
  made.mask = w.temporary(name("mask"), w.per_token(), DType::BOOL);
  below = above = {};
  const Tensor copy = w.temporary(name("ids_copy"), w.per_token(), DType::INT64);
  made.ids = w.temporary(name("masked_ids"), w.per_token(), DType::INT64);
  const auto first = static_cast<double>(w.first_row(words.rows)), rows = static_cast<double>(words.rows);
  w.launch({Operation::VocabularyMask, {first, first + rows}}, {tokens}, {made.mask, made.ids});
  return made;
}

void give_positions_gradient(Worker& w, const Name& name, Node& node, const Weight& table, const Tensor& ids) {
  node.apply = [&w, &name, &table, ids](Gradients& gradients) mutable {
    Tensor gradient = batch_first(w, name("positions_gradient_batch_first"), std::move(gradients.front()));
    return Gradients{dense_gradient(w, name, name("positions_gradient"), table, std::move(ids), std::move(gradient))};
  };
}

void give_words_gradient(Worker& w, const Name& name, Node& node, const Weight& table, MaskedIds looked_up) {
  node.sum = name("weight_gradient_sum");
  node.apply = [&w, &name, &table, looked_up = std::move(looked_up)](Gradients& gradients) mutable {
    Tensor gradient = batch_first(w, name("gradient_batch_first"), std::move(gradients.front()));
    if (w.tensor_parallel()) {
      Tensor masked = w.like(name("gradient_masked"), gradient);
      zero_outside(w, std::move(gradient), std::move(looked_up.mask), masked);
      gradient = std::move(masked);
    }
    return Gradients{
        dense_gradient(w, name, name("weight_gradient"), table, std::move(looked_up.ids), std::move(gradient))};
  };
}

// Of scaled embeddings (Gemma's).
double embedding_scale(const Worker& w) { return std::sqrt(static_cast<double>(w.model.hidden)); }

Tensor dropped_and_scaled(Worker& w, const Name& name, Tensor hidden, bool trained, Saved& dropout_mask) {
  const Shape residual = w.residual(w.model.hidden);
  if (w.train.hidden_dropout > 0) {
    Tensor dropped = w.temporary(name("dropout_mask"), residual, DType::BOOL);
    Tensor kept = w.temporary(name("dropped"), residual);
    w.launch({Operation::Dropout, {w.train.hidden_dropout}}, {std::move(hidden)}, {kept, dropped});
    hidden = std::move(kept);
    if (trained) dropout_mask = w.session.save(dropped);
  }
  if (w.model.scaled_embedding) {
    Tensor scaled = w.temporary(name("scaled"), residual);
    w.launch({Operation::Scale, {embedding_scale(w)}}, {std::move(hidden)}, {scaled});
    hidden = std::move(scaled);
  }
  return hidden;
}

Tensor dropped_and_scaled_backward(Worker& w, const Name& name, Tensor gradient, Saved& dropout_mask) {
  if (w.model.scaled_embedding) {
    Tensor unscaled = w.like(name("gradient_scaled"), gradient);
    w.launch({Operation::Scale, {embedding_scale(w)}}, {std::move(gradient)}, {unscaled});
    gradient = std::move(unscaled);
  }
  if (dropout_mask) {
    Tensor dropped = w.take(dropout_mask);
    Tensor kept = w.like(name("dropout_gradient"), gradient);
    w.launch({Operation::DropoutBackward, {w.train.hidden_dropout}}, {std::move(gradient), std::move(dropped)}, {kept});
    gradient = std::move(kept);
  }
  return gradient;
}

}  // namespace

// core/models/common/embeddings/language_model_embedding.py LanguageModelEmbedding, core/tensor_parallel/layers.py
// VocabParallelEmbedding.
Tensor GPTModel::embedding(const Name& name, const Tensor& tokens, const Tensor& position_ids) {
  Worker& w = w_;
  w.mark(Phase::Forward, name);
  // Looked up one after the other; the gradients of what became of both come back through one more node.
  const auto of_words = w.node({}, {&words_->value});
  const bool positions = positions_ != nullptr;
  const auto of_positions = positions ? w.node({}, {&positions_->value}) : nullptr;

  const Shape whole = w.whole(w.model.hidden), residual = w.residual(w.model.hidden);
  Tensor ids = tokens, mask;
  if (w.tensor_parallel()) {
    MaskedIds masked = mask_other_parts(w, name, *words_, tokens);
    ids = std::move(masked.ids), mask = std::move(masked.mask);
  }
  const auto step = [&](std::string_view use, const Shape& shape) { return w.temporary(name(use), shape); };
  Tensor hidden = step("batch_first", whole);
  w.launch(Operation::Embedding, {ids, words_->value}, {hidden});
  if (w.tensor_parallel()) zero_outside(w, hidden, mask, hidden);
  // Where nothing comes between, the sum over ranks and the cut are one collective.
  const bool scattered = w.sequence_parallel() && !positions;
  if (w.tensor_parallel() && !scattered) w.all_reduce(hidden);
  Tensor word_embeddings, position_embeddings;  // variables of forward()
  if (positions) {
    word_embeddings = hidden;
    position_embeddings = step("positions", whole);
    w.launch(Operation::Embedding, {position_ids, positions_->value}, {position_embeddings});
    hidden = step("sum", whole);
    w.launch(Operation::Add, {word_embeddings, position_embeddings}, {hidden});
  }
  if (w.sizes.micro_batch > 1) {
    Tensor copy = step("sequence_first", whole);
    w.transpose_tokens(std::move(hidden), copy, w.sizes.micro_batch);
    hidden = std::move(copy);
  }
  if (w.sequence_parallel()) {
    Tensor part = step("scattered", residual);
    if (scattered)
      w.session.collective(w.comms.tensor, CollectiveKind::ReduceScatter, hidden, part);
    else
      w.launch(Operation::Copy, {narrowed(hidden, 0, w.first_row(residual[0]), residual[0])}, {part});
    hidden = std::move(part);
  }
  Saved dropout_mask;
  hidden = dropped_and_scaled(w, name, std::move(hidden), static_cast<bool>(of_words), dropout_mask);
  w.session.relabel(hidden, name("out"));

  Tensor of_lookup{{}, whole, {}, 0, hidden.dtype, {of_words, 0}}, of_place = of_lookup;
  of_place.gradient = {of_positions, 0};
  const auto node = w.node(name(), {&of_place, &of_lookup});
  if (!node) return hidden;
  node->apply = [&w, &name, dropout_mask = std::move(dropout_mask), whole](Gradients& gradients) mutable {
    Tensor gradient = dropped_and_scaled_backward(w, name, std::move(gradients.front()), dropout_mask);
    if (w.sequence_parallel()) gradient = w.all_gather(name("gradient_gathered"), std::move(gradient), whole);
    return Gradients{gradient, gradient};
  };
  if (of_positions) give_positions_gradient(w, name, *of_positions, *positions_, position_ids);
  give_words_gradient(w, name, *of_words, *words_, {std::move(ids), std::move(mask)});
  return with(std::move(hidden), node);
}

}  // namespace tidemark::parallel::megatron
