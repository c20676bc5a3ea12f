#pragma once

#include <cstdint>
#include <vector>

#include "sim/clock/class_timeline.hpp"
#include "sim/program/program_times.hpp"

namespace tidemark::sim {

/// When a rank of the class runs a program whose ops stand at those `places` of the one that was simulated
/// (sim/program/structure/timing.hpp).
/// The places outlive them.
[[nodiscard]] ProgramTimes times_of(const ClassTimeline& timeline, const std::vector<std::uint32_t>& places);

/// When it runs the very program that was simulated.
[[nodiscard]] ProgramTimes times_of(const ClassTimeline& timeline);

}  // namespace tidemark::sim
