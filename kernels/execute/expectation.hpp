#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/execute/content.hpp"
#include "kernels/execute/page_scale.hpp"
#include "kernels/execute/parts.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::execute {

/// What every rank should find in the buffers that it reads: derived from the programs of all ranks, never from what a
/// run did. Programs hold no frees; ops are counted in them.
class Expectation {
 public:
  Expectation(const Workload& workload, PageScale scale);

  /// What an operand of an op should hold when the op begins; nothing is known of a buffer that nobody has written.
  [[nodiscard]] Content before(Rank rank, std::size_t op, BufferId buffer) const;
  /// What a buffer that the op writes should hold when the op is done.
  [[nodiscard]] Content after(Rank rank, std::size_t op, BufferId buffer) const;

  /// The base of what a kernel writes: of that rank, op and buffer only.
  [[nodiscard]] static std::uint64_t stamp(Rank rank, std::size_t op, BufferId buffer);

  /// Who wrote a word: "rank 3, layers.0.norm at op 120 (step 1, micro-batch 0), word 512". For messages: it looks
  /// through all programs.
  [[nodiscard]] std::string author(std::uint64_t word) const;

  [[nodiscard]] const Workload& workload() const { return workload_; }
  [[nodiscard]] PageScale scale() const { return scale_; }
  /// Of a buffer's payload.
  [[nodiscard]] std::int64_t words(Rank rank, BufferId buffer) const {
    return scale_.words(facts(rank).sizes[buffer.index()]);
  }

 private:
  static constexpr std::int64_t nobody = -1;

  // One side of a message, or a member's part in a collective.
  struct Call {
    std::size_t op = 0;
    Transfer transfer;
  };
  // What is known of one program, whichever rank runs it.
  struct Facts {
    std::vector<std::uint32_t> first;                          // by op, and one past the end: its operands in `writers`
    std::vector<std::int64_t> writers;                         // by operand: the op that wrote it last
    std::vector<Bytes> sizes;                                  // by buffer
    std::vector<LabelId> labels;                               // by buffer
    std::map<CommSlot, std::vector<std::size_t>> collectives;  // ops, in order
    std::map<std::pair<CommSlot, std::int32_t>, std::vector<Call>> sends;     // by place in the group, from one's own
    std::map<std::pair<CommSlot, std::int32_t>, std::vector<Call>> receives;  // the same
  };

  [[nodiscard]] Facts facts_of(const Program& program) const;
  [[nodiscard]] const Facts& facts(Rank rank) const {
    return facts_[static_cast<std::size_t>(workload_.program_of_rank[rank.index()])];
  }
  [[nodiscard]] std::int64_t writer(Rank rank, std::size_t op, BufferId buffer) const;
  [[nodiscard]] Content after_copy(Rank rank, std::size_t op, const Memcpy& copy) const;
  [[nodiscard]] Content after_collective(Rank rank, std::size_t op, const Collective& call) const;
  [[nodiscard]] Content received(Rank rank, std::size_t op, const Exchange& call, BufferId buffer) const;

  const Workload& workload_;
  PageScale scale_;
  std::vector<Facts> facts_;  // by program
};

}  // namespace tidemark::execute
