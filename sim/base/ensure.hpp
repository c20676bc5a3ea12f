#pragma once

namespace tidemark::sim {

/// Reports what was violated and where, and aborts. Called by `ensure` only.
[[noreturn]] void violated(const char* what, const char* file, int line);

/// States an invariant of the program itself. Input can never reach a violated one; bad input throws InputError.
inline void ensure(bool holds, const char* what, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!holds) violated(what, file, line);
}

}  // namespace tidemark::sim
