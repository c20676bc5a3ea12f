#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "sim/program/program.hpp"

// Ranks that run the same passes hold other tensors between them, as an optimizer that shares out its state has it.
// What is between passes is short, and passes are long: these are written once.
//
//   whole       | construction | passes of step 1 | reduce, step | passes of step 2 | reduce, step |
//   state       | construction |                  | reduce, step |                  | reduce, step |
//   own state   | its own      |                  | its own      |                  | its own      |

namespace tidemark::sim {

/// The passes of a program, apart from what they are among.
class SharedPasses {
 public:
  /// `state` is `whole` without its passes; both outlive this. Nothing where it is not, op for op, but that it opens
  /// communicators itself which passes open before.
  [[nodiscard]] static std::optional<SharedPasses> of(const Program& whole, const Program& state);

  /// A program with these passes.
  struct Spliced {
    Program program;
    std::vector<std::uint32_t> places;  ///< of its ops in `whole`, as `timed_like` has them
  };
  /// Which ops there are in it: all, or those of memory alone (of_memory.hpp), with no table but that of labels.
  enum class Ops : std::uint8_t { All, OfMemory };
  /// What a rank does between passes, `own_state`, with the passes in it. Nothing where it does not do it as `state`
  /// does as far as others see, or has not made what passes use.
  [[nodiscard]] std::optional<Spliced> in(const Program& own_state, Ops which = Ops::All) const;

 private:
  // Ops of `whole` that come in front of a mark of `state`, counted from 0; after the last one at its end.
  struct Passes {
    std::size_t first = 0, last = 0;
    std::size_t mark = 0;
    std::size_t first_of_memory = 0, last_of_memory = 0;  // of those of memory
  };
  // An allocation between passes: the how-manieth of its tensor and size since which mark.
  struct Made {
    std::size_t mark = 0;
    std::string_view tensor;
    std::int64_t bytes = 0;
    std::int32_t before = 0;
    auto operator<=>(const Made&) const = default;
  };
  class Compare;
  class Splice;

  SharedPasses(const Program& whole, const Program& state) : whole_(&whole), state_(&state) {}
  bool split();
  void find_used();
  void find_those_of_memory();
  [[nodiscard]] std::uint32_t place(const Op& own, std::uint32_t of_state) const;
  [[nodiscard]] static std::vector<std::optional<Made>> made_in(const Program& state);

  const Program* whole_;
  const Program* state_;
  std::vector<Passes> passes_;
  std::vector<Op> of_memory_;                   // in passes
  std::vector<std::uint32_t> of_memory_at_;     // … as `itself_` has them
  std::vector<std::size_t> kept_;               // ops of `whole`: what variables hold of passes at the end
  std::vector<std::uint32_t> place_of_;         // by op of `state`: in `whole`; one more for its end
  std::vector<std::uint32_t> itself_;           // by op of `whole`: where its host thread comes to it
  std::map<Made, BufferId> used_;               // by passes, as `whole` numbers them
  std::vector<EventId> events_;                 // that `state` records, in order, as `whole` numbers them
  std::set<CommSlot> opened_;                   // by passes, and in `state` too
  std::map<std::string_view, LabelId> labels_;  // of `whole`
  std::map<std::string_view, NameId> names_;    // of `whole`
};

}  // namespace tidemark::sim
