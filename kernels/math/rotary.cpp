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

template struct RotaryPositions<float>;
template struct RotaryPositions<double>;

}  // namespace tidemark::math
