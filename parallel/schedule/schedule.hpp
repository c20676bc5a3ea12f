#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/namespace.hpp"

namespace tidemark::parallel {

enum class ActionKind : std::uint8_t {
  Forward,
  InputGradient,   ///< the part of backward whose result the stage before waits for
  WeightGradient,  ///< the rest of backward, whose result stays where it is
  Backward,        ///< both parts at once
};

/// What a rank computes of one micro-batch with one of its chunks.
struct Action {
  ActionKind kind = ActionKind::Forward;
  std::int32_t micro_batch = 0;
  std::int32_t chunk = 0;
  bool joined = false;  ///< with the action after it, which computes beside it where a framework can
  bool operator==(const Action&) const = default;
};

[[nodiscard]] constexpr bool is_forward(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
      return true;
    case ActionKind::InputGradient:
    case ActionKind::WeightGradient:
    case ActionKind::Backward:
      return false;
  }
  return false;
}

/// Whether nothing of the micro-batch is left in its chunk afterwards.
[[nodiscard]] constexpr bool is_last_of_micro_batch(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
    case ActionKind::InputGradient:
      return false;
    case ActionKind::WeightGradient:
    case ActionKind::Backward:
      return true;
  }
  return false;
}

/// The actions of one rank, in the order in which it runs them.
using Schedule = std::vector<Action>;

/// Micro-batch after kind, "F0 F1 B0 F2 B1 B2"; of several chunks also the chunk, "F0.0 F1.0 F0.1". B is all of
/// backward; in a schedule that has weight gradients apart, "F0 B0 W0", it is the input's, and BW is all. Joined ones
/// are "F3.1+B0.0".
[[nodiscard]] std::string text(const Schedule& schedule);
/// Reads what `text` writes. Throws std::invalid_argument, which names what is no action.
[[nodiscard]] Schedule parse_schedule(std::string_view text);

/// How many micro-batches a rank has begun and not finished at most, counted in each of its chunks.
[[nodiscard]] std::int32_t most_in_flight(const Schedule& schedule);

/// One forward, one backward (PipeDream-Flush): what Megatron runs without virtual stages.
[[nodiscard]] Schedule one_f_one_b(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches);

/// How many forward passes a rank runs before those that alternate with backward ones, when it holds `chunks` chunks
/// and each runs `group` micro-batches in a row.
[[nodiscard]] std::int32_t interleaved_warmup(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches,
                                              std::int32_t chunks, std::int32_t group);

/// One forward, one backward over several chunks of each rank (Narayanan et al., 2021): groups of micro-batches go
/// through the chunks in turn; backward passes go through them in reverse. What Megatron runs with virtual stages.
[[nodiscard]] Schedule interleaved(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches,
                                   std::int32_t chunks, std::int32_t group);

/// ZB-H1 (Qi et al., Zero Bubble Pipeline Parallelism, 2023) as its authors run it in Megatron's functions
/// (sail-sg/zero-bubble-pipeline-parallelism, branch zb-h1-quick-start): 1F1B, but weight gradients wait until nobody
/// waits for this rank, as many at a time as there are stages before it. Backward passes in between are whole, so that
/// what they send goes with what the next forward pass needs (docs/decisions/0006-zb-h1.md).
[[nodiscard]] Schedule zb_h1(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches);

/// ZB1P (Qi et al., 2023) over several chunks of each rank, torch.distributed.pipelining's
/// ScheduleInterleavedZeroBubble: `interleaved` with half as many passes ahead; the weight gradients of a backward pass
/// come as many passes later as there are ranks before this one.
[[nodiscard]] Schedule interleaved_zero_bubble(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches,
                                               std::int32_t chunks, std::int32_t group);

/// ZB-V (Qi et al., 2023, section 6), torch.distributed.pipelining's ScheduleZBVZeroBubble: two chunks on each rank,
/// the second ones from the last rank to the first. As many micro-batches as fill the pipeline are put in, and those
/// left out that there are not.
[[nodiscard]] Schedule zero_bubble_v(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches);

/// DualPipeV (DeepSeek-AI, DualPipe, 2025), torch.distributed.pipelining's ScheduleDualPipeV: of two chunks placed as
/// in ZB-V, a forward pass of one is joined with a backward pass of the other. Of at least as many micro-batches as
/// stages.
[[nodiscard]] Schedule dual_pipe_v(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches);

/// Breadth-first (Lamy-Poirier, Breadth-First Pipeline Parallelism, 2022), torch.distributed.pipelining's
/// ScheduleLoopedBFS: all micro-batches go through a rank's first chunk, then through its next; backward passes run in
/// reverse. The same on every rank.
[[nodiscard]] Schedule looped_breadth_first(std::int32_t micro_batches, std::int32_t chunks);

/// All forward passes, then all backward passes; the same on every stage.
[[nodiscard]] Schedule gpipe(std::int32_t micro_batches);

}  // namespace tidemark::parallel
