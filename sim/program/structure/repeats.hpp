#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/program/program.hpp"
#include "sim/program/workload.hpp"

// In the middle of a step micro-batches do the same again and again, each with tensors of its own: a loop that the host
// thread has unrolled. A program of few micro-batches shows its body, and stands for one of hundreds:
//
//   rolled     | F0 F1 | F2 B0 | F3 B1 | F4 B2 | B3 B4 |
//                        before [first, last)                    two bodies alike; `more` like them are to come
//   unrolled   | F0 F1 | F2 B0 | F3 B1 | F4 B2 | F5 B3 | F6 B4 | ... | B98 B99 |
//                                   |______^ distance 2: B1 frees what F1 made, B2 what F2 made
//
// Numbers of buffers and events are what a body defines; what it uses was defined by bodies before it, the same
// distance of micro-batches ago in each (a loop-carried dependence), or is the same thing for all of them.

namespace tidemark::sim {

/// Ops [first, last) of a program, a body, come `more` times again after they came once. Each time they make new
/// buffers, events and names, and refer to those made as many micro-batches before.
struct Repeat {
  std::int32_t step = 0;
  std::size_t before = 0;  ///< where the body before it begins, which is like it
  std::size_t first = 0, last = 0;
  std::int64_t more = 0;
  std::int32_t period = 1;    ///< micro-batches of a body
  std::int32_t distance = 0;  ///< of the farthest dependence: micro-batches from the latest one to where it was made
  std::int32_t later_events =
      0;  ///< after the bodies, events of this number and more are those made `more` bodies later
  bool operator==(const Repeat&) const = default;
};

/// A program with few micro-batches, and what repeats in it: at most one part of each step, in order.
struct RepeatingProgram {
  Program rolled;
  std::vector<Repeat> repeats;
};

/// How often a step's micro-batches are to repeat, `period` by `period`.
struct MoreOf {
  std::int64_t micro_batches = 0;  ///< a multiple of the period
  std::int32_t period = 1;
  bool operator==(const MoreOf&) const = default;
};

/// Finds the bodies: the last whole period of micro-batches of each step that has more of them to come. Nothing where a
/// body does not do what the bodies before it did, as far back as its farthest dependence: then the program does not
/// show what one of more micro-batches does. `more` is by step, the first first.
[[nodiscard]] std::optional<std::vector<Repeat>> find_repeats(const Program& rolled, const std::vector<MoreOf>& more);

/// Op by op.
[[nodiscard]] Program unrolled(RepeatingProgram program);

/// The same ops without the program in memory: a run of them at a time, in order, for as long as `hear` says true.
/// Lists of buffers and transfers are not told: those of the ops point nowhere.
void tell_unrolled(const RepeatingProgram& program, const std::function<bool(std::span<const Op>)>& hear);

/// A program in its short form: held, or made each time that it is asked for, where there are too many to hold.
class Outline {
 public:
  Outline(RepeatingProgram its)  // NOLINT: a program is its own outline
      : Outline(std::make_shared<const RepeatingProgram>(std::move(its))) {}
  explicit Outline(std::shared_ptr<const RepeatingProgram> its) : held_(std::move(its)) {}
  /// `shown` does all that the program does at least once.
  Outline(std::shared_ptr<const Program> shown, std::function<RepeatingProgram()> make)
      : shown_(std::move(shown)), make_(std::move(make)) {}

  [[nodiscard]] bool is_held() const { return held_ != nullptr; }
  [[nodiscard]] const Program& shown() const { return held_ ? held_->rolled : *shown_; }
  [[nodiscard]] std::shared_ptr<const RepeatingProgram> get() const {
    return held_ ? held_ : std::make_shared<const RepeatingProgram>(make_());
  }
  /// Op by op.
  [[nodiscard]] Program unrolled() const { return sim::unrolled(held_ ? *held_ : make_()); }

 private:
  std::shared_ptr<const RepeatingProgram> held_;
  std::shared_ptr<const Program> shown_;
  std::function<RepeatingProgram()> make_;
};

/// A workload of such programs.
struct RepeatingWorkload {
  std::vector<Outline> programs;
  std::vector<std::int32_t> program_of_rank;  ///< index into programs, by rank
  std::vector<Communicator> communicators;    ///< by CommSlot
};
[[nodiscard]] Workload unrolled(const RepeatingWorkload& workload);

/// The same job with as few micro-batches as all its programs show, which are held: whatever any rank does at all, it
/// does there, and ranks meet as they do in the whole.
class Shortening {
 public:
  explicit Shortening(const RepeatingWorkload& workload);
  /// For a program of that workload.
  [[nodiscard]] Program unrolled(RepeatingProgram program) const;

 private:
  std::map<std::int32_t, std::int64_t> spare_;  // micro-batches that every program leaves unsaid, by step
};

}  // namespace tidemark::sim
