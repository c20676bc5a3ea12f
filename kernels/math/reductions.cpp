#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/math/engine/engine.hpp"
#include "kernels/math/families.hpp"

// Sums over many elements are in fp64: fp32 would lose as many digits as their number has, while a device adds in
// trees, which lose few.

namespace tidemark::math {
namespace {

// How an input is read so that what is folded to one element of the output lies side by side: dimensions that the
// output has come first.
struct Folding {
  Folding(const Shape& sizes, const Shape& to) : from(sizes) {
    const std::size_t missing = from.size() - to.size();
    for (const bool wanted : {true, false})
      for (std::size_t d = 0; d < from.size(); ++d)
        if ((d >= missing && to[d - missing] == from[d]) == wanted) {
          order.push_back(static_cast<std::int64_t>(d));
          (wanted ? rows.count : rows.width) *= from[d];
        }
  }
  [[nodiscard]] Shape ordered(const Shape& all) const {
    Shape made;
    for (const std::int64_t d : order) made.push_back(all[static_cast<std::size_t>(d)]);
    return made;
  }

  Shape from, order;
  Rows rows{1, 1};
};

// An input broadcast to what is folded.
template <class Value, class Call>
Values<Value> read_for(const Call& c, std::size_t i, const Folding& folding) {
  Array seen = c.in[i];
  const Shape strides = broadcast_strides(seen.view.sizes, seen.view.strides, folding.from);
  seen.view.strides = folding.ordered(strides);
  seen.view.sizes = folding.ordered(folding.from);
  return read<Value>(c.engine, seen, c.setting.storage, seen.view.sizes);
}

struct Plus {
  TIDEMARK_EVERYWHERE double operator()(double sum, double x) const { return sum + x; }
};
struct Larger {
  TIDEMARK_EVERYWHERE double operator()(double most, double x) const { return larger(most, x); }
};

// Each row becomes one number. Of long rows pieces do first, so that many threads have something to do.
template <class Call, class Value, class Fold>
Values<double> folded(const Call& c, Values<Value> values, Rows rows, double start, Fold fold) {
  constexpr std::int64_t piece = 1024;
  const std::int64_t pieces = std::max<std::int64_t>(1, (rows.width + piece - 1) / piece);
  const Values<double> y = c.sums(rows.count * pieces);
  c.each(y.count, [=] TIDEMARK_EVERYWHERE(std::int64_t p) {
    const std::int64_t row = p / pieces * rows.width, begin = p % pieces * piece;
    const std::int64_t end = begin + piece < rows.width ? begin + piece : rows.width;
    double so_far = start;
    for (std::int64_t i = row + begin; i < row + end; ++i) so_far = fold(so_far, static_cast<double>(values[i]));
    y[p] = so_far;
  });
  return pieces == 1 ? y : folded(c, y, {rows.count, pieces}, start, fold);
}

template <class Call, class Value>
Values<double> averaged(const Call& c, Values<Value> values, Rows rows) {
  const Values<double> y = folded(c, values, rows, 0, Plus{});
  const double share = static_cast<double>(rows.count) / static_cast<double>(values.count);
  c.each(y.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { y[i] *= share; });
  return y;
}

}  // namespace

template <class Call>
void Reductions<Call>::sum(const Call& c) {
  const Folding folding(c.sizes_in(0), c.sizes_out(0));
  c.write(0, folded(c, read_for<Real>(c, 0, folding), folding.rows, 0, Plus{}));
}

template <class Call>
void Reductions<Call>::mean(const Call& c) {
  const Folding folding(c.sizes_in(0), c.sizes_out(0));
  c.write(0, averaged(c, read_for<Real>(c, 0, folding), folding.rows));
}

// Factors broadcast to the first one.
template <class Call>
void Reductions<Call>::mean_of_products(const Call& c) {
  const Folding folding(c.sizes_in(0), c.sizes_out(0));
  const Values<double> product = read_for<double>(c, 0, folding);
  for (std::size_t f = 1; f < c.in.size(); ++f) {
    const Values<Real> factor = read_for<Real>(c, f, folding);
    c.each(product.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { product[i] *= static_cast<double>(factor[i]); });
  }
  c.write(0, averaged(c, product, folding.rows));
}

template <class Call>
void Reductions<Call>::largest(const Call& c) {
  const Folding folding(c.sizes_in(0), c.sizes_out(0));
  constexpr double least = -std::numeric_limits<double>::infinity();
  c.write(0, folded(c, read_for<Real>(c, 0, folding), folding.rows, least, Larger{}));
}

// Along the last dimension.
template <class Call>
void Reductions<Call>::cumulative_sum(const Call& c) {
  const Values<Real> x = c.read(0, c.sizes_out(0));
  const Rows rows = rows_of(c.sizes_out(0));
  const Values<double> y = c.sums(x.count);
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    double sum_so_far = 0;
    for (std::int64_t i = r * rows.width; i < (r + 1) * rows.width; ++i) y[i] = sum_so_far += static_cast<double>(x[i]);
  });
  c.write(0, y);
}

// The root of the sum of squares of all elements of all inputs.
template <class Call>
void Reductions<Call>::norm(const Call& c) {
  const Values<double> sums = c.sums(static_cast<std::int64_t>(c.in.size()));
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    const Values<double> x = c.doubles(i);
    c.each(x.count, [=] TIDEMARK_EVERYWHERE(std::int64_t e) { x[e] *= x[e]; });
    const Values<double> sum = folded(c, x, {1, x.count}, 0, Plus{});
    c.each(1, [=] TIDEMARK_EVERYWHERE(std::int64_t) { sums[static_cast<std::int64_t>(i)] = sum[0]; });
  }
  const Values<double> root = folded(c, sums, {1, sums.count}, 0, Plus{});
  c.each(1, [=] TIDEMARK_EVERYWHERE(std::int64_t) { root[0] = std::sqrt(root[0]); });
  c.write(0, root);
}

template struct Reductions<FloatCall>;
template struct Reductions<DoubleCall>;

}  // namespace tidemark::math
