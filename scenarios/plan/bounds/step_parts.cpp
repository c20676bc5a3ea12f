#include "scenarios/plan/bounds/step_parts.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "kernels/cost/roofline.hpp"
#include "scenarios/predict/job.hpp"
#include "topology/collective.hpp"

namespace tidemark::scenarios {
namespace {

// What causes take by themselves, added up over ranks.
struct Sum {
  double time = 0, may_be_off = 0;  // the second: time of what was not measured
};

std::string cause_of(const Kernel& kernel) {
  if (kernel.processor == Processor::Host) return "kernels of the host";
  switch (kernel.operation) {
    case Operation::Matmul:
    case Operation::Attention:
    case Operation::AttentionBackward:
    case Operation::SsdScan:
    case Operation::SsdScanBackward:
      return std::string(name(kernel.operation));
    default:
      return "kernels bound by memory";
  }
}

class Adder {
 public:
  explicit Adder(const Job& job) : job_(job) {
    for (std::size_t c = 0; c < job.folding.classes.size(); ++c) add(c);
  }
  std::map<std::string, Sum> kernels, transfers;

 private:
  // How often the last step of a program does what.
  void add(std::size_t c) {
    const RankClass& its = job_.folding.classes[c];
    const auto held = job_.outline.programs[static_cast<std::size_t>(its.program)].get();
    const RepeatingProgram& program = *held;
    const Program& rolled = program.rolled;
    const std::vector<TimeByPoints> times = kernels::sourced_kernel_times(rolled, job_.scenario.cluster);
    const OpTimes& costs = job_.times.classes[c];
    const double ranks = its.size;
    std::vector<Bytes> sizes(static_cast<std::size_t>(rolled.buffers));
    for (const Op& op : rolled.ops)
      if (const auto* const alloc = std::get_if<Alloc>(&op)) sizes[alloc->buffer.index()] = alloc->size;
    std::int32_t step = 0;
    const auto hear = [&](const Op& op, double more) {
      if (const auto* const launch = std::get_if<Launch>(&op)) {
        const TimeByPoints& time = times[launch->kernel.index()];
        Sum& sum = kernels[cause_of(rolled[launch->kernel])];
        const double all = more * ranks * static_cast<double>(time.time.count());
        sum.time += all;
        if (time.source != TimeSource::Measured) sum.may_be_off += all;
      } else if (const auto* const call = std::get_if<Collective>(&op)) {
        const auto group = static_cast<std::size_t>(its.groups[call->comm.index()]);
        const CollectiveKey key = key_of(rolled, *call);
        add_transfer(fmt::format("{} of {}", name(call->kind), job_.outline.communicators[call->comm.index()].name),
                     job_.times.collectives[group].at(key), more * ranks, measured(its.first, key));
      } else if (const auto* const exchange = std::get_if<Exchange>(&op)) {
        for (const Transfer& t : rolled[exchange->transfers]) {
          if (t.direction != Direction::Send) continue;
          const Bytes size = t.size(sizes[t.buffer.index()]);
          const auto cost = costs.messages.find({exchange->comm, t.step, size});
          if (cost == costs.messages.end()) continue;
          add_transfer(fmt::format("messages of {}", job_.outline.communicators[exchange->comm.index()].name),
                       cost->second, more * ranks, measured(its.first, cost->first));
        }
      }
    };
    const std::int32_t last = job_.scenario.train.steps;
    for (const Op& op : rolled.ops) {
      if (const auto* const mark = std::get_if<Mark>(&op)) step = mark->step;
      if (step == last) hear(op, 1);
    }
    for (const Repeat& repeat : program.repeats)
      for (std::size_t op = repeat.first; repeat.step == last && op < repeat.last; ++op)
        hear(rolled.ops[op], static_cast<double>(repeat.more));
  }

  void add_transfer(const std::string& cause, const TransferCost& cost, double times, bool measured) {
    const double all = times * static_cast<double>(lone(cost, job_.times.links).count());
    Sum& sum = transfers[cause];
    sum.time += all;
    if (!measured) sum.may_be_off += all;
  }

  [[nodiscard]] bool measured(Rank rank, const CollectiveKey& key) const {
    const Cluster& cluster = job_.scenario.cluster;
    if (!cluster.calibration.there() || key.matrix.valid()) return false;
    std::set<std::int32_t> nodes;
    const std::vector<Rank> members = group_members(job_.outline.communicators[key.comm.index()], rank);
    for (const Rank member : members) nodes.insert(member.value / cluster.node.devices);
    return is_measured(measured_time(*cluster.calibration.get(), key.kind, static_cast<std::int32_t>(members.size()),
                                     static_cast<std::int32_t>(nodes.size()), key.size));
  }
  [[nodiscard]] bool measured(Rank rank, const MessageKey& key) const {
    const Cluster& cluster = job_.scenario.cluster;
    if (!cluster.calibration.there()) return false;
    const Rank peer = group_neighbour(job_.outline.communicators[key.comm.index()], rank, key.step);
    const bool between = rank.value / cluster.node.devices != peer.value / cluster.node.devices;
    return is_measured(measured_message(*cluster.calibration.get(), between, key.size));
  }
  static bool is_measured(const std::optional<TimeByPoints>& time) {
    return time && time->source == TimeSource::Measured;
  }

  const Job& job_;
};

}  // namespace

StepParts step_parts(const Scenario& scenario, Duration step) {
  const Job job(scenario, Job::Steps::Last);
  const Adder sums(job);
  const auto total = [](const std::map<std::string, Sum>& all) {
    double sum = 0;
    for (const auto& [cause, its] : all) sum += its.time;
    return sum;
  };
  const double whole = static_cast<double>(step.count()) * scenario.gpus;
  const double of_kernels = total(sums.kernels), of_transfers = total(sums.transfers);
  const double seen = of_transfers > 0 ? std::clamp((whole - of_kernels) / of_transfers, 0.0, 1.0) : 0;
  const double own = of_kernels + seen * of_transfers;
  StepParts parts;
  const Efficiency& efficiency = scenario.cluster.device.efficiency;
  const auto add = [&](const std::map<std::string, Sum>& all, double share, Ratio error) {
    for (const auto& [cause, its] : all) {
      if (own <= 0 || its.time * share <= 0) continue;
      const double time = its.time * share / own * static_cast<double>(step.count());
      parts[cause] = {Duration{std::llround(time)}, as_double(error) * its.may_be_off / its.time};
    }
  };
  add(sums.kernels, 1, efficiency.kernel_error);
  add(sums.transfers, seen, efficiency.communication_error);
  return parts;
}

}  // namespace tidemark::scenarios
