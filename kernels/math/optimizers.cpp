#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/math/engine.hpp"
#include "kernels/math/families.hpp"

namespace tidemark::math {

// The defaults of torch.optim and of Megatron's optimizers.
constexpr double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;

// Weights decay by themselves, as AdamW has it, or with their gradients, as Adam and SGD have.

// torch.optim's fused kernel (ATen/native/cuda/fused_adam_utils.cuh), TransformerEngine's (common/multi_tensor/
// adam.cu). A step that the device counts is one more afterwards; the launch that adds it is part of this one.
template <class Call>
void Optimizers<Call>::adam(const Call& c) {
  const Real rate = static_cast<Real>(c.attributes[0]), decay = static_cast<Real>(c.attributes[1]);
  const Real of_gradient = static_cast<Real>(c.attributes[2]);
  const Values<Real> p = c.read(0), gradient = c.read(1), m = c.read(2), v = c.read(3), largest = c.read(4);
  const Values<Real> counted = c.read(5);
  c.each(counted.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { ++counted[i]; });
  const Values<Real> size = c.room(1), root = c.room(1);
  const double counted_by_host = static_cast<double>(c.setting.step);
  c.each(1, [=] TIDEMARK_EVERYWHERE(std::int64_t) {
    const double step = counted.there() ? static_cast<double>(counted[0]) : counted_by_host;
    size[0] = rate / static_cast<Real>(1 - std::pow(beta1, step));
    root[0] = static_cast<Real>(std::sqrt(1 - std::pow(beta2, step)));
  });
  c.ranges(p.count, [=] TIDEMARK_EVERYWHERE(std::int64_t begin, std::int64_t end) {
    const Real its_size = size[0], its_root = root[0];
    for (std::int64_t i = begin; i < end; ++i) {
      const Real g = gradient[i] + of_gradient * p[i];
      p[i] -= rate * decay * p[i];
      m[i] += static_cast<Real>(1 - beta1) * (g - m[i]);
      v[i] = static_cast<Real>(beta2) * v[i] + static_cast<Real>(1 - beta2) * g * g;
      if (largest.there()) largest[i] = larger(largest[i], v[i]);
      const Real second = largest.there() ? largest[i] : v[i];
      p[i] -= its_size * m[i] / (std::sqrt(second) / its_root + static_cast<Real>(epsilon));
    }
  });
  c.write(0, p);
  c.write(1, m);
  c.write(2, v);
  if (largest.there()) c.write(3, largest);
  if (counted.there()) c.write(4, counted);
}

// torch.optim's (ATen/native/cuda/FusedSgdKernel.cu), without dampening: of zeros, the first momentum is the gradient.
template <class Call>
void Optimizers<Call>::sgd(const Call& c) {
  const Real rate = static_cast<Real>(c.attributes[0]), momentum = static_cast<Real>(c.attributes[1]);
  const Real of_gradient = static_cast<Real>(c.attributes[2]);
  const Values<Real> p = c.read(0), gradient = c.read(1), buffer = c.read(2);
  c.each(p.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) {
    Real step = gradient[i] + of_gradient * p[i];
    if (buffer.there()) step = buffer[i] = momentum * buffer[i] + step;
    p[i] -= rate * step;
  });
  c.write(0, p);
  if (buffer.there()) c.write(1, buffer);
}

// TransformerEngine common/multi_tensor/adam.cu AdamFunctorMasterParamRemainder: an fp32 number is a bf16 one, rounded
// half up, and how far its bits are from that, as a signed 16-bit number. Where numbers are stored wide, the first has
// all of it.
template <class Call>
void Optimizers<Call>::join_bits(const Call& c) {
  const Values<Real> x = c.read(0), lower = c.read(1);
  const bool native = c.setting.storage == Storage::Native;
  c.each(x.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) {
    const auto upper = static_cast<float>(x[i]);
    const std::int32_t bits = std::bit_cast<std::int32_t>(upper) + static_cast<std::int32_t>(lower[i]);
    const float joined = std::bit_cast<float>(bits);
    x[i] = native ? static_cast<Real>(joined) : x[i] + static_cast<Real>(joined - upper);
  });
  c.write(0, x);
}

template <class Call>
void Optimizers<Call>::split_bits(const Call& c) {
  const Values<Real> x = c.read(0), lower = c.room_for(1);
  const bool native = c.setting.storage == Storage::Native;
  c.each(x.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) {
    lower[i] = 0;
    if (!native) return;
    const auto bits = std::bit_cast<std::int32_t>(static_cast<float>(x[i]));
    const auto rest = static_cast<std::int16_t>(bits & 0xffff);
    x[i] = static_cast<Real>(std::bit_cast<float>(bits - rest));
    lower[i] = static_cast<Real>(rest);
  });
  c.write(0, x);
  c.write(1, lower);
}

template struct Optimizers<FloatCall>;
template struct Optimizers<DoubleCall>;

}  // namespace tidemark::math
