#include "scenarios/report/text/validation_text.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/formats/format.hpp"
#include "scenarios/report/math_report.hpp"

namespace tidemark::scenarios {
namespace {

std::string milliseconds(Duration duration) {
  return fmt::format("{:.1f} ms", static_cast<double>(duration.count()) / 1e9);
}

std::string percent(const RankAgreement& rank) {
  return fmt::format("{:.3f} %", 100 * static_cast<double>(rank.difference().count()) /
                                     static_cast<double>(rank.reference_benchmark().count()));
}

// What differences are a percentage of: each rank's measured peak, or 256 MiB where that is larger.
std::string share_of_what(const Validation& validation) {
  const bool small = std::ranges::any_of(validation.ranks, [](const RankAgreement& rank) {
    return rank.measured.peak.resident < rank.reference_benchmark();
  });
  return small ? fmt::format("of peak, or of {:.0f} MiB",
                             static_cast<double>(least_reference_benchmark.count()) / (1 << 20))
               : "of peak";
}

std::string ranks_table(const Validation& validation) {
  std::vector<std::vector<std::string>> rows{{"rank", "predicted peak", "measured peak", "largest difference",
                                              share_of_what(validation), "phases", "moments", "payloads", ""}};
  for (const RankAgreement& rank : validation.ranks)
    rows.push_back({fmt::format("{}", rank.rank.value), mib(rank.predicted.peak.resident),
                    mib(rank.measured.peak.resident), mib(rank.difference()), percent(rank),
                    fmt::format("{}", rank.measured.phases.size()), fmt::format("{}", rank.measured.samples.size()),
                    rank.findings.count == 0 ? "right" : fmt::format("{} wrong", rank.findings.count),
                    rank.agrees() ? "agrees" : "DIFFERS"});
  return table(rows);
}

// Of one rank, phase by phase.
std::string phases_table(const RankAgreement& rank) {
  std::vector<std::vector<std::string>> rows{
      {"phase", "predicted", "measured", "difference", "allocated, predicted", "counted"}};
  for (std::size_t i = 0; i < std::min(rank.predicted.phases.size(), rank.measured.phases.size()); ++i) {
    const MemoryPoint &p = rank.predicted.phases[i], &m = rank.measured.phases[i];
    rows.push_back({fmt::format("step {} {}", p.step, name(p.phase)), mib(p.resident), mib(m.resident),
                    mib(m.resident - p.resident), mib(p.allocated), mib(m.allocated)});
  }
  return table(rows);
}

// Where a rank's memory is furthest from the prediction.
std::string where_it_differs(const RankAgreement& rank) {
  const auto distance = [](const MemoryPoint& p, const MemoryPoint& m) {
    return std::max(m.resident - p.resident, p.resident - m.resident);
  };
  std::string where;
  Bytes furthest;
  const auto look = [&](const std::vector<MemoryPoint>& predicted, const std::vector<MemoryPoint>& measured,
                        std::string_view moment) {
    for (std::size_t i = 0; i < std::min(predicted.size(), measured.size()); ++i) {
      const MemoryPoint &p = predicted[i], &m = measured[i];
      if (!where.empty() && distance(p, m) <= furthest) continue;
      furthest = distance(p, m);
      where = fmt::format("{} op {} (step {}, {}): predicted {}, measured {}; allocated: predicted {} B, counted {} B",
                          moment, p.op, p.step, name(p.phase), mib(p.resident), mib(m.resident), p.allocated.count(),
                          m.allocated.count());
    }
  };
  look(rank.predicted.samples, rank.measured.samples, "after");
  look(rank.predicted.phases, rank.measured.phases, "largest in the phase from");
  return where;
}

std::string time_line(const RankAgreement& rank, bool oversubscribed) {
  if (rank.measured_steps.empty()) return {};
  const std::size_t last = rank.measured_steps.size() - 1;
  std::string line = fmt::format("last step: measured {}", milliseconds(rank.measured_steps[last]));
  if (last < rank.predicted_steps.size())
    line += fmt::format(", predicted {} from this machine's own rates", milliseconds(rank.predicted_steps[last]));
  if (oversubscribed) line += " (more ranks than cores: times are not meaningful)";
  return line + '\n';
}

std::string share_off(Duration predicted, Duration measured) {
  return fmt::format("{:+.1f} %",
                     100 * (static_cast<double>(predicted.count()) / static_cast<double>(measured.count()) - 1));
}

// Of the last step: those before it may be the first that something happens in.
std::string math_times_text(const Validation& validation) {
  const MathTimes& times = validation.math_times;
  if (!times.there()) return {};
  const MathStep &p = times.predicted.back(), &m = times.measured.back();
  std::string text =
      fmt::format("\nlast step with real numbers, median of {} runs, beside {}:\n", times.repeats, times.cluster);
  std::vector<std::vector<std::string>> rows{{"", "predicted", "measured", "off by"}};
  const auto add = [&](const char* what, Duration predicted, Duration measured) {
    rows.push_back({what, milliseconds(predicted), milliseconds(measured),
                    measured > Duration{} ? share_off(predicted, measured) : ""});
  };
  add("step", p.step, m.step);
  add("kernels, mean of ranks", p.kernels, m.kernels);
  add("transfers and waiting", p.step - p.kernels, m.step - m.kernels);
  text += table(rows);
  if (validation.oversubscribed) text += "more ranks than cores: times are not meaningful\n";
  return text;
}

std::string flow_lines(const std::vector<FlowNote>& flow) {
  std::string line = "\ndata flow: ";
  const auto known = std::ranges::count_if(flow, [](const FlowNote& note) { return !note.reason.empty(); });
  if (known == static_cast<std::ptrdiff_t>(flow.size()))
    line += "all that is read was written, all that is written is read, and nothing is kept longer";
  else
    line += fmt::format("{} findings that the framework's known behavior does not explain",
                        flow.size() - static_cast<std::size_t>(known));
  line += fmt::format(
      "{}\n", known == 0 ? "" : fmt::format("; {} known cases of the framework's behavior (--json names them)", known));
  for (const FlowNote& note : flow)
    if (note.reason.empty()) line += "  " + text(note) + '\n';
  return line;
}

}  // namespace

std::string validation_text(const Validation& validation) {
  const auto worst = std::max_element(
      validation.ranks.begin(), validation.ranks.end(), [](const RankAgreement& a, const RankAgreement& b) {
        return std::pair(!a.agrees(), a.difference()) < std::pair(!b.agrees(), b.difference());
      });
  std::string text = fmt::format(
      "{}: {} ranks ran their programs on host memory{}, and {}\n\n", validation.agrees() ? "yes" : "NO",
      validation.ranks.size(),
      validation.options.scale.divisor == 1 ? "" : fmt::format(" (one page in {})", validation.options.scale.divisor),
      !validation.memory_agrees() ? "they did not hold or read what was predicted"
      : !validation.flows()       ? "data flows in a way that the framework's known behavior does not explain"
      : !validation.agrees()      ? "they did not compute what one rank computes"
      : validation.math.empty()
          ? "memory agrees with the prediction on every rank, phase by phase"
          : "memory agrees with the prediction on every rank, losses and gradients with one rank's");
  if (validation.options.mutation != Mutation::None)
    text +=
        fmt::format("wrong on purpose: {}\n\n", mutation_names[static_cast<std::size_t>(validation.options.mutation)]);
  text += ranks_table(validation);
  text += fmt::format("\nrank {}, resident bytes by phase (measured by the operating system):\n", worst->rank.value);
  text += phases_table(*worst);
  // Where payloads are wrong, they may be all there is.
  const bool by_memory =
      worst->findings.count == 0 || static_cast<double>(worst->difference().count()) >
                                        resident_tolerance * static_cast<double>(worst->reference_benchmark().count());
  if (!worst->agrees() && by_memory) text += "largest difference: " + where_it_differs(*worst) + '\n';
  if (worst->predicted.reserved != worst->measured.reserved)
    text += fmt::format("segments: predicted {} B, counted {} B\n", worst->predicted.reserved.count(),
                        worst->measured.reserved.count());
  text += '\n' + time_line(*worst, validation.oversubscribed);
  text += flow_lines(validation.flow);
  for (const MathCheck& check : validation.math) text += math_text(check);
  text += math_times_text(validation);
  if (!validation.without_math.empty()) text += "\nwithout real numbers: " + validation.without_math + '\n';
  for (const RankAgreement& rank : validation.ranks)
    for (const std::string& finding : rank.findings.first) text += finding + '\n';
  if (!validation.agrees())
    text += "\nnext: the same with --json record.json, then tidemark report record.json shows every rank and moment\n";
  return text;
}

}  // namespace tidemark::scenarios
