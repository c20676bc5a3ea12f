#pragma once

#include <cstdint>
#include <cstdlib>

#include "tests/namespace.hpp"

// Generated cases differ in what they ask, not in which code answers. A push sees one in four of them, and
// `scripts/test
// --all` every one (TIDEMARK_EVERY_CASE=1). Sanitizers look at how code does it, and take long: they see a quarter of
// either. Cases that were written by hand are always seen.

namespace tidemark::tests {

/// Whether every generated case is tried.
inline bool every_case() { return std::getenv("TIDEMARK_EVERY_CASE") != nullptr; }

/// From one generated case to the next.
inline std::uint32_t seed_step() {
#ifdef TIDEMARK_SANITIZED
  return every_case() ? 4 : 16;
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
