#include "kernels/math/blas.hpp"

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
CBLAS_TRANSPOSE lies(const Matrix<Real>& m) {
  return m.transposed ? CblasTrans : CblasNoTrans;
}

}  // namespace

template <class Real>
void multiply(double scale, const Matrix<Real>& a, const Matrix<Real>& b, double kept, Real* c, std::int64_t apart) {
  static const bool alone = (openblas_set_num_threads(1), true);
  sim::ensure(alone && a.columns == b.rows, "matrices have a product");
  if (a.rows == 0 || b.columns == 0) return;
  const ByColumns<Real> p(a, b, apart);
  const auto gemm = [&](auto call, Real by, Real keep) {
    call(CblasColMajor, lies(p.first), lies(p.second), number(p.m), number(p.n), number(p.k), by, p.first.first,
         number(p.first.apart), p.second.first, number(p.second.apart), keep, c, number(p.apart));
  };
  if constexpr (sizeof(Real) == sizeof(float))
    gemm(cblas_sgemm, static_cast<float>(scale), static_cast<float>(kept));
  else
    gemm(cblas_dgemm, scale, kept);
}

template void multiply(double, const Matrix<float>&, const Matrix<float>&, double, float*, std::int64_t);
template void multiply(double, const Matrix<double>&, const Matrix<double>&, double, double*, std::int64_t);

}  // namespace tidemark::math
