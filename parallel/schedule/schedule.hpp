#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/kernel.hpp"

namespace tidemark {

/// One pass of one micro-batch through a stage.
struct ScheduleStep {
  Pass pass = Pass::Forward;
  std::int32_t micro_batch = 0;
  bool operator==(const ScheduleStep&) const = default;
};

/// The passes of one stage, in the order in which it runs them.
using Schedule = std::vector<ScheduleStep>;

/// "F0 F1 B0 F2 B1 B2".
[[nodiscard]] std::string text(const Schedule& schedule);

/// One forward, one backward (PipeDream-Flush): what Megatron runs without virtual stages.
[[nodiscard]] Schedule one_f_one_b(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches);

/// All forward passes, then all backward passes; the same on every stage.
[[nodiscard]] Schedule gpipe(std::int32_t micro_batches);

}  // namespace tidemark
