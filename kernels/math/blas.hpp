#pragma once

#include <cstdint>
#include <utility>

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

/// c = scale * a b + kept * c, of whose rows each is so far from the next. By OpenBLAS, on this thread alone: ranks
/// share the machine's cores.
template <class Real>
void multiply(double scale, const Matrix<Real>& a, const Matrix<Real>& b, double kept, Real* c, std::int64_t apart);

}  // namespace tidemark::math
