#include "kernels/math/engine/blas.hpp"

#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>

#include <cblas.h>
#include <dlfcn.h>

#include "sim/base/ensure.hpp"

namespace tidemark::math {
namespace {

/// OpenBLAS starts a thread for every core when it is loaded, and reserves memory for each of them. So nobody links it:
/// it is loaded for the first product, and told before that one thread will do.
struct OpenBlas {
  decltype(&cblas_sgemm) sgemm = nullptr;
  decltype(&cblas_dgemm) dgemm = nullptr;
};

OpenBlas loaded() {
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  void* const library = dlopen(TIDEMARK_OPENBLAS, RTLD_NOW | RTLD_LOCAL);
  const auto function = [&](const char* name) {
    void* const found = library == nullptr ? nullptr : dlsym(library, name);
    if (found == nullptr)
      throw std::runtime_error(std::string(dlerror()) +
                               " (products of real numbers take OpenBLAS: install libopenblas0)");
    return found;
  };
  // Of a process that had it already.
  reinterpret_cast<decltype(&openblas_set_num_threads)>(function("openblas_set_num_threads"))(1);
  return {reinterpret_cast<decltype(&cblas_sgemm)>(function("cblas_sgemm")),
          reinterpret_cast<decltype(&cblas_dgemm)>(function("cblas_dgemm"))};
}

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
  static const OpenBlas blas = loaded();
  sim::ensure(a.columns == b.rows, "matrices have a product");
  if (a.rows == 0 || b.columns == 0) return;
  const ByColumns<Real> p(a, b, apart);
  const auto gemm = [&](auto call, Real by, Real keep) {
    call(CblasColMajor, lies(p.first), lies(p.second), number(p.m), number(p.n), number(p.k), by, p.first.first,
         number(p.first.apart), p.second.first, number(p.second.apart), keep, c, number(p.apart));
  };
  if constexpr (sizeof(Real) == sizeof(float))
    gemm(blas.sgemm, static_cast<float>(scale), static_cast<float>(kept));
  else
    gemm(blas.dgemm, scale, kept);
}

template void multiply(double, const Matrix<float>&, const Matrix<float>&, double, float*, std::int64_t);
template void multiply(double, const Matrix<double>&, const Matrix<double>&, double, double*, std::int64_t);

}  // namespace tidemark::math
