#include "kernels/math/engine/engine.hpp"
#include "kernels/math/families.hpp"

// Rows by number.

namespace tidemark::math {

template <class Call>
void Lookups<Call>::embedding(const Call& c) {
  const Values<std::int64_t> ids = c.integers(0);
  const Values<Real> table = c.read(1);
  const Rows rows = rows_of(c.sizes_in(1));
  check_indices(c, ids, rows.count, "row of an embedding");
  const Values<Real> y = c.room(ids.count * rows.width);
  c.each(ids.count, [=] TIDEMARK_EVERYWHERE(std::int64_t t) {
    for (std::int64_t i = 0; i < rows.width; ++i) y[t * rows.width + i] = table[ids[t] * rows.width + i];
  });
  c.write(0, y);
}

// ATen/native/cuda/EmbeddingBackwardKernel.cu: dense, zero where nothing was looked up; sums in more than halves.
template <class Call>
void Lookups<Call>::embedding_backward(const Call& c) {
  const Values<Real> dy = c.read(0);
  const Values<std::int64_t> ids = c.integers(1);
  const Rows rows = rows_of(c.sizes_out(0));
  check_indices(c, ids, rows.count, "row of an embedding");
  const Values<double> table = c.sums(rows.count * rows.width);
  c.each(table.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { table[i] = 0; });
  c.ranges(rows.width, [=] TIDEMARK_EVERYWHERE(std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = 0; t < ids.count; ++t)
      for (std::int64_t i = begin; i < end; ++i)
        table[ids[t] * rows.width + i] += static_cast<double>(dy[t * rows.width + i]);
  });
  c.write(0, table);
}

// torch.gather along the last dimension.
template <class Call>
void Lookups<Call>::gather(const Call& c) {
  const Values<Real> x = c.read(0);
  const Values<std::int64_t> ids = c.integers(1);
  const Rows from = rows_of(c.sizes_in(0)), looked_up = rows_of(c.sizes_in(1));
  check_indices(c, ids, from.width, "element of a row");
  const Values<Real> y = c.room(ids.count);
  c.each(ids.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { y[i] = x[i / looked_up.width * from.width + ids[i]]; });
  c.write(0, y);
}

// Megatron core/tensor_parallel/layers.py VocabParallelEmbedding, cross_entropy.py: which ids lie outside a rank's part
// of the vocabulary, and ids within it, 0 for those outside.
template <class Call>
void Lookups<Call>::vocabulary_mask(const Call& c) {
  const auto first = static_cast<std::int64_t>(c.attributes[0]), end = static_cast<std::int64_t>(c.attributes[1]);
  const Values<std::int64_t> ids = c.integers(0, c.sizes_out(0));
  const Values<std::int64_t> outside = c.template room_of<std::int64_t>(ids.count);
  c.each(ids.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) {
    outside[i] = ids[i] < first || ids[i] >= end;
    ids[i] = outside[i] != 0 ? 0 : ids[i] - first;
  });
  c.write(0, outside);
  c.write(1, ids);
}

template struct Lookups<FloatCall>;
template struct Lookups<DoubleCall>;

}  // namespace tidemark::math
