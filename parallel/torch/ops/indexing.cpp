#include "parallel/torch/ops/indexing.hpp"

#include <limits>
#include <utility>

#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/aten.hpp"

namespace tidemark::parallel::torch {

namespace {

// TensorTopK.cpp; its backward pass is value_selecting_reduction_backward.
TopK top_k(Session& s, const Tensor& x, std::int64_t count, const Attributes& attributes) {
  auto node = s.node({&x});
  const Shape sizes = with_size(x.sizes, -1, count);
  Tensor values = s.empty(sizes, x.dtype, "topk");
  Tensor ids = s.empty(sizes, DType::INT64, "topk_ids");
  s.launch({Operation::TopK, attributes}, {x}, {values, ids});
  if (node)
    node->apply = [&s, saved = s.save(ids), whole = x.sizes](const Gradients& g) {
      const Tensor places = s.unpack(saved);
      const Tensor made = zeros(s, whole, g.front().dtype);
      s.launch(Operation::Scatter, {made, places, g.front()}, {made});
      return Gradients{made};
    };
  return {with(std::move(values), std::move(node)), std::move(ids)};
}

}  // namespace

TopK top_k(Session& s, const Tensor& x, std::int64_t count, Picks picks) {
  return top_k(s, x, count, Attributes{static_cast<double>(count), picks == Picks::Experts ? 1.0 : 0.0});
}

TopK top_groups(Session& s, const Tensor& x, std::int64_t count, std::int64_t choices, std::int64_t of_group) {
  return top_k(s, x, count,
               Attributes{static_cast<double>(count), static_cast<double>(choices), static_cast<double>(of_group)});
}

Tensor zeros(Session& s, const Shape& sizes, DType dtype) {
  Tensor made = s.empty(sizes, dtype, "zeros");
  s.launch({Operation::Fill, {0}}, {}, {made});
  return made;
}

// scatter(base, -1, ids, values): a copy of the base, and then in place.
Tensor scatter(Session& s, const Tensor& base, const Tensor& ids, const Tensor& values) {
  auto node = s.node({&base, &values});
  Tensor out = s.empty(base.sizes, base.dtype, "scatter");
  s.launch(Operation::Scatter, {base, ids, values}, {out});
  if (node)
    node->apply = [&s, saved = s.save(ids)](const Gradients& g) {
      const Tensor places = s.unpack(saved);
      Tensor of_values = s.empty(places.sizes, g.front().dtype, "scatter_gradient");
      s.launch(Operation::Gather, {g.front(), places}, {of_values});
      return Gradients{Tensor{}, std::move(of_values)};
    };
  return with(std::move(out), std::move(node));
}

Tensor scatter_ones(Session& s, const Tensor& base, const Tensor& ids) {
  Tensor out = s.empty(base.sizes, base.dtype, "scatter");
  s.launch({Operation::Scatter, {1}}, {base, ids, Tensor{}}, {out});
  return out;
}

Tensor gather(Session& s, const Tensor& x, const Tensor& ids) {
  auto node = s.node({&x});
  Tensor out = s.empty(ids.sizes, x.dtype, "gather");
  s.launch(Operation::Gather, {x, ids}, {out});
  if (node)
    node->apply = [&s, saved = s.save(ids), whole = x.sizes](const Gradients& g) {
      const Tensor places = s.unpack(saved);
      const Tensor made = zeros(s, whole, g.front().dtype);
      s.launch(Operation::Scatter, {made, places, g.front()}, {made});
      return Gradients{made};
    };
  return with(std::move(out), std::move(node));
}

Tensor masked_fill(Session& s, const Tensor& x, const Tensor& mask, double value) {
  auto node = s.node({&x});
  Tensor out = s.empty(x.sizes, x.dtype, "masked_fill");
  s.launch({Operation::MaskedFill, {value}}, {x, mask}, {out});
  if (node)
    node->apply = [&s, saved = s.save(mask)](const Gradients& g) {
      const Tensor filled = s.unpack(saved);
      const Tensor made = s.empty(g.front().sizes, g.front().dtype, "masked_fill_gradient");
      s.launch({Operation::MaskedFill, {0}}, {g.front(), filled}, {made});
      return Gradients{made};
    };
  return with(std::move(out), std::move(node));
}

namespace {

// IndexKernel.cpp masked_select_out_cuda: the mask's places, a tensor for each dimension.
void count_places(Session& s, const Tensor& mask, std::int64_t count) {
  const auto dimensions = static_cast<std::int64_t>(mask.sizes.size());
  (void)s.empty({dimensions, count}, DType::INT64, "nonzero", Category::Temporaries);
}

}  // namespace

Tensor masked_select(Session& s, const Tensor& x, const Tensor& mask, std::int64_t count) {
  auto node = s.node({&x});
  count_places(s, mask, count);
  Tensor out = s.empty({count}, x.dtype, "masked_select");
  s.launch(Operation::MaskedSelect, {x, mask}, {out});
  if (node)
    // derivatives.yaml masked_select_backward: for its sizes.
    node->apply = [&s, saved = s.save(mask), saved_x = s.save(x)](const Gradients& g) {
      const Tensor selected = s.unpack(saved);
      const Tensor made = s.empty(s.unpack(saved_x).sizes, g.front().dtype, "masked_select_gradient");
      s.launch(Operation::MaskedSelectBackward, {g.front(), selected}, {made});
      return Gradients{made};
    };
  return with(std::move(out), std::move(node));
}

namespace {

// Adds rows of x to those of zeros that they are told. Indexing.cu index_add_cuda_impl where only deterministic
// algorithms will do: index_put_ of x times alpha, a copy, in the order of sorted numbers (index_put_with_sort_kernel).
void add_rows(Session& s, const Tensor& x, const Tensor& ids, const Tensor& out) {
  if (!s.behavior().deterministic) return s.launch(Operation::EmbeddingBackward, {x, ids}, {out});
  const Tensor scaled = elementwise(s, "scaled_rows", {Operation::Scale, {1}}, {&x}, x.dtype);
  const auto numbers = [&] { return s.empty(ids.sizes, DType::INT64, "row_numbers", Category::Temporaries); };
  const Tensor linear = numbers(), sorted = numbers(), original = numbers();
  s.launch(Operation::EmbeddingBackward, {scaled, ids}, {out}, std::vector{linear, sorted, original});
}

}  // namespace

Tensor index_select(Session& s, const Tensor& x, const Tensor& ids) {
  auto node = s.node({&x});
  Tensor out = s.empty({ids.elements(), x.size(-1)}, x.dtype, "index_select");
  s.launch(Operation::Embedding, {ids, x}, {out});
  if (node)
    node->apply = [&s, saved = s.save(ids), sizes = x.sizes](const Gradients& g) {
      const Tensor rows = s.unpack(saved);
      const Tensor made = s.empty(sizes, g.front().dtype, "index_select_gradient");
      add_rows(s, g.front(), rows, made);
      return Gradients{made};
    };
  return with(std::move(out), std::move(node));
}

Tensor scatter_add_rows(Session& s, const Tensor& x, const Tensor& ids, std::int64_t rows) {
  auto node = s.node({&x});
  Tensor out = s.empty({rows, x.size(-1)}, x.dtype, "scatter_add");
  s.launch(Operation::EmbeddingBackward, {x, ids}, {out});
  if (node)
    node->apply = [&s, saved = s.save(ids), sizes = x.sizes](const Gradients& g) {
      const Tensor from = s.unpack(saved);
      const Tensor made = s.empty(sizes, g.front().dtype, "scatter_add_gradient");
      s.launch(Operation::Embedding, {from, g.front()}, {made});
      return Gradients{made};
    };
  return with(std::move(out), std::move(node));
}

// derivatives.yaml index_add: the source is saved for its sizes.
Tensor index_add_rows(Session& s, Tensor zeros, const Tensor& ids, const Tensor& x) {
  auto node = s.node({&x});
  add_rows(s, x, ids, zeros);
  if (node)
    node->apply = [&s, saved = s.save(ids), source = s.save(x)](const Gradients& g) {
      const Tensor from = s.unpack(saved), like = s.unpack(source);
      const Tensor made = s.empty(like.sizes, g.front().dtype, "index_add_gradient");
      s.launch(Operation::Embedding, {from, g.front()}, {made});
      return Gradients{made};
    };
  return with(std::move(zeros), std::move(node));
}

Tensor argsort(Session& s, const Tensor& mask) {
  const Tensor sorted = s.empty(mask.sizes, mask.dtype, "sorted");
  Tensor places = s.empty(mask.sizes, DType::INT64, "argsort");
  s.launch({Operation::TopK, {static_cast<double>(mask.elements()), 0}}, {mask}, {sorted, places});
  return places;
}

Tensor remainder(Session& s, const Tensor& x, std::int64_t divisor) {
  return elementwise(s, "remainder", {Operation::Remainder, {static_cast<double>(divisor)}}, {&x}, x.dtype);
}

std::vector<Tensor> split_rows(Session& s, const Tensor& x, const std::vector<std::int64_t>& rows) {
  auto node = s.node({&x});
  if (node) {
    node->outputs = rows.size();
    node->apply = [&s, sizes = x.sizes, rows](const Gradients& g) {
      const auto dtype = [&] {
        for (const Tensor& part : g)
          if (part.defined()) return part.dtype;
        return DType::FP32;
      }();
      const Tensor whole = s.empty(sizes, dtype, "split_gradient");
      std::int64_t begin = 0;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const Tensor part = narrowed(whole, 0, begin, rows[i]);
        begin += rows[i];
        if (rows[i] == 0) continue;
        if (g[i].defined())
          s.launch(Operation::Copy, {g[i]}, {part});
        else
          s.launch({Operation::Fill, {0}}, {}, {part});
      }
      return Gradients{whole};
    };
  }
  std::vector<Tensor> parts;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    parts.push_back(with(narrowed(x, 0, begin, rows[i]).detached(), node, i));
    begin += rows[i];
  }
  return parts;
}

Tensor cat_rows(Session& s, const std::vector<Tensor>& parts) {
  auto node = s.node(parts);
  Shape sizes = parts.front().sizes;
  sizes[0] = 0;
  for (const Tensor& part : parts) sizes[0] += part.size(0);
  Tensor out = s.empty(sizes, parts.front().dtype, "cat");
  std::vector<std::int64_t> rows;
  std::vector<Tensor> from, to;
  std::int64_t begin = 0;
  for (const Tensor& part : parts) {
    rows.push_back(part.size(0));
    if (rows.back() > 0) {
      from.push_back(part.detached());
      to.push_back(narrowed(out, 0, begin, rows.back()));
    }
    begin += rows.back();
  }
  s.launch(Operation::Copy, from, to);
  if (node)
    node->apply = [rows](const Gradients& g) {
      Gradients made(rows.size());
      std::int64_t first = 0;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        made[i] = narrowed(g.front(), 0, first, rows[i]);
        first += rows[i];
      }
      return made;
    };
  return with(std::move(out), std::move(node));
}

Tensor sigmoid(Session& s, const Tensor& x) {
  auto node = s.node({&x});
  Tensor out = elementwise(s, "sigmoid", Operation::Sigmoid, {&x}, x.dtype);
  if (node)
    node->apply = [&s, saved = s.save(out)](const Gradients& g) {
      const Tensor result = s.unpack(saved);
      return Gradients{
          elementwise(s, "sigmoid_gradient", Operation::SigmoidBackward, {&g.front(), &result}, g.front().dtype)};
    };
  return with(std::move(out), std::move(node));
}

// FunctionsManual.cpp div_tensor_self_backward, div_tensor_other_grad.
Tensor div(Session& s, const Tensor& x, const Tensor& divisor) {
  auto node = s.node({&x, &divisor});
  Saved saved_x, saved_divisor;
  if (node) saved_divisor = s.save(divisor);
  if (node && node->needs(1)) saved_x = s.save(x);
  Tensor out = elementwise(s, "div", Operation::Divide, {&x, &divisor}, x.dtype);
  if (node)
    node->apply = [&s, saved_x, saved_divisor](const Gradients& g) {
      const Tensor by = s.unpack(saved_divisor);
      const auto divided = [&](std::string_view name, const Tensor& what) {
        return elementwise(s, name, Operation::Divide, {&what, &by}, what.dtype);
      };
      Gradients made(2);
      made[0] = divided("div_gradient", g.front());
      if (!saved_x) return made;
      const Tensor slope = divided("slope", divided("quotient", s.unpack(saved_x)));
      const Tensor minus = elementwise(s, "minus_gradient", {Operation::Scale, {-1}}, {&g.front()}, g.front().dtype);
      made[1] =
          sum_to(s, elementwise(s, "divisor_gradient", Operation::Multiply, {&minus, &slope}, minus.dtype), by.sizes);
      return made;
    };
  return with(std::move(out), std::move(node));
}

// What x was is saved as a copy, where the divisor's gradient asks for it; that gradient comes first.
Tensor div_in_place(Session& s, const Tensor& x, const Tensor& divisor) {
  auto node = s.node({&x, &divisor});
  Saved saved_x, saved_divisor;
  if (node) saved_divisor = s.save(divisor);
  if (node && node->needs(1)) saved_x = s.save(clone(s, x.detached(), x.strides));
  s.launch(Operation::Divide, {x, divisor}, {x});
  if (node)
    node->apply = [&s, saved_x, saved_divisor](const Gradients& g) {
      const Tensor by = s.unpack(saved_divisor);
      const auto divided = [&](std::string_view name, const Tensor& what) {
        return elementwise(s, name, Operation::Divide, {&what, &by}, what.dtype);
      };
      Gradients made(2);
      if (saved_x) {
        const Tensor minus = elementwise(s, "minus_gradient", {Operation::Scale, {-1}}, {&g.front()}, g.front().dtype);
        const Tensor quotient = divided("quotient", s.unpack(saved_x)), slope = divided("slope", quotient);
        made[1] = elementwise(s, "divisor_gradient", Operation::Multiply, {&minus, &slope}, minus.dtype);
      }
      made[0] = divided("div_gradient", g.front());
      return made;
    };
  return with(x.detached(), std::move(node));
}

Tensor logical_not(Session& s, const Tensor& mask) {
  return elementwise(s, "not", {Operation::Equals, {0}}, {&mask}, DType::BOOL);
}

// ReduceOps.cpp logsumexp_out_impl, FunctionsManual.cpp logsumexp_backward.
Tensor logsumexp(Session& s, const Tensor& x) {
  auto node = s.node({&x});
  Saved saved_x;
  if (node) saved_x = s.save(x);
  const Shape rows = with_size(x.sizes, -1, 1);
  const Tensor largest = s.empty(rows, x.dtype, "largest");
  s.launch(Operation::Largest, {x}, {largest});
  {
    const Tensor magnitude = elementwise(s, "magnitude", Operation::Absolute, {&largest}, x.dtype);
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const Tensor endless = elementwise(s, "endless", {Operation::Equals, {infinity}}, {&magnitude}, DType::BOOL);
    s.launch({Operation::MaskedFill, {0}}, {largest, endless}, {largest});
  }
  const auto powers_less = [&s](const Tensor& of, const Tensor& less) {
    return elementwise(s, "exponents", {Operation::AddScaled, {-1}}, {&of, &less}, of.dtype);
  };
  Tensor out;
  {
    const Tensor powers = powers_less(x, largest);
    s.launch(Operation::Exponential, {powers}, {powers});
    out = s.empty(rows, x.dtype, "logsumexp");
    s.launch(Operation::Sum, {powers}, {out});
  }
  s.launch(Operation::Logarithm, {out}, {out});
  s.launch(Operation::Add, {out, largest}, {out});
  if (node)
    node->apply = [&s, powers_less, rows, saved_x, saved_out = s.save(out)](const Gradients& g) {
      const Tensor exponents = powers_less(s.unpack(saved_x), s.unpack(saved_out));
      const Tensor shares = elementwise(s, "shares", Operation::Exponential, {&exponents}, exponents.dtype);
      const Tensor of_rows = sized(g.front(), rows);
      return Gradients{elementwise(s, "logsumexp_gradient", Operation::Multiply, {&of_rows, &shares}, of_rows.dtype)};
    };
  out.sizes.erase(out.sizes.end() - 1);
  out.strides.erase(out.strides.end() - 1);
  return with(std::move(out), std::move(node));
}

Tensor sum(Session& s, const Tensor& x, int dimension) {
  auto node = s.node({&x});
  const bool whole = x.dtype == DType::BOOL || x.dtype == DType::INT64;
  const auto at = dimension < 0 ? dimension + static_cast<int>(x.sizes.size()) : dimension;
  const Shape kept = with_size(x.sizes, at, 1);
  Tensor out = s.empty(kept, whole ? DType::INT64 : x.dtype, "sum");
  s.launch(Operation::Sum, {x}, {out});
  if (node)
    node->apply = [at, sizes = x.sizes](const Gradients& g) {
      Tensor once = g.front();
      once.sizes.insert(once.sizes.begin() + at, 1);
      once.strides.insert(once.strides.begin() + at, 0);
      return Gradients{expanded(std::move(once), sizes)};
    };
  out.sizes.erase(out.sizes.begin() + at);
  out.strides.erase(out.strides.begin() + at);
  return with(std::move(out), std::move(node));
}

}  // namespace tidemark::parallel::torch
