#include "scenarios/report/text/kernels_text.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "kernels/cost/attention_time.hpp"
#include "kernels/cost/product_time.hpp"
#include "kernels/cost/rates.hpp"
#include "kernels/cost/roofline.hpp"
#include "scenarios/formats/format.hpp"
#include "sim/base/overloaded.hpp"
#include "sim/program/text/program_text.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::size_t shown = 30;

/// How often a program launches each of its kernels in its last step.
std::map<std::int32_t, std::int64_t> launches_of_last_step(const Program& program, std::int32_t last) {
  std::map<std::int32_t, std::int64_t> found;
  std::int32_t step = 0;
  for (const Op& op : program.ops)
    std::visit(Overloaded{
                   [&](const Mark& o) { step = o.step; },
                   [&](const Launch& o) {
                     if (step == last && !program[o.kernel].follows()) ++found[o.kernel.value];
                   },
                   Ignored<Alloc, Free, CrossStreamUse, Collective, Exchange, Memcpy, Record, Wait, Sync, CreateDriver,
                           CreateCommunicator, Bind, Unbind>{},
               },
               op);
  return found;
}

// Of one that works on many tensors, such as all that an optimizer steps, the first few.
std::string kernel_text(const Program& program, Kernel kernel) {
  constexpr std::size_t many = 16, named = 4;
  const auto cut = [](std::vector<ViewId>& views) {
    if (views.size() <= many) return std::string();
    const std::string others = fmt::format(" and {} others", views.size() - named);
    views.resize(named);
    return others;
  };
  const std::string other_inputs = cut(kernel.inputs), other_outputs = cut(kernel.outputs);
  std::string out = text(program, kernel) + other_outputs;
  return out.insert(out.rfind(" ->"), other_inputs);
}

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }
/// What a kernel reaches in that time, in words.
std::string reached(const Program& program, const Kernel& kernel, Duration time, const Cluster& cluster) {
  const Device& device = cluster.device;
  if (kernel.processor == Processor::Host) return "host memory";
  if (kernel.operation == Operation::Matmul) {
    const kernels::Product p = kernels::product_of(program, kernel);
    const double operations = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    const double peak = static_cast<double>(kernels::peak_rate(device, p.operands).count());
    return fmt::format("{:.1f} % of peak", 100 * share(operations, seconds(time) * peak));
  }
  const bool backward = kernel.operation == Operation::AttentionBackward;
  if (kernel.operation == Operation::Attention || backward) {
    const std::size_t first = backward ? 1 : 0;
    const View &q = program[kernel.inputs[first]], &k = program[kernel.inputs[first + 1]],
               &v = program[kernel.inputs[first + 2]];
    const auto size = [](const View& view, std::size_t d) { return static_cast<double>(view.sizes[d]); };
    const bool causal = kernel.attributes[1] != 0;
    const double scores = size(q, 0) * size(q, 2) * size(q, 1) * (size(k, 1) - (causal ? size(q, 1) / 2 : 0));
    const double widths = backward ? 3 * size(q, 3) + 2 * size(v, 3) : size(q, 3) + size(v, 3);
    const double peak = static_cast<double>(kernels::peak_rate(device, q.dtype).count());
    return fmt::format("{:.1f} % of peak", 100 * share(2 * scores * widths, seconds(time) * peak));
  }
  const double bytes = static_cast<double>(traffic_of(program, kernel).count());
  const double bandwidth = static_cast<double>(device.memory_bandwidth.count());
  return fmt::format("{:.1f} % of bandwidth", 100 * share(bytes, seconds(time) * bandwidth));
}

std::string from(const Kernel& kernel, TimeSource source, const Device& device) {
  if (source == TimeSource::Measured) return "measured";
  if (source == TimeSource::Interpolated) return "interpolated";
  if (kernel.processor == Processor::Host) return "host.memory_bandwidth";
  const std::string_view sustained = is_limited(device) ? "sustained x power" : "sustained";
  switch (kernel.operation) {
    case Operation::Matmul:
      return fmt::format("gemm x {}, tiles and waves, epilogue", sustained);
    case Operation::Attention:
      return fmt::format("attention x {}, blocks", sustained);
    case Operation::AttentionBackward:
      return fmt::format("attention_backward x {}, blocks", sustained);
    case Operation::SsdScan:
    case Operation::SsdScanBackward:
      return "attention's rates or memory, kernel by kernel";
    default:
      return "memory, kernel_latency";
  }
}

}  // namespace

std::string kernels_text(const Job& job, Rank rank) {
  const Program program = job.program(job.program_of(job.role_of(rank)));
  const Cluster& cluster = job.scenario.cluster;
  const std::vector<TimeByPoints> times = kernels::sourced_kernel_times(program, cluster);
  struct Entry {
    std::int32_t kernel = 0;
    std::int64_t count = 0;
    Duration all;
  };
  std::vector<Entry> entries;
  Duration sum;
  std::int64_t launches = 0;
  for (const auto& [kernel, count] : launches_of_last_step(program, job.scenario.train.steps)) {
    entries.push_back({kernel, count, count * times[static_cast<std::size_t>(kernel)].time});
    sum += entries.back().all;
    launches += count;
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.all > b.all; });
  std::vector<std::vector<std::string>> rows{{"share", "times", "each", "reaches", "by", "kernel"}};
  for (std::size_t i = 0; i < std::min(entries.size(), shown); ++i) {
    const Entry& e = entries[i];
    const Kernel& kernel = program.kernels[static_cast<std::size_t>(e.kernel)];
    const auto [each, source] = times[static_cast<std::size_t>(e.kernel)];
    rows.push_back({fmt::format("{:.1f} %", 100 * share(seconds(e.all), seconds(sum))), fmt::format("{}", e.count),
                    fmt::format("{:.1f} us", 1e6 * seconds(each)), reached(program, kernel, each, cluster),
                    from(kernel, source, cluster.device), kernel_text(program, kernel)});
  }
  std::string out = fmt::format("{} kernels in the last step of rank {}, {:.3f} s in all; constants: {}\n", launches,
                                rank.value, seconds(sum), cluster.device.efficiency.source);
  if (const Calibration* its = cluster.calibration.get()) {
    std::array<Duration, 3> by_source{};
    for (const Entry& e : entries)
      by_source[static_cast<std::size_t>(times[static_cast<std::size_t>(e.kernel)].source)] += e.all;
    const auto percent = [&](TimeSource source) {
      return 100 * share(seconds(by_source[static_cast<std::size_t>(source)]), seconds(sum));
    };
    out += fmt::format("{}: {:.1f} % of that time measured, {:.1f} % interpolated, {:.1f} % by the model ({})\n",
                       its->name, percent(TimeSource::Measured), percent(TimeSource::Interpolated),
                       percent(TimeSource::Model), its->source);
  }
  out += table(rows, LastColumn::Words);
  if (entries.size() > shown) out += fmt::format("  and {} others\n", entries.size() - shown);
  return out;
}

}  // namespace tidemark::scenarios
