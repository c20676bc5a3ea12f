#pragma once

#include "sim/program/program_builder.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {

/// A buffer from its beginning on, as a tensor whose last dimension lies innermost.
inline ViewedOperand viewed(ProgramBuilder& program, BufferId buffer, DType dtype, const Shape& sizes) {
  return {buffer, program.view(dtype, sizes, contiguous_strides(sizes))};
}

}  // namespace tidemark::tests
