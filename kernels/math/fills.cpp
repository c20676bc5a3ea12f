#include <cmath>
#include <vector>

#include "kernels/math/families.hpp"
#include "kernels/math/philox.hpp"

// Values out of nothing.

namespace tidemark::math {

namespace {

template <class Real>
std::vector<Real> space_of(const Call& c) {
  return std::vector<Real>(index(elements_of(c.sizes_out(0))));
}

}  // namespace

template <class Real>
void Fills<Real>::fill(const Call& c) {
  std::vector<Real> y = space_of<Real>(c);
  for (Real& value : y) value = static_cast<Real>(c.attributes[0]);
  c.write(0, y);
}

template <class Real>
void Fills<Real>::initialize(const Call& c) {
  constexpr double deviation = 0.02;  // of most models (transformers initializer_range, Megatron init_method_std)
  const bool whole = !is_floating(c.out[0].view.dtype);
  RandomNumbers numbers(c.setting.key, c.group);
  const auto value = [&](std::int64_t element) {
    if (c.setting.initial) return c.setting.initial(c.group, element);
    const std::int64_t place = c.setting.place ? c.setting.place(element) : element;
    return whole ? std::floor(2 * numbers.uniform(place)) : deviation * numbers.normal(place);
  };
  std::vector<Real> y = space_of<Real>(c);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<Real>(value(static_cast<std::int64_t>(i)));
  c.write(0, y);
}

template <class Real>
void Fills<Real>::arange(const Call& c) {
  std::vector<Real> y = space_of<Real>(c);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<Real>(c.attributes[0]) + static_cast<Real>(i);
  c.write(0, y);
}

// Angles of positions, position * base^(-i / pairs); of one dimension only, those of position 1: the frequencies
// (transformers modeling_rope_utils.py inv_freq; Megatron core/models/common/embeddings/rotary_pos_embedding.py).
template <class Real>
void Fills<Real>::rotary_table(const Call& c) {
  const Rows rows = rows_of(c.sizes_out(0));
  const bool frequencies = c.sizes_out(0).size() == 1;
  std::vector<Real> y = space_of<Real>(c);
  for (std::int64_t i = 0; i < rows.width; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(rows.width);
    const Real frequency = static_cast<Real>(std::pow(c.attributes[0], -share));
    for (std::int64_t position = 0; position < rows.count; ++position)
      y[index(position * rows.width + i)] = frequencies ? frequency : static_cast<Real>(position) * frequency;
  }
  c.write(0, y);
}

template struct Fills<float>;
template struct Fills<double>;

}  // namespace tidemark::math
