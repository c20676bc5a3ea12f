#pragma once

#include <cstddef>
#include <vector>

#include "sim/clock/timed_program.hpp"

namespace tidemark::tests {

/// The program with every body of its loops in its lists.
inline sim::TimedProgram written_out(const sim::TimedProgram& program) {
  sim::TimedProgram all = program;
  all.loops.clear();
  for (std::size_t s = 0; s < program.streams.size(); ++s) {
    all.streams[s].clear();
    for (sim::OpCursor next(program, s); !next.is_over(); next.advance()) all.streams[s].push_back(next.op());
  }
  const std::size_t channels = program.launched.size() / program.host.size();
  all.host.clear();
  all.launched.clear();
  for (std::int64_t i = 0; i < program.stretches(); ++i) {
    all.host.push_back(program.stretch(i));
    for (std::size_t c = 0; c < channels; ++c) all.launched.push_back(program.launched_before(i, c, channels));
  }
  return all;
}

}  // namespace tidemark::tests
