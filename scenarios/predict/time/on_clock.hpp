#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "scenarios/namespace.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/predict/memory_program.hpp"
#include "scenarios/predict/prediction.hpp"
#include "sim/clock/class_timeline.hpp"
#include "sim/clock/trace.hpp"
#include "sim/program/left_out.hpp"
#include "sim/program/program.hpp"
#include "sim/program/structure/repeats.hpp"

namespace tidemark::scenarios {

/// What one program did on the clock, op by op. Some are there at a time.
struct OnClock {
  std::shared_ptr<const RepeatingProgram> outline;
  std::shared_ptr<const Program> program;  // of memory, which leaves bodies of loops out
  std::vector<LeftOut> left_out;
  RoleEvents events;
  std::map<std::int32_t, ClassTimeline> classes;  // by number; none where nobody asks when things happened
  std::shared_ptr<const Program> few;             // what the timelines are of: without what comes again on the clock
};

/// What memory of the program has to show: all of it, or a few bodies of each loop.
enum class Bodies : std::uint8_t { Few, All };

/// Of the classes that run the program: none, where nobody asks when things happened.
[[nodiscard]] OnClock on_clock(const Job& job, const Trace& trace, std::size_t program,
                               const std::vector<std::int32_t>& classes, Bodies bodies);

/// Where the last step of those classes went.
void account_for(const Job& job, const Trace& trace, std::size_t program, const OnClock& clock, StepAccount& account);

}  // namespace tidemark::scenarios
