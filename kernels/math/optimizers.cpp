#include <cmath>
#include <vector>

#include "kernels/math/families.hpp"

namespace tidemark::math {

// The defaults of torch.optim and of Megatron's optimizers.
constexpr double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;

// Weights decay by themselves, as AdamW has it, or with their gradients, as Adam and SGD have.

// torch.optim's fused kernel (ATen/native/cuda/fused_adam_utils.cuh), TransformerEngine's (common/multi_tensor/
// adam.cu). A step that the device counts is one more afterwards; the launch that adds it is part of this one.
template <class Real>
void Optimizers<Real>::adam(const Call& c) {
  const Real rate = static_cast<Real>(c.attributes[0]), decay = static_cast<Real>(c.attributes[1]);
  const Real of_gradient = static_cast<Real>(c.attributes[2]);
  std::vector<Real> p = c.read<Real>(0), m = c.read<Real>(2), v = c.read<Real>(3), largest = c.read<Real>(4);
  std::vector<Real> g = c.read<Real>(1);
  std::vector<Real> counted = c.read<Real>(5);
  for (Real& count : counted) ++count;
  const double step = counted.empty() ? static_cast<double>(c.setting.step) : static_cast<double>(counted.front());
  const Real size = rate / static_cast<Real>(1 - std::pow(beta1, step));
  const Real root = static_cast<Real>(std::sqrt(1 - std::pow(beta2, step)));
  for (std::size_t i = 0; i < p.size(); ++i) {
    g[i] += of_gradient * p[i];
    p[i] -= rate * decay * p[i];
    m[i] += static_cast<Real>(1 - beta1) * (g[i] - m[i]);
    v[i] = static_cast<Real>(beta2) * v[i] + static_cast<Real>(1 - beta2) * g[i] * g[i];
    if (!largest.empty()) largest[i] = larger(largest[i], v[i]);
    const Real second = largest.empty() ? v[i] : largest[i];
    p[i] -= size * m[i] / (std::sqrt(second) / root + static_cast<Real>(epsilon));
  }
  c.write(0, p);
  c.write(1, m);
  c.write(2, v);
  if (!largest.empty()) c.write(3, largest);
  if (!counted.empty()) c.write(4, counted);
}

// torch.optim's (ATen/native/cuda/FusedSgdKernel.cu), without dampening: of zeros, the first momentum is the gradient.
template <class Real>
void Optimizers<Real>::sgd(const Call& c) {
  const Real rate = static_cast<Real>(c.attributes[0]), momentum = static_cast<Real>(c.attributes[1]);
  const Real of_gradient = static_cast<Real>(c.attributes[2]);
  std::vector<Real> p = c.read<Real>(0), g = c.read<Real>(1), buffer = c.read<Real>(2);
  for (std::size_t i = 0; i < g.size(); ++i) g[i] += of_gradient * p[i];
  for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = momentum * buffer[i] + g[i];
  const std::vector<Real>& step = buffer.empty() ? g : buffer;
  for (std::size_t i = 0; i < p.size(); ++i) p[i] -= rate * step[i];
  c.write(0, p);
  if (!buffer.empty()) c.write(1, buffer);
}

template struct Optimizers<float>;
template struct Optimizers<double>;

}  // namespace tidemark::math
