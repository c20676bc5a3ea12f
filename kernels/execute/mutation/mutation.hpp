#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/execute/page_scale.hpp"
#include "kernels/execute/world/host_collectives.hpp"
#include "sim/program/workload.hpp"

// One thing done wrong on purpose, to see that a comparison of prediction and run would show it.

namespace tidemark::execute {

enum class Mutation : std::uint8_t {
  None,
  DeleteFree,      ///< in the prediction: a buffer is never freed
  DelayFree,       ///< in the prediction: … or later
  DropBuffer,      ///< in the prediction: … or was never there
  HalveSize,       ///< in the prediction: … or is half as large
  DropCollective,  ///< in the run: one collective does not happen
  SwapRanks,       ///< in the run: two ranks change places in their group
  WrongPeer,       ///< in the run: messages go to another replica's stage
  WrongAxis,       ///< in the run: a group of equal size along another axis
  WrongCount,      ///< in the run: an expert gets one token more than chose it, and another one fewer
  // In the run with real numbers: what a program means.
  EarlyFree,            ///< a buffer is freed before its last reader
  TooLittleSaved,       ///< … before what runs again under recomputation reads it
  ForgottenOperand,     ///< a kernel reads one operand twice, and another not at all
  WrongCut,             ///< a kernel reads another part of equal size of a buffer
  MissingBiasGradient,  ///< of a bias nobody computes the gradient
  WrongScale,           ///< a kernel goes by twice its scale
  GradientTwice,        ///< a gradient is added to its sum twice
  DropReduction,        ///< of sharded gradients: one reduce-scatter does not happen
  EarlyReshard,         ///< gathered parameters are freed before their last reader
  WrongShardSize,       ///< ranks hand an element less than their shard to an all-gather of parameters
  DropCopy,             ///< one copy between device and host does not happen
};

inline constexpr std::array<std::string_view, 21> mutation_names{"none",
                                                                 "delete-free",
                                                                 "delay-free",
                                                                 "drop-buffer",
                                                                 "halve-size",
                                                                 "drop-collective",
                                                                 "swap-ranks",
                                                                 "wrong-peer",
                                                                 "wrong-axis",
                                                                 "wrong-count",
                                                                 "early-free",
                                                                 "too-little-saved",
                                                                 "forgotten-operand",
                                                                 "wrong-cut",
                                                                 "missing-bias-gradient",
                                                                 "wrong-scale",
                                                                 "gradient-twice",
                                                                 "drop-reduction",
                                                                 "early-reshard",
                                                                 "wrong-shard-size",
                                                                 "drop-copy"};

constexpr std::string_view name(Mutation mutation) { return mutation_names[static_cast<std::size_t>(mutation)]; }

/// Whether it is the prediction that is spoiled, and not the run.
constexpr bool spoils_prediction(Mutation mutation) {
  return mutation >= Mutation::DeleteFree && mutation <= Mutation::HalveSize;
}
/// Whether only real numbers show it.
constexpr bool is_of_meaning(Mutation mutation) { return mutation >= Mutation::EarlyFree; }

/// The predicted program of one rank with one buffer wrong: the smallest of at least 2 % of the peak that is live at it
/// or at one of the moments, where the change can show; the largest where none is that large. Nothing where there is no
/// buffer.
[[nodiscard]] std::optional<Program> mutated_prediction(const Program& predicted, Mutation mutation, PageScale scale,
                                                        const std::vector<std::size_t>& moments);

/// A collective that a group calls: the `turn`-th of its slot.
struct GroupCall {
  CommSlot slot;
  std::size_t turn = 0;
};
/// The first of such a kind whose result somebody reads.
[[nodiscard]] std::optional<GroupCall> first_call(
    const Workload& workload, const std::function<bool(const Program& program, const Collective& call)>& such);
/// Changes it in every program, so that nobody waits for it in vain.
void change_call(Workload& workload, const GroupCall& call,
                 const std::function<void(Program& program, std::size_t op)>& change);

/// The workload as it runs, without one collective whose result somebody reads; nothing where there is none. Ops keep
/// their numbers: a mark stands in its place.
[[nodiscard]] std::optional<Workload> without_a_collective(const Workload& workload);

/// The first all-to-all that brings tokens to their experts, if there is one.
[[nodiscard]] std::optional<GroupCall> first_dispatch(const Workload& workload);
/// The program of a rank where, in that call, the first of each group sends the second one token more, and keeps one
/// fewer: everyone knows of it, so that the run comes to its end.
[[nodiscard]] Program with_wrong_count(const Workload& workload, const GroupCall& dispatch, Rank rank);

/// Whom a rank meets, by slot: empty groups where it meets nobody.
[[nodiscard]] std::vector<Group> groups_of(const Workload& workload, Rank rank);

/// The same, wrong in the way asked for, and on all ranks alike; nothing where the workload has no group to spoil.
[[nodiscard]] std::optional<std::vector<Group>> mutated_groups(const Workload& workload, Rank rank, Mutation mutation);

}  // namespace tidemark::execute
