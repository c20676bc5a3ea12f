#include <algorithm>
#include <vector>

#include "kernels/math/families.hpp"

// Rows by number.

namespace tidemark::math {

template <class Real>
void Lookups<Real>::embedding(const Call& c) {
  const std::vector<std::int64_t> ids = c.read<std::int64_t>(0);
  const std::vector<Real> table = c.read<Real>(1);
  const Rows rows = rows_of(c.sizes_in(1));
  std::vector<Real> y;
  y.reserve(ids.size() * index(rows.width));
  for (const std::int64_t id : ids) {
    check_index(id, rows.count, "row of an embedding");
    y.insert(y.end(), table.begin() + id * rows.width, table.begin() + (id + 1) * rows.width);
  }
  c.write(0, y);
}

// ATen/native/cuda/EmbeddingBackwardKernel.cu: dense, zero where nothing was looked up; sums in more than halves.
template <class Real>
void Lookups<Real>::embedding_backward(const Call& c) {
  const std::vector<Real> dy = c.read<Real>(0);
  const std::vector<std::int64_t> ids = c.read<std::int64_t>(1);
  const Rows rows = rows_of(c.sizes_out(0));
  std::vector<double> table(index(rows.count * rows.width));
  for (std::size_t t = 0; t < ids.size(); ++t) {
    check_index(ids[t], rows.count, "row of an embedding");
    for (std::int64_t i = 0; i < rows.width; ++i)
      table[index(ids[t] * rows.width + i)] += static_cast<double>(dy[t * index(rows.width) + index(i)]);
  }
  c.write(0, table);
}

// torch.gather along the last dimension.
template <class Real>
void Lookups<Real>::gather(const Call& c) {
  const std::vector<Real> x = c.read<Real>(0);
  const std::vector<std::int64_t> ids = c.read<std::int64_t>(1);
  const Rows from = rows_of(c.sizes_in(0)), looked_up = rows_of(c.sizes_in(1));
  std::vector<Real> y(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    check_index(ids[i], from.width, "element of a row");
    y[i] = x[i / index(looked_up.width) * index(from.width) + index(ids[i])];
  }
  c.write(0, y);
}

// Megatron core/tensor_parallel/layers.py VocabParallelEmbedding, cross_entropy.py: which ids lie outside a rank's part
// of the vocabulary, and ids within it, 0 for those outside.
template <class Real>
void Lookups<Real>::vocabulary_mask(const Call& c) {
  const std::int64_t first = static_cast<std::int64_t>(c.attributes[0]);
  const std::int64_t end = static_cast<std::int64_t>(c.attributes[1]);
  std::vector<std::int64_t> ids = c.read<std::int64_t>(0, c.sizes_out(0)), outside(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    outside[i] = ids[i] < first || ids[i] >= end;
    ids[i] = outside[i] != 0 ? 0 : ids[i] - first;
  }
  c.write(0, outside);
  c.write(1, ids);
}

template struct Lookups<float>;
template struct Lookups<double>;

}  // namespace tidemark::math
