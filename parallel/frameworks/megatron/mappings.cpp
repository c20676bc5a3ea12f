#include "parallel/frameworks/megatron/mappings.hpp"

#include <utility>

#include "parallel/torch/ops/aten.hpp"

namespace tidemark::parallel::megatron {

using torch::with;

namespace {

Tensor room(Worker& w, LabelId label, Shape sizes, DType dtype, Into into) {
  if (into == Into::GlobalBuffer) return w.global_buffer(sizes);
  return w.make(label, std::move(sizes), dtype, Category::CommEp);
}

Tensor moved(Worker& w, LabelId label, const RankGroup& group, CollectiveKind kind, const Tensor& x, Into into) {
  Shape sizes = x.sizes;
  sizes[0] = kind == CollectiveKind::AllGather ? sizes[0] * group.size : sizes[0] / group.size;
  Tensor out = room(w, label, std::move(sizes), x.dtype, into);
  w.session.collective(group.comm, kind, x.contiguous() ? x : torch::contiguous(w.session, x), out);
  return out;
}

Tensor mapped(Worker& w, const Name& name, std::string_view use, const RankGroup& group, CollectiveKind kind,
              CollectiveKind back, const Tensor& x, Into into) {
  if (group.size == 1) return x;
  const LabelId label = name(use);
  const auto node = w.node(name(), {&x});
  Tensor out = moved(w, label, group, kind, x, into);
  if (!node) return out;
  node->apply = [&w, label, group, back, into](const Gradients& g) {
    return Gradients{moved(w, label, group, back, g.front(), into)};
  };
  return with(std::move(out), node);
}

}  // namespace

Tensor gather_rows(Worker& w, const Name& name, std::string_view use, const RankGroup& group, const Tensor& x,
                   Into into) {
  return mapped(w, name, use, group, CollectiveKind::AllGather, CollectiveKind::ReduceScatter, x, into);
}

Tensor reduce_scatter_rows(Worker& w, const Name& name, std::string_view use, const RankGroup& group, const Tensor& x) {
  return mapped(w, name, use, group, CollectiveKind::ReduceScatter, CollectiveKind::AllGather, x, Into::Tensor);
}

}  // namespace tidemark::parallel::megatron
