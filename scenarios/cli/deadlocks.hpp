#pragma once

#include "scenarios/cli/namespace.hpp"
#include "scenarios/predict/prediction.hpp"

namespace tidemark::cli {

/// Whether the job deadlocks. That is then the answer to whatever was asked of its clock, and is said.
[[nodiscard]] bool deadlocks(const Job& job, const Trace& trace);

}  // namespace tidemark::cli
