#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/execute/host_collectives.hpp"
#include "kernels/execute/page_scale.hpp"
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
};

inline constexpr std::array<std::string_view, 9> mutation_names{"none",        "delete-free", "delay-free",
                                                                "drop-buffer", "halve-size",  "drop-collective",
                                                                "swap-ranks",  "wrong-peer",  "wrong-axis"};

/// The predicted program of one rank with one buffer wrong: the smallest of at least 2 % of the peak that is live at it
/// or at one of the moments, where the change can show; the largest where none is that large. Nothing where there is no
/// buffer.
[[nodiscard]] std::optional<Program> mutated_prediction(const Program& predicted, Mutation mutation, PageScale scale,
                                                        const std::vector<std::size_t>& moments);

/// The workload as it runs, without one collective whose result somebody reads; nothing where there is none. Ops keep
/// their numbers: a mark stands in its place. `written` holds no frees.
[[nodiscard]] std::optional<Workload> without_a_collective(const Workload& written);

/// Whom a rank meets, by slot: empty groups where it meets nobody.
[[nodiscard]] std::vector<Group> groups_of(const Workload& workload, Rank rank);

/// The same, wrong in the way asked for, and on all ranks alike; nothing where the workload has no group to spoil.
[[nodiscard]] std::optional<std::vector<Group>> mutated_groups(const Workload& workload, Rank rank, Mutation mutation);

}  // namespace tidemark::execute
