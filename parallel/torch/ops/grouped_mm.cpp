#include "parallel/torch/ops/grouped_mm.hpp"

#include <numeric>
#include <utility>

#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/aten.hpp"
#include "parallel/torch/ops/products.hpp"

namespace tidemark::parallel::torch {
namespace {

// Neighbouring groups of as many rows: a launch for them together.
struct Groups {
  std::int64_t first = 0, count = 0, row = 0, rows = 0;
};

std::vector<Groups> alike(const std::vector<std::int64_t>& rows) {
  std::vector<Groups> all;
  std::int64_t row = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (all.empty() || all.back().rows != rows[i]) all.push_back({static_cast<std::int64_t>(i), 0, row, rows[i]});
    ++all.back().count;
    row += rows[i];
  }
  return all;
}

Tensor rows_of(const Tensor& x, const Groups& groups) {
  return sized(narrowed(x, 0, groups.row, groups.count * groups.rows), {groups.count, groups.rows, x.size(1)});
}

Tensor matrices_of(const Tensor& weights, const Groups& groups) {
  return narrowed(weights, 0, groups.first, groups.count);
}

struct Factors {
  Tensor a, b, out;
};

// GroupMM.cu bf16bf16_grouped_gemm_impl_sm90_sm100: addresses, sizes and strides of each group, and CUTLASS's maps of
// tensors for each multiprocessor.
std::vector<Tensor> kernel_scratch(Session& s, std::size_t groups) {
  if (!s.behavior().kernel_workspaces) return {};
  constexpr std::int64_t of_group = 60, of_multiprocessor = 512;
  const auto bytes = [&](std::int64_t size, std::string_view name) {
    return s.empty({size}, DType::BOOL, name, Category::Workspaces);
  };
  std::vector<Tensor> made{bytes(of_group * static_cast<std::int64_t>(groups), "grouped_mm.groups")};
  made.push_back(bytes(of_multiprocessor * s.behavior().multiprocessors, "grouped_mm.workspace"));
  return made;
}

// GroupedMMUtils.h _grouped_mm_fallback: the host waits for the groups' ends, and multiplies one after the other.
template <class FactorsOf>
void multiply_in_turn(Session& s, const std::vector<std::int64_t>& rows, FactorsOf&& factors_of) {
  s.process.synchronize();
  std::int64_t row = 0;
  for (std::size_t i = 0; i < rows.size(); row += rows[i++]) {
    const Factors its = factors_of(Groups{static_cast<std::int64_t>(i), 1, row, rows[i]});
    const auto one = [](const Tensor& x) {  // its only matrix, however it is laid out
      Tensor made = x;
      made.sizes.erase(made.sizes.begin());
      made.strides.erase(made.strides.begin());
      return made;
    };
    if (rows[i] > 0)
      mm_into(s, one(its.a), one(its.b), one(its.out));
    else if (its.out.elements() > 0)
      s.launch({Operation::Fill, {0}}, {}, {one(its.out)});
  }
}

// One kernel, whatever the groups' rows: `factors_of(groups)` are those of a launch.
template <class FactorsOf>
void multiply(Session& s, DType dtype, const std::vector<std::int64_t>& rows, FactorsOf&& factors_of) {
  if (dtype != DType::BF16 || !s.behavior().grouped_kernels) return multiply_in_turn(s, rows, factors_of);
  const std::vector<Groups> launches = alike(rows);
  std::vector<Factors> factors;
  Bytes traffic;
  for (const Groups& groups : launches) {
    const Factors& its = factors.emplace_back(factors_of(groups));
    traffic += its.a.bytes() + its.b.bytes() + its.out.bytes();
  }
  const std::vector<Tensor> scratch = kernel_scratch(s, rows.size());
  for (std::size_t i = 0; i < launches.size(); ++i) {
    Computation product{Operation::Matmul, {1}};
    if (launches.size() > 1) {
      const auto all = static_cast<std::int64_t>(rows.size()), its = launches[i].count;
      product.attributes[2] = static_cast<double>((2 * all + its) / (2 * its));
      product.fused = i == 0 ? FusedStep{false, traffic} : FusedStep{true, {}};
    }
    s.launch(product, {factors[i].a, factors[i].b, Tensor{}, Tensor{}}, {factors[i].out}, scratch);
  }
}

// Kernels leave rows beyond the last group as they are, and nobody reads what comes of them. Here these are zeros, so
// that it is numbers.
void clear_rest(Session& s, const Tensor& out, const std::vector<std::int64_t>& rows) {
  const std::int64_t all = out.size(0), used = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  if (used < all) s.launch({Operation::Fill, {0}}, {}, {narrowed(out, 0, used, all - used)});
}

}  // namespace

// GroupedMMUtils.h create_grouped_gemm_output_tensor; FunctionsManual.cpp _grouped_mm_mat1_backward and …mat2….
Tensor grouped_linear(Session& s, const Tensor& x, const Tensor& weights, const Tensor& ends,
                      const std::vector<std::int64_t>& rows) {
  auto node = s.node({&x, &weights});
  Saved saved_x, saved_weights, saved_ends;
  if (node) {
    saved_ends = s.save(ends);
    if (node->needs(1)) saved_x = s.save(x);
    if (node->needs(0)) saved_weights = s.save(weights);
  }
  const std::int64_t outputs = weights.size(1);
  Tensor out = s.empty({x.size(0), outputs}, x.dtype, "grouped_mm");
  multiply(s, x.dtype, rows, [&](const Groups& groups) {
    return Factors{rows_of(x, groups), swapped(matrices_of(weights, groups), 1, 2), rows_of(out, groups)};
  });
  clear_rest(s, out, rows);
  if (node)
    node->apply = [&s, saved_x, saved_weights, saved_ends, rows, x_sizes = x.sizes, sizes = weights.sizes,
                   dtype = x.dtype](const Gradients& g) {
      const Tensor kept_ends = s.unpack(saved_ends), matrices = saved_weights ? s.unpack(saved_weights) : Tensor{},
                   in = saved_x ? s.unpack(saved_x) : Tensor{};
      Gradients made(2);
      if (saved_x) {
        made[1] = s.empty(sizes, dtype, "weight_gradient");
        multiply(s, dtype, rows, [&](const Groups& groups) {
          return Factors{swapped(rows_of(g.front(), groups), 1, 2), rows_of(in, groups), matrices_of(made[1], groups)};
        });
        made[1].view = true;
      }
      if (saved_weights) {
        made[0] = s.empty(x_sizes, dtype, "input_gradient", Category::Temporaries);
        multiply(s, dtype, rows, [&](const Groups& groups) {
          return Factors{rows_of(g.front(), groups), matrices_of(matrices, groups), rows_of(made[0], groups)};
        });
        clear_rest(s, made[0], rows);
      }
      return made;
    };
  return with(std::move(out), std::move(node));
}

namespace {

// TensorAdvancedIndexing.cpp make_info.
Tensor long_indices(Session& s, const Tensor& ids) {
  return ids.dtype == DType::INT64 ? ids : to(s, ids, DType::INT64);
}

Tensor picked(Session& s, std::string_view name, const Tensor& x, const Tensor& ids) {
  const Tensor places = long_indices(s, ids);
  Tensor out = s.empty({ids.elements(), x.size(-1)}, x.dtype, name);
  s.launch(Operation::Embedding, {places, x}, {out});
  return out;
}

// What CUB sorts pairs in besides: both of them once more.
Tensor buffers_of_sort(Session& s, std::int64_t pairs) {
  return s.empty({2 * pairs}, DType::INT64, "sort_buffers", Category::Temporaries);
}

}  // namespace

// FunctionsManual.cpp index_backward; Indexing.cu index_put_with_sort_kernel.
Tensor index_rows(Session& s, const Tensor& x, const Tensor& ids) {
  auto node = s.node({&x});
  Saved saved;
  if (node) saved = s.save(ids);
  Tensor out = picked(s, "index", x, ids);
  if (node)
    node->apply = [&s, saved, sizes = x.sizes](const Gradients& g) {
      const Tensor rows = s.unpack(saved);
      const Tensor made = s.empty(sizes, g.front().dtype, "index_gradient");
      const Tensor places = long_indices(s, rows);
      const auto numbers = [&] { return s.empty(rows.sizes, DType::INT64, "row_numbers", Category::Temporaries); };
      const Tensor linear = numbers(), sorted = numbers(), original = numbers(), counted = numbers(),
                   buffers = buffers_of_sort(s, rows.elements());
      s.launch(Operation::EmbeddingBackward, {g.front(), places}, {made},
               std::vector{linear, sorted, original, counted, buffers});
      return Gradients{made};
    };
  return with(std::move(out), std::move(node));
}

// derivatives.yaml index_put. No two rows have one place but those that nobody reads.
Tensor index_put_rows(Session& s, const Tensor& out, const Tensor& ids, const Tensor& x) {
  auto node = s.node({&x});
  s.launch(Operation::EmbeddingBackward, {x, long_indices(s, ids)}, {out});
  if (node)
    node->apply = [&s, saved = s.save(ids)](const Gradients& g) {
      return Gradients{picked(s, "index_put_gradient", g.front(), s.unpack(saved))};
    };
  return with(out.detached(), std::move(node));
}

// SortStable.cu segmented_large_segments_sort.
SortedIds sort_ascending(Session& s, const Tensor& ids) {
  const auto numbers = [&](std::string_view name) { return s.empty(ids.sizes, DType::INT64, name); };
  SortedIds made;
  made.ids = numbers("sorted");
  made.places = numbers("argsort");
  const Tensor counted = numbers("row_numbers"), buffers = buffers_of_sort(s, ids.elements());
  const Tensor negative = s.in_registers(ids.sizes, ids.strides, DType::INT64, "negative");
  s.launch({Operation::Scale, {-1}}, {ids}, {negative});
  s.launch({Operation::TopK, {static_cast<double>(ids.elements()), 0}}, {negative}, {made.ids, made.places},
           std::vector{counted, buffers});
  return made;
}

Tensor argsort_ascending(Session& s, const Tensor& ids) { return sort_ascending(s, ids).places; }

Tensor inverse_of(Session& s, const Tensor& places) {
  Tensor out = s.empty(places.sizes, DType::INT64, "inverse");
  const Tensor numbers = s.empty(places.sizes, DType::INT64, "arange");
  s.launch({Operation::Arange, {0}}, {}, {numbers});
  s.launch(Operation::Scatter, {Tensor{}, places, numbers}, {out});
  return out;
}

Tensor histogram(Session& s, const Tensor& ids, std::int64_t count, DType dtype) {
  const Shape sizes{ids.size(0), count};
  Tensor out = s.empty({count}, dtype, "histc");
  const Tensor chosen = s.in_registers(sizes, contiguous_strides(sizes), DType::BOOL, "chosen");
  s.launch({Operation::Scatter, {1}}, {Tensor{}, ids, Tensor{}}, {chosen});
  s.launch(Operation::Sum, {chosen}, {sized(out, {1, count})});
  return out;
}

Tensor floor_divide(Session& s, const Tensor& ids, std::int64_t divisor) {
  const auto registers = [&](std::string_view name) {
    return s.in_registers(ids.sizes, ids.strides, DType::INT64, name);
  };
  const Tensor rest = registers("remainder"), whole = registers("multiple");
  const Tensor by = s.in_registers({}, {}, DType::INT64, "divisor");
  Tensor out = s.empty(ids.sizes, DType::INT64, "floor_divide");
  s.launch({Operation::Remainder, {static_cast<double>(divisor)}}, {ids}, {rest});
  s.launch({Operation::AddScaled, {-1}}, {ids, rest}, {whole});
  s.launch({Operation::Fill, {static_cast<double>(divisor)}}, {}, {by});
  s.launch(Operation::Divide, {whole, by}, {out});
  return out;
}

}  // namespace tidemark::parallel::torch
