#include <cmath>
#include <vector>

#include "kernels/math/engine/engine.hpp"
#include "kernels/math/families.hpp"
#include "kernels/math/philox.hpp"

// Values out of nothing.

namespace tidemark::math {

template <class Call>
void Fills<Call>::fill(const Call& c) {
  const Values<Real> y = c.room_for(0);
  const Real value = static_cast<Real>(c.attributes[0]);
  c.each(y.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { y[i] = value; });
  c.write(0, y);
}

// On the host: who runs the kernel may say what it writes.
template <class Call>
void Fills<Call>::initialize(const Call& c) {
  constexpr double deviation = 0.02;  // of most models (transformers initializer_range, Megatron init_method_std)
  const bool whole = !is_floating(c.out[0].view.dtype);
  RandomNumbers numbers(c.setting.key, c.group);
  const auto value = [&](std::int64_t element) {
    if (c.setting.initial) return c.setting.initial(c.group, element);
    const std::int64_t place = c.setting.drawn.place(element);
    return whole ? std::floor(2 * numbers.uniform(place)) : deviation * numbers.normal(place);
  };
  std::vector<Real> y;
  for (std::int64_t i = 0; i < elements_of(c.sizes_out(0)); ++i) y.push_back(static_cast<Real>(value(i)));
  c.write(0, c.brought(y));
}

template <class Call>
void Fills<Call>::arange(const Call& c) {
  const Values<Real> y = c.room_for(0);
  const Real start = static_cast<Real>(c.attributes[0]);
  c.each(y.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { y[i] = start + static_cast<Real>(i); });
  c.write(0, y);
}

// Angles of positions, position * base^(-i / pairs); of one dimension only, those of position 1: the frequencies
// (transformers modeling_rope_utils.py inv_freq; Megatron core/models/common/embeddings/rotary_pos_embedding.py).
template <class Call>
void Fills<Call>::rotary_table(const Call& c) {
  const Rows rows = rows_of(c.sizes_out(0));
  const bool frequencies = c.sizes_out(0).size() == 1;
  const double base = c.attributes[0];
  const Values<Real> y = c.room_for(0);
  c.each(rows.width, [=] TIDEMARK_EVERYWHERE(std::int64_t i) {
    const double share = static_cast<double>(i) / static_cast<double>(rows.width);
    const Real frequency = static_cast<Real>(std::pow(base, -share));
    for (std::int64_t position = 0; position < rows.count; ++position)
      y[position * rows.width + i] = frequencies ? frequency : static_cast<Real>(position) * frequency;
  });
  c.write(0, y);
}

template struct Fills<FloatCall>;
template struct Fills<DoubleCall>;

}  // namespace tidemark::math
