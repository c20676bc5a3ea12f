#pragma once

#include <cstdint>
#include <cstdlib>

#include "tests/namespace.hpp"

// Generated cases differ in what they ask, not in which code answers. A push sees one in four of them, and under
// sanitizers, which take long, one in eight; `scripts/test --all` (TIDEMARK_EVERY_CASE=1) sees every one, and under
// sanitizers one in four. Cases that were written by hand are always seen.

namespace tidemark::tests {

/// Whether every generated case is tried.
inline bool every_case() { return std::getenv("TIDEMARK_EVERY_CASE") != nullptr; }

/// From one generated case to the next.
inline std::uint32_t seed_step() {
#ifdef TIDEMARK_SANITIZED
  return every_case() ? 4 : 8;
#else
  return every_case() ? 1 : 4;
#endif
}

/// So many of `all` cases.
inline int seeds(int all) {
  const int step = static_cast<int>(seed_step());
  return (all + step - 1) / step;
}

}  // namespace tidemark::tests
