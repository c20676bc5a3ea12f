#include "scenarios/host_clock.hpp"

#include <algorithm>

#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::scenarios {
namespace {

bool takes_host_time(const Op& op) {
  return std::visit(Overloaded{
                        [](const Alloc&) { return false; },
                        [](const Free&) { return false; },
                        [](const Borrow&) { return false; },
                        [](const Launch&) { return true; },
                        [](const Collective&) { return true; },
                        [](const Exchange&) { return true; },
                        [](const Memcpy&) { return true; },
                        [](const Record&) { return false; },
                        [](const Wait&) { return false; },
                        [](const Sync&) { return true; },
                        [](const CreateDriver&) { return false; },
                        [](const CreateCommunicator&) { return false; },
                        [](const Bind&) { return false; },
                        [](const Unbind&) { return false; },
                        [](const Mark&) { return false; },
                    },
                    op);
}

std::size_t first_mark(const Program& program, std::size_t from) {
  while (from < program.ops.size() && !std::holds_alternative<Mark>(program.ops[from])) ++from;
  return from;
}

}  // namespace

HostClock::HostClock(const Job& job, const Trace& trace, Rank rank)
    : simulated_(job.stages.programs[static_cast<std::size_t>(job.folding.of(rank).program)]),
      host_(trace.classes[static_cast<std::size_t>(job.folding.class_of_rank[rank.index()])].host),
      next_mark_(first_mark(simulated_, 0)) {
  ensure(host_.size() == simulated_.ops.size() && !host_.empty(), "the trace has a timeline");
}

Instant HostClock::come_to(const Op& op) {
  if (const Mark* mark = std::get_if<Mark>(&op)) enter(*mark);
  const Instant now = host_[std::min(place_, host_.size() - 1)];
  if (takes_host_time(op)) pass_one();
  return now;
}

void HostClock::enter(const Mark& mark) {
  place_ = next_mark_;
  const Mark* there = place_ < simulated_.ops.size() ? std::get_if<Mark>(&simulated_.ops[place_]) : nullptr;
  ensure(there != nullptr && there->step == mark.step && there->phase == mark.phase &&
             there->micro_batch == mark.micro_batch,
         "roles of a stage mark the same places");
  next_mark_ = first_mark(simulated_, place_ + 1);
}

void HostClock::pass_one() {
  while (place_ < next_mark_ && !takes_host_time(simulated_.ops[place_])) ++place_;
  if (place_ < next_mark_) ++place_;
}

}  // namespace tidemark::scenarios
