#include "kernels/math/engine/engine.hpp"
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
template <class Call>
Values<typename Call::Real> drop(const Call& c, Values<typename Call::Real> values) {
  using Real = typename Call::Real;
  const std::uint64_t key = c.setting.key;
  const double probability = c.attributes[0];
  const Real scale = scale_of<Real>(probability);
  const PartOfWhole drawn = c.setting.drawn;
  const Values<Real> kept = c.room(values.count);
  c.ranges(values.count, [=] TIDEMARK_EVERYWHERE(std::int64_t begin, std::int64_t end) {
    RandomNumbers numbers(key);
    for (std::int64_t i = begin; i < end; ++i) {
      kept[i] = numbers.uniform(drawn.place(i)) >= probability ? Real(1) : Real(0);
      values[i] *= kept[i] * scale;
    }
  });
  return kept;
}

}  // namespace

template <class Call>
void Dropouts<Call>::dropout(const Call& c) {
  const Values<Real> y = c.read(0, c.sizes_out(0)), kept = drop(c, y);
  c.write(0, y);
  c.write(1, kept);
}

template <class Call>
void Dropouts<Call>::dropout_backward(const Call& c) {
  const Values<Real> dx = c.read(0, c.sizes_out(0)), kept = c.read(1, c.sizes_out(0));
  const Real scale = scale_of<Real>(c.attributes[0]);
  c.each(dx.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { dx[i] *= kept[i] * scale; });
  c.write(0, dx);
}

// Megatron core/fusions/fused_bias_dropout.py: residual + dropout(x + bias).
template <class Call>
void Dropouts<Call>::bias_dropout_add(const Call& c) {
  const Shape& sizes = c.sizes_out(0);
  const Values<Real> residual = c.read(0, sizes), y = c.read(1, sizes), bias = c.read(2, sizes);
  c.each(y.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { y[i] += bias[i]; });
  Values<Real> kept;
  if (c.attributes[0] > 0) {
    kept = drop(c, y);
  } else {
    kept = c.room(y.count);
    c.each(y.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { kept[i] = 1; });
  }
  c.each(y.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { y[i] += residual[i]; });
  c.write(0, y);
  c.write(1, kept);
}

template struct Dropouts<FloatCall>;
template struct Dropouts<DoubleCall>;

}  // namespace tidemark::math
