#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "scenarios/predict/allocator_events.hpp"
#include "scenarios/predict/job.hpp"
#include "sim/clock/trace.hpp"
#include "sim/program/left_out.hpp"
#include "sim/program/program.hpp"
#include "sim/program/program_times.hpp"
#include "sim/program/structure/repeats.hpp"
#include "sim/program/structure/shared_passes.hpp"

namespace tidemark::scenarios {

/// Of bodies that a program leaves out, where they are in one that has its passes. `places` are those of its ops.
[[nodiscard]] std::vector<LeftOut> left_out_among(std::vector<LeftOut> left_out,
                                                  const std::vector<std::uint32_t>& places);

/// Thrown where bodies of loops that are left out have to be there for memory to be known.
struct NotKnownFromFew {};

/// The program of a role, op by op, and where its ops stand in the one that ran on the clock for it.
class RoleProgram {
 public:
  /// The job outlives it. Throws InternalError where the program is not sound, or not timed as that one. `simulated` is
  /// the program that stands for the role on the clock; what that leaves out, the role's leaves out too.
  RoleProgram(const Job& job, const Role& role, std::shared_ptr<const Program> simulated,
              std::vector<LeftOut> left_out = {});
  RoleProgram(const Job& job, const Role& role);
  /// The same, where passes have been written for another role. `timed_as` is that role's program.
  RoleProgram(SharedPasses::Spliced own, const RoleProgram& timed_as);

  [[nodiscard]] const Program& program() const { return own_ ? *own_ : *simulated_; }
  [[nodiscard]] const std::vector<LeftOut>& left_out() const { return own_ ? own_left_out_ : left_out_; }
  /// Of a program of the role's own that leaves something out, all of it; null where it was not lowered for the role.
  [[nodiscard]] const std::shared_ptr<const RepeatingProgram>& own_outline() const { return own_outline_; }
  /// Of a program of the role's own, what it does to memory; null where it is the simulated one, or passes are not
  /// apart.
  [[nodiscard]] const std::shared_ptr<const RankEvents>& own_events() const { return own_events_; }
  /// When a rank of that class runs it, and its host thread comes to the op, as those of the whole program are counted.
  /// The timeline is the class's.
  [[nodiscard]] ProgramTimes times(const ClassTimeline& timeline) const;
  [[nodiscard]] Instant host_time(const ClassTimeline& timeline, std::size_t op) const;
  /// By op of the whole program: where it is in the whole one that ran on the clock. Empty: it is that one.
  [[nodiscard]] std::vector<std::uint32_t> on_clock() const;
  /// The same of the class of that rank.
  [[nodiscard]] ClassTimeline timeline(const Trace& trace, Rank rank) const {
    return timeline_of(job_, trace, job_.class_of(rank), *simulated_);
  }
  [[nodiscard]] ProgramTimes times(const Trace& trace, Rank rank) const { return times(timeline(trace, rank)); }

 private:
  [[nodiscard]] std::size_t simulated(std::size_t op) const;

  const Job& job_;
  std::shared_ptr<const Program> simulated_;
  std::optional<Program> own_;  // where it is another one
  std::shared_ptr<const RepeatingProgram> own_outline_;
  std::shared_ptr<const RankEvents> own_events_;
  std::vector<LeftOut> left_out_, own_left_out_;
  std::vector<std::uint32_t> places_;  // of its ops
};

}  // namespace tidemark::scenarios
