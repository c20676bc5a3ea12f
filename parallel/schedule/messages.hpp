#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "parallel/schedule/schedule.hpp"
#include "parallel/schedule/schedule_kind.hpp"
#include "parallel/schedule/stage_placement.hpp"

// What ranks of a pipeline send each other, put into their schedules. An executor runs a rank's steps one after the
// other: an Action computes, a P2pExchange exchanges with other ranks. Which tensors go, where to and in which order
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

/// Who needs what of whom. Where both stages are on one rank (`from.rank == to.rank`), nothing is sent.
class Neighbours {
 public:
  explicit Neighbours(const StagePlacement& placement);

  /// What an action needs of another stage.
  [[nodiscard]] std::optional<Message> needed(std::int32_t rank, const Action& action) const;
  /// What it makes for another stage.
  [[nodiscard]] std::optional<Message> made(std::int32_t rank, const Action& action) const;

 private:
  [[nodiscard]] std::size_t index(Place place) const {
    return static_cast<std::size_t>(place.rank * chunks_ + place.chunk);
  }

  std::int32_t chunks_;
  std::vector<std::optional<Place>> previous_, next_;  // by rank and chunk
};

/// What a rank begins to send and to receive at once.
struct P2pExchange {
  std::optional<Message> send, receive;
  bool beside = false;  ///< goes on beside the actions that follow, up to the one that needs what comes; else waits
  bool ahead = false;   ///< has nothing to do with the action before it
  bool operator==(const P2pExchange&) const = default;
};

using Step = std::variant<Action, P2pExchange>;
using Steps = std::vector<Step>;

/// The steps of every rank, by the schedules of all of them.
[[nodiscard]] std::vector<Steps> with_messages(const std::vector<Schedule>& schedules, const StagePlacement& placement,
                                               P2pMode mode);

/// "F0 [F0>1 B0<1] B0": sends the output of F0 to rank 1 while it receives from there what B0 needs. In braces: beside
/// the actions that follow.
[[nodiscard]] std::string text(const Steps& steps);

}  // namespace tidemark::parallel
