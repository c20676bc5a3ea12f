#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "scenarios/job.hpp"
#include "sim/clock/trace.hpp"
#include "sim/program/program.hpp"
#include "sim/program/program_times.hpp"
#include "sim/program/shared_passes.hpp"

namespace tidemark::scenarios {

/// The program of a role, op by op, and where its ops stand in the one that ran on the clock for it.
class RoleProgram {
 public:
  /// The job outlives it. Throws InternalError where the program is not sound, or not timed as that one.
  RoleProgram(const Job& job, const Role& role);
  /// The same, where passes have been written for another role. `timed_as` is that role's program.
  RoleProgram(const Job& job, const Role& role, SharedPasses::Spliced own, const RoleProgram& timed_as);

  [[nodiscard]] const Program& program() const { return own_ ? *own_ : simulated_; }
  /// When a rank of that class runs it, and its host thread comes to the op. The trace has a timeline.
  [[nodiscard]] ProgramTimes times(const Trace& trace, Rank rank) const;
  [[nodiscard]] Instant host_time(const Trace& trace, Rank rank, std::size_t op) const;

 private:
  [[nodiscard]] const ClassTrace& class_of(const Trace& trace, Rank rank) const {
    return trace.classes[static_cast<std::size_t>(job_.folding.class_of_rank[rank.index()])];
  }

  const Job& job_;
  const Program& simulated_;
  std::optional<Program> own_;         // where it is another one
  std::vector<std::uint32_t> places_;  // of its ops
};

}  // namespace tidemark::scenarios
