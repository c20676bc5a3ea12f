#include "parallel/frameworks/torchtitan/experts.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "parallel/model/expert_routing.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/grouped_mm.hpp"
#include "parallel/torch/ops/indexing.hpp"

namespace tidemark::parallel::torchtitan {
namespace {

constexpr std::int64_t alignment = 8;         // utils.py TOKEN_GROUP_ALIGN_SIZE_M
constexpr double balance_coefficient = 1e-3;  // MoEArgs.load_balance_coeff

// activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns, "moe.router.gate" by default: checkpointing by
// operations neither keeps nor counts the router's product.
class Undispatched {
 public:
  explicit Undispatched(Session& session) : s_(session), before_(std::exchange(session.dispatch_mode, nullptr)) {}
  ~Undispatched() { s_.dispatch_mode = before_; }
  Undispatched(const Undispatched&) = delete;
  Undispatched& operator=(const Undispatched&) = delete;

 private:
  Session& s_;
  DispatchMode* const before_;
};

std::int64_t aligned(std::int64_t rows) { return (rows + alignment - 1) / alignment * alignment; }

}  // namespace

MixtureOfExperts::MixtureOfExperts(Session& session, const Model& model, const Train& train, std::int32_t layer,
                                   const ExpertGroup& group, const TensorGroup& tensor)
    : s_(session),
      experts_(*model.layer(layer).experts()),
      layer_(layer),
      group_(group),
      tensor_(tensor),
      chosen_rows_(train.tokens() * experts_.chosen),
      own_rows_(chosen_rows_ * group.parts.ranks / tensor.ranks) {
  const LayerRouting routing(model, train.routing, layer, own_rows_ / experts_.chosen, group.ranks);
  const std::int64_t held = experts_.count / group.ranks;
  const std::vector<std::int64_t> own = routing.received(group.rank, group.ranks);
  for (std::int64_t r = 0; r < group.ranks; ++r) {
    const auto first = routing.rows().begin() + r * held;
    sent_.push_back(std::accumulate(first, first + held, std::int64_t{0}));
    for (const std::int64_t rows : own) arriving_.push_back(rows * (r + 1) / group.ranks - rows * r / group.ranks);
  }
  for (const std::int64_t rows : own) padded_.push_back(aligned(std::max(rows, alignment)));
  arriving_rows_ = std::accumulate(own.begin(), own.end(), std::int64_t{0});
  padded_rows_ = aligned(arriving_rows_ + held * alignment);
}

void MixtureOfExperts::make_buffers(const std::string& at) {
  const auto made = [&](const std::string& name) {
    const Tensor buffer = s_.empty({experts_.count}, DType::FP32, at + name, Category::Parameters);
    s_.launch({Operation::Fill, {0}}, {}, {buffer});
    return buffer;
  };
  tokens_per_expert_ = made(".tokens_per_expert");
  expert_bias_ = made(".expert_bias");
}

// _get_node_limited_routing_scores: only experts of groups whose two best have the largest sum are left to be chosen.
Tensor MixtureOfExperts::of_best_groups(const Tensor& scores) {
  constexpr std::int64_t best = 2;
  const std::int64_t tokens = scores.size(0), of_group = experts_.count / experts_.groups;
  const Tensor by_group = view(s_, scores, {tokens, experts_.groups, of_group});
  const TopK two = top_k(s_, by_group, best);
  const Tensor sums = sum(s_, two.values, -1);
  const TopK chosen = top_groups(s_, sums, experts_.topk_group, experts_.chosen, of_group);
  const Tensor mask = s_.empty(sums.sizes, DType::BOOL, "group_mask");
  s_.launch({Operation::Fill, {1}}, {}, {mask});
  s_.launch({Operation::Scatter, {0}}, {mask, chosen.ids, Tensor{}}, {mask});
  const Tensor outside = expand(s_, unsqueeze(s_, mask, 2), by_group.sizes);
  const Tensor left = masked_fill(s_, by_group, outside, -std::numeric_limits<double>::infinity());
  return view(s_, left, {tokens, experts_.count});
}

// TokenChoiceTopKRouter.forward.
MixtureOfExperts::Choice MixtureOfExperts::route(const Tensor& x) {
  const Session::Scope scope(s_, "router");
  Tensor scores = [&] {
    const Undispatched always_again(s_);
    return weights_.router(s_, x);
  }();
  {
    const Tensor wide = to(s_, scores, DType::FP32);
    scores = experts_.score == RouterScore::Sigmoid ? sigmoid(s_, wide) : softmax_last(s_, wide, DType::FP32);
  }
  Tensor for_choice = add(s_, scores, expert_bias_);
  if (experts_.groups > 1) for_choice = of_best_groups(for_choice);
  const TopK top = top_k(s_, for_choice, experts_.chosen, Picks::Experts);
  Tensor chosen = gather(s_, scores, top.ids);
  if (experts_.score != RouterScore::SoftmaxBefore) {  // route_norm
    constexpr double least = 1e-20;
    const Tensor denominator = add_number(s_, unsqueeze(s_, sum(s_, chosen, -1), 1), least);
    chosen = div(s_, chosen, denominator);
  }
  chosen = mul_number(s_, chosen, experts_.scale);
  return {chosen, top.ids, histogram(s_, top.ids, experts_.count)};
}

// MoE.forward, with score_before_experts off.
Tensor MixtureOfExperts::operator()(const Tensor& part) {
  const Session::Scope scope(s_, "moe");
  const Tensor hidden = gathered_alike(s_, tensor_, part);
  return scattered(s_, tensor_, of_whole(hidden));
}

// TokenReorderer.forward: which places of `x` go to experts, those of the first one first; and how many to each.
// Where experts are not cut as the rest is, ranks with the same tokens send a part each (expert_parallel.py
// ReordererSequenceParallel), as they follow each other over sequences.
MixtureOfExperts::Order MixtureOfExperts::sorted(const Choice& choice) {
  const std::int64_t tokens = own_rows_ / experts_.chosen, first = tensor_.rank * tokens;
  const bool parted = own_rows_ < chosen_rows_;
  const Tensor own = parted ? narrowed(choice.experts, 0, first, tokens) : choice.experts;
  const Tensor scores = parted ? slice(s_, choice.scores, 0, first, first + tokens) : choice.scores;
  Order made;
  made.counts = histogram(s_, own, experts_.count);
  made.places = argsort_ascending(s_, sized(own, {own_rows_}));
  made.scores = index_rows(s_, view(s_, scores, {own_rows_, 1}), made.places);
  if (parted)
    made.places = elementwise(s_, "places", {Operation::AddNumber, {static_cast<double>(tensor_.rank * own_rows_)}},
                              {&made.places}, DType::INT64);
  return made;
}

Tensor MixtureOfExperts::of_whole(const Tensor& hidden) {
  const std::int64_t width = hidden.size(-1), each = experts_.chosen, tokens = hidden.elements() / width;
  const Tensor x = view(s_, hidden, {tokens, width});
  Choice choice = route(x);
  s_.launch(Operation::Add, {tokens_per_expert_, choice.counts}, {tokens_per_expert_});
  const Order order = sorted(choice);
  choice.counts = {};
  const auto routed = [&] {
    const Tensor of_tokens = floor_divide(s_, order.places, each);
    return index_rows(s_, x, of_tokens);
  };
  const Tensor routed_input = routed();
  const Tensor routed_output = experts(routed_input, order.counts);
  const Tensor shared = [&] {
    const Session::Scope of_shared(s_, "shared_experts");
    return weights_.shared ? weights_.shared->in_parts(s_, tensor_, x) : Tensor{};
  }();
  const Tensor unsorted =
      index_put_rows(s_, zeros(s_, {chosen_rows_, width}, routed_output.dtype), order.places, routed_output);
  const auto weighed = [&] {
    const Tensor scores = view(s_, choice.scores, {tokens, 1, each});
    return matmul(s_, scores, to(s_, view(s_, unsorted, {tokens, each, width}), DType::FP32));
  };
  const Tensor out = view(s_, to(s_, weighed(), x.dtype), {tokens, width});
  return view(s_, shared.defined() ? add(s_, shared, out) : out, hidden.sizes);
}

// kernels.py generate_permute_indices: rows of each expert, by the ranks they come from.
void MixtureOfExperts::number_rows(const Tensor& places) {
  const std::int64_t ranks = group_.ranks, held = experts_.count / ranks, each = arriving_.front();
  const bool alike = std::ranges::all_of(arriving_, [each](std::int64_t rows) { return rows == each; });
  if (alike && ranks > 1) {  // transposed
    const Shape sizes{arriving_rows_};
    const Tensor counted = s_.in_registers(sizes, {1}, DType::INT32, "counted");
    s_.launch({Operation::Arange, {0}}, {}, {counted});
    Tensor groups = narrowed(places, 0, 0, held * padded_.front());
    groups.sizes = {held, ranks, each};
    groups.strides = {padded_.front(), each, 1};
    s_.launch(Operation::Copy, {swapped(sized(counted, {ranks, held, each}), 0, 1)}, {groups});
    return;
  }
  struct Run {
    std::int64_t row = 0, place = 0, rows = 0;
  };
  std::vector<Run> runs;  // those that follow each other in both orders
  std::int64_t place = 0;
  for (std::int64_t e = 0, begin = 0; e < held; ++e) {
    for (std::int64_t r = 0; r < ranks; ++r) {
      const auto at = arriving_.begin() + r * held + e;
      const std::int64_t row = std::accumulate(arriving_.begin(), at, std::int64_t{0});
      const bool follows =
          !runs.empty() && runs.back().row + runs.back().rows == row && runs.back().place + runs.back().rows == place;
      if (follows)
        runs.back().rows += *at;
      else if (*at > 0)
        runs.push_back({row, place, *at});
      place += *at;
    }
    place = begin += padded_[static_cast<std::size_t>(e)];
  }
  // One kernel writes them all (kernels.py _fill_indices_kernel).
  FusedStep step{false, arriving_rows_ * size_of(places.dtype)};
  for (const Run& run : runs) {
    Computation numbers{Operation::Arange, {static_cast<double>(run.row)}};
    if (runs.size() > 1) numbers.fused = step;
    s_.launch(numbers, {}, {narrowed(places, 0, run.place, run.rows)});
    step = FusedStep{true, {}};
  }
}

// utils.py _permute. Rows that only fill up are copies of one that is zero; there is room for as many as there could
// be.
MixtureOfExperts::Permuted MixtureOfExperts::permuted(const Tensor& x, const Tensor& counts) {
  Permuted made;
  Tensor padded;  // num_tokens_per_expert, m_sizes
  {
    const NoGrad no_grad(s_);
    const Session::Scope scope(s_, "indices");
    const auto number = [&](const Computation& what, const Tensor& of, DType dtype) {
      return elementwise(s_, "sizes", what, {&of}, dtype);
    };
    const std::int64_t held = experts_.count / group_.ranks;
    const Tensor total = sum(s_, sized(counts, {group_.ranks, held}), 0);
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const Tensor least = number({Operation::Clamp, {alignment, infinity}}, total, DType::INT64);
    const Tensor above = number({Operation::AddNumber, {alignment - 1}}, least, DType::INT64);
    const Tensor rest = number({Operation::Remainder, {alignment}}, above, DType::INT64);
    padded = elementwise(s_, "sizes", {Operation::AddScaled, {-1}}, {&above, &rest}, DType::INT32);
    made.places = s_.empty({padded_rows_}, DType::INT32, "permuted_indices");
    s_.launch({Operation::Fill, {static_cast<double>(arriving_rows_)}}, {}, {made.places});
    number_rows(made.places);
  }
  {
    const auto with_zeros = [&] {
      const Tensor none = zeros(s_, {1, x.size(1)}, x.dtype);
      return cat_rows(s_, {x, none});
    };
    const Tensor all = with_zeros();
    made.rows = index_rows(s_, all, made.places);
  }
  made.ends = s_.empty({static_cast<std::int64_t>(padded_.size())}, DType::INT32, "offsets");
  s_.launch(Operation::CumulativeSum, {padded}, {made.ends});
  return made;
}

// moe.py _run_experts_grouped_mm, which multiplies in bf16 whatever it is given.
Tensor MixtureOfExperts::products(const Permuted& input) {
  const auto times = [&](const Tensor& x, const std::shared_ptr<Leaf>& weights) {
    const Tensor narrow = to(s_, x, DType::BF16);
    return grouped_linear(s_, narrow, to(s_, weights->value, DType::BF16), input.ends, padded_);
  };
  const auto gated = [&] {
    const Tensor h = silu(s_, times(input.rows, weights_.gate));
    return mul(s_, h, times(input.rows, weights_.up));
  };
  const Tensor out = times(gated(), weights_.down);
  return to(s_, out, input.rows.dtype);
}

// utils.py _unpermute.
Tensor MixtureOfExperts::unpermuted(const Tensor& out, const Tensor& places) {
  const Tensor all = s_.empty({arriving_rows_ + 1, out.size(1)}, out.dtype, "out_unpermuted");
  return slice(s_, index_put_rows(s_, all, places, out), 0, 0, arriving_rows_);
}

// GroupedExperts.forward by way of indices_padding_wrapper.
Tensor MixtureOfExperts::in_groups(const Tensor& routed, const Tensor& counts) {
  const Permuted input = permuted(routed, counts);
  const auto put_back = [&] {
    const Tensor out = products(input);
    return unpermuted(out, input.places);
  };
  return put_back();
}

void MixtureOfExperts::exchange(const Tensor& from, const Tensor& to, bool back) {
  const std::int64_t held = experts_.count / group_.ranks, width = from.size(1);
  MatrixRow requested{MatrixId{2 * layer_ + (back ? 1 : 0)}, {}, {}};
  bool even = true;
  for (std::int64_t r = 0; r < group_.ranks; ++r) {
    const auto first = arriving_.begin() + r * held;
    const std::int64_t come = std::accumulate(first, first + held, std::int64_t{0});
    requested.sends.push_back(sent_[static_cast<std::size_t>(r)] * width * size_of(from.dtype));
    requested.receives.push_back(come * width * size_of(from.dtype));
    even = even && come == sent_.front() && sent_[static_cast<std::size_t>(r)] == sent_.front();
  }
  if (back) std::swap(requested.sends, requested.receives);
  if (even)
    s_.collective(group_.comm, CollectiveKind::AllToAll, from, to);
  else
    s_.collective(group_.comm, CollectiveKind::AllToAll, from, to, requested);
}

// all_to_all_single_autograd; `back`: to the ranks whose tokens they are.
Tensor MixtureOfExperts::exchanged(const Tensor& rows, bool back) {
  auto node = s_.node({rows});
  const auto made = [this, width = rows.size(1), dtype = rows.dtype](bool home) {
    return s_.empty({home ? own_rows_ : arriving_rows_, width}, dtype, "all_to_all", Category::CommEp);
  };
  Tensor out;
  if (!s_.recalled(Dispatched::AllToAll, {&out, 1})) {
    out = made(back);
    exchange(rows, out, back);
    s_.made(Dispatched::AllToAll, {&out, 1});
  }
  if (node)
    node->apply = [this, made, back](const Gradients& g) {
      Tensor gradient = made(!back);
      exchange(g.front(), gradient, !back);
      return Gradients{std::move(gradient)};
    };
  return with(std::move(out), std::move(node));
}

// How many rows go, and come: the host waits for them, once where checkpointing keeps what it read.
Tensor MixtureOfExperts::counted_by_ranks(const Tensor& counts) {
  Tensor of_group;
  if (!s_.recalled(Dispatched::AllToAll, {&of_group, 1})) {
    of_group = s_.empty(counts.sizes, DType::INT64, "tokens_per_expert_group", Category::CommEp);
    s_.collective(group_.comm, CollectiveKind::AllToAll, counts, of_group);
    s_.made(Dispatched::AllToAll, {&of_group, 1});
  }
  if (!s_.recalled(Dispatched::CopyToHost, {})) {
    s_.process.synchronize();
    s_.made(Dispatched::CopyToHost, {});
  }
  return of_group;
}

// expert_parallel.py ExpertParallel, hooks of the module: what it gives is held while they put it back.
Tensor MixtureOfExperts::of_all_ranks(const Tensor& routed, const Tensor& counts) {
  const auto dispatched = [&] {
    const Tensor of_group = counted_by_ranks(counts);
    const Tensor received = exchanged(routed, false);
    return permuted(received, of_group);
  };
  const Permuted input = dispatched();
  permuted_indices_ = input.places;
  const Tensor out = products(input);
  const auto put_back = [&] { return unpermuted(out, input.places); };
  return exchanged(put_back(), true);
}

Tensor MixtureOfExperts::experts(const Tensor& routed, const Tensor& counts) {
  const Session::Scope scope(s_, "experts");
  return transformers::hooked(hooks_, routed, [&](const Tensor& rows) {
    const Tensor read = read_in_parts(s_, group_.parts, rows);
    return group_.ranks > 1 ? of_all_ranks(read, counts) : in_groups(read, counts);
  });
}

void update_expert_biases(Session& s, const std::vector<CountedExperts>& all, CommSlot ranks) {
  if (all.empty()) return;
  const NoGrad no_grad(s);
  const Session::Scope scope(s, "expert_bias");
  const std::int64_t experts = all.front().its->expert_bias().elements();
  const Tensor tokens = s.empty({static_cast<std::int64_t>(all.size()), experts}, DType::FP32, "tokens_per_expert");
  {
    std::vector<Tensor> rows, places;
    for (std::size_t i = 0; i < all.size(); ++i) {
      constexpr double half = 0.5;  // counted in both passes, and so even
      const Tensor& counted = all[i].its->tokens_per_expert();
      rows.push_back(all[i].twice ? elementwise(s, "counted", {Operation::Scale, {half}}, {&counted}, DType::FP32)
                                  : counted);
      places.push_back(sized(narrowed(tokens, 0, static_cast<std::int64_t>(i), 1), {experts}));
    }
    s.launch(Operation::Copy, rows, places);
  }
  if (ranks.valid()) s.collective(ranks, CollectiveKind::AllReduce, tokens, tokens);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Tensor row = sized(narrowed(tokens, 0, static_cast<std::int64_t>(i), 1), {experts});
    const auto less = [&](const Tensor& x, const Tensor& y) {
      return elementwise(s, "difference", {Operation::AddScaled, {-1}}, {&x, &y}, DType::FP32);
    };
    const auto delta = [&] {
      const auto sign = [&] {
        const Tensor offset = less(mean_to(s, row, {1}), row);
        return elementwise(s, "sign", Operation::Sign, {&offset}, DType::FP32);
      };
      return mul_number(s, sign(), balance_coefficient);
    };
    Tensor moved = delta();
    moved = less(moved, mean_to(s, moved, {1}));
    const Tensor& bias = all[i].its->expert_bias();
    s.launch(Operation::Add, {bias, moved}, {bias});
    s.launch({Operation::Fill, {0}}, {}, {all[i].its->tokens_per_expert()});
  }
}

}  // namespace tidemark::parallel::torchtitan
