#pragma once

#include <cstdint>

#include "kernels/math/namespace.hpp"

// Functions that a device runs too are marked, for nvcc; to other compilers the mark is nothing.
#ifdef __CUDACC__
#define TIDEMARK_EVERYWHERE __host__ __device__
#else
#define TIDEMARK_EVERYWHERE
#endif

namespace tidemark::math {

/// Numbers side by side in an engine's memory, which only what runs there may look at: bodies of kernels.
template <class Value>
struct Values {
  Value* first = nullptr;  ///< none: absent
  std::int64_t count = 0;

  [[nodiscard]] TIDEMARK_EVERYWHERE bool there() const { return first != nullptr; }
  [[nodiscard]] TIDEMARK_EVERYWHERE Value& operator[](std::int64_t i) const { return first[i]; }
};

/// The larger one; NaN if one of them is.
template <class Real>
TIDEMARK_EVERYWHERE Real larger(Real a, Real b) {
  return b > a || b != b ? b : a;
}

}  // namespace tidemark::math
