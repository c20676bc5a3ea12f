#include <cmath>

#include "kernels/math/engine/engine.hpp"
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

// Cosines and sines of rows whose neighbours turn together (Megatron's core/fusions/fused_mla_yarn_rope_apply.py).
template <class Real>
struct Pairs {
  std::int64_t width;
  Values<Real> cosine, sine;
  Runs rows;  ///< of each row that is turned, its row of them

  TIDEMARK_EVERYWHERE void turn(std::int64_t row, const Real* x, Real* y) const {
    const std::int64_t half = width / 2, at = rows.offset(row) * width;
    for (std::int64_t i = 0; i < half; ++i) {
      y[i] = x[2 * i] * cosine[at + i] - x[2 * i + 1] * sine[at + i];
      y[i + half] = x[2 * i + 1] * cosine[at + i + half] + x[2 * i] * sine[at + i + half];
    }
  }
  TIDEMARK_EVERYWHERE void turn_back(std::int64_t row, const Real* dy, Real* dx) const {
    const std::int64_t half = width / 2, at = rows.offset(row) * width;
    for (std::int64_t i = 0; i < half; ++i) {
      dx[2 * i] = dy[i] * cosine[at + i] + dy[i + half] * sine[at + i + half];
      dx[2 * i + 1] = dy[i + half] * cosine[at + i + half] - dy[i] * sine[at + i];
    }
  }
};

// The inputs from `first` on, for rows of `sizes`.
template <class Call>
Pairs<typename Call::Real> pairs_of(const Call& c, std::size_t first, const Shape& sizes) {
  const auto without_last = [](const Shape& of) { return Shape(of.begin(), of.end() - 1); };
  const Shape tables = without_last(c.sizes_in(first)), rows = without_last(sizes);
  return {c.sizes_in(first).back(), c.read(first), c.read(first + 1),
          Runs(rows, broadcast_strides(tables, contiguous_strides(tables), rows))};
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

template <class Call>
void RotaryPositions<Call>::rotary_pairs(const Call& c) {
  const auto x = c.read(0), y = c.room_for(0);
  const auto pairs = pairs_of(c, 1, c.sizes_in(0));
  c.each(x.count / pairs.width,
         [=] TIDEMARK_EVERYWHERE(std::int64_t r) { pairs.turn(r, &x[r * pairs.width], &y[r * pairs.width]); });
  c.write(0, y);
}

template <class Call>
void RotaryPositions<Call>::rotary_pairs_backward(const Call& c) {
  const auto dy = c.read(0), dx = c.room_for(0);
  const auto pairs = pairs_of(c, 1, c.sizes_in(0));
  c.each(dy.count / pairs.width,
         [=] TIDEMARK_EVERYWHERE(std::int64_t r) { pairs.turn_back(r, &dy[r * pairs.width], &dx[r * pairs.width]); });
  c.write(0, dx);
}

// Two neighbours in the last dimension are one number's real and imaginary part.
template <class Call>
void RotaryPositions<Call>::complex_multiply(const Call& c) {
  const Shape& sizes = c.sizes_out(0);
  const auto x = c.read(0, sizes), y = c.read(1, sizes);
  const typename Call::Real sign = c.attributes[0] != 0 ? -1 : 1;
  c.each(x.count / 2, [=] TIDEMARK_EVERYWHERE(std::int64_t i) {
    const typename Call::Real real = x[2 * i], imaginary = x[2 * i + 1], turn = sign * y[2 * i + 1];
    x[2 * i] = real * y[2 * i] - imaginary * turn;
    x[2 * i + 1] = imaginary * y[2 * i] + real * turn;
  });
  c.write(0, x);
}

// A token's heads lie one after another; all have its positions.
template <class Call>
void RotaryPositions<Call>::latent_keys(const Call& c) {
  const auto heads = c.read(0), positions = c.read(1), keys = c.room_for(0), values = c.room_for(1);
  const auto pairs = pairs_of(c, 2, c.sizes_in(1));
  const std::int64_t turned = pairs.width, value = c.sizes_out(1).back(), key = c.sizes_out(0).back();
  const std::int64_t plain = key - turned, width = plain + value;
  const std::int64_t rows = heads.count / width, of_token = rows / (positions.count / turned);
  c.each(rows, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    for (std::int64_t i = 0; i < plain; ++i) keys[r * key + i] = heads[r * width + i];
    for (std::int64_t i = 0; i < value; ++i) values[r * value + i] = heads[r * width + plain + i];
    const std::int64_t token = r / of_token;
    pairs.turn(token, &positions[token * turned], &keys[r * key + plain]);
  });
  c.write(0, keys);
  c.write(1, values);
}

template <class Call>
void RotaryPositions<Call>::latent_keys_backward(const Call& c) {
  const auto dkeys = c.read(0), dvalues = c.read(1), dheads = c.room_for(0), dpositions = c.room_for(1);
  const auto pairs = pairs_of(c, 2, c.sizes_out(1));
  const std::int64_t turned = pairs.width, value = c.sizes_in(1).back(), key = c.sizes_in(0).back();
  const std::int64_t plain = key - turned, width = plain + value, tokens = dpositions.count / turned;
  const std::int64_t of_token = dvalues.count / value / tokens;
  const auto sums = c.room(tokens * turned);
  c.each(tokens, [=] TIDEMARK_EVERYWHERE(std::int64_t token) {
    for (std::int64_t i = 0; i < turned; ++i) sums[token * turned + i] = 0;
    for (std::int64_t r = token * of_token; r < (token + 1) * of_token; ++r) {
      for (std::int64_t i = 0; i < plain; ++i) dheads[r * width + i] = dkeys[r * key + i];
      for (std::int64_t i = 0; i < value; ++i) dheads[r * width + plain + i] = dvalues[r * value + i];
      for (std::int64_t i = 0; i < turned; ++i) sums[token * turned + i] += dkeys[r * key + plain + i];
    }
    pairs.turn_back(token, &sums[token * turned], &dpositions[token * turned]);
  });
  c.write(0, dheads);
  c.write(1, dpositions);
}

template struct RotaryPositions<FloatCall>;
template struct RotaryPositions<DoubleCall>;

}  // namespace tidemark::math
