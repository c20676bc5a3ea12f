#pragma once

#include <cstdint>

#include "parallel/namespace.hpp"
#include "parallel/schedule/stage_placement.hpp"

namespace tidemark::parallel {

/// In which order a stage runs its passes.
enum class ScheduleKind : std::uint8_t { OneFOneB, GPipe, Interleaved };

/// When a framework sends and receives.
enum class HandOverHabit : std::uint8_t {
  /// Each message goes when it is made, beside everything: no framework is faster.
  Free,
  /// Megatron-LM core 0.14, schedules.py, forward_backward_pipelining_without_interleaving: what an action sends goes
  /// together with what the next one needs, where one is a forward and the other a backward pass; else one after the
  /// other. The rank waits.
  Paired,
  /// The same file, forward_backward_pipelining_with_interleaving with overlap_p2p_comm: all forward passes of the
  /// ranks run in step, and so do all backward passes; with what a pass sends, a rank receives what the rank before it
  /// sends at the time. Between warm-up and cool-down that goes on beside the passes.
  InStep,
};

/// What follows from the kind, apart from the lists.
struct ScheduleTraits {
  PlacementShape placement = PlacementShape::Loop;
  HandOverHabit hand_over = HandOverHabit::Paired;  ///< Megatron's
  bool in_groups = false;  ///< micro-batches go through a rank's chunks in groups, one group after the other
};

[[nodiscard]] constexpr ScheduleTraits traits_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::OneFOneB:
    case ScheduleKind::GPipe:
      return {};
    case ScheduleKind::Interleaved:
      return {.hand_over = HandOverHabit::InStep, .in_groups = true};
  }
  return {};
}

}  // namespace tidemark::parallel
