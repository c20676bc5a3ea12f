#include <cmath>
#include <vector>

#include "kernels/math/families.hpp"

// Rows are as long as the weight; backward reads the statistics that forward saved, and does not compute them again.
// A weight's offset is 1 where it is stored as its difference from 1 (TransformerEngine's zero-centered gamma).

namespace tidemark::math {
namespace {

template <class Real>
struct Weight {
  explicit Weight(const Call& c, std::size_t input, double offset)
      : values(c.read<Real>(input)), width(static_cast<std::int64_t>(values.size())) {
    for (Real& value : values) value += static_cast<Real>(offset);
  }
  [[nodiscard]] std::int64_t rows(const std::vector<Real>& x) const {
    return static_cast<std::int64_t>(x.size()) / width;
  }
  std::vector<Real> values;
  std::int64_t width;
};

}  // namespace

// ATen/native/cuda/layer_norm_kernel.cu; TransformerEngine common/normalization/layernorm.
template <class Real>
void Norms<Real>::layer_norm(const Call& c) {
  const Weight<Real> weight(c, 1, c.attributes[1]);
  const std::vector<Real> x = c.read<Real>(0), bias = c.read<Real>(2, c.sizes_in(1));
  const std::int64_t rows = weight.rows(x), width = weight.width;
  std::vector<Real> y(x.size()), means(index(rows)), rstds(index(rows));
  for (std::int64_t r = 0; r < rows; ++r) {
    const Real* const row = &x[index(r * width)];
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += static_cast<double>(row[i]);
    const double mean = sum / static_cast<double>(width);
    for (std::int64_t i = 0; i < width; ++i) {
      const double from_mean = static_cast<double>(row[i]) - mean;
      squares += from_mean * from_mean;
    }
    const Real m = means[index(r)] = static_cast<Real>(mean);
    const Real rstd = rstds[index(r)] =
        static_cast<Real>(1 / std::sqrt(squares / static_cast<double>(width) + c.attributes[0]));
    for (std::int64_t i = 0; i < width; ++i)
      y[index(r * width + i)] = (row[i] - m) * rstd * weight.values[index(i)] + bias[index(i)];
  }
  c.write(0, y);
  c.write(1, means);
  c.write(2, rstds);
}

template <class Real>
void Norms<Real>::layer_norm_backward(const Call& c) {
  const Weight<Real> weight(c, 4, c.attributes[0]);
  const std::vector<Real> dy = c.read<Real>(0), x = c.read<Real>(1), means = c.read<Real>(2), rstds = c.read<Real>(3);
  const std::int64_t rows = weight.rows(x), width = weight.width;
  std::vector<Real> dx(x.size());
  std::vector<double> dweight(index(width)), dbias(index(width));
  for (std::int64_t r = 0; r < rows; ++r) {
    const Real mean = means[index(r)], rstd = rstds[index(r)];
    const auto normed = [&](std::int64_t i) { return (x[index(r * width + i)] - mean) * rstd; };
    double sum = 0, products = 0;  // of gradients of what was normalized; of them and it
    for (std::int64_t i = 0; i < width; ++i) {
      const double g = static_cast<double>(dy[index(r * width + i)]), n = static_cast<double>(normed(i));
      dweight[index(i)] += g * n;
      dbias[index(i)] += g;
      sum += g * static_cast<double>(weight.values[index(i)]);
      products += g * static_cast<double>(weight.values[index(i)]) * n;
    }
    const Real mean_sum = static_cast<Real>(sum / static_cast<double>(width));
    const Real mean_product = static_cast<Real>(products / static_cast<double>(width));
    for (std::int64_t i = 0; i < width; ++i)
      dx[index(r * width + i)] =
          rstd * (dy[index(r * width + i)] * weight.values[index(i)] - mean_sum - normed(i) * mean_product);
  }
  c.write(0, dx);
  c.write(1, dweight);
  c.write(2, dbias);
}

// TransformerEngine common/normalization/rmsnorm. Mean squares that are handed in are those of more than a row: of all
// heads, of which ranks hold parts.
template <class Real>
void Norms<Real>::rms_norm(const Call& c) {
  const Weight<Real> weight(c, 1, c.attributes[1]);
  const std::vector<Real> x = c.read<Real>(0), given = c.read<Real>(2);
  const std::int64_t rows = weight.rows(x), width = weight.width;
  std::vector<Real> y(x.size()), rstds(index(rows));
  for (std::int64_t r = 0; r < rows; ++r) {
    const Real* const row = &x[index(r * width)];
    double squares = 0;
    if (given.empty()) {
      for (std::int64_t i = 0; i < width; ++i) squares += static_cast<double>(row[i]) * static_cast<double>(row[i]);
      squares /= static_cast<double>(width);
    } else {
      squares = static_cast<double>(given[index(r)]);
    }
    const Real rstd = rstds[index(r)] = static_cast<Real>(1 / std::sqrt(squares + c.attributes[0]));
    for (std::int64_t i = 0; i < width; ++i) y[index(r * width + i)] = row[i] * rstd * weight.values[index(i)];
  }
  c.write(0, y);
  c.write(1, rstds);
}

template <class Real>
void Norms<Real>::rms_norm_backward(const Call& c) {
  const Weight<Real> weight(c, 3, c.attributes[0]);
  const std::vector<Real> dy = c.read<Real>(0), x = c.read<Real>(1), rstds = c.read<Real>(2), given = c.read<Real>(4);
  const std::int64_t rows = weight.rows(x), width = weight.width;
  std::vector<Real> dx(x.size());
  std::vector<double> dweight(index(width));
  for (std::int64_t r = 0; r < rows; ++r) {
    const Real rstd = rstds[index(r)];
    double products = 0;  // the mean of dy * weight * x
    for (std::int64_t i = 0; i < width; ++i) {
      const double product =
          static_cast<double>(dy[index(r * width + i)]) * static_cast<double>(x[index(r * width + i)]);
      dweight[index(i)] += product * static_cast<double>(rstd);
      products += product * static_cast<double>(weight.values[index(i)]);
    }
    const Real mean = given.empty() ? static_cast<Real>(products / static_cast<double>(width)) : given[index(r)];
    for (std::int64_t i = 0; i < width; ++i)
      dx[index(r * width + i)] =
          rstd * (dy[index(r * width + i)] * weight.values[index(i)] - x[index(r * width + i)] * rstd * rstd * mean);
  }
  c.write(0, dx);
  c.write(1, dweight);
}

template struct Norms<float>;
template struct Norms<double>;

}  // namespace tidemark::math
