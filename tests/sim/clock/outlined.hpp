#pragma once

#include "sim/program/structure/repeats.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {

/// The same programs as outlines, in which nothing repeats.
inline RepeatingWorkload outlined(const Workload& workload) {
  RepeatingWorkload found{{}, workload.program_of_rank, workload.communicators};
  for (const Program& program : workload.programs) found.programs.emplace_back(RepeatingProgram{program, {}});
  return found;
}

}  // namespace tidemark::tests
