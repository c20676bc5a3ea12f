#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "sim/program/program.hpp"
#include "sim/program/workload.hpp"

// In the middle of a step micro-batches do the same again and again, each with tensors of its own. Programs of hundreds
// of them say it once.

namespace tidemark::sim {

/// Ops [first, last) of a program, a body, come `more` times again after they came once. Each time they make new
/// buffers, events and names, and refer to those made as many micro-batches before.
struct Repeat {
  std::int32_t step = 0;
  std::size_t before = 0;  ///< where the body before it begins, which is like it
  std::size_t first = 0, last = 0;
  std::int64_t more = 0;
  std::int32_t period = 1;  ///< micro-batches of a body
  std::int32_t back = 0;  ///< how many micro-batches before the latest one the oldest thing was made that it refers to
  std::int32_t later_events =
      0;  ///< after the bodies, events of this number and more are those made `more` bodies later
  bool operator==(const Repeat&) const = default;
};

/// A program with few micro-batches, and what repeats in it: at most one part of each step, in order.
struct RepeatingProgram {
  Program few;
  std::vector<Repeat> repeats;
};

/// How often a step's micro-batches are to repeat, `period` by `period`.
struct MoreOf {
  std::int64_t micro_batches = 0;  ///< a multiple of the period
  std::int32_t period = 1;
  bool operator==(const MoreOf&) const = default;
};

/// Finds the bodies: the last whole period of micro-batches of each step that has more of them to come. Nothing where
/// one does not do what those before it did, as far back as it refers to what they made: then the few do not show what
/// many do. `more` is by step, the first first.
[[nodiscard]] std::optional<std::vector<Repeat>> find_repeats(const Program& few, const std::vector<MoreOf>& more);

/// Op by op.
[[nodiscard]] Program unrolled(RepeatingProgram program);

/// The same ops without the program in memory: a run of them at a time, in order, for as long as `hear` says true.
/// Lists of buffers and transfers are not told: those of the ops point nowhere.
void tell_unrolled(const RepeatingProgram& program, const std::function<bool(std::span<const Op>)>& hear);

/// A workload of such programs.
struct RepeatingWorkload {
  std::vector<RepeatingProgram> programs;
  std::vector<std::int32_t> program_of_rank;  ///< index into programs, by rank
  std::vector<Communicator> communicators;    ///< by CommSlot
};
[[nodiscard]] Workload unrolled(RepeatingWorkload workload);

/// The same job with as few micro-batches as all its programs show, unrolled: whatever any rank does at all, it does
/// there, and ranks meet as they do in the whole.
[[nodiscard]] Workload shortened(RepeatingWorkload workload);

}  // namespace tidemark::sim
