#include "sim/base/ensure.hpp"

#include <cstdio>
#include <cstdlib>

namespace tidemark::sim {

void violated(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: internal error: this must hold: %s\n", file, line, what);
  std::abort();
}

}  // namespace tidemark::sim
