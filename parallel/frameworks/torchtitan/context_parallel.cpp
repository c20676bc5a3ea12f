#include "parallel/frameworks/torchtitan/context_parallel.hpp"

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "parallel/torch/operation.hpp"

// Variables of _templated_ring_attention and _templated_ring_attention_backward are variables here, and live as long.

namespace tidemark::parallel::torchtitan {
namespace {

using torch::NoGrad;
using torch::OnStream;
using torch::Process;
using Made = std::array<Tensor, 4>;  // by the kernel of attention: output, logarithm of sums, seed, offset

constexpr int tokens_of_heads = 2;
constexpr StreamId ring_stream{6};  // NCCL's, of the group

Tensor half(const Tensor& x, std::int64_t which) {
  const std::int64_t tokens = x.sizes[tokens_of_heads] / 2;
  return narrowed(x, tokens_of_heads, which * tokens, tokens);
}

// Which scores the keys that come with a step have with a rank's queries: those of all up to their places; all; with
// the first half of the keys; of the second half of the queries; none.
enum class Section : std::uint8_t { Diagonal, All, FirstKeys, SecondQueries, None };

// _is_causal_behavior, and what follows from it.
Section section(const ContextGroup& group, std::int64_t step) {
  if (step == 0) return Section::Diagonal;
  if (!group.balanced) return step <= group.rank ? Section::All : Section::None;
  return step <= group.rank ? Section::FirstKeys : Section::SecondQueries;
}

torch::FlashWindow seen(Section its) {
  return {its == Section::Diagonal ? torch::FlashWindow::causal : torch::FlashWindow::all};
}
Tensor of_queries(Section its, const Tensor& x) { return its == Section::SecondQueries ? half(x, 1) : x; }
Tensor of_keys(Section its, const Tensor& x) { return its == Section::FirstKeys ? half(x, 0) : x; }

// With a last dimension of one more.
Tensor elementwise(Session& s, std::string_view what, const Computation& computed, const Tensor& a, const Tensor& b) {
  return torch::elementwise(s, what, computed, {&a, &b}, a.dtype);
}
Tensor minus(Session& s, std::string_view what, const Tensor& a, const Tensor& b) {
  return elementwise(s, what, {Operation::AddScaled, {-1}}, a, b);
}

// torch.cat([a.flatten(), b.flatten()]).
Tensor in_row(Session& s, std::string_view what, const Tensor& a, const Tensor& b) {
  const Tensor first = reshape(s, a, {a.elements()}), second = reshape(s, b, {b.elements()});
  Tensor made = s.empty({a.elements() + b.elements()}, a.dtype, what, Category::CommCp);
  s.launch(Operation::Copy, {first, second},
           {narrowed(made, 0, 0, a.elements()), narrowed(made, 0, a.elements(), b.elements())});
  return made;
}
// The two of what came, of sizes that are known.
Tensor first_of(const Tensor& row, const Shape& sizes) { return sized(narrowed(row, 0, 0, elements_of(sizes)), sizes); }
Tensor second_of(const Tensor& row, const Shape& sizes) {
  const std::int64_t elements = elements_of(sizes);
  return sized(narrowed(row, 0, row.elements() - elements, elements), sizes);
}

// _partial_update: the tensor with another half, or with something added to one of its own first.
Tensor with_half(Session& s, const Tensor& x, std::int64_t which, const Tensor& its) {
  Tensor made = s.empty(x.sizes, x.dtype, "cat");
  s.launch(Operation::Copy, {half(x, 1 - which), its}, {half(made, 1 - which), half(made, which)});
  return made;
}
void add_to(Session& s, const Tensor& sum, const Tensor& x) { s.launch(Operation::Add, {sum, x}, {sum}); }
Tensor with_added(Session& s, const Tensor& x, std::int64_t which, const Tensor& added) {
  const Tensor its = half(x, which);
  add_to(s, its, added);
  return with_half(s, x, which, its);
}

// _AllGatherRotater: all keys and values are gathered at once, and handed out one rank's after the other's.
class GatheredRotater {
 public:
  GatheredRotater(Session& s, const ContextGroup& group) : s_(s), group_(group) {}

  void exchange(const Tensor& own) {
    ++step_;
    if (all_.defined()) return;
    all_ = s_.empty({group_.ranks * own.elements()}, own.dtype, "all_gather", Category::CommCp);
    s_.process.wait(ring_stream, s_.process.record(Process::compute_stream));
    {
      const OnStream gathering(s_, ring_stream);
      s_.collective(group_.comm, CollectiveKind::AllGather, own, all_);
    }
    s_.process.cross_stream_use(own.buffer(), ring_stream);
    gathered_ = s_.process.record(ring_stream);
  }
  [[nodiscard]] Tensor next() {
    s_.process.join(std::exchange(gathered_, {}));
    const std::int64_t its = all_.elements() / group_.ranks, from = (group_.rank - step_ + group_.ranks) % group_.ranks;
    return narrowed(all_, 0, from * its, its);
  }

 private:
  Session& s_;
  const ContextGroup& group_;
  Tensor all_;
  EventId gathered_;
  std::int64_t step_ = 0;
};

// _AllToAllRotater: to the next rank, by an all-to-all in which nobody else is sent anything.
class NeighbourRotater {
 public:
  NeighbourRotater(Session& s, const ContextGroup& group) : s_(s), group_(group) {}

  void exchange(const Tensor& own) {
    Tensor came = s_.empty(own.sizes, own.dtype, "all_to_all", Category::CommCp);
    const std::array transfers{Transfer{sim::Direction::Send, 1, own.buffer()},
                               Transfer{sim::Direction::Receive, -1, came.buffer()}};
    came_ = s_.process.exchange_aside(group_.comm, ring_stream, transfers);
    buffer_ = std::move(came);
  }
  [[nodiscard]] Tensor next() {
    s_.process.join(std::exchange(came_, {}));
    return buffer_;
  }

 private:
  Session& s_;
  const ContextGroup& group_;
  Tensor buffer_;
  EventId came_;
};

// _SDPAMerger: outputs of parts of the keys, corrected for what the others add to each row's sum; in fp32.
class Merged {
 public:
  explicit Merged(Session& s) : s_(s) {}

  void step(const Tensor& its_out, const Tensor& its_lse, bool second_half) {
    const Tensor block = to(s_, its_out, DType::FP32), block_lse = with_last_dimension(its_lse);
    if (!out_.defined()) {
      out_ = block, lse_ = block_lse;
      return;
    }
    Tensor out = second_half ? half(out_, 1) : out_, lse = second_half ? half(lse_, 1) : lse_;
    const auto merged = [&] {
      const auto share = [&] {
        const Tensor apart = minus(s_, "lse_difference", block_lse, lse);
        return torch::elementwise(s_, "sigmoid", Operation::Sigmoid, {&apart}, apart.dtype);
      };
      const auto correction = [&] {
        const Tensor its_share = share();
        const Tensor apart = minus(s_, "difference", out, block);
        return elementwise(s_, "correction", Operation::Multiply, apart, its_share);
      };
      const Tensor by = correction();
      return minus(s_, "merged", out, by);
    };
    const auto merged_lse = [&] {
      const auto logarithm = [&] {
        const Tensor apart = minus(s_, "lse_difference", lse, block_lse);
        const Tensor sigmoid = s_.in_registers(apart.sizes, apart.strides, apart.dtype, "sigmoid");
        s_.launch(Operation::Sigmoid, {apart}, {sigmoid});
        return torch::elementwise(s_, "log_sigmoid", Operation::Logarithm, {&sigmoid}, apart.dtype);
      };
      const Tensor by = logarithm();
      return minus(s_, "merged_lse", lse, by);
    };
    out = merged();
    lse = merged_lse();
    lse_ = second_half ? with_half(s_, lse_, 1, lse) : lse;
    out_ = second_half ? with_half(s_, out_, 1, out) : out;
  }
  [[nodiscard]] Tensor out(DType dtype) const { return to(s_, out_, dtype); }
  [[nodiscard]] Tensor lse() const { return sized(lse_, {lse_.sizes[0], lse_.sizes[1], lse_.sizes[2]}); }

 private:
  Session& s_;
  Tensor out_, lse_;
};

Made ring_forward(Session& s, const ContextGroup& group, const Tensor& query, const Tensor& given_key,
                  const Tensor& given_value) {
  const NoGrad no_grad(s);
  Tensor key = contiguous(s, given_key), value = contiguous(s, given_value);
  Merged merged(s);
  GatheredRotater rotater(s, group);
  Tensor q, k, v;
  Made made, first;
  for (std::int64_t i = 0; i < group.ranks; ++i) {
    if (i > 0) {
      const Tensor both = rotater.next();
      const Shape k_sizes = key.sizes, v_sizes = value.sizes;
      key = first_of(both, k_sizes), value = second_of(both, v_sizes);
    }
    if (i + 1 < group.ranks) rotater.exchange(in_row(s, "keys_and_values", key, value));
    const Section its = section(group, i);
    if (its == Section::None) continue;
    q = of_queries(its, query), k = of_keys(its, key), v = of_keys(its, value);
    made = torch::flash_kernel(s, q, k, v, seen(its), 0);
    if (i == 0) first = made, first[0] = first[1] = {};
    merged.step(made[0], made[1], its == Section::SecondQueries);
  }
  return {merged.out(made[0].dtype), merged.lse(), first[2], first[3]};
}

Gradients ring_backward(Session& s, const ContextGroup& group, const Tensor& given, const Tensor& query,
                        const Tensor& given_key, const Tensor& given_value, const Made& made) {
  const NoGrad no_grad(s);
  const auto zeros = [&](const Tensor& like) {
    Tensor its = s.empty_strided(like.sizes, torch::elementwise_strides({&like}, like.sizes), DType::FP32, "zeros");
    s.launch({Operation::Fill, {0}}, {}, {its});
    return its;
  };
  Tensor dq = zeros(query), dk = zeros(given_key), dv = zeros(given_value);
  Tensor key = contiguous(s, given_key), value = contiguous(s, given_value);
  GatheredRotater rotater(s, group);
  NeighbourRotater gradient_rotater(s, group);
  Tensor q, k, v, lse, both, both_gradients;
  Gradients its_own(3);
  for (std::int64_t i = 0; i < group.ranks; ++i) {
    if (i > 0) {
      const Tensor came = rotater.next();
      const Shape k_sizes = key.sizes, v_sizes = value.sizes;
      key = first_of(came, k_sizes), value = second_of(came, v_sizes);
    }
    if (i + 1 < group.ranks) {
      both = in_row(s, "keys_and_values", key, value);
      rotater.exchange(both);
    }
    const Section its = section(group, i);
    if (its == Section::None) {
      its_own[0] = zeros(query), its_own[1] = zeros(key), its_own[2] = zeros(value);
    } else {
      q = of_queries(its, query), k = of_keys(its, key), v = of_keys(its, value);
      lse = its == Section::SecondQueries ? contiguous(s, half(made[1], 1)) : made[1];
      its_own = torch::flash_backward_kernel(s, of_queries(its, given), q, k, v,
                                             {of_queries(its, made[0]), lse, made[2], made[3]}, seen(its), 0);
    }
    if (i > 0) {
      both_gradients = gradient_rotater.next();
      const Shape k_sizes = dk.sizes, v_sizes = dv.sizes;
      dk = first_of(both_gradients, k_sizes), dv = second_of(both_gradients, v_sizes);
    }
    if (its == Section::FirstKeys) {
      dk = with_added(s, dk, 0, its_own[1]);
      dv = with_added(s, dv, 0, its_own[2]);
    } else {
      add_to(s, dk, its_own[1]);
      add_to(s, dv, its_own[2]);
    }
    both_gradients = in_row(s, "key_and_value_gradients", dk, dv);
    gradient_rotater.exchange(both_gradients);
    if (its == Section::SecondQueries)
      dq = with_added(s, dq, 1, its_own[0]);
    else
      add_to(s, dq, its_own[0]);
  }
  dq = to(s, dq, query.dtype);
  both_gradients = to(s, gradient_rotater.next(), key.dtype);
  return {dq, first_of(both_gradients, dk.sizes), second_of(both_gradients, dv.sizes)};
}

}  // namespace

Tensor part_of_sequence(Session& s, const ContextGroup& group, const Tensor& whole) {
  const std::int64_t chunks = group.ranks * (group.balanced ? 2 : 1), tokens = whole.sizes[1] / chunks;
  const auto chunk = [&](const Tensor& x, std::int64_t which) { return narrowed(x, 1, which * tokens, tokens); };
  Tensor rearranged = whole;
  if (group.balanced) {
    rearranged = s.empty(whole.sizes, whole.dtype, "gather");
    std::vector<Tensor> from, to;
    for (std::int64_t i = 0; i < group.ranks; ++i) {
      from.push_back(chunk(whole, i)), to.push_back(chunk(rearranged, 2 * i));
      from.push_back(chunk(whole, chunks - 1 - i)), to.push_back(chunk(rearranged, 2 * i + 1));
    }
    s.launch(Operation::Copy, from, to);
  }
  const std::int64_t its = whole.sizes[1] / group.ranks;
  Tensor part = s.empty({whole.sizes[0], its}, whole.dtype, "part");
  s.launch(Operation::Copy, {narrowed(rearranged, 1, group.rank * its, its)}, {part});
  return part;
}

Tensor ring_attention(Session& s, const ContextGroup& group, const Tensor& query, const Tensor& key,
                      const Tensor& value) {
  auto node = s.node({&query, &key, &value});
  torch::Saved saved_q, saved_k, saved_v;
  if (node) saved_q = s.save(query), saved_k = s.save(key), saved_v = s.save(value);
  Made made;
  // To modes this is one operation, of DTensors.
  if (!s.recalled(torch::Dispatched::FusedAttention, made)) {
    made = ring_forward(s, group, query.detached(), key.detached(), value.detached());
    s.made(torch::Dispatched::FusedAttention, made);
  }
  auto& [out, lse, seed, offset] = made;
  if (node)
    node->apply = [&s, group, saved_offset = s.save(offset), saved_seed = s.save(seed), saved_out = s.save(out),
                   saved_lse = s.save(lse), saved_v, saved_q, saved_k](const Gradients& g) {
      const Tensor in_q = s.unpack(saved_q), in_k = s.unpack(saved_k), in_v = s.unpack(saved_v);
      const Made result{s.unpack(saved_out), s.unpack(saved_lse), s.unpack(saved_seed), s.unpack(saved_offset)};
      return ring_backward(s, group, g.front(), in_q.detached(), in_k.detached(), in_v.detached(), result);
    };
  return with(std::move(out), std::move(node));
}

}  // namespace tidemark::parallel::torchtitan
