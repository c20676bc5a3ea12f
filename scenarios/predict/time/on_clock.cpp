#include "scenarios/predict/time/on_clock.hpp"

#include <memory>
#include <optional>
#include <utility>

#include "parallel/lowering/flops.hpp"
#include "sim/clock/engine.hpp"
#include "sim/clock/summary.hpp"
#include "sim/program/structure/leave_out.hpp"

namespace tidemark::scenarios {
namespace {

// Of what comes again, what is left in a program that leaves it out: what ranks do there depends on nothing beyond.
constexpr std::int64_t kept_cycles = 2;

std::vector<LeftOut> leave_out(RepeatingProgram& program, const Job& job, const ClassTrace* any) {
  if (!job.asks_the_clock || any == nullptr) return sim::leave_out(program);
  std::vector<LeaptCycle> clock = any->cycles;
  for (LeaptCycle& its : clock) its.cycle.more -= kept_cycles;
  return sim::leave_out(program, clock);
}

StepTimes plus(StepTimes a, const StepTimes& b, std::int64_t times) {
  const auto add = [&](std::vector<Duration>& all, const std::vector<Duration>& more) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += times * more[i];
  };
  a.step += times * b.step;
  a.kernels += times * b.kernels;
  a.idle += times * b.idle;
  a.copies += times * b.copies;
  add(a.transferring, b.transferring);
  add(a.waiting, b.waiting);
  return a;
}

// Where the last step went. Each time that a cycle comes again takes what it takes once it has begun to come again.
class StepAccounts {
 public:
  StepAccounts(const Job& job, const Trace& trace, const OnClock& clock) : job_(job), trace_(trace), clock_(clock) {
    const std::int32_t last = job.scenario.train.steps;
    if (clock.classes.empty()) return;
    const ClassTrace& any = trace.classes[static_cast<std::size_t>(clock.classes.begin()->first)];
    for (std::size_t i = 0; i < any.cycles.size(); ++i) {
      const LeaptCycle& its = any.cycles[i];
      const Duration left_out = (its.cycle.more - kept_cycles) * its.cycle.shift;
      if (clock.outline->repeats[its.loop].step < last)
        before_ += left_out;
      else
        of_step_ = OfStep{i, its.cycle.more - kept_cycles};
    }
  }

  [[nodiscard]] StepTimes of(const ClassTimeline& timeline) const {
    const std::size_t slots = job_.communicators().size();
    const Instant from = last_step_begin(trace_) - before_;
    const Duration step = last_step(trace_);
    if (!of_step_) return step_times(*clock_.few, timeline, from, step, slots);
    const Cycle& cycle = timeline.cycles[of_step_->number];
    const Instant again = timeline.host[cycle.first + cycle.ops];
    return plus(step_times(*clock_.few, timeline, from, step - of_step_->left_out * cycle.shift, slots),
                step_times(*clock_.few, timeline, again, cycle.shift, slots), of_step_->left_out);
  }

 private:
  struct OfStep {
    std::size_t number;     // of its cycle
    std::int64_t left_out;  // times
  };

  const Job& job_;
  const Trace& trace_;
  const OnClock& clock_;
  Duration before_;  // left out of steps before the last
  std::optional<OfStep> of_step_;
};

}  // namespace

OnClock on_clock(const Job& job, const Trace& trace, std::size_t program, const std::vector<std::int32_t>& classes,
                 Bodies bodies) {
  // Those of one program leave out the same.
  const ClassTrace* const any = classes.empty() ? nullptr : &trace.classes[static_cast<std::size_t>(classes.front())];
  OnClock its{job.outline.programs[program].get(), nullptr, {}, {}, {}, nullptr};
  its.events = RoleEvents(events_of(*its.outline));
  RepeatingProgram shown = *its.outline;
  if (bodies == Bodies::Few) its.left_out = leave_out(shown, job, any);
  its.program = std::make_shared<const Program>(unrolled(std::move(shown)));
  if (any == nullptr) return its;
  if (!any->cycles.empty())
    its.few = std::make_shared<const Program>(unrolled(without_cycles(*its.outline, *any, kept_cycles)));
  else
    its.few = its.left_out.empty() ? its.program : std::make_shared<const Program>(unrolled(*its.outline));
  for (const std::int32_t c : classes) {
    const auto index = static_cast<std::size_t>(c);
    its.classes.emplace(c, short_timeline_of(*its.few, job.times.classes[index], trace.classes[index], kept_cycles));
  }
  return its;
}

void account_for(const Job& job, const Trace& trace, std::size_t program, const OnClock& clock, StepAccount& account) {
  account.operations[program] = operations_of_step(*clock.outline, job.scenario.train.steps);
  const StepAccounts accounts(job, trace, clock);
  for (const auto& [c, timeline] : clock.classes) account.classes[static_cast<std::size_t>(c)] = accounts.of(timeline);
}

}  // namespace tidemark::scenarios
