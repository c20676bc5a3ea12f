#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/math/namespace.hpp"

namespace tidemark::math {

/// A matrix in memory, one of whose dimensions lies side by side.
template <class Real>
struct Matrix {
  const Real* first = nullptr;
  std::int64_t rows = 0, columns = 0;
  std::int64_t apart = 0;   ///< elements from row to row; of one that is transposed, from column to column
  bool transposed = false;  ///< columns lie side by side

  [[nodiscard]] Matrix turned() const { return {first, columns, rows, apart, !transposed}; }
};

/// A product as libraries are asked for it that count columns where we count rows: to them each matrix is its
/// transpose, and c' = b' a'. Of rows or columns that do not lie apart from anything they still want to hear a
/// distance.
template <class Real>
struct ByColumns {
  ByColumns(const Matrix<Real>& a, const Matrix<Real>& b, std::int64_t c_apart)
      : first(b), second(a), m(b.columns), n(a.rows), k(a.columns), apart(std::max({c_apart, m, std::int64_t{1}})) {
    for (Matrix<Real>* x : {&first, &second})
      x->apart = std::max({x->apart, x->transposed ? x->rows : x->columns, std::int64_t{1}});
  }
  Matrix<Real> first, second;
  std::int64_t m, n, k, apart;
};

/// c = scale * a b + kept * c, of whose rows each is so far from the next. By OpenBLAS, on this thread alone: ranks
/// share the machine's cores. Throws std::runtime_error where that is not installed.
template <class Real>
void multiply(double scale, const Matrix<Real>& a, const Matrix<Real>& b, double kept, Real* c, std::int64_t apart);

}  // namespace tidemark::math
