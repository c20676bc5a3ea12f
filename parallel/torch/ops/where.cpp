#include "parallel/torch/ops/where.hpp"

#include <utility>

#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/indexing.hpp"

namespace tidemark::parallel::torch {

Tensor one_hot(Session& s, const Tensor& ids, std::int64_t count) {
  Shape sizes = ids.sizes;
  sizes.push_back(count);
  Tensor out = s.empty(sizes, DType::INT64, "one_hot");
  s.launch({Operation::Fill, {0}}, {}, {out});
  const Tensor rows = sized(out, {ids.elements(), count});
  s.launch({Operation::Scatter, {1}}, {rows, sized(ids, {ids.elements(), 1}), Tensor{}}, {rows});
  return out;
}

// Nonzero.cu nonzero_numpy; what it counts in, a few KiB, is not counted here.
Places where(Session& s, const Tensor& mask, std::int64_t count) {
  s.process.synchronize();
  const Tensor both = s.empty({2, count}, DType::INT64, "where");
  const auto registers = [&](std::string_view name) {
    return s.in_registers(mask.sizes, contiguous_strides(mask.sizes), DType::INT64, name);
  };
  const auto place = [&](std::int64_t row) { return sized(narrowed(both, 0, row, 1), {count}); };
  const auto width = static_cast<double>(mask.size(1));
  const Tensor numbers = registers("numbers"), columns = registers("columns"), starts = registers("starts"),
               rows = registers("rows"), by = s.in_registers({}, {}, DType::INT64, "width");
  s.launch({Operation::Arange, {0}}, {}, {flattened(numbers)});
  s.launch({Operation::Remainder, {width}}, {numbers}, {columns});
  s.launch({Operation::AddScaled, {-1}}, {numbers, columns}, {starts});
  s.launch({Operation::Fill, {width}}, {}, {by});
  s.launch(Operation::Divide, {starts, by}, {rows});
  s.launch(Operation::MaskedSelect, {rows, mask}, {place(0)});
  s.launch(Operation::MaskedSelect, {columns, mask}, {place(1)});
  return {place(0), place(1)};
}

namespace {

// The same places of all elements in a row.
Tensor linear_places(Session& s, const Tensor& x, const Places& places) {
  const auto registers = [&](std::string_view name) {
    return s.in_registers(places.rows.sizes, {1}, DType::INT64, name);
  };
  const Tensor scaled = registers("scaled"), made = registers("places");
  s.launch({Operation::Scale, {static_cast<double>(x.size(1))}}, {places.columns}, {scaled});
  s.launch(Operation::Add, {scaled, places.rows}, {made});
  return made;
}

}  // namespace

// FunctionsManual.cpp index_backward; Indexing.cu index_put_with_sort_kernel.
Tensor index_places(Session& s, const Tensor& x, const Places& places) {
  auto node = s.node({&x});
  const std::int64_t count = places.rows.elements();
  Saved rows, columns;
  if (node) columns = s.save(places.columns), rows = s.save(places.rows);
  Tensor out = s.empty({count, 1}, x.dtype, "index");
  s.launch(Operation::Embedding, {linear_places(s, x, places), sized(x, {x.elements(), 1})}, {out});
  if (node)
    node->apply = [&s, rows, columns, sizes = x.sizes](const Gradients& g) {
      const Places its{s.unpack(rows), s.unpack(columns)};
      const Tensor made = s.empty(sizes, g.front().dtype, "index_gradient");
      const auto numbers = [&] { return s.empty(its.rows.sizes, DType::INT64, "row_numbers", Category::Temporaries); };
      const Tensor linear = numbers(), sorted = numbers(), original = numbers(), counted = numbers(),
                   buffers = s.empty({2 * its.rows.elements()}, DType::INT64, "sort_buffers", Category::Temporaries);
      s.launch(Operation::EmbeddingBackward, {g.front(), linear_places(s, made, its)},
               {sized(made, {made.elements(), 1})}, std::vector{linear, sorted, original, counted, buffers});
      return Gradients{made};
    };
  return with(std::move(out), std::move(node));
}

// derivatives.yaml index_add: the source is saved for its sizes.
Tensor index_add_in_place(Session& s, const Tensor& x, const Tensor& ids, const Tensor& rows) {
  auto node = s.node({&x, &rows});
  {
    // The kernel adds to what is there.
    const Tensor added = s.in_registers(x.sizes, x.strides, x.dtype, "added");
    s.launch(Operation::EmbeddingBackward, {rows, ids}, {added});
    s.launch(Operation::Add, {x, added}, {x});
  }
  if (node)
    node->apply = [&s, saved = s.save(ids), source = s.save(rows)](const Gradients& g) {
      const Tensor from = s.unpack(saved), like = s.unpack(source);
      Tensor made = s.empty(like.sizes, g.front().dtype, "index_add_gradient");
      s.launch(Operation::Embedding, {from, g.front()}, {made});
      return Gradients{g.front(), std::move(made)};
    };
  return with(x.detached(), std::move(node));
}

}  // namespace tidemark::parallel::torch
