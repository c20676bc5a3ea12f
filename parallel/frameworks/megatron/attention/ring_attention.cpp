#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/frameworks/megatron/attention/context_exchange.hpp"
#include "parallel/frameworks/megatron/te.hpp"

// TransformerEngine 2.11, attention/dot_product_attention/context_parallel.py AttnFuncWithCPAndKVP2P: keys and values
// go round a ring, and every step's attention is corrected for the keys of the others. Where ranks are divided into
// groups, all-to-alls within them go before and after. Variables of a function are its variables there.

namespace tidemark::parallel::megatron {

using torch::OnStream;
using torch::with;

namespace {

using Process = torch::Process;
constexpr StreamId ring_stream{6};  // NCCL's, of the group

// Of the scores that one step makes of a rank's queries and the keys of another: those of both chunks up to their
// places, those of the other's first chunk, those of the own second chunk.
enum class Section : std::uint8_t { Diagonal, FirstKeys, SecondQueries };

class Ring {
 public:
  Ring(Worker& w, const CoreAttention& a)
      : w_(w),
        a_(a),
        ranks_(w.layout.context / w.layout.ulysses()),
        me_(attention_place(w.layout, w.place.context)),
        along_(batch_first(w) ? 1 : 0) {}

  [[nodiscard]] std::int32_t ranks() const { return ranks_; }
  [[nodiscard]] std::int32_t me() const { return me_; }
  // Of the keys that come with a step of the forward pass, which the backward pass goes through the other way.
  [[nodiscard]] Section section(std::int32_t step) const {
    return step == 0 ? Section::Diagonal : step <= me_ ? Section::FirstKeys : Section::SecondQueries;
  }

  // A chunk of a rank's tokens.
  [[nodiscard]] Tensor chunk(const Tensor& x, std::int64_t which) const {
    const std::int64_t tokens = x.size(along_) / 2;
    return narrowed(x, along_, which * tokens, tokens);
  }
  [[nodiscard]] Tensor queries(Section section, const Tensor& x) const {
    return section == Section::SecondQueries ? chunk(x, 1) : x;
  }
  [[nodiscard]] Tensor keys(Section section, const Tensor& x) const {
    return section == Section::FirstKeys ? chunk(x, 0) : x;
  }
  static Mask mask(Section section) { return section == Section::Diagonal ? Mask::Causal : Mask::None; }

  // Statistics, [batch, heads, tokens], as they lie beside [sequence, batch, heads, width] or batch first.
  [[nodiscard]] Tensor beside_tokens(Tensor lse) const {
    lse = swapped(std::move(lse), 1, 2);
    if (along_ == 0) lse = swapped(std::move(lse), 0, 1);
    Shape shape = lse.sizes;
    shape.push_back(1);
    return sized(std::move(lse), shape);
  }
  static Tensor second_half(const Tensor& lse) {
    const std::int64_t tokens = lse.size(-1) / 2;
    return narrowed(lse, -1, tokens, tokens);
  }

  // After what the current stream has been given, to the neighbour on one side and from that on the other.
  [[nodiscard]] EventId pass_on(StreamId after, std::int32_t step, const Tensor& send, const Tensor& receive,
                                std::int32_t part = 0, std::int32_t parts = 1) const {
    w_.process.wait(ring_stream, w_.process.record(after));
    const std::array transfers{Transfer{sim::Direction::Send, step, send.buffer(), part, parts},
                               Transfer{sim::Direction::Receive, -step, receive.buffer(), part, parts}};
    w_.process.exchange(w_.comms.context, transfers, ring_stream);
    return w_.process.record(ring_stream);
  }

  // A step of the backward pass; `of` is given back.
  [[nodiscard]] Gradients step_backward(Section section, const Tensor& dout, const Tensor& q, const Tensor& k,
                                        const Tensor& v, const Attended& merged) const {
    const Tensor its_q = queries(section, q), its_k = keys(section, k), its_v = keys(section, v);
    Gradients made{w_.like(a_.name("query_gradient"), its_q), w_.like(a_.name("key_gradient"), its_k),
                   w_.like(a_.name("value_gradient"), its_v)};
    const Attended its{queries(section, merged.out), merged.lse, merged.rng_state};
    attend_backward(w_, a_, mask(section), queries(section, dout), its_q, its_k, its_v, its, made);
    return made;
  }

  // Becomes the sum, or what is added where nobody has written yet.
  void add(const Tensor& to, Tensor what, bool first) const {
    if (first)
      w_.launch(Operation::Copy, {std::move(what)}, {to});
    else
      w_.launch(Operation::Add, {to, std::move(what)}, {to});
  }

 private:
  Worker& w_;
  const CoreAttention& a_;
  std::int32_t ranks_, me_;
  int along_;  // the dimension of the sequence
};

// Keys and values of one step lie one behind the other.
struct KeysAndValues {
  Tensor key, value;
  KeysAndValues(const Tensor& both, const Shape& k, const Shape& v)
      : key(sized(narrowed(both, 0, 0, elements_of(k)), k)),
        value(sized(narrowed(both, 0, elements_of(k), elements_of(v)), v)) {}
};

// What backward reads.
struct RingSaved {
  Saved query, both, out, lse;
  std::vector<Saved> rng_states;
  Shape k, v, given;
};

Tensor merged(Worker& w, const CoreAttention& a, const Ring& ring, const std::vector<Attended>& steps,
              const Tensor& lse) {
  Tensor out = w.like(a.outside("context"), steps.front().out);
  for (std::int32_t i = 0; i < ring.ranks(); ++i) {
    const Attended& step = steps[static_cast<std::size_t>(i)];
    const bool second = ring.section(i) == Section::SecondQueries;
    const Tensor to = second ? ring.chunk(out, 1) : out, its = second ? Ring::second_half(lse) : lse;
    w.launch(Operation::SoftmaxCorrection,
             {step.out, ring.beside_tokens(step.lse), ring.beside_tokens(its), i == 0 ? Tensor{} : to}, {to});
  }
  return out;
}

// Second chunks of queries come first, where there are keys of later ranks.
void add_query_gradients(const Ring& ring, const Tensor& sum, const Tensor& made, Section section, std::int32_t step) {
  const std::int32_t last = ring.ranks() - 1, me = ring.me();
  if (section == Section::SecondQueries) {
    ring.add(ring.chunk(sum, 1), made, step == 0);
  } else if (step == last - me && me < last) {
    ring.add(ring.chunk(sum, 0), ring.chunk(made, 0), true);
    ring.add(ring.chunk(sum, 1), ring.chunk(made, 1), false);
  } else {
    ring.add(sum, made, step == last - me);
  }
}

Gradients ring_backward(Worker& w, const CoreAttention& a, const Tensor& given, const RingSaved& saved) {
  const Ring ring(w, a);
  const std::int32_t ranks = ring.ranks(), me = ring.me();
  const Tensor q = w.session.unpack(saved.query), both = w.session.unpack(saved.both),
               lse = w.session.unpack(saved.lse);
  Tensor out = w.session.unpack(saved.out), dout = sized(given, saved.given), second_lse;
  out = sized(std::move(out), saved.given);
  if (me < ranks - 1) {
    const Tensor half = Ring::second_half(lse);
    second_lse = w.temporary(a.name("second_lse"), half.sizes, DType::FP32);
    w.launch(Operation::Copy, {half}, {second_lse});
  }
  const Tensor dq = w.like(a.name("query_gradients"), q);
  const auto buffer = [&] { return w.make(a.name("ring"), {2, both.elements()}, both.dtype, Category::CommCp); };
  const Tensor buffers[] = {buffer(), buffer()};
  const auto half = [&](std::int32_t i, std::int64_t which) {
    return sized(narrowed(buffers[i % 2], 0, which, 1), both.sizes);
  };
  w.launch(Operation::Copy, {both}, {half(0, 0)});
  if (w.layout.ulysses() > 1) {
    Tensors of_heads = to_heads(w, a.name, {out, dout});
    out = std::move(of_heads[0]), dout = std::move(of_heads[1]);
  }
  KeysAndValues gradients(half(0, 1), saved.k, saved.v);
  EventId received;
  for (std::int32_t i = 0; i < ranks; ++i) {
    w.process.join(received);
    // First keys and values alone, then with their gradients, last the gradients.
    const bool first = i == 0, last = i == ranks - 1;
    const std::int32_t part = last ? 1 : 0, parts = first || last ? 2 : 1;
    received = ring.pass_on(Process::compute_stream, -1, buffers[i % 2], buffers[(i + 1) % 2], part, parts);
    const KeysAndValues its(half(i, 0), saved.k, saved.v);
    const Section section = ring.section(ranks - 1 - i);
    const Tensor rng = w.session.unpack(saved.rng_states[static_cast<std::size_t>(ranks - 1 - i)]);
    Gradients made = ring.step_backward(section, dout, q, its.key, its.value,
                                        {out, section == Section::SecondQueries ? second_lse : lse, rng});
    add_query_gradients(ring, dq, made[0], section, i);
    w.process.join(received);
    gradients = KeysAndValues(half(i + 1, 1), saved.k, saved.v);
    for (const auto& [of, to] : {std::pair{&made[1], &gradients.key}, std::pair{&made[2], &gradients.value}}) {
      if (section == Section::FirstKeys) {
        ring.add(ring.chunk(*to, 0), *of, first);
      } else if (last && me == 0) {  // nobody before has seen the second chunk of keys
        ring.add(ring.chunk(*to, 0), ring.chunk(*of, 0), false);
        ring.add(ring.chunk(*to, 1), ring.chunk(*of, 1), true);
      } else {
        ring.add(*to, *of, first);
      }
    }
  }
  if (w.layout.ulysses() == 1) return {dq, gradients.key, gradients.value};
  return Gradients(to_tokens(w, a.name, {dq, gradients.key, gradients.value}));
}

// The log-sum-exp of a step, with those of the steps before it.
void merge_statistics(Worker& w, const CoreAttention& a, const Ring& ring, std::int32_t step, const Tensor& its,
                      Tensor& lse) {
  if (step == 0) {
    lse = w.temporary(a.outside("lse"), its.sizes, DType::FP32);
    w.launch(Operation::Copy, {its}, {lse});
    return;
  }
  const Tensor to = ring.section(step) == Section::SecondQueries ? Ring::second_half(lse) : lse;
  w.launch(Operation::LogAddExp, {to, its}, {to});
}

RingSaved saved_of_ring(Worker& w, const Tensor& query, const Tensor& both, const Tensor& out, const Tensor& lse,
                        const std::vector<Attended>& steps) {
  Session& s = w.session;
  s.reclassify(both, Category::SavedActivations);
  RingSaved saved{s.save(query), s.save(both), s.save(out), s.save(lse), {}, {}, {}, out.sizes};
  for (const Attended& step : steps) saved.rng_states.push_back(s.save(step.rng_state));
  return saved;
}

}  // namespace

Tensor ring_attention(Worker& w, const CoreAttention& a, Tensor query, Tensor key, Tensor value) {
  w.mark(Phase::Forward, a.name);
  const auto node = w.node(a.name(), {&query, &key, &value});
  const Ring ring(w, a);
  const auto ranks = static_cast<std::size_t>(ring.ranks());
  if (w.layout.ulysses() > 1) {
    Tensors of_heads = to_heads(w, a.name, {query, key, value});
    query = std::move(of_heads[0]), key = std::move(of_heads[1]), value = std::move(of_heads[2]);
  }
  const Shape k = key.sizes, v = value.sizes;
  const auto buffer = [&] {
    return w.make(a.outside("kv"), {key.elements() + value.elements()}, key.dtype, Category::CommCp);
  };
  std::vector<Tensor> buffers(ranks);
  buffers[0] = buffer();
  {
    const KeysAndValues own(buffers[0], k, v);
    w.launch(Operation::Copy, {key, value}, {own.key, own.value});
  }
  // Steps run on two streams in turn; their statistics are merged one after the other. Two kernels of attention fill
  // the device each: it comes to the second when the first is over, which no framework has to say.
  const StreamId streams[] = {Process::compute_stream, attention_stream};
  std::vector<Attended> steps(ranks);
  Tensor lse;
  EventId received, merged_lse, attended_before;
  for (std::size_t i = 0; i < ranks + 1; ++i) {
    if (i < ranks) {
      const StreamId stream = streams[i % 2];
      const OnStream on(w.session, stream);
      w.process.wait(stream, received);
      if (i + 1 < ranks) {
        buffers[i + 1] = buffer();
        received = ring.pass_on(stream, +1, buffers[i], buffers[i + 1]);
      }
      const KeysAndValues its(buffers[i], k, v);
      const Section section = ring.section(static_cast<std::int32_t>(i));
      const Tensor q = ring.queries(section, query);
      Shape attended = q.sizes;
      attended.back() = v.back();
      w.process.wait(stream, attended_before);
      steps[i] =
          attend(w, a, Ring::mask(section), q, ring.keys(section, its.key), ring.keys(section, its.value), attended);
      attended_before = w.process.record(stream);
    }
    if (i == 0) continue;
    const StreamId stream = streams[(i - 1) % 2];
    const Tensor& its = steps[i - 1].lse;
    w.process.wait(stream, merged_lse);
    const OnStream on(w.session, stream);
    merge_statistics(w, a, ring, static_cast<std::int32_t>(i) - 1, its, lse);
    if (i < ranks) merged_lse = w.process.record(stream);
  }
  w.process.join(w.process.record(attention_stream));
  Tensor out = merged(w, a, ring, steps, lse);
  if (w.layout.ulysses() > 1) out = to_tokens(w, a.name, {out}).front();
  const Tensor given = batch_first(w) ? out : sized(out, w.part(w.model.heads * w.model.value_dim()));
  if (!node) return given;
  RingSaved saved = saved_of_ring(w, query, buffers.back(), out, lse, steps);
  saved.k = k, saved.v = v;
  node->apply = [&w, &a, saved = std::move(saved)](Gradients& gradients) {
    return ring_backward(w, a, gradients.front(), saved);
  };
  return with(given, node);
}

}  // namespace tidemark::parallel::megatron
