#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "parallel/schedule/schedule.hpp"
#include "parallel/schedule/stage_placement.hpp"

// What ranks of a pipeline send each other, put into their schedules. An executor runs a rank's steps one after the
// other: an Action computes, a HandOver exchanges with other ranks. Which tensors go, where to and in which order
// stands in the steps; which of the framework's variables hold them meanwhile is the executor's own.

namespace tidemark::parallel {

enum class Payload : std::uint8_t {
  Output,        ///< of a stage's forward pass: the input of the next stage
  InputGradient  ///< of a stage: what the backward pass of the stage before it begins with
};

/// A tensor of a micro-batch on its way between two stages, which are on different ranks.
struct Message {
  Payload payload = Payload::Output;
  std::int32_t micro_batch = 0;
  Place from, to;
  bool operator==(const Message&) const = default;
};

/// What an action needs of another stage, and what it makes for one. Both stages may be on one rank (`from.rank ==
/// to.rank`), where nothing is sent.
[[nodiscard]] std::optional<Message> needed(const StagePlacement& placement, std::int32_t rank, const Action& action);
[[nodiscard]] std::optional<Message> made(const StagePlacement& placement, std::int32_t rank, const Action& action);

/// Messages that a rank begins to send and to receive at once.
struct HandOver {
  std::vector<Message> sends, receives;
  bool beside = false;  ///< goes on beside the actions that follow, up to the one that needs what comes; else waits
  bool operator==(const HandOver&) const = default;
};

using Step = std::variant<Action, HandOver>;
using Steps = std::vector<Step>;

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

/// The steps of every rank, by the schedules of all of them.
[[nodiscard]] std::vector<Steps> with_messages(const std::vector<Schedule>& schedules, const StagePlacement& placement,
                                               HandOverHabit habit);

/// "F0 [F0>1 B0<1] B0": sends the output of F0 to rank 1 while it receives from there what B0 needs. In braces: beside
/// the actions that follow.
[[nodiscard]] std::string text(const Steps& steps);

}  // namespace tidemark::parallel
