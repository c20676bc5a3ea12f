#pragma once

#include <string>
#include <string_view>

#include "sim/program/workload.hpp"

// A whole workload as text, so that it can be run where it was not made:
//
//   communicator tensor 2/1/1
//   ranks 0 0 1 1
//   program
//   alloc b7 100663296 saved_activations s0 layers.0.mlp.fc1
//   …
//
// An axis is size/stride/step; `ranks` names each rank's program.

namespace tidemark::sim {

[[nodiscard]] std::string text(const Workload& workload);

/// Reads what `text` writes; blank lines and lines starting with '#' are skipped. Throws ProgramTextError.
[[nodiscard]] Workload parse_workload(std::string_view text);

}  // namespace tidemark::sim
