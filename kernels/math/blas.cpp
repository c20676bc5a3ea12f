#include "kernels/math/blas.hpp"

#include <algorithm>
#include <limits>

#include <cblas.h>

#include "sim/base/ensure.hpp"

namespace tidemark::math {
namespace {

blasint number(std::int64_t n) {
  sim::ensure(n <= std::numeric_limits<blasint>::max(), "matrices have no more rows than BLAS can count");
  return static_cast<blasint>(n);
}

template <class Real>
blasint distance(const Matrix<Real>& m) {
  return number(distance_of(m));
}

template <class Real>
CBLAS_TRANSPOSE lies(const Matrix<Real>& m) {
  return m.transposed ? CblasTrans : CblasNoTrans;
}

}  // namespace

template <class Real>
void multiply(double scale, const Matrix<Real>& a, const Matrix<Real>& b, double kept, Real* c, std::int64_t apart) {
  static const bool alone = (openblas_set_num_threads(1), true);
  sim::ensure(alone && a.columns == b.rows, "matrices have a product");
  const blasint m = number(a.rows), n = number(b.columns), k = number(a.columns);
  const blasint c_apart = number(std::max({apart, b.columns, std::int64_t{1}}));
  if (m == 0 || n == 0) return;
  if constexpr (sizeof(Real) == sizeof(float))
    cblas_sgemm(CblasRowMajor, lies(a), lies(b), m, n, k, static_cast<float>(scale), a.first, distance(a), b.first,
                distance(b), static_cast<float>(kept), c, c_apart);
  else
    cblas_dgemm(CblasRowMajor, lies(a), lies(b), m, n, k, scale, a.first, distance(a), b.first, distance(b), kept, c,
                c_apart);
}

template void multiply(double, const Matrix<float>&, const Matrix<float>&, double, float*, std::int64_t);
template void multiply(double, const Matrix<double>&, const Matrix<double>&, double, double*, std::int64_t);

}  // namespace tidemark::math
