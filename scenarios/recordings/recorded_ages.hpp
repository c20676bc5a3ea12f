#pragma once

#include <cstdint>

#include "scenarios/recordings/recorded_trace.hpp"

namespace tidemark::scenarios {

/// How old segments are that were there before the recording: nothing in it says.
enum class OldestSegment : std::uint8_t { Lowest, Highest };

/// The same recording on a device that puts each new segment of fixed size above all others. Whoever takes the lowest
/// of equal blocks there takes the one in the oldest segment.
[[nodiscard]] RecordedTrace by_age(RecordedTrace trace, OldestSegment oldest);

}  // namespace tidemark::scenarios
