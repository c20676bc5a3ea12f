#include <vector>

#include "kernels/math/families.hpp"
#include "kernels/math/philox.hpp"

// What is dropped depends on the launch's key and on an element's place alone.

namespace tidemark::math {
namespace {

// ATen/native/cuda/Dropout.cu: of what is dropped altogether nothing is left.
template <class Real>
Real scale_of(double probability) {
  return probability < 1 ? static_cast<Real>(1 / (1 - probability)) : Real(0);
}

// Drops some of the values and scales the others; returns which are kept.
template <class Real>
std::vector<Real> drop(const Call& c, std::vector<Real>& values) {
  RandomNumbers numbers(c.setting.key);
  const double probability = c.attributes[0];
  const Real scale = scale_of<Real>(probability);
  std::vector<Real> kept(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto element = static_cast<std::int64_t>(i);
    const bool keep = numbers.uniform(c.setting.drawn.place(element)) >= probability;
    kept[i] = keep ? Real(1) : Real(0);
    values[i] *= kept[i] * scale;
  }
  return kept;
}

}  // namespace

template <class Real>
void Dropouts<Real>::dropout(const Call& c) {
  std::vector<Real> y = c.read<Real>(0, c.sizes_out(0));
  const std::vector<Real> kept = drop(c, y);
  c.write(0, y);
  c.write(1, kept);
}

template <class Real>
void Dropouts<Real>::dropout_backward(const Call& c) {
  std::vector<Real> dx = c.read<Real>(0, c.sizes_out(0));
  const std::vector<Real> kept = c.read<Real>(1, c.sizes_out(0));
  const Real scale = scale_of<Real>(c.attributes[0]);
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] *= kept[i] * scale;
  c.write(0, dx);
}

// Megatron core/fusions/fused_bias_dropout.py: residual + dropout(x + bias).
template <class Real>
void Dropouts<Real>::bias_dropout_add(const Call& c) {
  const Shape& sizes = c.sizes_out(0);
  const std::vector<Real> residual = c.read<Real>(0, sizes), bias = c.read<Real>(2, sizes);
  std::vector<Real> y = c.read<Real>(1, sizes);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i];
  std::vector<Real> kept;
  if (c.attributes[0] > 0)
    kept = drop(c, y);
  else
    kept.assign(y.size(), 1);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += residual[i];
  c.write(0, y);
  c.write(1, kept);
}

template struct Dropouts<float>;
template struct Dropouts<double>;

}  // namespace tidemark::math
