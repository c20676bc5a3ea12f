#include "scenarios/role_program.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "scenarios/internal_error.hpp"
#include "sim/clock/trace_times.hpp"
#include "sim/program/timing.hpp"
#include "sim/program/verify.hpp"

namespace tidemark::scenarios {

RoleProgram::RoleProgram(const Job& job, const Role& role)
    : job_(job), simulated_(job.timed.programs[job.program_of(role)]) {
  const Role& simulated = job.roles[job.role_of_program[job.program_of(role)]];
  if (&simulated == &role) return;
  RepeatingProgram own = lower_repeating(job.lowering(), role);
  require_sound(job.scenario.name, verify(own.rolled));
  own_ = unrolled(std::move(own));
  std::optional<std::vector<std::uint32_t>> places = timed_like(simulated_, *own_);
  if (!places)
    throw InternalError(job.scenario.name, {fmt::format("rank {} is timed as rank {}, and only does as it does in few "
                                                        "micro-batches",
                                                        role.ranks.front().value, simulated.ranks.front().value)});
  places_ = std::move(*places);
}

RoleProgram::RoleProgram(const Job& job, const Role& role, SharedPasses::Spliced own, const RoleProgram& timed_as)
    : job_(job),
      simulated_(job.timed.programs[job.program_of(role)]),
      own_(std::move(own.program)),
      places_(std::move(own.places)) {
  if (!timed_as.own_) return;
  for (std::uint32_t& place : places_)
    place =
        place < timed_as.places_.size() ? timed_as.places_[place] : static_cast<std::uint32_t>(simulated_.ops.size());
}

ProgramTimes RoleProgram::times(const Trace& trace, Rank rank) const {
  return own_ ? times_of(class_of(trace, rank), places_) : times_of(class_of(trace, rank));
}

Instant RoleProgram::host_time(const Trace& trace, Rank rank, std::size_t op) const {
  const std::vector<Instant>& host = class_of(trace, rank).host;
  return host[own_ ? std::min<std::size_t>(places_[op], host.size() - 1) : op];
}

}  // namespace tidemark::scenarios
