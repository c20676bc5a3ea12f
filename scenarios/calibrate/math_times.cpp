#include "scenarios/calibrate/math_times.hpp"

#include <algorithm>
#include <sstream>
#include <utility>
#include <variant>

#include "kernels/cost/cost_time.hpp"
#include "kernels/math/engine/calculator.hpp"
#include "parallel/lowering/lower.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/validate/arithmetic/rank_training.hpp"
#include "sim/base/overloaded.hpp"
#include "sim/clock/engine.hpp"

namespace tidemark::scenarios {
namespace {

constexpr StreamId only{0};
constexpr EventId done{0};

Program in_host_order(Program program) {
  std::vector<Op> ops;
  // A transfer that the host thread waits for.
  const auto wait_for = [&](auto op) {
    op.stream = only;
    ops.emplace_back(op);
    ops.emplace_back(Record{done, only});
    ops.emplace_back(Sync{done});
  };
  for (const Op& op : program.ops)
    std::visit(Overloaded{
                   [&](Launch o) {
                     o.stream = only;
                     ops.emplace_back(o);
                   },
                   [&](const Collective& o) { wait_for(o); },
                   [&](const Exchange& o) { wait_for(o); },
                   [&](const Memcpy& o) { wait_for(o); },
                   [&](Alloc o) {
                     o.stream = only;
                     ops.emplace_back(o);
                   },
                   [&](const Free& o) { ops.emplace_back(o); },
                   [&](const CreateDriver& o) { ops.emplace_back(o); },
                   [&](const CreateCommunicator& o) { ops.emplace_back(o); },
                   [&](const Bind& o) { ops.emplace_back(o); },
                   [&](const Unbind& o) { ops.emplace_back(o); },
                   [&](const Mark& o) { ops.emplace_back(o); },
                   // one stream has nothing to order
                   Ignored<CrossStreamUse, Record, Wait, Sync>{},
               },
               op);
  program.ops = std::move(ops);
  program.events = 1;
  for (Kernel& kernel : program.kernels) kernel.processor = Processor::Device;  // there is one
  return program;
}

/// Calls `tell(step, op)` for each op.
template <class Tell>
void by_step(const Program& program, Tell&& tell) {
  std::int32_t step = 0;
  for (std::size_t op = 0; op < program.ops.size(); ++op) {
    if (const auto* const mark = std::get_if<Mark>(&program.ops[op])) step = mark->step;
    tell(static_cast<std::size_t>(step), op);
  }
}

Duration median(std::vector<Duration> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

Workload in_host_order(Workload workload) {
  for (Program& program : workload.programs) program = in_host_order(std::move(program));
  return workload;
}

std::vector<MathStep> predicted_math_steps(const Scenario& scenario, const Cluster& machine) {
  const Job job(executed(scenario));
  const Workload workload = in_host_order(lower(job.lowering()));
  const Folding folding = unfolded(workload, std::vector<std::int32_t>(workload.program_of_rank.size(), 0));
  TimeCosts costs = kernels::cost_time(workload, folding, machine);
  // Whoever computes also calls: what an op takes by itself comes on top.
  for (OpTimes& times : costs.classes) {
    for (Duration& kernel : times.kernels) kernel += times.host.launch;
    times.host.launch = {};
  }
  const Trace trace = simulate(workload, folding, costs, LinkSharing::None);
  if (!std::holds_alternative<Completed>(trace.outcome)) return {};
  std::vector<MathStep> steps(static_cast<std::size_t>(scenario.train.steps) + 1);
  const auto ranks = static_cast<std::int64_t>(trace.classes.size());
  for (std::size_t c = 0; c < trace.classes.size(); ++c) {
    Instant before;
    for (std::size_t s = 0; s < std::min(steps.size(), trace.classes[c].step_ends.size()); ++s) {
      const Instant end = trace.classes[c].step_ends[s];
      steps[s].step = std::max(steps[s].step, end - std::exchange(before, end));
    }
    const Program& program = workload.programs[static_cast<std::size_t>(folding.classes[c].program)];
    by_step(program, [&](std::size_t step, std::size_t op) {
      if (const auto* const launch = std::get_if<Launch>(&program.ops[op]))
        steps[step].kernels += costs.classes[c].kernels[launch->kernel.index()] / ranks;
    });
  }
  return steps;
}

std::vector<MathStep> measured_math_steps(const Scenario& scenario, execute::World& world, std::int64_t repeats) {
  const Job job(executed(scenario));
  const RankTraining training(job, world.rank(), job);
  const Program& program = training.program();
  math::HostCalculator host;
  const std::size_t count = static_cast<std::size_t>(scenario.train.steps) + 1;
  std::vector<std::vector<Duration>> steps(count), kernels(count);
  for (std::int64_t repeat = 0; repeat <= repeats; ++repeat) {
    const std::vector<Duration> times = training.op_times(world, host, math::Storage::Native);
    if (repeat == 0) continue;  // it finds the memory
    std::vector<MathStep> mine(count);
    by_step(program, [&](std::size_t step, std::size_t op) {
      mine[step].step += times[op];
      // Memory that kernels' results are in is given back on their account.
      if (std::holds_alternative<Launch>(program.ops[op]) || std::holds_alternative<Free>(program.ops[op]))
        mine[step].kernels += times[op];
    });
    std::string reported;
    for (const MathStep& s : mine)
      reported += std::to_string(s.step.count()) + ' ' + std::to_string(s.kernels.count()) + ' ';
    const std::vector<std::string> everyone = world.gather(reported);
    if (everyone.empty()) continue;
    std::vector<MathStep> all(count);
    for (const std::string& one : everyone) {
      std::istringstream in(one);
      for (MathStep& s : all) {
        std::int64_t step = 0, its_kernels = 0;
        in >> step >> its_kernels;
        s.step = std::max(s.step, Duration{step});
        s.kernels += Duration{its_kernels} / static_cast<std::int64_t>(everyone.size());
      }
    }
    for (std::size_t s = 0; s < count; ++s) steps[s].push_back(all[s].step), kernels[s].push_back(all[s].kernels);
  }
  std::vector<MathStep> medians;
  for (std::size_t s = 0; s < count && !steps[s].empty(); ++s)
    medians.push_back({median(steps[s]), median(kernels[s])});
  return medians;
}

}  // namespace tidemark::scenarios
