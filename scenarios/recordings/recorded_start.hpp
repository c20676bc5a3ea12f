#pragma once

#include <string>

#include "scenarios/recordings/recorded_trace.hpp"

namespace tidemark::scenarios {

/// Fills in the start of a trace, its address spaces and its gaps from the end and the events. What contradicts itself
/// is left out: a replay then finds the event that does not fit. Throws InputError, which names `file`, for expandable
/// segments that cannot be.
void reconstruct_start(RecordedTrace& trace, const std::string& file);

}  // namespace tidemark::scenarios
