#include "scenarios/predict/role_program.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "scenarios/formats/internal_error.hpp"
#include "sim/clock/trace_times.hpp"
#include "sim/program/structure/timing.hpp"
#include "sim/program/verify.hpp"

namespace tidemark::scenarios {

RoleProgram::RoleProgram(const Job& job, const Role& role, std::shared_ptr<const Program> simulated)
    : job_(job), simulated_(std::move(simulated)) {
  const Role& timed = job.roles[job.role_of_program[job.program_of(role)]];
  if (&timed == &role) return;
  RepeatingProgram own = lower_repeating(job.lowering(), role);
  require_sound(job.scenario.name, verify(own.rolled));
  if (std::optional<RankEvents> events = events_of(own))
    own_events_ = std::make_shared<const RankEvents>(std::move(*events));
  own_ = unrolled(std::move(own));
  std::optional<std::vector<std::uint32_t>> places = timed_like(*simulated_, *own_, OwnRows::Any);
  if (!places)
    throw InternalError(job.scenario.name, {fmt::format("rank {} is timed as rank {}, and only does as it does in few "
                                                        "micro-batches",
                                                        role.ranks.front().value, timed.ranks.front().value)});
  places_ = std::move(*places);
}

RoleProgram::RoleProgram(const Job& job, const Role& role)
    : RoleProgram(job, role, std::make_shared<const Program>(job.program(job.program_of(role)))) {}

RoleProgram::RoleProgram(SharedPasses::Spliced own, const RoleProgram& timed_as)
    : job_(timed_as.job_),
      simulated_(timed_as.simulated_),
      own_(std::move(own.program)),
      places_(std::move(own.places)) {
  if (!timed_as.own_) return;
  for (std::uint32_t& place : places_)
    place =
        place < timed_as.places_.size() ? timed_as.places_[place] : static_cast<std::uint32_t>(simulated_->ops.size());
}

ProgramTimes RoleProgram::times(const ClassTimeline& timeline) const {
  return own_ ? times_of(timeline, places_) : times_of(timeline);
}

Instant RoleProgram::host_time(const ClassTimeline& timeline, std::size_t op) const {
  const PlaceInCycles its = place_in(timeline.cycles, own_ ? places_[op] : op);
  return timeline.host[std::min(its.op, timeline.host.size() - 1)] + its.later;
}

}  // namespace tidemark::scenarios
