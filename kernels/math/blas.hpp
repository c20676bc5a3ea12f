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

/// `apart` as BLAS wants to hear it: of rows or columns that do not lie apart from anything, too.
template <class Real>
std::int64_t distance_of(const Matrix<Real>& m) {
  return std::max({m.apart, m.transposed ? m.rows : m.columns, std::int64_t{1}});
}

/// c = scale * a b + kept * c, of whose rows each is so far from the next. By OpenBLAS, on this thread alone: ranks
/// share the machine's cores.
template <class Real>
void multiply(double scale, const Matrix<Real>& a, const Matrix<Real>& b, double kept, Real* c, std::int64_t apart);

}  // namespace tidemark::math
