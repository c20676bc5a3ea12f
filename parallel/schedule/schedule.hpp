#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/namespace.hpp"
#include "sim/program/kernel.hpp"

namespace tidemark::parallel {

/// One pass of one micro-batch through a stage, or through one of a rank's chunks.
struct ScheduleStep {
  Pass pass = Pass::Forward;
  std::int32_t micro_batch = 0;
  std::int32_t chunk = 0;
  bool operator==(const ScheduleStep&) const = default;
};

/// The passes of one stage, in the order in which it runs them.
using Schedule = std::vector<ScheduleStep>;

/// "F0 F1 B0 F2 B1 B2"; of several chunks "F0.0 F1.0 F0.1", micro-batch and chunk.
[[nodiscard]] std::string text(const Schedule& schedule);

/// One forward, one backward (PipeDream-Flush): what Megatron runs without virtual stages.
[[nodiscard]] Schedule one_f_one_b(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches);

/// How many forward passes a rank runs before its first backward pass, when it holds `chunks` chunks and each runs
/// `group` micro-batches in a row.
[[nodiscard]] std::int32_t interleaved_warmup(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches,
                                              std::int32_t chunks, std::int32_t group);

/// One forward, one backward over several chunks of each rank (Narayanan et al., 2021): groups of micro-batches go
/// through the chunks in turn; backward passes go through them in reverse. What Megatron runs with virtual stages.
[[nodiscard]] Schedule interleaved(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches,
                                   std::int32_t chunks, std::int32_t group);

/// All forward passes, then all backward passes; the same on every stage.
[[nodiscard]] Schedule gpipe(std::int32_t micro_batches);

}  // namespace tidemark::parallel
