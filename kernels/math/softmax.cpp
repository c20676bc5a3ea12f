#include <cmath>
#include <limits>

#include "kernels/math/engine/engine.hpp"
#include "kernels/math/families.hpp"

// Rows of the last dimension; of matrices [..., queries, keys], a causal mask leaves each query the keys up to itself.

namespace tidemark::math {
namespace {

// Which query of its matrix a row is.
struct Queries {
  explicit Queries(const Shape& sizes) : count(sizes.size() > 1 ? sizes[sizes.size() - 2] : 1) {}
  [[nodiscard]] TIDEMARK_EVERYWHERE std::int64_t operator()(std::int64_t row) const { return row % count; }
  std::int64_t count;
};

template <class Real>
TIDEMARK_EVERYWHERE Real largest_of(const Real* row, std::int64_t width) {
  Real most = -std::numeric_limits<Real>::infinity();
  for (std::int64_t i = 0; i < width; ++i) most = larger(most, row[i]);
  return most;
}

}  // namespace

// Megatron core/transformer/utils.py attention_mask_func, of a causal mask.
template <class Call>
void Softmaxes<Call>::causal_mask(const Call& c) {
  const Values<Real> y = c.read(0, c.sizes_out(0));
  const Rows rows = rows_of(c.sizes_out(0));
  const Queries query(c.sizes_out(0));
  const Real number = static_cast<Real>(c.attributes[0]);
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    for (std::int64_t key = query(r) + 1; key < rows.width; ++key) y[r * rows.width + key] = number;
  });
  c.write(0, y);
}

// Megatron's fused kernels (megatron/legacy/fused_kernels/scaled_upper_triang_masked_softmax.h, which
// TransformerEngine has too) scale first, and write 0 for keys that are masked.
template <class Call>
void Softmaxes<Call>::softmax(const Call& c) {
  const Real scale = static_cast<Real>(c.attributes[0]);
  const bool causal = c.attributes[1] != 0;
  const Values<Real> y = c.read(0, c.sizes_out(0));
  const Rows rows = rows_of(c.sizes_out(0));
  const Queries query(c.sizes_out(0));
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    Real* const row = &y[r * rows.width];
    for (std::int64_t i = 0; i < rows.width; ++i)
      row[i] = causal && i > query(r) ? -std::numeric_limits<Real>::infinity() : scale * row[i];
    const Real most = largest_of(row, rows.width);
    double sum = 0;
    for (std::int64_t i = 0; i < rows.width; ++i) sum += static_cast<double>(row[i] = std::exp(row[i] - most));
    for (std::int64_t i = 0; i < rows.width; ++i) row[i] = static_cast<Real>(static_cast<double>(row[i]) / sum);
  });
  c.write(0, y);
}

template <class Call>
void Softmaxes<Call>::softmax_backward(const Call& c) {
  const Real scale = static_cast<Real>(c.attributes[0]);
  const Values<Real> dx = c.read(0, c.sizes_out(0)), y = c.read(1, c.sizes_out(0));
  const Rows rows = rows_of(c.sizes_out(0));
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    const std::int64_t first = r * rows.width, last = first + rows.width;
    double products = 0;
    for (std::int64_t i = first; i < last; ++i) products += static_cast<double>(dx[i]) * static_cast<double>(y[i]);
    for (std::int64_t i = first; i < last; ++i) dx[i] = scale * y[i] * (dx[i] - static_cast<Real>(products));
  });
  c.write(0, dx);
}

template <class Call>
void Softmaxes<Call>::log_softmax(const Call& c) {
  const Values<Real> y = c.read(0, c.sizes_out(0));
  const Rows rows = rows_of(c.sizes_out(0));
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    Real* const row = &y[r * rows.width];
    const Real most = largest_of(row, rows.width);
    double sum = 0;
    for (std::int64_t i = 0; i < rows.width; ++i) sum += static_cast<double>(std::exp(row[i] - most));
    const Real log_sum = static_cast<Real>(std::log(sum));
    for (std::int64_t i = 0; i < rows.width; ++i) row[i] = row[i] - most - log_sum;
  });
  c.write(0, y);
}

template <class Call>
void Softmaxes<Call>::log_softmax_backward(const Call& c) {
  const Values<Real> dx = c.read(0, c.sizes_out(0)), y = c.read(1, c.sizes_out(0));
  const Rows rows = rows_of(c.sizes_out(0));
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    const std::int64_t first = r * rows.width, last = first + rows.width;
    double sum = 0;
    for (std::int64_t i = first; i < last; ++i) sum += static_cast<double>(dx[i]);
    for (std::int64_t i = first; i < last; ++i) dx[i] -= std::exp(y[i]) * static_cast<Real>(sum);
  });
  c.write(0, dx);
}

template struct Softmaxes<FloatCall>;
template struct Softmaxes<DoubleCall>;

}  // namespace tidemark::math
