#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/math/families.hpp"
#include "kernels/math/walk.hpp"

// Megatron's rotary positions (core/models/common/embeddings/rope_utils.py; TransformerEngine common/fused_rope/
// fused_rope.cu): the dimensions that the table has angles for are turned, each with the one half of them away; the
// others stay.

namespace tidemark::math {
namespace {

template <class Real>
struct Angles {
  std::int64_t width = 0;  ///< dimensions that are turned
  std::vector<Real> cosine, sine;
  std::vector<std::int64_t> rows;  ///< of each row that is turned, its row of angles
};

template <class Real>
Angles<Real> angles_of(const Call& c) {
  const std::vector<Real> table = c.read<Real>(1);
  Angles<Real> angles;
  angles.width = c.sizes_in(1).back();
  for (const Real angle : table) {
    angles.cosine.push_back(std::cos(angle));
    angles.sine.push_back(std::sin(angle));
  }
  const auto without_last = [](const Shape& sizes) { return Shape(sizes.begin(), sizes.end() - 1); };
  angles.rows = broadcast_places(without_last(c.sizes_in(1)), without_last(c.sizes_in(0)));
  return angles;
}

// Of neighbours that turn together (Megatron's core/fusions/fused_mla_yarn_rope_apply.py): cosines and sines of rows.
template <class Real>
class Pairs {
 public:
  // The tables are the inputs from `first` on; rows are those of `sizes`, of the tables' width.
  Pairs(const Call& c, std::size_t first, const Shape& sizes)
      : width_(index(c.sizes_in(first).back())), cosine_(c.read<Real>(first)), sine_(c.read<Real>(first + 1)) {
    const auto without_last = [](const Shape& of) { return Shape(of.begin(), of.end() - 1); };
    rows_ = broadcast_places(without_last(c.sizes_in(first)), without_last(sizes));
  }

  [[nodiscard]] std::size_t width() const { return width_; }
  void turn(std::size_t row, const Real* x, Real* y) const {
    const std::size_t half = width_ / 2, at = index(rows_[row]) * width_;
    for (std::size_t i = 0; i < half; ++i) {
      y[i] = x[2 * i] * cosine_[at + i] - x[2 * i + 1] * sine_[at + i];
      y[i + half] = x[2 * i + 1] * cosine_[at + i + half] + x[2 * i] * sine_[at + i + half];
    }
  }
  void turn_back(std::size_t row, const Real* dy, Real* dx) const {
    const std::size_t half = width_ / 2, at = index(rows_[row]) * width_;
    for (std::size_t i = 0; i < half; ++i) {
      dx[2 * i] = dy[i] * cosine_[at + i] + dy[i + half] * sine_[at + i + half];
      dx[2 * i + 1] = dy[i + half] * cosine_[at + i + half] - dy[i] * sine_[at + i];
    }
  }

 private:
  std::size_t width_;
  std::vector<Real> cosine_, sine_;
  std::vector<std::int64_t> rows_;
};

}  // namespace

template <class Real>
void RotaryPositions<Real>::rotary(const Call& c) {
  const std::vector<Real> x = c.read<Real>(0);
  const Angles<Real> angles = angles_of<Real>(c);
  const std::size_t width = index(c.sizes_in(0).back()), half = index(angles.width / 2);
  std::vector<Real> y = x;
  for (std::size_t r = 0; r < angles.rows.size(); ++r)
    for (std::size_t i = 0; i < half; ++i) {
      const std::size_t first = r * width + i, second = first + half;
      const std::size_t a = index(angles.rows[r] * angles.width) + i, b = a + half;
      y[first] = x[first] * angles.cosine[a] - x[second] * angles.sine[a];
      y[second] = x[second] * angles.cosine[b] + x[first] * angles.sine[b];
    }
  c.write(0, y);
}

template <class Real>
void RotaryPositions<Real>::rotary_backward(const Call& c) {
  const std::vector<Real> dy = c.read<Real>(0);
  const Angles<Real> angles = angles_of<Real>(c);
  const std::size_t width = index(c.sizes_in(0).back()), half = index(angles.width / 2);
  std::vector<Real> dx = dy;
  for (std::size_t r = 0; r < angles.rows.size(); ++r)
    for (std::size_t i = 0; i < half; ++i) {
      const std::size_t first = r * width + i, second = first + half;
      const std::size_t a = index(angles.rows[r] * angles.width) + i, b = a + half;
      dx[first] = dy[first] * angles.cosine[a] + dy[second] * angles.sine[b];
      dx[second] = dy[second] * angles.cosine[b] - dy[first] * angles.sine[a];
    }
  c.write(0, dx);
}

template <class Real>
void RotaryPositions<Real>::rotary_pairs(const Call& c) {
  const std::vector<Real> x = c.read<Real>(0);
  const Pairs<Real> pairs(c, 1, c.sizes_in(0));
  std::vector<Real> y(x.size());
  for (std::size_t r = 0; r * pairs.width() < x.size(); ++r)
    pairs.turn(r, &x[r * pairs.width()], &y[r * pairs.width()]);
  c.write(0, y);
}

template <class Real>
void RotaryPositions<Real>::rotary_pairs_backward(const Call& c) {
  const std::vector<Real> dy = c.read<Real>(0);
  const Pairs<Real> pairs(c, 1, c.sizes_in(0));
  std::vector<Real> dx(dy.size());
  for (std::size_t r = 0; r * pairs.width() < dy.size(); ++r)
    pairs.turn_back(r, &dy[r * pairs.width()], &dx[r * pairs.width()]);
  c.write(0, dx);
}

// Rows of heads are those of tokens, head by head; of positions those of tokens.
template <class Real>
void RotaryPositions<Real>::latent_keys(const Call& c) {
  const std::vector<Real> heads = c.read<Real>(0), positions = c.read<Real>(1);
  const Pairs<Real> pairs(c, 2, c.sizes_in(1));
  const std::size_t turned = pairs.width(), value = index(c.sizes_out(1).back());
  const std::size_t plain = index(c.sizes_out(0).back()) - turned, width = plain + value;
  const std::size_t rows = heads.size() / width, of_token = rows / (positions.size() / turned);
  std::vector<Real> keys(rows * (plain + turned)), values(rows * value);
  for (std::size_t r = 0; r < rows; ++r) {
    const Real* const x = &heads[r * width];
    std::copy(x, x + plain, &keys[r * (plain + turned)]);
    std::copy(x + plain, x + width, &values[r * value]);
    pairs.turn(r / of_token, &positions[r / of_token * turned], &keys[r * (plain + turned) + plain]);
  }
  c.write(0, keys);
  c.write(1, values);
}

template <class Real>
void RotaryPositions<Real>::latent_keys_backward(const Call& c) {
  const std::vector<Real> dkeys = c.read<Real>(0), dvalues = c.read<Real>(1);
  const Pairs<Real> pairs(c, 2, c.sizes_out(1));
  const std::size_t turned = pairs.width(), value = index(c.sizes_in(1).back());
  const std::size_t plain = index(c.sizes_in(0).back()) - turned, width = plain + value;
  const std::size_t rows = dvalues.size() / value;
  std::vector<Real> dheads(rows * width), dpositions(index(elements_of(c.sizes_out(1)))), sums(dpositions.size());
  const std::size_t of_token = rows / (dpositions.size() / turned);
  for (std::size_t r = 0; r < rows; ++r) {
    const Real* const x = &dkeys[r * (plain + turned)];
    std::copy(x, x + plain, &dheads[r * width]);
    std::copy(&dvalues[r * value], &dvalues[r * value] + value, &dheads[r * width + plain]);
    for (std::size_t i = 0; i < turned; ++i) sums[r / of_token * turned + i] += x[plain + i];
  }
  for (std::size_t token = 0; token * turned < sums.size(); ++token)
    pairs.turn_back(token, &sums[token * turned], &dpositions[token * turned]);
  c.write(0, dheads);
  c.write(1, dpositions);
}

template struct RotaryPositions<float>;
template struct RotaryPositions<double>;

}  // namespace tidemark::math
