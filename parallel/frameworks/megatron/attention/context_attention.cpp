#include <cstddef>
#include <utility>
#include <vector>

#include "parallel/frameworks/megatron/attention/context_exchange.hpp"
#include "parallel/frameworks/megatron/te.hpp"

// TransformerEngine 2.11, attention/dot_product_attention/context_parallel.py: attention of context-parallel ranks, as
// its autograd functions are written. Variables of a function are its variables there.

namespace tidemark::parallel::megatron {

using torch::with;

namespace {

// As the projection takes it, or as what copies it to there.
Tensor given(const Worker& w, Tensor out) {
  return batch_first(w) ? out : sized(std::move(out), w.part(w.model.heads * w.model.head_dim));
}

// AttnFuncWithCPAndQKVOA2A: all tokens of a part of the heads.
Tensor ulysses_attention(Worker& w, const CoreAttention& a, const Tensor& query, const Tensor& key,
                         const Tensor& value) {
  w.mark(Phase::Forward, a.name);
  const auto node = w.node(a.name(), {&query, &key, &value});
  Tensors of_heads = to_heads(w, a.name, {query, key, value});
  const Attended made = attend(w, a, Mask::Causal, of_heads[0], of_heads[1], of_heads[2], of_heads[0].sizes);
  const Tensor out = to_tokens(w, a.name, {made.out}).front();
  if (!node) return given(w, out);
  Session& s = w.session;
  node->apply = [&w, &a, q = s.save(of_heads[0]), k = s.save(of_heads[1]), v = s.save(of_heads[2]),
                 o = s.save(made.out), l = s.save(made.lse), r = s.save(made.rng_state),
                 shape = out.sizes](Gradients& gradients) {
    const Tensor queries = w.session.unpack(q), keys = w.session.unpack(k), values = w.session.unpack(v);
    const Attended attended{w.session.unpack(o), w.session.unpack(l), w.session.unpack(r)};
    Tensors dout = to_heads(w, a.name, {sized(gradients.front(), shape)});
    const Gradients dqkv{w.like(a.name("query_gradient"), queries), w.like(a.name("key_gradient"), keys),
                         w.like(a.name("value_gradient"), values)};
    attend_backward(w, a, Mask::Causal, dout.front(), queries, keys, values, attended, dqkv);
    return Gradients(to_tokens(w, a.name, {dqkv[0], dqkv[1], dqkv[2]}));
  };
  return with(given(w, out), node);
}

// ---- AttnFuncWithCPAndKVAllGather: every rank has all keys and values
// --------------------------------------------------

class Gathered {
 public:
  Gathered(Worker& w, const CoreAttention& a)
      : w_(w), a_(a), ranks_(w.layout.context), along_(batch_first(w) ? 1 : 0) {}

  // Of the rank's chunks, which lies first in the whole sequence and which last.
  [[nodiscard]] std::int64_t place(std::int64_t chunk) const {
    return chunk == 0 ? w_.place.context : 2 * ranks_ - 1 - w_.place.context;
  }
  [[nodiscard]] Tensor chunk(const Tensor& x, std::int64_t which) const {
    return narrowed(x, along_, which * (x.size(along_) / 2), x.size(along_) / 2);
  }
  // Keys, in order of the whole sequence, that a chunk's queries may see.
  [[nodiscard]] Tensor seen_by(std::int64_t chunk, const Tensor& all) const {
    return narrowed(all, 0, 0, (place(chunk) + 1) * (all.size(0) / (2 * ranks_)));
  }
  // x.movedim(...).contiguous(), between the kernel's dimensions and those that a collective cuts.
  [[nodiscard]] Tensor moved(std::string_view use, const Tensor& x) const {
    return along_ == 0 ? x : lying_in_row(use, swapped(x, 0, 1));
  }
  [[nodiscard]] Tensor lying_in_row(std::string_view use, const Tensor& x) const {
    if (x.contiguous()) return x;
    Tensor copy = w_.like(a_.name(use), x);
    w_.launch(Operation::Copy, {x}, {copy});
    return copy;
  }
  [[nodiscard]] Tensor gather(std::string_view use, const Tensor& own) const {
    Shape shape = own.sizes;
    shape[0] *= ranks_;
    Tensor all = w_.make(a_.name(use), shape, own.dtype, Category::CommCp);
    w_.session.collective(w_.comms.context, CollectiveKind::AllGather, own, all);
    return all;
  }
  [[nodiscard]] Tensor scatter(std::string_view use, const Tensor& all) const {
    Shape shape = all.sizes;
    shape[0] /= ranks_;
    Tensor own = w_.make(a_.name(use), shape, all.dtype, Category::CommCp);
    w_.session.collective(w_.comms.context, CollectiveKind::ReduceScatter, all, own);
    return own;
  }
  // torch.index_select of chunks, from rank after rank to the order of the sequence, or back.
  enum class To : std::uint8_t { Sequence, Ranks };
  [[nodiscard]] Tensor reordered(std::string_view use, const Tensor& x, To to) const {
    Tensor made = w_.like(a_.name(use), x);
    const std::int64_t tokens = x.size(0) / (2 * ranks_);
    std::vector<Tensor> of_ranks, of_sequence;
    const Tensor &by_rank = to == To::Sequence ? x : made, &in_order = to == To::Sequence ? made : x;
    for (std::int64_t i = 0; i < 2 * ranks_; ++i) {
      const std::int64_t at = i < ranks_ ? 2 * i : 2 * (2 * ranks_ - 1 - i) + 1;
      of_ranks.push_back(narrowed(by_rank, 0, at * tokens, tokens));
      of_sequence.push_back(narrowed(in_order, 0, i * tokens, tokens));
    }
    w_.launch(Operation::Copy, to == To::Sequence ? of_ranks : of_sequence,
              to == To::Sequence ? of_sequence : of_ranks);
    return made;
  }
  // All keys and values, of the ranks' own.
  [[nodiscard]] std::pair<Tensor, Tensor> all_of(const Tensor& k, const Tensor& v) const {
    Tensor keys = gather("keys_gathered", k), values = gather("values_gathered", v);
    keys = reordered("all_keys", keys, To::Sequence);
    values = reordered("all_values", values, To::Sequence);
    w_.process.wait(attention_stream, w_.process.record(torch::Process::compute_stream));
    return {std::move(keys), std::move(values)};
  }

 private:
  Worker& w_;
  const CoreAttention& a_;
  std::int64_t ranks_;
  int along_;  // the dimension of the sequence
};

// Of the two chunks, whose kernels fill the device each: it comes to the second when the first is over.
constexpr StreamId streams[] = {torch::Process::compute_stream, attention_stream};

struct GatheredSaved {
  Saved query, key, value, out[2], lse[2], rng_state[2];
};

Gradients gathered_backward(Worker& w, const CoreAttention& a, const Tensor& given, const GatheredSaved& saved) {
  const Gathered all(w, a);
  const Tensor q = w.session.unpack(saved.query), k = w.session.unpack(saved.key), v = w.session.unpack(saved.value),
               dout = sized(given, q.sizes);
  const auto zeros = [&](std::string_view use) {
    Shape shape = k.sizes;
    shape[0] *= w.layout.context;
    Tensor made = w.make(a.name(use), shape, k.dtype, Category::CommCp);
    w.launch({Operation::Fill, {0}}, {}, {made});
    return made;
  };
  const Tensor dq = w.like(a.name("query_gradients"), q);
  Tensor dk = zeros("all_key_gradients"), dv = zeros("all_value_gradients");
  const auto [keys, values] = all.all_of(k, v);
  Gradients of_step[2];
  Tensor its_q, its_k, its_v, its_dout;  // the step's
  EventId added, attended;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto chunk = static_cast<std::int64_t>(i);
    if (i < 2) {
      const torch::OnStream on(w.session, streams[i]);
      its_q = all.lying_in_row("queries", all.chunk(q, chunk));
      its_k = all.moved("keys", all.seen_by(chunk, keys)), its_v = all.moved("values", all.seen_by(chunk, values));
      its_dout = all.lying_in_row("out_gradient", all.chunk(dout, chunk));
      of_step[i] = {w.like(a.name("query_gradient"), its_q), w.like(a.name("key_gradient"), its_k),
                    w.like(a.name("value_gradient"), its_v)};
      const Attended its{w.session.unpack(saved.out[i]), w.session.unpack(saved.lse[i]),
                         w.session.unpack(saved.rng_state[i])};
      w.process.wait(streams[i], attended);
      attend_backward(w, a, Mask::Causal, its_dout, its_q, its_k, its_v, its, of_step[i]);
      attended = w.process.record(streams[i]);
    }
    if (i == 0) continue;
    const torch::OnStream on(w.session, streams[i - 1]);
    Gradients& made = of_step[i - 1];
    w.launch(Operation::Copy, {made[0]}, {all.chunk(dq, chunk - 1)});
    made[1] = all.moved("key_gradient_moved", made[1]), made[2] = all.moved("value_gradient_moved", made[2]);
    w.process.wait(streams[i - 1], added);
    for (const auto& [whole, part] : {std::pair{&dk, &made[1]}, std::pair{&dv, &made[2]}}) {
      const Tensor to = all.seen_by(chunk - 1, *whole);
      w.launch(Operation::Add, {to, *part}, {to});
    }
    if (i < 2) added = w.process.record(streams[i - 1]);
  }
  w.process.join(w.process.record(attention_stream));
  dk = all.reordered("key_gradients_by_rank", dk, Gathered::To::Ranks);
  dv = all.reordered("value_gradients_by_rank", dv, Gathered::To::Ranks);
  dk = all.scatter("key_gradients", dk);
  dv = all.scatter("value_gradients", dv);
  dk = all.moved("own_key_gradients", dk);
  dv = all.moved("own_value_gradients", dv);
  return {dq, std::move(dk), std::move(dv)};
}

Tensor attention_over_gathered(Worker& w, const CoreAttention& a, const Tensor& query, Tensor key, Tensor value) {
  w.mark(Phase::Forward, a.name);
  const auto node = w.node(a.name(), {&query, &key, &value});
  const Gathered all(w, a);
  key = all.moved("own_keys", key), value = all.moved("own_values", value);
  const auto [keys, values] = all.all_of(key, value);
  const Tensor out = w.like(a.outside("context"), query);
  Attended steps[2];
  Tensor q, k, v;  // the step's
  EventId attended;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto chunk = static_cast<std::int64_t>(i);
    if (i < 2) {
      const torch::OnStream on(w.session, streams[i]);
      q = all.lying_in_row("queries", all.chunk(query, chunk));
      k = all.moved("keys", all.seen_by(chunk, keys)), v = all.moved("values", all.seen_by(chunk, values));
      w.process.wait(streams[i], attended);
      steps[i] = attend(w, a, Mask::Causal, q, k, v, q.sizes);
      attended = w.process.record(streams[i]);
    }
    if (i == 0) continue;
    const torch::OnStream on(w.session, streams[i - 1]);
    w.launch(Operation::Copy, {steps[i - 1].out}, {all.chunk(out, chunk - 1)});
  }
  w.process.join(w.process.record(attention_stream));
  if (!node) return given(w, out);
  Session& s = w.session;
  GatheredSaved saved{s.save(query), s.save(key), s.save(value), {}, {}, {}};
  for (std::size_t i = 0; i < 2; ++i) {
    saved.out[i] = s.save(steps[i].out);
    saved.lse[i] = s.save(steps[i].lse);
    saved.rng_state[i] = s.save(steps[i].rng_state);
  }
  node->apply = [&w, &a, saved = std::move(saved)](Gradients& gradients) {
    return gathered_backward(w, a, gradients.front(), saved);
  };
  return with(given(w, out), node);
}

// What TransformerEngine takes as it lies is made contiguous first, where it is a view of the joint tensor.
Tensor contiguous(Worker& w, LabelId label, Tensor x) {
  if (x.contiguous()) return x;
  Tensor copy = w.like(label, x);
  copy.gradient = x.gradient;
  w.launch(Operation::Copy, {std::move(x)}, {copy});
  return copy;
}

}  // namespace

Tensor context_attention(Worker& w, const CoreAttention& a, Tensor query, Tensor key, Tensor value) {
  query = contiguous(w, a.outside("q"), std::move(query));
  key = contiguous(w, a.outside("k"), std::move(key));
  value = contiguous(w, a.outside("v"), std::move(value));
  switch (w.layout.context_kind) {
    case ContextKind::Ring:
    case ContextKind::AllToAllAndRing:
      return ring_attention(w, a, std::move(query), std::move(key), std::move(value));
    case ContextKind::AllGather:
      return attention_over_gathered(w, a, query, key, value);
    case ContextKind::AllToAll:
      return ulysses_attention(w, a, query, key, value);
  }
  return {};
}

}  // namespace tidemark::parallel::megatron
