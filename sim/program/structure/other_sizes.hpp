#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sim/program/structure/repeats.hpp"

// Ranks whose experts get other numbers of tokens do the same in their passes, op by op, with tensors of other sizes.
// Programs are long, and few micro-batches show all sizes that there are:
//
//   whole        | state | F0 F1 F2 B0 F3 B1 ...     few        | state | F0 F1 B0 B1 |      of one rank
//   other whole  | other | f0 f1 f2 b0 f3 b1 ...     other few  | other | f0 f1 b0 b1 |      of another: the former is
//                                                                                             made of the latter
// A place of a program, from one mark to the next, is one of `few` if it does the same with the same sizes there; it
// does so in every micro-batch, and a mark names its layer. Where stages hand tensors over, places differ: there each
// op is one of `few` wherever that does it.

namespace tidemark::sim {

/// Passes that are told with other sizes.
class OtherSizes {
 public:
  /// `few` is what the same rank does in fewer micro-batches. Nothing where passes of `whole` do what is not there, or
  /// what is between them is not the same in both.
  [[nodiscard]] static std::optional<OtherSizes> of(std::shared_ptr<const RepeatingProgram> whole, Program few);

  [[nodiscard]] const Program& few() const { return few_; }

  /// What a rank does in as many micro-batches as `whole` has, whose passes do in few of them what those of `few` do,
  /// but for sizes of tensors, kernels and transfers: its program, but for the order of tables. Nothing where they do
  /// anything else, or where places that are alike in `few` are not in its program.
  [[nodiscard]] std::optional<RepeatingProgram> as(const Program& other_few) const;
  /// Whether there is one, which takes far less to see than to write it.
  [[nodiscard]] bool fits(const Program& other_few) const;

  /// Ops [first, last), within passes or between them.
  struct Run {
    std::size_t first = 0, last = 0;
    bool in_passes = false;
  };

 private:
  class Match;

  OtherSizes(std::shared_ptr<const RepeatingProgram> whole, Program few);
  bool match_state();
  bool find_places();
  void find_used();
  [[nodiscard]] std::optional<Match> match(const Program& other_few) const;

  // Two ops that have one size.
  struct Same {
    std::uint32_t op = 0, as = 0;
  };

  std::shared_ptr<const RepeatingProgram> whole_;
  Program few_;
  std::vector<Run> runs_, runs_of_few_;  // alternately between passes and within them
  std::vector<Same> places_;             // of ops with sizes in passes, in order: in `whole_`, and in `few_`
  std::vector<Same> twins_;              // both in `few_`
  // What `few_` calls what `whole_` makes between passes; -1: made in passes.
  std::vector<std::int32_t> buffers_in_few_, events_in_few_;
  std::vector<char> by_passes_;  // by buffer of `whole_`: made there

  // What passes of `whole_` use that was made between them, as `few_` calls it.
  struct Used {
    std::vector<std::int32_t> buffers, events;
  };
  std::vector<Used> used_;          // by run
  std::int32_t passes_events_ = 0;  // that passes make
};

}  // namespace tidemark::sim
