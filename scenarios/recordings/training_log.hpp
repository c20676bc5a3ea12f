#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/namespace.hpp"
#include "sim/base/units.hpp"

namespace tidemark::scenarios {

/// What a training log says of one rank's memory.
struct LoggedPeak {
  enum class Framework : std::uint8_t { Megatron, Torchtitan };

  Rank rank;
  Framework framework = Framework::Megatron;
  std::int64_t step = 0;           ///< after which the line was written
  std::optional<Bytes> allocated;  ///< highest so far; torchtitan does not say
  Bytes reserved;                  ///< highest so far
  std::size_t line = 0;            ///< of the log, from 1

  friend bool operator==(const LoggedPeak&, const LoggedPeak&) = default;
};

/// Finds the memory lines of Megatron-LM (`report_memory` in megatron/training/utils.py) and torchtitan (`log` in
/// torchtitan/components/metrics.py) among others:
///
///     [Rank 3] (after 2 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.5 | reserved: 3.0 | max
///     reserved: 3.0 [rank0]:… step: 10  loss:  7.1  grad_norm:  2.9  memory: 47.15GiB(49.59%)  tps: …
///
/// One entry for each rank, in order: of Megatron's lines the last one counts, whose peaks are those of the whole run;
/// of torchtitan's the highest, which are each of one interval. Where torchtitan's lines name no rank, they are of
/// `unnamed`. Throws InputError, which names `file` and line, if a line has that form but not such numbers, or if there
/// is none.
[[nodiscard]] std::vector<LoggedPeak> training_log(std::string_view text, const std::string& file = {},
                                                   Rank unnamed = Rank{0});

}  // namespace tidemark::scenarios
