#pragma once

#include <cstdint>

#include "parallel/runtime/runtime.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "sim/base/units.hpp"

namespace tidemark::scenarios {

/// What a step's batches that outlive their passes may take of the device of a pipeline rank, in segments of their own.
/// Only the first of tensor-parallel ranks loads batches, and whoever turns Megatron's rerun machine off keeps none: so
/// they are no part of its program, and count at the upper end alone.
[[nodiscard]] Bytes rerun_batches_bytes(const Scenario& scenario, const Runtime& runtime, std::int32_t pipeline);

}  // namespace tidemark::scenarios
