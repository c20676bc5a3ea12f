#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/program/program.hpp"
#include "sim/program/structure/repeats.hpp"

// A replay of memory looks at few ops of a program, unless frees wait for what the host thread has waited for: what is
// made, lent to other streams and given up, what drivers take, and marks.

namespace tidemark::sim {

[[nodiscard]] bool is_of_memory(const Op& op);

/// Those of a program, and of its tables that of labels.
struct MemoryOutline {
  RepeatingProgram program;
  /// By op, once they are all written out: where it is in the whole program, written out likewise. Empty: there is no
  /// other program.
  std::vector<std::uint32_t> places;
};
[[nodiscard]] MemoryOutline of_memory(const RepeatingProgram& whole);

/// Where ops of a program are in another one with the same loops, both written out. `places` says it of the ops that
/// come once, `repeats` are those of the program and `of_whole` those of the other.
[[nodiscard]] std::vector<std::uint32_t> written_out(std::span<const std::uint32_t> places,
                                                     std::span<const Repeat> repeats, std::span<const Repeat> of_whole);

/// The loops of a program, in one that has its ops at `places` alone.
[[nodiscard]] std::vector<Repeat> repeats_among(std::vector<Repeat> repeats, std::span<const std::uint32_t> places);

}  // namespace tidemark::sim
