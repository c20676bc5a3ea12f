#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "parallel/namespace.hpp"
#include "parallel/schedule/stage_placement.hpp"

namespace tidemark::parallel {

/// In which order a stage runs its passes.
enum class ScheduleKind : std::uint8_t {
  OneFOneB,
  GPipe,
  Interleaved,
  ZeroBubbleH1,
  LoopedBreadthFirst,
  InterleavedZeroBubble,
  ZeroBubbleV,
  DualPipeV
};

/// When a framework sends and receives.
enum class P2pMode : std::uint8_t {
  /// Each message goes when it is made, beside everything: no framework is faster.
  Free,
  /// Megatron-LM core 0.14, schedules.py, forward_backward_pipelining_without_interleaving: what an action sends goes
  /// together with what the next one needs, where one is a forward and the other a backward pass; else one after the
  /// other. The rank waits.
  Batched,
  /// The same file, forward_backward_pipelining_with_interleaving with overlap_p2p_comm: all forward passes of the
  /// ranks run in step, and so do all backward passes; with what a pass sends, a rank receives what the rank before it
  /// sends at the time. Between warm-up and cool-down that goes on beside the passes.
  Overlapped,
  /// The same with overlap_p2p_comm_warmup_flush: during warm-up and cool-down, too. But for the rank that leads the
  /// direction, what a pass needs is received from before the pass ahead of it on.
  OverlappedWithFlush,
};

/// What follows from the kind, apart from the lists.
struct ScheduleTraits {
  std::string_view name = {};  ///< what files call it
  PlacementShape placement = PlacementShape::Loop;
  P2pMode p2p = P2pMode::Batched;  ///< Megatron's
  bool in_groups = false;          ///< micro-batches go through a rank's chunks in groups, one group after the other
  bool several_chunks = false;     ///< a rank has two or more, of a V two; else one
  bool of_pytorch_alone = false;   ///< torch.distributed.pipelining has it, and no other framework
  std::string_view assumed = {};   ///< what answers say about it; nothing where the framework has the schedule itself
};

[[nodiscard]] constexpr ScheduleTraits traits_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::OneFOneB:
      return {.name = "1f1b"};
    case ScheduleKind::GPipe:
      return {.name = "gpipe", .assumed = "GPipe: Megatron has no such schedule; its hand-over is that of 1F1B"};
    case ScheduleKind::Interleaved:
      return {.name = "interleaved", .p2p = P2pMode::Overlapped, .in_groups = true, .several_chunks = true};
    case ScheduleKind::ZeroBubbleH1:
      return {.name = "zb-h1",
              .assumed =
                  "ZB-H1: Megatron has no such schedule; passes and hand-overs are those of its authors' patch, and "
                  "weight gradients of the layers' linears wait as Transformer Engine's delay_wgrad_compute lets them"};
    case ScheduleKind::LoopedBreadthFirst:
      return {.name = "looped-bfs", .p2p = P2pMode::Free, .several_chunks = true, .of_pytorch_alone = true};
    case ScheduleKind::InterleavedZeroBubble:
      return {.name = "interleaved-zb",
              .p2p = P2pMode::Free,
              .in_groups = true,
              .several_chunks = true,
              .of_pytorch_alone = true};
    case ScheduleKind::ZeroBubbleV:
      return {.name = "zb-v",
              .placement = PlacementShape::V,
              .p2p = P2pMode::Free,
              .several_chunks = true,
              .of_pytorch_alone = true};
    case ScheduleKind::DualPipeV:
      return {.name = "dualpipe-v",
              .placement = PlacementShape::V,
              .p2p = P2pMode::Free,
              .several_chunks = true,
              .of_pytorch_alone = true};
  }
  return {};  // no kind
}

/// How many there are.
inline constexpr std::size_t schedule_kinds = [] {
  std::size_t count = 0;
  while (!traits_of(static_cast<ScheduleKind>(count)).name.empty()) ++count;
  return count;
}();

}  // namespace tidemark::parallel
