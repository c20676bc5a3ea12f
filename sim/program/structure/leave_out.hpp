#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "sim/program/left_out.hpp"
#include "sim/program/program_times.hpp"
#include "sim/program/structure/repeats.hpp"

namespace tidemark::sim {

/// Leaves out of each loop all bodies but those that memory mostly needs to come to repeat itself.
[[nodiscard]] std::vector<LeftOut> leave_out(RepeatingProgram& program);
/// The same for memory that asks the clock: of what comes again there, some is kept, and nothing else is left out.
[[nodiscard]] std::vector<LeftOut> leave_out(RepeatingProgram& program, std::span<const LeaptCycle> clock);

/// As many as were left out of another program with the same loops; nothing where they are other ones.
[[nodiscard]] std::optional<std::vector<LeftOut>> leave_out_like(RepeatingProgram& program,
                                                                 std::span<const LeftOut> like);

}  // namespace tidemark::sim
