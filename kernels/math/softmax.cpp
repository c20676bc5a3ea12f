#include <cmath>
#include <limits>
#include <vector>

#include "kernels/math/families.hpp"

// Rows of the last dimension; of matrices [..., queries, keys], a causal mask leaves each query the keys up to itself.

namespace tidemark::math {
namespace {

// Which query of its matrix a row is.
struct Queries {
  explicit Queries(const Shape& sizes) : count(sizes.size() > 1 ? sizes[sizes.size() - 2] : 1) {}
  [[nodiscard]] std::int64_t operator()(std::int64_t row) const { return row % count; }
  std::int64_t count;
};

// Turns scores into exponentials of what they are less than the row's largest; returns their sum, and that.
template <class Real>
struct Exponentials {
  double sum;
  Real largest;
};
template <class Real>
Exponentials<Real> exponentiate(std::span<Real> row) {
  Real most = -std::numeric_limits<Real>::infinity();
  for (const Real x : row) most = larger(most, x);
  double sum = 0;
  for (Real& x : row) sum += static_cast<double>(x = std::exp(x - most));
  return {sum, most};
}

template <class Real>
std::span<Real> row_of(std::vector<Real>& values, const Rows& rows, std::int64_t r) {
  return std::span(values).subspan(index(r * rows.width), index(rows.width));
}

}  // namespace

// Megatron core/transformer/utils.py attention_mask_func, of a causal mask.
template <class Real>
void Softmaxes<Real>::causal_mask(const Call& c) {
  std::vector<Real> y = c.read<Real>(0, c.sizes_out(0));
  const Rows rows = rows_of(c.sizes_out(0));
  const Queries query(c.sizes_out(0));
  for (std::int64_t r = 0; r < rows.count; ++r)
    for (std::int64_t key = query(r) + 1; key < rows.width; ++key)
      y[index(r * rows.width + key)] = static_cast<Real>(c.attributes[0]);
  c.write(0, y);
}

// Megatron's fused kernels (megatron/legacy/fused_kernels/scaled_upper_triang_masked_softmax.h, which
// TransformerEngine has too) scale first, and write 0 for keys that are masked.
template <class Real>
void Softmaxes<Real>::softmax(const Call& c) {
  const Real scale = static_cast<Real>(c.attributes[0]);
  const bool causal = c.attributes[1] != 0;
  std::vector<Real> y = c.read<Real>(0, c.sizes_out(0));
  const Rows rows = rows_of(c.sizes_out(0));
  const Queries query(c.sizes_out(0));
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::span<Real> row = row_of(y, rows, r);
    for (Real& x : row) x *= scale;
    if (causal)
      for (std::int64_t key = query(r) + 1; key < rows.width; ++key)
        row[index(key)] = -std::numeric_limits<Real>::infinity();
    const double sum = exponentiate(row).sum;
    for (Real& x : row) x = static_cast<Real>(static_cast<double>(x) / sum);
  }
  c.write(0, y);
}

template <class Real>
void Softmaxes<Real>::softmax_backward(const Call& c) {
  const Real scale = static_cast<Real>(c.attributes[0]);
  std::vector<Real> dx = c.read<Real>(0, c.sizes_out(0));
  const std::vector<Real> y = c.read<Real>(1, c.sizes_out(0));
  const Rows rows = rows_of(c.sizes_out(0));
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::size_t first = index(r * rows.width), last = first + index(rows.width);
    double products = 0;
    for (std::size_t i = first; i < last; ++i) products += static_cast<double>(dx[i]) * static_cast<double>(y[i]);
    for (std::size_t i = first; i < last; ++i) dx[i] = scale * y[i] * (dx[i] - static_cast<Real>(products));
  }
  c.write(0, dx);
}

template <class Real>
void Softmaxes<Real>::log_softmax(const Call& c) {
  std::vector<Real> y = c.read<Real>(0, c.sizes_out(0));
  const Rows rows = rows_of(c.sizes_out(0));
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::span<Real> row = row_of(y, rows, r);
    std::vector<Real> scores(row.begin(), row.end());
    const auto [sum, most] = exponentiate(std::span(scores));
    const Real log_sum = static_cast<Real>(std::log(sum));
    for (Real& x : row) x = x - most - log_sum;
  }
  c.write(0, y);
}

template <class Real>
void Softmaxes<Real>::log_softmax_backward(const Call& c) {
  std::vector<Real> dx = c.read<Real>(0, c.sizes_out(0));
  const std::vector<Real> y = c.read<Real>(1, c.sizes_out(0));
  const Rows rows = rows_of(c.sizes_out(0));
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::size_t first = index(r * rows.width), last = first + index(rows.width);
    double sum = 0;
    for (std::size_t i = first; i < last; ++i) sum += static_cast<double>(dx[i]);
    for (std::size_t i = first; i < last; ++i) dx[i] -= std::exp(y[i]) * static_cast<Real>(sum);
  }
  c.write(0, dx);
}

template struct Softmaxes<float>;
template struct Softmaxes<double>;

}  // namespace tidemark::math
