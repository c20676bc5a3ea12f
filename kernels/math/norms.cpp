#include <cmath>

#include "kernels/math/engine/engine.hpp"
#include "kernels/math/families.hpp"

// Rows are as long as the weight; backward reads the statistics that forward saved, and does not compute them again.
// A weight's offset is 1 where it is stored as its difference from 1 (TransformerEngine's zero-centered gamma).

namespace tidemark::math {
namespace {

template <class Call>
Values<typename Call::Real> weight_of(const Call& c, std::size_t input, double offset) {
  using Real = typename Call::Real;
  const Values<Real> weight = c.read(input);
  const Real added = static_cast<Real>(offset);
  c.each(weight.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { weight[i] += added; });
  return weight;
}

}  // namespace

// ATen/native/cuda/layer_norm_kernel.cu; TransformerEngine common/normalization/layernorm.
template <class Call>
void Norms<Call>::layer_norm(const Call& c) {
  const Values<Real> weight = weight_of(c, 1, c.attributes[1]);
  const Values<Real> x = c.read(0), bias = c.read(2, c.sizes_in(1));
  const std::int64_t width = weight.count, rows = x.count / width;
  const double epsilon = c.attributes[0];
  const Values<Real> y = c.room(x.count), means = c.room(rows), rstds = c.room(rows);
  c.each(rows, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    const Real* const row = &x[r * width];
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += static_cast<double>(row[i]);
    const double mean = sum / static_cast<double>(width);
    for (std::int64_t i = 0; i < width; ++i) {
      const double from_mean = static_cast<double>(row[i]) - mean;
      squares += from_mean * from_mean;
    }
    const Real m = means[r] = static_cast<Real>(mean);
    const Real rstd = rstds[r] = static_cast<Real>(1 / std::sqrt(squares / static_cast<double>(width) + epsilon));
    for (std::int64_t i = 0; i < width; ++i) y[r * width + i] = (row[i] - m) * rstd * weight[i] + bias[i];
  });
  c.write(0, y);
  c.write(1, means);
  c.write(2, rstds);
}

template <class Call>
void Norms<Call>::layer_norm_backward(const Call& c) {
  const Values<Real> weight = weight_of(c, 4, c.attributes[0]);
  const Values<Real> dy = c.read(0), x = c.read(1), means = c.read(2), rstds = c.read(3);
  const std::int64_t width = weight.count, rows = x.count / width;
  const Values<Real> dx = c.room(x.count);
  const Values<double> dweight = c.sums(width), dbias = c.sums(width);
  c.ranges(width, [=] TIDEMARK_EVERYWHERE(std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) dweight[i] = dbias[i] = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = begin; i < end; ++i) {
        const Real g = dy[r * width + i];
        dweight[i] += static_cast<double>(g) * static_cast<double>((x[r * width + i] - means[r]) * rstds[r]);
        dbias[i] += static_cast<double>(g);
      }
  });
  c.each(rows, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    const Real *const g = &dy[r * width], *const row = &x[r * width], mean = means[r], rstd = rstds[r];
    double sum = 0, products = 0;  // of gradients of what was normalized; of them and it
    for (std::int64_t i = 0; i < width; ++i) {
      const double weighted = static_cast<double>(g[i]) * static_cast<double>(weight[i]);
      sum += weighted;
      products += weighted * static_cast<double>((row[i] - mean) * rstd);
    }
    const Real mean_sum = static_cast<Real>(sum / static_cast<double>(width));
    const Real mean_product = static_cast<Real>(products / static_cast<double>(width));
    for (std::int64_t i = 0; i < width; ++i)
      dx[r * width + i] = rstd * (g[i] * weight[i] - mean_sum - (row[i] - mean) * rstd * mean_product);
  });
  c.write(0, dx);
  c.write(1, dweight);
  c.write(2, dbias);
}

// TransformerEngine common/normalization/rmsnorm. Mean squares that are handed in are those of more than a row: of all
// heads, of which ranks hold parts.
template <class Call>
void Norms<Call>::rms_norm(const Call& c) {
  const Values<Real> weight = weight_of(c, 1, c.attributes[1]);
  const Values<Real> x = c.read(0), given = c.read(2);
  const std::int64_t width = weight.count, rows = x.count / width;
  const double epsilon = c.attributes[0];
  const Values<Real> y = c.room(x.count), rstds = c.room(rows);
  c.each(rows, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    const Real* const row = &x[r * width];
    double squares = 0;
    if (given.there()) {
      squares = static_cast<double>(given[r]);
    } else {
      for (std::int64_t i = 0; i < width; ++i) squares += static_cast<double>(row[i]) * static_cast<double>(row[i]);
      squares /= static_cast<double>(width);
    }
    const Real rstd = rstds[r] = static_cast<Real>(1 / std::sqrt(squares + epsilon));
    for (std::int64_t i = 0; i < width; ++i) y[r * width + i] = row[i] * rstd * weight[i];
  });
  c.write(0, y);
  c.write(1, rstds);
}

template <class Call>
void Norms<Call>::rms_norm_backward(const Call& c) {
  const Values<Real> weight = weight_of(c, 3, c.attributes[0]);
  const Values<Real> dy = c.read(0), x = c.read(1), rstds = c.read(2), given = c.read(4);
  const std::int64_t width = weight.count, rows = x.count / width;
  const Values<Real> dx = c.room(x.count);
  const Values<double> dweight = c.sums(width);
  c.ranges(width, [=] TIDEMARK_EVERYWHERE(std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) dweight[i] = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = begin; i < end; ++i)
        dweight[i] += static_cast<double>(dy[r * width + i]) * static_cast<double>(x[r * width + i]) *
                      static_cast<double>(rstds[r]);
  });
  c.each(rows, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    const Real *const g = &dy[r * width], *const row = &x[r * width], rstd = rstds[r];
    double products = 0;  // the mean of dy * weight * x
    for (std::int64_t i = 0; i < width && !given.there(); ++i)
      products += static_cast<double>(g[i]) * static_cast<double>(row[i]) * static_cast<double>(weight[i]);
    const Real mean = given.there() ? given[r] : static_cast<Real>(products / static_cast<double>(width));
    for (std::int64_t i = 0; i < width; ++i)
      dx[r * width + i] = rstd * (g[i] * weight[i] - row[i] * rstd * rstd * mean);
  });
  c.write(0, dx);
  c.write(1, dweight);
}

// mamba_ssm, ops/triton/layernorm_gated.py without a gate: a row's groups, each by itself.
template <class Call>
void Norms<Call>::grouped_rms_norm(const Call& c) {
  const Values<Real> x = c.read(0), weight = c.read(1);
  const std::int64_t width = weight.count, rows = x.count / width, groups = elements_of(c.sizes_out(1)) / rows,
                     of_group = width / groups;
  const double epsilon = c.attributes[0];
  const Values<Real> y = c.room(x.count), rstds = c.room(rows * groups);
  c.each(rows * groups, [=] TIDEMARK_EVERYWHERE(std::int64_t g) {
    const Real *const of = &x[g * of_group], *const by = &weight[g % groups * of_group];
    double squares = 0;
    for (std::int64_t i = 0; i < of_group; ++i) squares += static_cast<double>(of[i]) * static_cast<double>(of[i]);
    const Real rstd = rstds[g] = static_cast<Real>(1 / std::sqrt(squares / static_cast<double>(of_group) + epsilon));
    for (std::int64_t i = 0; i < of_group; ++i) y[g * of_group + i] = of[i] * rstd * by[i];
  });
  c.write(0, y);
  c.write(1, rstds);
}

template <class Call>
void Norms<Call>::grouped_rms_norm_backward(const Call& c) {
  const Values<Real> dy = c.read(0), x = c.read(1), rstds = c.read(2), weight = c.read(3);
  const std::int64_t width = weight.count, rows = x.count / width, groups = rstds.count / rows,
                     of_group = width / groups;
  const Values<Real> dx = c.room(x.count);
  const Values<double> dweight = c.sums(width);
  c.each(width, [=] TIDEMARK_EVERYWHERE(std::int64_t i) {
    dweight[i] = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      dweight[i] += static_cast<double>(dy[r * width + i]) * static_cast<double>(x[r * width + i]) *
                    static_cast<double>(rstds[r * groups + i / of_group]);
  });
  c.each(rows * groups, [=] TIDEMARK_EVERYWHERE(std::int64_t g) {
    const Real *const given = &dy[g * of_group], *const of = &x[g * of_group],
                      *const by = &weight[g % groups * of_group], rstd = rstds[g];
    double products = 0;
    for (std::int64_t i = 0; i < of_group; ++i)
      products += static_cast<double>(given[i]) * static_cast<double>(of[i]) * static_cast<double>(by[i]);
    const Real mean = static_cast<Real>(products / static_cast<double>(of_group));
    for (std::int64_t i = 0; i < of_group; ++i)
      dx[g * of_group + i] = rstd * (given[i] * by[i] - of[i] * rstd * rstd * mean);
  });
  c.write(0, dx);
  c.write(1, dweight);
}

template struct Norms<FloatCall>;
template struct Norms<DoubleCall>;

}  // namespace tidemark::math
