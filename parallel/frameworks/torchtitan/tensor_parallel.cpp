#include "parallel/frameworks/torchtitan/tensor_parallel.hpp"

#include <array>
#include <utility>
#include <vector>

#include "parallel/torch/operation.hpp"

namespace tidemark::parallel::torchtitan {
namespace {

constexpr int sequence = 1;

// One after another along the first dimension, and side by side along another one.
Tensor side_by_side(Session& s, const TensorGroup& group, const Tensor& stacked, int dimension) {
  const std::int64_t each = stacked.sizes[0] / group.ranks, width = stacked.size(dimension);
  Shape sizes = stacked.sizes;
  sizes[0] = each;
  sizes[static_cast<std::size_t>(dimension < 0 ? static_cast<int>(sizes.size()) + dimension : dimension)] *=
      group.ranks;
  // _maybe_view_chunk_cat: nothing moves where only dimensions of one place are passed.
  if (dimension == sequence && each == 1) return sized(stacked, sizes);
  Tensor made = s.empty(sizes, stacked.dtype, "cat");
  std::vector<Tensor> from, to;
  for (std::int64_t rank = 0; rank < group.ranks; ++rank) {
    from.push_back(narrowed(stacked, 0, rank * each, each));
    to.push_back(narrowed(made, dimension, rank * width, width));
  }
  s.launch(Operation::Copy, from, to);
  return made;
}

Tensor gather(Session& s, const TensorGroup& group, const Tensor& x, int dimension) {
  const NoGrad no_grad(s);
  Tensor stacked = s.empty(with_size(x.sizes, 0, x.sizes[0] * group.ranks), x.dtype, "all_gather");
  s.collective(group.comm, CollectiveKind::AllGather, x, stacked);
  return side_by_side(s, group, stacked, dimension);
}

// Parts of the sequence come one after another first: _chunk_or_narrow_cat.
Tensor reduce_scatter(Session& s, const TensorGroup& group, const Tensor& x) {
  const NoGrad no_grad(s);
  const std::int64_t batch = x.sizes[0], each = x.sizes[1] / group.ranks;
  const Tensor stacked = s.empty({batch * group.ranks, each, x.sizes[2]}, x.dtype, "cat");
  std::vector<Tensor> from, to;
  for (std::int64_t rank = 0; rank < group.ranks; ++rank) {
    from.push_back(narrowed(x, sequence, rank * each, each));
    to.push_back(narrowed(stacked, 0, rank * batch, batch));
  }
  s.launch(Operation::Copy, from, to);
  Tensor made;
  if (s.recalled(Dispatched::ReduceScatter, {&made, 1})) return made;
  made = s.empty({batch, each, x.sizes[2]}, x.dtype, "reduce_scatter");
  s.collective(group.comm, CollectiveKind::ReduceScatter, stacked, made);
  s.made(Dispatched::ReduceScatter, {&made, 1});
  return made;
}

// Partial._reduce_value: in a copy.
Tensor sum_over(Session& s, const TensorGroup& group, const Tensor& part) {
  const Tensor whole = s.empty(part.sizes, part.dtype, "all_reduce");
  s.launch(Operation::Copy, {part}, {whole});
  s.collective(group.comm, CollectiveKind::AllReduce, whole, whole);
  return whole;
}

// Partial._partition_value: as many of it are the whole again.
Tensor share_of(Session& s, const TensorGroup& group, const Tensor& whole) {
  const Tensor share = s.empty(whole.sizes, whole.dtype, "share");
  s.launch({Operation::Scale, {1 / static_cast<double>(group.ranks)}}, {whole}, {share});
  return share;
}

// _dispatch.py redistribute_local_args: what the operation that made `x` is given stays while its backward pass runs.
template <class Redistribute>
Tensor redistributed_before(Session& s, const TensorGroup& group, const Tensor& x, Redistribute redistribute) {
  if (group.ranks == 1) return x;
  auto node = s.node({&x});
  if (node)
    node->apply = [&s, group, redistribute, maker = x.gradient.node.get()](const Gradients& g) {
      maker->frame.push_back(g.front());
      return Gradients{redistribute(s, group, g.front())};
    };
  return with(x.detached(), std::move(node));
}

// _MaskPartial._partition_value: which ids are of other ranks' rows, and places in this one's of the others.
struct Masked {
  Tensor outside, ids;
};
Masked masked(Session& s, const Tensor& ids, std::int64_t first, std::int64_t rows) {
  const auto truths = [&] { return s.empty(ids.sizes, DType::BOOL, "mask"); };
  Masked made;
  Tensor before = truths(), behind = truths();
  made.outside = truths();
  before = {}, behind = {};
  const Tensor moved = s.empty(ids.sizes, DType::INT64, "masked_ids");
  made.ids = s.empty(ids.sizes, DType::INT64, "masked_ids");
  s.launch({Operation::VocabularyMask, {static_cast<double>(first), static_cast<double>(first + rows)}}, {ids},
           {made.outside, made.ids});
  return made;
}

// The same with a last dimension of one more.
}  // namespace

Tensor gathered(Session& s, const TensorGroup& group, const Tensor& x) {
  if (group.ranks == 1) return x;
  auto node = s.node({&x});
  if (node) node->of_dtensor = true;
  if (node) node->apply = [&s, group](const Gradients& g) { return Gradients{reduce_scatter(s, group, g.front())}; };
  return with(gather(s, group, x.detached(), sequence), std::move(node));
}

Tensor gathered_alike(Session& s, const TensorGroup& group, const Tensor& x) {
  if (group.ranks == 1) return x;
  auto node = s.node({&x});
  if (node)
    node->apply = [&s, group, sizes = x.sizes](const Gradients& g) {  // _replicate_to_shard
      const std::int64_t each = sizes[sequence];
      const Tensor own = s.empty(sizes, g.front().dtype, "chunk");
      s.launch(Operation::Copy, {narrowed(g.front(), sequence, group.rank * each, each)}, {own});
      return Gradients{own};
    };
  return with(gather(s, group, x.detached(), sequence), std::move(node));
}

Tensor read_in_parts(Session& s, const TensorGroup& group, const Tensor& x) {
  if (group.ranks == 1) return x;
  auto node = s.node({&x});
  if (node) node->apply = [&s, group](const Gradients& g) { return Gradients{sum_over(s, group, g.front())}; };
  return with(x.detached(), std::move(node));
}

Tensor summed_before(Session& s, const TensorGroup& group, const Tensor& made) {
  return redistributed_before(s, group, made, sum_over);
}

Tensor shared_out_before(Session& s, const TensorGroup& group, const Tensor& piece) {
  return redistributed_before(s, group, piece, share_of);
}

std::array<Tensor, 2> read_in_parts_and_whole(Session& s, const TensorGroup& group, const Tensor& x) {
  if (group.ranks == 1) return {x, x};
  auto node = s.node({&x});
  if (node) {
    node->outputs = 2;
    node->apply = [&s, group](const Gradients& g) {
      const Tensor share = share_of(s, group, g[1]);
      const Tensor sum = s.empty(g[0].sizes, g[0].dtype, "sum");
      s.launch(Operation::Add, {g[0], share}, {sum});
      return Gradients{sum};
    };
  }
  return {with(x.detached(), node), with(x.detached(), node, 1)};
}

Tensor scattered(Session& s, const TensorGroup& group, const Tensor& x) {
  if (group.ranks == 1) return x;
  auto node = s.node({&x});
  if (node) node->apply = [&s, group](const Gradients& g) { return Gradients{gather(s, group, g.front(), sequence)}; };
  return with(reduce_scatter(s, group, x.detached()), std::move(node));
}

Tensor whole_last(Session& s, const TensorGroup& group, const Tensor& x) {
  if (group.ranks == 1) return x;
  auto node = s.node({&x});
  if (node)
    node->apply = [&s, group, sizes = x.sizes](const Gradients& g) {
      const Tensor own = s.empty(sizes, g.front().dtype, "logits_gradient");
      s.launch(Operation::Copy, {narrowed(g.front(), -1, group.rank * sizes.back(), sizes.back())}, {own});
      return Gradients{own};
    };
  return with(gather(s, group, x.detached(), -1), std::move(node));
}

Tensor embedding(Session& s, const TensorGroup& group, const Tensor& ids, const Tensor& weight) {
  if (group.ranks == 1) return torch::embedding(s, ids, weight);
  const std::int64_t rows = weight.sizes.front(), first = rows * group.rank;
  auto node = s.node({&weight});
  Saved saved;
  if (node) saved = s.save(ids);
  if (node) node->inputs[0].sizes = with_size(weight.sizes, 0, rows * group.ranks);
  Tensor out;
  {
    const NoGrad no_grad(s);
    const Masked its = masked(s, ids, first, rows);
    out = torch::embedding(s, its.ids, weight);
    s.launch({Operation::MaskedFill, {0}}, {out, with_last_dimension(its.outside)}, {out});
  }
  if (node)
    node->apply = [&s, saved, whole = node->inputs[0].sizes, dtype = weight.dtype](const Gradients& g) {
      // Every rank has all tokens' gradients, and the whole weight's comes of them (_embedding_ops.py
      // embedding_dense_backward_strategy: nothing cuts it).
      const Tensor places = s.unpack(saved);
      return Gradients{embedding_backward(s, g.front(), places, whole, dtype)};
    };
  return with(std::move(out), std::move(node));
}

namespace {

// Logits of a rank's part of the vocabulary: a row for each token.
struct LogitsPart {
  Session& s;
  Shape sizes;
  std::int64_t first;  ///< token of the vocabulary

  [[nodiscard]] std::int64_t rows() const { return sizes[0]; }
  [[nodiscard]] std::int64_t columns() const { return sizes[1]; }
  [[nodiscard]] Tensor column(std::string_view what) const { return s.empty({rows(), 1}, DType::FP32, what); }
  [[nodiscard]] Tensor like_logits(std::string_view what) const { return s.empty(sizes, DType::FP32, what); }
  [[nodiscard]] Tensor targets() const { return s.empty({rows()}, DType::INT64, "targets"); }
};

Tensor over_ranks(Session& s, const TensorGroup& group, Tensor part, Reduction reduction) {
  const Tensor whole = s.empty(part.sizes, part.dtype, "all_reduce");
  s.launch(Operation::Copy, {part}, {whole});
  part = {};
  s.collective(group.comm, CollectiveKind::AllReduce, whole, whole, reduction);
  return whole;
}

// loss.py _log_softmax
Tensor log_softmax(const LogitsPart& part, const TensorGroup& group, const Tensor& logits) {
  Session& s = part.s;
  const auto maximum = [&] {
    Tensor made = part.column("maximum");
    s.launch(Operation::Largest, {logits}, {made});
    return made;
  };
  const Tensor most = over_ranks(s, group, maximum(), Reduction::Largest);
  const Tensor shifted = part.like_logits("shifted");
  s.launch({Operation::AddScaled, {-1}}, {logits, most}, {shifted});
  const auto sum = [&] {
    const Tensor exponentials = part.like_logits("exponentials");
    s.launch(Operation::Exponential, {shifted}, {exponentials});
    return sum_to(s, exponentials, {part.rows(), 1});
  };
  const Tensor sums = over_ranks(s, group, sum(), Reduction::Sum);
  const Tensor logarithms = part.column("logarithms");
  s.launch(Operation::Logarithm, {sums}, {logarithms});
  Tensor made = part.like_logits("log_softmax");
  s.launch({Operation::AddScaled, {-1}}, {shifted, logarithms}, {made});
  return made;
}

// torch.where(target != ignore_index, …): no label is ignored here.
Tensor where_not_ignored(const LogitsPart& part, const Tensor& of) {
  Session& s = part.s;
  const Tensor differs = s.empty({part.rows()}, DType::BOOL, "not_ignored");
  const Tensor zero = s.empty({}, of.dtype, "zero");
  Tensor made = s.empty(of.sizes, of.dtype, "where");
  s.launch(Operation::Copy, {of}, {made});
  return made;
}

// loss.py _nll_loss_forward
Tensor nll_loss(const LogitsPart& logits, const TensorGroup& group, const Tensor& result, const Tensor& labels) {
  Session& s = logits.s;
  const std::int64_t rows = logits.rows();
  Tensor targets = logits.targets();
  {
    const Tensor differs = s.empty({rows}, DType::BOOL, "not_ignored");
    const Tensor zero = s.empty({}, DType::INT64, "zero");
    s.launch(Operation::Copy, {labels}, {targets});
  }
  Masked its = masked(s, targets, logits.first, logits.columns());
  const Tensor part = logits.column("target_log_softmax");
  s.launch(Operation::Gather, {result, with_last_dimension(its.ids)}, {part});
  s.launch({Operation::MaskedFill, {0}}, {part, with_last_dimension(its.outside)}, {part});
  its.outside = {};
  const Tensor whole = s.empty({rows, 1}, DType::FP32, "all_reduce");
  s.launch(Operation::Copy, {part}, {whole});
  s.collective(group.comm, CollectiveKind::AllReduce, whole, whole);
  Tensor negative = s.empty({rows}, DType::FP32, "neg");
  s.launch({Operation::Scale, {-1}}, {sized(whole, {rows})}, {negative});
  const Tensor counted = where_not_ignored(logits, negative);
  negative = {};
  Tensor made = s.empty({1}, DType::FP32, "nll_loss");
  s.launch(Operation::Mean, {counted}, {made});
  made.sizes = made.strides = {};
  return made;
}

// loss.py _nll_loss_and_log_softmax_backward
Tensor logits_gradient(const LogitsPart& part, const Tensor& log_softmax, const Tensor& labels, const Tensor& of_loss) {
  Session& s = part.s;
  const std::int64_t rows = part.rows();
  Tensor targets = part.targets();
  s.launch(Operation::Copy, {labels}, {targets});
  const Tensor gradient = part.like_logits("gradient");
  s.launch({Operation::Fill, {0}}, {}, {gradient});
  const Masked places = masked(s, targets, part.first, part.columns());
  const auto update = [&] {
    const Tensor outside = part.column("outside");
    s.launch(Operation::Copy, {with_last_dimension(places.outside)}, {outside});
    Tensor made = part.column("update");
    s.launch({Operation::AddNumber, {-1}}, {outside}, {made});
    return made;
  };
  const Tensor values = update();
  const Tensor range = s.empty({rows}, DType::INT64, "arange");
  s.launch(Operation::Scatter, {gradient, with_last_dimension(places.ids), values}, {gradient});
  const Tensor of_rows = part.column("where");
  s.launch({Operation::Scale, {1 / static_cast<double>(rows)}}, {expanded(of_loss, {rows, 1})}, {of_rows});
  Tensor exponentials = part.like_logits("exponentials");
  s.launch(Operation::Exponential, {log_softmax}, {exponentials});
  const Tensor sum = part.like_logits("sum");
  s.launch(Operation::Add, {gradient, exponentials}, {sum});
  exponentials = {};
  Tensor made = part.like_logits("logits_gradient");
  s.launch(Operation::Multiply, {sum, of_rows}, {made});
  return made;
}

}  // namespace

Tensor cross_entropy(Session& s, const TensorGroup& group, const Tensor& logits, const Tensor& labels) {
  auto node = s.node({&logits});
  const NoGrad no_grad(s);
  const LogitsPart part{s, logits.sizes, logits.sizes[1] * group.rank};
  const Tensor result = log_softmax(part, group, logits);
  Saved saved, saved_labels;
  if (node) saved = s.save(result), saved_labels = s.save(labels);
  const Tensor weight = s.empty({}, DType::FP32, "nll_loss_weight");
  s.launch({Operation::Fill, {static_cast<double>(part.rows())}}, {}, {weight});
  Tensor out = nll_loss(part, group, result, labels);
  if (node)
    node->apply = [part, saved, saved_labels, saved_weight = s.save(weight)](const Gradients& g) {
      Session& session = part.s;
      const Tensor its = session.unpack(saved), given = session.unpack(saved_labels),
                   total = session.unpack(saved_weight);
      return Gradients{logits_gradient(part, its, given, g.front())};
    };
  return with(std::move(out), std::move(node));
}

}  // namespace tidemark::parallel::torchtitan
