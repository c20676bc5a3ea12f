#include <cmath>

#include "kernels/math/engine.hpp"
#include "kernels/math/families.hpp"

// Megatron's rotary positions (core/models/common/embeddings/rope_utils.py; TransformerEngine common/fused_rope/
// fused_rope.cu): the dimensions that the table has angles for are turned, each with the one half of them away; the
// others stay.

namespace tidemark::math {
namespace {

enum class Turn { Forward, Backward };

// Backward each angle's sine stands where its transpose has it.
template <class Call>
void turn(const Call& c, Turn way) {
  using Real = typename Call::Real;
  const Values<Real> x = c.read(0), table = c.read(1), cosine = c.room(table.count), sine = c.room(table.count);
  c.each(table.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) {
    cosine[i] = std::cos(table[i]);
    sine[i] = std::sin(table[i]);
  });
  const auto without_last = [](const Shape& sizes) { return Shape(sizes.begin(), sizes.end() - 1); };
  const Shape angles = without_last(c.sizes_in(1)), rows = without_last(c.sizes_in(0));
  const Runs rows_of_angles(rows, broadcast_strides(angles, contiguous_strides(angles), rows));
  const std::int64_t width = c.sizes_in(0).back(), turned = c.sizes_in(1).back(), half = turned / 2;
  const bool forward = way == Turn::Forward;
  c.each(elements_of(rows), [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    const std::int64_t angle = rows_of_angles.offset(r) * turned;
    Real* const row = &x[r * width];
    for (std::int64_t i = 0; i < half; ++i) {
      const std::int64_t a = angle + i, b = a + half;
      const Real first = row[i], second = row[i + half];
      row[i] = forward ? first * cosine[a] - second * sine[a] : first * cosine[a] + second * sine[b];
      row[i + half] = forward ? second * cosine[b] + first * sine[b] : second * cosine[b] - first * sine[a];
    }
  });
  c.write(0, x);
}

}  // namespace

template <class Call>
void RotaryPositions<Call>::rotary(const Call& c) {
  turn(c, Turn::Forward);
}

template <class Call>
void RotaryPositions<Call>::rotary_backward(const Call& c) {
  turn(c, Turn::Backward);
}

template struct RotaryPositions<FloatCall>;
template struct RotaryPositions<DoubleCall>;

}  // namespace tidemark::math
