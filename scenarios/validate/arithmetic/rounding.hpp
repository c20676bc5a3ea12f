#pragma once

#include "scenarios/predict/job.hpp"

namespace tidemark::scenarios {

/// Whether activations are stored in 16 bits.
[[nodiscard]] bool rounds_to_16_bits(const Train& train);

/// How far a gradient that is computed in the job's types may be from that of exact numbers, in parts of its largest
/// element. The job is of one rank.
[[nodiscard]] double most_rounding(const Job& job);

}  // namespace tidemark::scenarios
