#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/math/engine/blas.hpp"
#include "kernels/math/values.hpp"

namespace tidemark::math {

/// Carries kernels out on the host. Its members are what kernels are written with, and what any engine has.
class HostEngine {
 public:
  /// Bodies of a kernel, from 0 up to `count`: called with ranges [begin, end) that are all of them together, in any
  /// order, at the same time or not.
  template <class Body>
  void ranges(std::int64_t count, const Body& body) {
    if (count > 0) body(std::int64_t{0}, count);
  }
  /// Memory that is there until `done`, of any content.
  [[nodiscard]] std::byte* room(std::size_t bytes) {
    return rooms_.emplace_back(std::make_unique_for_overwrite<std::byte[]>(bytes)).get();
  }
  /// Between the engine's memory and the host's.
  void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  /// c = scale * a b + kept * c, of whose rows each is so far from the next.
  template <class Real>
  void multiply(double scale, const Matrix<Real>& a, const Matrix<Real>& b, double kept, Real* c, std::int64_t apart) {
    math::multiply(scale, a, b, kept, c, apart);
  }
  /// With a group of operands: what took room is over.
  void done() { rooms_.clear(); }

 private:
  std::vector<std::unique_ptr<std::byte[]>> rooms_;
};

}  // namespace tidemark::math
