#include "parallel/frameworks/megatron/attention/context_exchange.hpp"

#include <cstddef>
#include <utility>
#include <vector>

#include "parallel/frameworks/megatron/te.hpp"

// TransformerEngine 2.11, attention/dot_product_attention/context_parallel.py flash_attn_a2a_communicate. Each tensor's
// copy to send, its all-to-all and the copy of what came run one step behind those of the tensor before. A rank's
// tokens are two chunks, and a tensor of all tokens has twice as many as there are ranks: chunk i from either end is
// the i-th rank's.

namespace tidemark::parallel::megatron {
namespace {

constexpr StreamId all_to_all_stream{5};  // NCCL's, of the group

class AllToAll {
 public:
  AllToAll(Worker& w, const Name& name)
      : w_(w), name_(name), ranks_(w.layout.ulysses()), along_(batch_first(w) ? 1 : 0) {}

  // One part of the heads after the other.
  Tensor parts_of_heads(const Tensor& x) const {
    const std::int64_t heads = x.size(2) / ranks_;
    Tensor made = sent({ranks_, x.size(0), x.size(1), heads, x.size(3)});
    Tensor cut = sized(x, {x.size(0), x.size(1), ranks_, heads, x.size(3)});
    w_.launch(Operation::Copy, {swapped(swapped(std::move(cut), 1, 2), 0, 1)}, {made});
    return made;
  }
  // All tokens in order, of what came from one rank after the other.
  Tensor in_order(const Tensor& received) const {
    Shape shape{received.sizes.begin() + 1, received.sizes.end()};
    shape[index()] *= ranks_;
    Tensor made = w_.temporary(name_("all_tokens"), shape);
    std::vector<Tensor> from, to;
    for (std::int64_t i = 0; i < 2 * ranks_; ++i) {
      from.push_back(own_chunk(received, i));
      to.push_back(chunk(made, i));
    }
    w_.launch(Operation::Copy, from, to);
    return made;
  }
  // One rank's two chunks after the other's.
  Tensor parts_of_tokens(const Tensor& x) const {
    Shape shape = x.sizes;
    shape[index()] /= 2 * ranks_;
    Tensor made = sent({ranks_, 2, shape[0], shape[1], shape[2], shape[3]});
    std::vector<Tensor> from, to;
    for (std::int64_t i = 0; i < 2 * ranks_; ++i) {
      from.push_back(chunk(x, i));
      to.push_back(sized(narrowed(narrowed(made, 0, rank_of(i), 1), 1, half_of(i), 1), shape));
    }
    w_.launch(Operation::Copy, from, to);
    return made;
  }
  // All heads of the rank's tokens.
  Tensor side_by_side(Tensor received) const {
    Shape shape{received.sizes.begin() + 2, received.sizes.end()};
    shape[index()] *= 2, shape[2] *= ranks_;
    Tensor made = w_.temporary(name_("all_heads"), shape);
    received = swapped(swapped(swapped(std::move(received), 0, 1), 1, 2), 2, 3);
    if (along_ == 1) received = swapped(std::move(received), 0, 1);
    const Shape seen = received.sizes;
    w_.launch(Operation::Copy, {std::move(received)}, {sized(made, seen)});
    return made;
  }

  // Beside what the compute stream does next, until `wait`.
  Tensor start(const Tensor& part) {
    Tensor received = w_.make(name_("received"), part.sizes, part.dtype, Category::CommCp);
    w_.process.wait(all_to_all_stream, w_.process.record(Process::compute_stream));
    {
      const torch::OnStream on(w_.session, all_to_all_stream);
      w_.session.collective(w_.comms.heads, CollectiveKind::AllToAll, part, received);
    }
    started_.push_back(w_.process.record(all_to_all_stream));
    return received;
  }
  void wait(std::size_t which) const { w_.process.wait(attention_stream, started_[which]); }

 private:
  using Process = torch::Process;

  [[nodiscard]] std::size_t index() const { return static_cast<std::size_t>(along_); }
  [[nodiscard]] Tensor sent(Shape shape) const {
    return w_.make(name_("sent"), std::move(shape), w_.train.precision, Category::CommCp);
  }
  [[nodiscard]] std::int64_t rank_of(std::int64_t chunk) const {
    return chunk < ranks_ ? chunk : 2 * ranks_ - 1 - chunk;
  }
  [[nodiscard]] std::int64_t half_of(std::int64_t chunk) const { return chunk < ranks_ ? 0 : 1; }
  // Of all tokens.
  [[nodiscard]] Tensor chunk(const Tensor& all, std::int64_t i) const {
    const std::int64_t tokens = all.size(along_) / (2 * ranks_);
    return narrowed(all, along_, i * tokens, tokens);
  }
  // The same of what came from the ranks, each with its own tokens.
  [[nodiscard]] Tensor own_chunk(const Tensor& received, std::int64_t i) const {
    const std::int64_t tokens = received.size(along_ + 1) / 2;
    Tensor of_rank = narrowed(narrowed(received, 0, rank_of(i), 1), along_ + 1, half_of(i) * tokens, tokens);
    Shape shape{of_rank.sizes.begin() + 1, of_rank.sizes.end()};
    return sized(std::move(of_rank), shape);
  }

  Worker& w_;
  const Name& name_;
  std::int64_t ranks_;
  int along_;  ///< the dimension of the sequence
  std::vector<EventId> started_;
};

void join(const Worker& w) { w.process.join(w.process.record(attention_stream)); }

}  // namespace

Tensors to_heads(Worker& w, const Name& name, Tensors inputs) {
  AllToAll all(w, name);
  Tensors outputs(inputs.size());
  for (std::size_t i = 0; i < inputs.size() + 2; ++i) {
    if (0 < i && i < inputs.size() + 1) outputs[i - 1] = all.start(inputs[i - 1]);
    if (i > 1) {
      const torch::OnStream on(w.session, attention_stream);
      all.wait(i - 2);
      outputs[i - 2] = all.in_order(outputs[i - 2]);
    }
    if (i < inputs.size()) inputs[i] = all.parts_of_heads(inputs[i]);
  }
  join(w);
  return outputs;
}

Tensors to_tokens(Worker& w, const Name& name, Tensors inputs) {
  AllToAll all(w, name);
  Tensors outputs(inputs.size());
  for (std::size_t i = 0; i < inputs.size() + 2; ++i) {
    if (0 < i && i < inputs.size() + 1) outputs[i - 1] = all.start(inputs[i - 1]);
    if (i < inputs.size()) inputs[i] = all.parts_of_tokens(inputs[i]);
    if (i > 1) {
      const torch::OnStream on(w.session, attention_stream);
      all.wait(i - 2);
      outputs[i - 2] = all.side_by_side(outputs[i - 2]);
    }
  }
  join(w);
  return outputs;
}

}  // namespace tidemark::parallel::megatron
