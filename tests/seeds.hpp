#pragma once

#include "tests/namespace.hpp"

// Generated cases differ in what they ask, not in which code answers. Sanitizers look at how code does it, and take
// long: they see every fourth case, and each that was written by hand.

namespace tidemark::tests {

#ifdef TIDEMARK_SANITIZED
inline constexpr int seed_step = 4;
#else
inline constexpr int seed_step = 1;
#endif

/// So many of `all` cases.
constexpr int seeds(int all) { return (all + seed_step - 1) / seed_step; }

}  // namespace tidemark::tests
