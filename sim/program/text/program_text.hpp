#pragma once

#include <iosfwd>
#include <stdexcept>
#include <string>
#include <string_view>

#include "sim/program/program.hpp"

// One op per line, for tests, bug reports and diffs:
//
//   alloc b7 100663296 saved_activations s0 layers.0.mlp.fc1
//   launch s0 matmul(scale=1) b3:bf16[4096x4096] b5:bf16[4096x14336] - - -> b7:bf16[4096x14336]
//   exchange s0 g1 send +1 b7 receive +1 b9
//   collective s0 g2 all_to_all 768 b7 -> b8 m0 sends 256 512 receives 256 0     (uneven: a row of matrix m0)
//   alloc b9 4096 saved_activations s0 layers.0.input pinned                     (nothing said: on the device)
//   memcpy s1 4096 b7+8192 -> b9
//   compute add b9:fp32[1024] b10:fp32[1024] -> b9:fp32[1024]                     (by the host thread)
//
// parse(text(p)) means the same as p; a parsed program and the parse of its text are equal.

namespace tidemark::sim {

/// A line that is no op: which one, and what is wrong with it.
class ProgramTextError : public std::runtime_error {
 public:
  ProgramTextError(int line, const std::string& what)
      : std::runtime_error("line " + std::to_string(line) + ": " + what), line_(line) {}
  [[nodiscard]] int line() const { return line_; }

 private:
  int line_;
};

[[nodiscard]] std::string text(const Program& program, const Kernel& kernel);
[[nodiscard]] std::string text(const Program& program, const Op& op);
[[nodiscard]] std::string text(const Program& program);

/// Reads what `text` writes; blank lines and lines starting with '#' are skipped. Throws ProgramTextError.
[[nodiscard]] Program parse_program(std::string_view text);

}  // namespace tidemark::sim
