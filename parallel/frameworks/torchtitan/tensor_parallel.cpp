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

// loss.py _log_softmax, _nll_loss_forward, _nll_loss_and_log_softmax_backward: rows, and columns of the vocabulary.
Tensor cross_entropy(Session& s, const TensorGroup& group, const Tensor& logits, const Tensor& labels) {
  auto node = s.node({&logits});
  const NoGrad no_grad(s);
  const std::int64_t rows = logits.sizes[0], columns = logits.sizes[1], first = columns * group.rank;
  const auto column = [&s, rows](std::string_view what) { return s.empty({rows, 1}, DType::FP32, what); };
  const auto like_logits = [&s, sizes = logits.sizes](std::string_view what) {
    return s.empty(sizes, DType::FP32, what);
  };
  const auto over_ranks = [&](Tensor part, Reduction reduction) {
    const Tensor whole = s.empty(part.sizes, part.dtype, "all_reduce");
    s.launch(Operation::Copy, {part}, {whole});
    part = {};
    s.collective(group.comm, CollectiveKind::AllReduce, whole, whole, reduction);
    return whole;
  };
  const auto log_softmax = [&] {
    const auto maximum = [&] {
      Tensor made = column("maximum");
      s.launch(Operation::Largest, {logits}, {made});
      return made;
    };
    const Tensor most = over_ranks(maximum(), Reduction::Largest);
    const Tensor shifted = like_logits("shifted");
    s.launch({Operation::AddScaled, {-1}}, {logits, most}, {shifted});
    const auto sum = [&] {
      const Tensor exponentials = like_logits("exponentials");
      s.launch(Operation::Exponential, {shifted}, {exponentials});
      return sum_to(s, exponentials, {rows, 1});
    };
    const Tensor sums = over_ranks(sum(), Reduction::Sum);
    const Tensor logarithms = column("logarithms");
    s.launch(Operation::Logarithm, {sums}, {logarithms});
    Tensor made = like_logits("log_softmax");
    s.launch({Operation::AddScaled, {-1}}, {shifted, logarithms}, {made});
    return made;
  };
  const Tensor result = log_softmax();
  // torch.where(target != ignore_index, …): no label is ignored here.
  const auto chosen = [&s, rows](const Tensor& of, const Tensor& otherwise) {
    const Tensor differs = s.empty({rows}, DType::BOOL, "not_ignored");
    const Tensor zero = s.empty({}, of.dtype, "zero");
    Tensor made = s.empty(otherwise.sizes, otherwise.dtype, "where");
    s.launch(Operation::Copy, {of}, {made});
    return made;
  };
  const auto loss = [&] {
    Tensor targets = s.empty({rows}, DType::INT64, "targets");
    {
      const Tensor differs = s.empty({rows}, DType::BOOL, "not_ignored");
      const Tensor zero = s.empty({}, DType::INT64, "zero");
      s.launch(Operation::Copy, {labels}, {targets});
    }
    Masked its = masked(s, targets, first, columns);
    const Tensor part = column("target_log_softmax");
    s.launch(Operation::Gather, {result, with_last_dimension(its.ids)}, {part});
    s.launch({Operation::MaskedFill, {0}}, {part, with_last_dimension(its.outside)}, {part});
    its.outside = {};
    const Tensor whole = s.empty({rows, 1}, DType::FP32, "all_reduce");
    s.launch(Operation::Copy, {part}, {whole});
    s.collective(group.comm, CollectiveKind::AllReduce, whole, whole);
    Tensor negative = s.empty({rows}, DType::FP32, "neg");
    s.launch({Operation::Scale, {-1}}, {sized(whole, {rows})}, {negative});
    const Tensor counted = chosen(negative, negative);
    negative = {};
    Tensor made = s.empty({1}, DType::FP32, "nll_loss");
    s.launch(Operation::Mean, {counted}, {made});
    made.sizes = made.strides = {};
    return made;
  };
  Saved saved, saved_labels;
  if (node) saved = s.save(result), saved_labels = s.save(labels);
  const Tensor weight = s.empty({}, DType::FP32, "nll_loss_weight");
  s.launch({Operation::Fill, {static_cast<double>(rows)}}, {}, {weight});
  Tensor out = loss();
  if (node)
    node->apply = [&s, saved, saved_labels, saved_weight = s.save(weight), chosen, like_logits, column, rows, columns,
                   first](const Gradients& g) {
      const Tensor its = s.unpack(saved), given = s.unpack(saved_labels), total = s.unpack(saved_weight);
      Tensor targets = s.empty({rows}, DType::INT64, "targets");
      s.launch(Operation::Copy, {given}, {targets});
      const Tensor gradient = like_logits("gradient");
      s.launch({Operation::Fill, {0}}, {}, {gradient});
      const Masked places = masked(s, targets, first, columns);
      const auto update = [&] {
        const Tensor outside = column("outside");
        s.launch(Operation::Copy, {with_last_dimension(places.outside)}, {outside});
        Tensor made = column("update");
        s.launch({Operation::AddNumber, {-1}}, {outside}, {made});
        return made;
      };
      const Tensor values = update();
      const Tensor range = s.empty({rows}, DType::INT64, "arange");
      s.launch(Operation::Scatter, {gradient, with_last_dimension(places.ids), values}, {gradient});
      const Tensor of_rows = column("where");
      s.launch({Operation::Scale, {1 / static_cast<double>(rows)}}, {expanded(g.front(), {rows, 1})}, {of_rows});
      Tensor exponentials = like_logits("exponentials");
      s.launch(Operation::Exponential, {its}, {exponentials});
      const Tensor sum = like_logits("sum");
      s.launch(Operation::Add, {gradient, exponentials}, {sum});
      exponentials = {};
      Tensor made = like_logits("logits_gradient");
      s.launch(Operation::Multiply, {sum, of_rows}, {made});
      return Gradients{std::move(made)};
    };
  return with(std::move(out), std::move(node));
}

}  // namespace tidemark::parallel::torchtitan
