#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/math/engine/engine.hpp"
#include "kernels/math/families.hpp"

namespace tidemark::math {

// The defaults of torch.optim and of Megatron's optimizers.
constexpr double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;

// bitsandbytes': decayed, and a step by the sign of what momentum and gradient come to.
template <class Real>
TIDEMARK_EVERYWHERE Real stepped_by_lion(Real p, Real m, Real gradient, Real rate, Real decay) {
  constexpr double beta = 0.9;
  const Real to = static_cast<Real>(beta) * m + static_cast<Real>(1 - beta) * gradient;
  return p - rate * decay * p - rate * static_cast<Real>((to > 0) - (to < 0));
}

template <class Real>
TIDEMARK_EVERYWHERE Real value_of(Real code, const Values<Real>& map) {
  return map[static_cast<std::int64_t>(code)];
}

// The place of the map's value next to x.
template <class Real>
TIDEMARK_EVERYWHERE Real nearest_code(Real x, const Values<Real>& map) {
  std::int64_t below = 0, above = map.count - 1;
  while (above - below > 1) {
    const std::int64_t middle = (below + above) / 2;
    (x > map[middle] ? below : above) = middle;
  }
  return static_cast<Real>(x - map[below] < map[above] - x ? below : above);
}

// Of x as a part of the largest; one whose value has no other sign than x.
template <class Real>
TIDEMARK_EVERYWHERE Real code_of_its_sign(Real x, Real largest, const Values<Real>& map) {
  const Real code = nearest_code(largest > 0 ? x / largest : 0, map);
  const Real value = value_of(code, map);
  if (std::signbit(value) == std::signbit(x)) return code;
  return x > 0 ? code + 1 : code - 1;
}

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

constexpr double beta2_of_lion = 0.99;

// bitsandbytes csrc/kernels.cu kOptimizer32bit1State.
template <class Call>
void Optimizers<Call>::lion(const Call& c) {
  const Real rate = static_cast<Real>(c.attributes[0]), decay = static_cast<Real>(c.attributes[1]);
  const Values<Real> p = c.read(0), gradient = c.read(1), m = c.read(2);
  c.each(p.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) {
    p[i] = stepped_by_lion(p[i], m[i], gradient[i], rate, decay);
    m[i] += static_cast<Real>(1 - beta2_of_lion) * (gradient[i] - m[i]);
  });
  c.write(0, p);
  c.write(1, m);
}

// bitsandbytes csrc/kernels.cu kOptimizerStatic8bit2StateBlockwise.
template <class Call>
void Optimizers<Call>::adam_blockwise(const Call& c) {
  const Real rate = static_cast<Real>(c.attributes[0]), decay = static_cast<Real>(c.attributes[1]);
  const auto block = static_cast<std::int64_t>(c.attributes[2]);
  const auto step = static_cast<double>(c.setting.step);
  const Real size = rate / static_cast<Real>(1 - std::pow(beta1, step));
  const Real root = static_cast<Real>(std::sqrt(1 - std::pow(beta2, step)));
  const Values<Real> p = c.read(0), gradient = c.read(1), m = c.read(2), v = c.read(3);
  const Values<Real> m_scales = c.read(4), v_scales = c.read(5), m_map = c.read(6), v_map = c.read(7);
  c.each(m_scales.count, [=] TIDEMARK_EVERYWHERE(std::int64_t b) {
    const std::int64_t begin = b * block, end = begin + block < p.count ? begin + block : p.count;
    Real most_of_m = 0, most_of_v = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const Real g = gradient[i];
      m[i] = static_cast<Real>(beta1) * value_of(m[i], m_map) * m_scales[b] + static_cast<Real>(1 - beta1) * g;
      v[i] = static_cast<Real>(beta2) * value_of(v[i], v_map) * v_scales[b] + static_cast<Real>(1 - beta2) * g * g;
      most_of_m = larger(most_of_m, std::fabs(m[i]));
      most_of_v = larger(most_of_v, v[i]);
      p[i] -= size * m[i] / (std::sqrt(v[i]) / root + static_cast<Real>(epsilon));
      p[i] -= rate * decay * p[i];
    }
    for (std::int64_t i = begin; i < end; ++i) {
      m[i] = code_of_its_sign(m[i], most_of_m, m_map);
      v[i] = nearest_code(most_of_v > 0 ? v[i] / most_of_v : 0, v_map);
    }
    m_scales[b] = most_of_m;
    v_scales[b] = most_of_v;
  });
  c.write(0, p);
  c.write(1, m);
  c.write(2, v);
  c.write(3, m_scales);
  c.write(4, v_scales);
}

// kOptimizerStatic8bit1StateBlockwise.
template <class Call>
void Optimizers<Call>::lion_blockwise(const Call& c) {
  const Real rate = static_cast<Real>(c.attributes[0]), decay = static_cast<Real>(c.attributes[1]);
  const auto block = static_cast<std::int64_t>(c.attributes[2]);
  const Values<Real> p = c.read(0), gradient = c.read(1), m = c.read(2), scales = c.read(3), map = c.read(4);
  c.each(scales.count, [=] TIDEMARK_EVERYWHERE(std::int64_t b) {
    const std::int64_t begin = b * block, end = begin + block < p.count ? begin + block : p.count;
    Real most = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const Real before = value_of(m[i], map) * scales[b];
      p[i] = stepped_by_lion(p[i], before, gradient[i], rate, decay);
      m[i] = before + static_cast<Real>(1 - beta2_of_lion) * (gradient[i] - before);
      most = larger(most, std::fabs(m[i]));
    }
    for (std::int64_t i = begin; i < end; ++i) m[i] = code_of_its_sign(m[i], most, map);
    scales[b] = most;
  });
  c.write(0, p);
  c.write(1, m);
  c.write(2, scales);
}

// bitsandbytes functional.py create_dynamic_map of 8 bits: of each power of ten twice as many values as of the one
// below, the middles of as many parts of what lies between a tenth and one; 0 and 1 besides. In ascending order.
template <class Call>
void Optimizers<Call>::dynamic_map(const Call& c) {
  const bool both_signs = c.attributes[0] != 0;
  const Values<Real> y = c.room_for(0);
  constexpr int powers = 7;
  c.each(1, [=] TIDEMARK_EVERYWHERE(std::int64_t) {
    std::int64_t of_one_sign = 0;
    for (int power = 0; power < powers; ++power) of_one_sign += std::int64_t{1} << (both_signs ? power : power + 1);
    std::int64_t at = both_signs ? of_one_sign : 0;
    y[at++] = 0;
    for (int power = 0; power < powers; ++power) {
      const std::int64_t parts = std::int64_t{1} << (both_signs ? power : power + 1);
      const double unit = std::pow(10.0, power - (powers - 1));
      for (std::int64_t i = 0; i < parts; ++i) {
        const double middle = 0.1 + 0.9 * (static_cast<double>(i) + 0.5) / static_cast<double>(parts);
        y[at] = static_cast<Real>(unit * middle);
        if (both_signs) y[2 * of_one_sign - at] = -y[at];
        ++at;
      }
    }
    y[at] = 1;
  });
  c.write(0, y);
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
