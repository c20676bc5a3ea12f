#include <cmath>
#include <limits>
#include <vector>

#include "kernels/math/families.hpp"
#include "kernels/math/walk.hpp"

// Sums over many elements are in fp64: fp32 would lose as many digits as their number has, while a device adds in
// trees, which lose few.

namespace tidemark::math {
namespace {

// An input broadcast to sizes, folded to the places of the output that its elements broadcast from.
template <class Fold>
std::vector<double> folded(const Call& c, const Shape& sizes, double start, const auto& values, Fold fold) {
  const Shape& to = c.sizes_out(0);
  std::vector<double> y(index(elements_of(to)), start);
  std::size_t next = 0;
  walk(sizes, broadcast_strides(to, contiguous_strides(to), sizes),
       [&](std::int64_t offset, std::int64_t count, std::int64_t stride) {
         for (std::int64_t i = 0; i < count; ++i) {
           double& place = y[index(offset + i * stride)];
           place = fold(place, static_cast<double>(values[next++]));
         }
       });
  return y;
}

template <class Values>
std::vector<double> summed(const Call& c, const Values& values) {
  return folded(c, c.sizes_in(0), 0, values, [](double sum, double x) { return sum + x; });
}

template <class Values>
std::vector<double> averaged(const Call& c, const Values& values) {
  std::vector<double> y = summed(c, values);
  for (double& value : y) value *= static_cast<double>(y.size()) / static_cast<double>(values.size());
  return y;
}

}  // namespace

template <class Real>
void Reductions<Real>::sum(const Call& c) {
  c.write(0, summed(c, c.read<Real>(0)));
}

template <class Real>
void Reductions<Real>::mean(const Call& c) {
  c.write(0, averaged(c, c.read<Real>(0)));
}

// Factors broadcast to the first one.
template <class Real>
void Reductions<Real>::mean_of_products(const Call& c) {
  std::vector<double> product = c.read<double>(0);
  for (std::size_t f = 1; f < c.in.size(); ++f) {
    const std::vector<Real> factor = c.read<Real>(f, c.sizes_in(0));
    for (std::size_t i = 0; i < product.size(); ++i) product[i] *= static_cast<double>(factor[i]);
  }
  c.write(0, averaged(c, product));
}

template <class Real>
void Reductions<Real>::largest(const Call& c) {
  c.write(0, folded(c, c.sizes_in(0), -std::numeric_limits<double>::infinity(), c.read<Real>(0), larger<double>));
}

// Along the last dimension.
template <class Real>
void Reductions<Real>::cumulative_sum(const Call& c) {
  const std::vector<Real> x = c.read<Real>(0, c.sizes_out(0));
  const Rows rows = rows_of(c.sizes_out(0));
  std::vector<double> y(x.size());
  for (std::int64_t r = 0; r < rows.count; ++r) {
    double sum_so_far = 0;
    for (std::int64_t i = r * rows.width; i < (r + 1) * rows.width; ++i)
      y[index(i)] = sum_so_far += static_cast<double>(x[index(i)]);
  }
  c.write(0, y);
}

// The root of the sum of squares of all elements of all inputs.
template <class Real>
void Reductions<Real>::norm(const Call& c) {
  double squares = 0;
  for (std::size_t i = 0; i < c.in.size(); ++i)
    for (const Real x : c.read<Real>(i)) squares += static_cast<double>(x) * static_cast<double>(x);
  c.write(0, std::vector<double>{std::sqrt(squares)});
}

template struct Reductions<float>;
template struct Reductions<double>;

}  // namespace tidemark::math
