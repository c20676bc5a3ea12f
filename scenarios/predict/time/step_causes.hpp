#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "scenarios/namespace.hpp"
#include "sim/clock/folding.hpp"
#include "sim/clock/summary.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::scenarios {

/// What the compute stream does with its time. Communication is what is exposed of it, while bytes move.
enum class StepCause : std::uint8_t {
  Compute,     ///< it runs kernels
  Tensor,      ///< communication of tensor parallelism, of experts too
  Context,     ///< … of context parallelism
  Expert,      ///< … of tokens to their experts and back
  Data,        ///< … of gradients and parameters
  Pipeline,    ///< … between stages
  Statistics,  ///< … of norms, losses and counts
  Bubble,      ///< it waits for a neighbouring stage to send or to receive
  OtherRanks,  ///< it waits for others to come to a collective
  Copies,      ///< it waits for copies between device and host
  Host,        ///< its host thread is late, or the step begins
};
inline constexpr std::size_t step_cause_count = 11;
[[nodiscard]] std::string_view name(StepCause cause);

/// By StepCause, of the mean rank, in whole picoseconds: adds up to the step.
using CauseTimes = std::array<Duration, step_cause_count>;

/// What communication of that group is for.
[[nodiscard]] StepCause cause_of(const Communicator& communicator);

/// Ranks that spend a step alike.
struct AlikeRanks {
  std::int64_t ranks = 0;
  StepTimes times;
};
[[nodiscard]] CauseTimes cause_times(const std::vector<Communicator>& communicators,
                                     const std::vector<AlikeRanks>& classes);

/// Of all ranks; `classes` as step_times gives them.
[[nodiscard]] CauseTimes cause_times(const std::vector<Communicator>& communicators, const Folding& folding,
                                     const std::vector<StepTimes>& classes);

}  // namespace tidemark::scenarios
