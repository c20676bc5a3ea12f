#include <utility>

#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/aten.hpp"
#include "sim/base/ensure.hpp"

// Views, and copies that give a tensor another type or other strides.

namespace tidemark::parallel::torch {
namespace {

// A view, and what gives its gradient the sizes of the input again.
template <class Back>
Tensor viewed(Session& s, const Tensor& x, Shape sizes, Shape strides, std::int64_t offset, Back back) {
  auto node = s.node({&x});
  Tensor out{x.storage, sizes, strides, offset, x.dtype, {}, true};
  // Of a gradient that nobody gave comes none (torch/csrc/autograd/generated/Functions.cpp any_grad_defined).
  if (node)
    node->apply = [&s, back](const Gradients& g) {
      return Gradients{g.front().defined() ? back(s, g.front()) : Tensor{}};
    };
  return with(std::move(out), std::move(node));
}

}  // namespace

// ---- views ---------------------------------------------------------------------------------------------------------

Tensor view(Session& s, const Tensor& x, Shape sizes) {
  Shape strides = strides_of_view(x, sizes);
  ensure(!strides.empty(), "a view has strides");
  return viewed(s, x, sizes, strides, x.offset,
                [before = x.sizes](Session& session, const Tensor& g) { return reshape(session, g, before); });
}

Tensor transpose(Session& s, const Tensor& x, int a, int b) {
  const auto at = [&](int d) { return static_cast<std::size_t>(d < 0 ? static_cast<int>(x.sizes.size()) + d : d); };
  Shape sizes = x.sizes, strides = x.strides;
  std::swap(sizes[at(a)], sizes[at(b)]);
  std::swap(strides[at(a)], strides[at(b)]);
  return viewed(s, x, sizes, strides, x.offset,
                [a, b](Session& session, const Tensor& g) { return transpose(session, g, a, b); });
}

Tensor unsqueeze(Session& s, const Tensor& x, int dimension) {
  Shape sizes = x.sizes, strides = x.strides;
  const auto at = static_cast<std::ptrdiff_t>(dimension);
  const std::int64_t stride = dimension < static_cast<int>(x.sizes.size())
                                  ? x.sizes[static_cast<std::size_t>(at)] * x.strides[static_cast<std::size_t>(at)]
                                  : 1;
  sizes.insert(sizes.begin() + at, 1);
  strides.insert(strides.begin() + at, stride);
  return viewed(s, x, sizes, strides, x.offset, [dimension](Session&, const Tensor& g) {
    Tensor squeezed = g;
    squeezed.sizes.erase(squeezed.sizes.begin() + dimension);
    squeezed.strides.erase(squeezed.strides.begin() + dimension);
    squeezed.view = true;
    return squeezed;
  });
}

Tensor expand(Session& s, const Tensor& x, Shape sizes) {
  return viewed(s, x, sizes, expanded(x, sizes).strides, x.offset,
                [before = x.sizes](Session& session, const Tensor& g) { return sum_to(session, g, before); });
}

Tensor slice(Session& s, const Tensor& x, int dimension, std::int64_t begin, std::int64_t end) {
  // python_variable_indexing.cpp THPVariable_getitem: all of it is an alias.
  if (begin == 0 && end == x.size(dimension))
    return viewed(s, x, x.sizes, x.strides, x.offset, [](Session&, const Tensor& g) { return g; });
  const Tensor part = narrowed(x, dimension, begin, end - begin);
  return viewed(s, x, part.sizes, part.strides, part.offset,
                [before = x.sizes, dimension, begin](Session& session, const Tensor& g) {
                  Tensor whole = session.empty(before, g.dtype, "slice_gradient");
                  session.launch({Operation::Fill, {0}}, {}, {whole});
                  session.launch(Operation::Copy, {g}, {narrowed(whole, dimension, begin, g.size(dimension))});
                  return whole;
                });
}

namespace {

// A tensor's dimension cut into pieces.
std::vector<Tensor> cut(const Tensor& x, int dimension, const std::vector<std::int64_t>& pieces) {
  std::vector<Tensor> parts;
  std::int64_t begin = 0;
  for (const std::int64_t piece : pieces) {
    parts.push_back(narrowed(x, dimension, begin, piece));
    begin += piece;
  }
  return parts;
}
std::vector<Tensor> cut_last(const Tensor& x, const std::vector<std::int64_t>& pieces) { return cut(x, -1, pieces); }

}  // namespace

std::vector<Tensor> split_last(Session& s, const Tensor& x, const std::vector<std::int64_t>& pieces) {
  return split(s, x, -1, pieces);
}

std::vector<Tensor> split(Session& s, const Tensor& x, int dimension, const std::vector<std::int64_t>& pieces) {
  auto node = s.node({&x});
  if (node) {
    node->outputs = pieces.size();
    node->apply = [&s, sizes = x.sizes, dimension, pieces](const Gradients& g) {
      for (const Tensor& t : g) ensure(t.defined(), "every piece of a split tensor gets a gradient");
      Tensor whole = s.empty(sizes, g.back().dtype, "split_gradient");
      s.launch(Operation::Copy, g, cut(whole, dimension, pieces));
      return Gradients{whole};
    };
  }
  std::vector<Tensor> parts = cut(x, dimension, pieces);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].gradient = {node, i};
  return parts;
}

// ---- copies --------------------------------------------------------------------------------------------------------

Tensor to(Session& s, const Tensor& x, DType dtype) {
  if (x.dtype == dtype) return x;
  auto node = s.node({&x});
  const bool empty = x.elements() == 0;  // takes no memory
  Tensor out = empty ? Tensor{x.storage, x.sizes, x.strides, x.offset, dtype, {}}
                     : elementwise(s, "to", Operation::Copy, {&x}, dtype);
  if (node) node->apply = [&s, before = x.dtype](const Gradients& g) { return Gradients{to(s, g.front(), before)}; };
  return with(std::move(out), std::move(node));
}

Tensor clone(Session& s, const Tensor& x, Shape strides) {
  auto node = s.node({&x});
  Tensor out = s.empty_strided(x.sizes, std::move(strides), x.dtype, "clone");
  s.launch(Operation::Copy, {x}, {out});
  if (node) node->apply = [](const Gradients& g) { return Gradients{g.front()}; };
  return with(std::move(out), std::move(node));
}

Tensor contiguous(Session& s, const Tensor& x) { return x.contiguous() ? x : clone(s, x, contiguous_strides(x.sizes)); }

Tensor reshape(Session& s, const Tensor& x, Shape sizes) {
  if (x.sizes == sizes) return x;
  if (!strides_of_view(x, sizes).empty()) return view(s, x, std::move(sizes));
  return view(s, clone(s, x, contiguous_strides(x.sizes)), std::move(sizes));
}

Tensor cat_last(Session& s, const std::vector<Tensor>& parts, std::optional<DType> dtype) {
  std::int64_t width = 0;
  std::vector<std::int64_t> widths;
  for (const Tensor& t : parts) {
    widths.push_back(t.size(-1));
    width += t.size(-1);
  }
  auto node = s.node(parts);
  Tensor out = s.empty(with_size(parts.front().sizes, -1, width), dtype.value_or(parts.front().dtype), "cat");
  s.launch(Operation::Copy, parts, cut_last(out, widths));
  if (node)
    node->apply = [widths = std::move(widths)](const Gradients& g) {
      std::vector<Tensor> its = cut_last(g.front(), widths);
      for (Tensor& part : its) part.view = g.front().view;  // nobody else holds the whole
      return Gradients(std::move(its));
    };
  return with(std::move(out), std::move(node));
}

}  // namespace tidemark::parallel::torch
