#pragma once

#include <string>

#include "scenarios/predict/job.hpp"
#include "sim/clock/trace.hpp"

namespace tidemark::scenarios {

/// Where the last step of each pipeline stage's ranks goes, in the mean, by cause: rows that add up to the step; and
/// what share of the devices' peak all products and attention come to that were carried out in it (HFU). Needs a
/// timeline.
[[nodiscard]] std::string time_text(const Job& job, const Trace& trace);

}  // namespace tidemark::scenarios
