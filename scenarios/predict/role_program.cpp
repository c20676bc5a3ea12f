#include "scenarios/predict/role_program.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "scenarios/formats/internal_error.hpp"
#include "sim/base/ensure.hpp"
#include "sim/clock/trace_times.hpp"
#include "sim/program/structure/leave_out.hpp"
#include "sim/program/structure/timing.hpp"
#include "sim/program/verify.hpp"

namespace tidemark::scenarios {

std::vector<LeftOut> left_out_among(std::vector<LeftOut> left_out, const std::vector<std::uint32_t>& places) {
  const auto at = [&](std::size_t op) {
    return static_cast<std::size_t>(std::ranges::lower_bound(places, op) - places.begin());
  };
  for (LeftOut& its : left_out) {
    const std::size_t first = at(its.first), body = at(its.first + its.body) - first;
    for (std::int64_t n = 0; n <= its.bodies; ++n)
      ensure(at(its.first + static_cast<std::size_t>(n) * its.body) == first + static_cast<std::size_t>(n) * body,
             "bodies are as long in every program that has them");
    its.copies = at(its.copies), its.first = first, its.body = body;
  }
  return left_out;
}

RoleProgram::RoleProgram(const Job& job, const Role& role, std::shared_ptr<const Program> simulated,
                         std::vector<LeftOut> left_out)
    : job_(job), simulated_(std::move(simulated)), left_out_(std::move(left_out)) {
  const Role& timed = job.roles[job.role_of_program[job.program_of(role)]];
  if (&timed == &role) return;
  RepeatingProgram own = lower_repeating(job.lowering(), role);
  require_sound(job.scenario.name, verify(own.rolled));
  if (std::optional<RankEvents> events = events_of(own))
    own_events_ = std::make_shared<const RankEvents>(std::move(*events));
  if (!left_out_.empty()) own_outline_ = std::make_shared<const RepeatingProgram>(own);
  std::optional<std::vector<LeftOut>> own_left_out = leave_out_like(own, left_out_);
  if (!own_left_out) throw NotKnownFromFew{};
  own_left_out_ = std::move(*own_left_out);
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
      left_out_(timed_as.left_out_),
      own_left_out_(left_out_among(timed_as.left_out(), own.places)),
      places_(std::move(own.places)) {
  if (!timed_as.own_) return;
  for (std::uint32_t& place : places_)
    place =
        place < timed_as.places_.size() ? timed_as.places_[place] : static_cast<std::uint32_t>(simulated_->ops.size());
}

ProgramTimes RoleProgram::times(const ClassTimeline& timeline) const {
  ProgramTimes times = own_ ? times_of(timeline, places_) : times_of(timeline);
  times.left_out = left_out_;
  return times;
}

Instant RoleProgram::host_time(const ClassTimeline& timeline, std::size_t op) const {
  const PlaceInCycles its = place_in(timeline.cycles, simulated(op));
  return timeline.host[std::min(its.op, timeline.host.size() - 1)] + its.later;
}

std::vector<std::uint32_t> RoleProgram::on_clock() const {
  std::vector<std::uint32_t> places;
  if (!own_) return places;
  std::size_t ops = own_->ops.size();
  for (const LeftOut& its : left_out()) ops += its.ops();
  places.reserve(ops);
  for (std::size_t op = 0; op < ops; ++op) places.push_back(static_cast<std::uint32_t>(simulated(op)));
  return places;
}

std::size_t RoleProgram::simulated(std::size_t op) const {
  const OpOfShort written = op_of_short(left_out(), op);
  const std::size_t first = op_of_whole(left_out_, own_ ? places_[written.op] : written.op);
  if (written.loop == nullptr) return first;
  const auto loop = static_cast<std::size_t>(written.loop - left_out().data());
  return first + written.bodies_later * left_out_[loop].body;
}

}  // namespace tidemark::scenarios
