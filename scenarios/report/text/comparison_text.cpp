#include "scenarios/report/text/comparison_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "scenarios/formats/format.hpp"

namespace tidemark::scenarios {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// A screen's worth of each list; JSON has them all.
constexpr std::size_t most_lines = 8, curve_lines = 8, most_letters = 44;

std::string percent(const BytePair& pair) {
  const double error = pair.error();
  return std::isfinite(error) ? fmt::format("{:+.2f} %", 100 * error) : "all of it";
}

std::vector<std::string> row(std::string what, const BytePair& pair) {
  return {std::move(what), mib(pair.predicted), mib(pair.measured), mib(pair.difference()), percent(pair)};
}

std::string shortened(const std::string& text) {
  return text.size() <= most_letters ? text : text.substr(0, most_letters - 3) + "...";
}

std::string verdict(bool agrees, const ComparisonSubject& subject, const std::string& of_what) {
  return fmt::format("{} {:g} %: {} beside {}{}\n", agrees ? "yes, they agree within" : "no, they differ by more than",
                     100 * subject.tolerance, subject.scenario, subject.file, of_what);
}

std::string verdict(const LogComparison& c, const ComparisonSubject& subject) {
  if (!c.ends_alike())
    return fmt::format("no, the run ran out of memory and the prediction does not: {} beside {}\n", subject.scenario,
                       subject.file);
  LogComparison memory = c;
  memory.step.reset();
  if (c.step && !c.step->within(subject.tolerance) && memory.agrees(subject.tolerance))
    return fmt::format("no, steps took another time than predicted{}: {} beside {}\n",
                       c.ranks.empty() ? "" : ", while memory agrees", subject.scenario, subject.file);
  if (c.ranks.empty())
    return fmt::format("yes, steps took as long as predicted: {} beside {}\n", subject.scenario, subject.file);
  return verdict(c.agrees(subject.tolerance), subject, "");
}

std::string step_line(const StepBeside& step, double tolerance) {
  return fmt::format(
      "a step: {:.3f} s predicted ({:.3f} to {:.3f}), {:.3f} s measured, the median of {}: {:+.1f} %, {}\n",
      seconds(step.predicted), seconds(step.low), seconds(step.high), seconds(step.measured.median),
      step.measured.steps, 100 * (seconds(step.predicted) / seconds(step.measured.median) - 1),
      step.within(tolerance) ? "in the predicted range" : "outside the predicted range");
}

// Most differences are of another setting than the job that was measured.
constexpr const char* next_step =
    "\nnext: tidemark explain with the same scenario shows what is held at the peak, --show scenario what was "
    "assumed\n";

std::string found_by(const StepSummary& step) {
  switch (step.evidence) {
    case StepEvidence::Annotations:
      return fmt::format("{} events between two optimizer steps", step.events);
    case StepEvidence::Repetition:
      return fmt::format("{} events, which repeat those before them", step.events);
    case StepEvidence::None:
      break;
  }
  return fmt::format("all {} events: no step was found", step.events);
}

// Neighbouring points as one: the highest of each side.
std::string curve(const SnapshotComparison& c) {
  Rows rows{{"share of the step", "predicted", "measured", "difference", ""}};
  constexpr std::size_t together = SnapshotComparison::curve_points / curve_lines;
  for (std::size_t line = 0; line < curve_lines; ++line) {
    BytePair highest;
    for (std::size_t i = line * together; i < (line + 1) * together; ++i) {
      highest.predicted = std::max(highest.predicted, c.curve[i].predicted);
      highest.measured = std::max(highest.measured, c.curve[i].measured);
    }
    rows.push_back(row(fmt::format("up to {:.1f} %", 100.0 * static_cast<double>(line + 1) / curve_lines), highest));
  }
  return "\nhighest allocated, along the bytes that the step allocates\n" + table(rows);
}

std::string matched(const SnapshotComparison& c) {
  if (c.matched.empty()) return {};
  Rows rows{{"predicted", "count", "each", "together", "measured from"}};
  for (std::size_t i = 0; i < std::min(c.matched.size(), most_lines); ++i) {
    const TensorMatch& m = c.matched[i];
    rows.push_back({shortened(m.predicted), std::to_string(m.count), mib(m.requested), mib(m.blocks.measured),
                    shortened(m.measured)});
  }
  return "\nlargest live tensors at the peaks, matched by size and order\n" + table(rows);
}

std::string unmatched(const std::string& title, const std::vector<Unmatched>& list) {
  if (list.empty()) return {};
  Bytes all, shown;
  for (const Unmatched& u : list) all += u.blocks;
  Rows rows{{"what", "count", "each", "together"}};
  for (std::size_t i = 0; i < std::min(list.size(), most_lines); ++i) {
    const Unmatched& u = list[i];
    rows.push_back({shortened(u.what), std::to_string(u.count), mib(u.requested), mib(u.blocks)});
    shown += u.blocks;
  }
  if (list.size() > most_lines)
    rows.push_back({fmt::format("{} more", list.size() - most_lines), "", "", mib(all - shown)});
  return fmt::format("\nlive at the peak {}: {}\n", title, mib(all)) + table(rows);
}

std::string first_difference(const SnapshotComparison& c) {
  if (!c.first_difference)
    return fmt::format("every request of the step of {} and more is the same, in the same order\n",
                       mib(DifferingRequest::smallest));
  const DifferingRequest& d = *c.first_difference;
  const auto side = [](Bytes size, const std::string& what) {
    return size == Bytes{} ? std::string("none is left") : fmt::format("{}, {}", mib(size), what);
  };
  std::string out = fmt::format("\nthe first request that differs, number {} of the step's of {} and more\n", d.number,
                                mib(DifferingRequest::smallest));
  out += fmt::format("  predicted: {}\n  measured:  {}\n", side(d.size.predicted, d.predicted),
                     side(d.size.measured, d.measured));
  for (std::size_t i = 0; i < std::min(d.stack.size(), most_lines); ++i) out += "    " + d.stack[i] + '\n';
  return out;
}

}  // namespace

std::string comparison_text(const SnapshotComparison& c, const ComparisonSubject& subject, Rank rank) {
  std::string out = verdict(c.agrees(subject.tolerance), subject, fmt::format(", rank {}", rank.value));
  Rows rows{{"", "predicted", "measured", "difference", ""}};
  rows.push_back(row("allocated, highest in the step", c.allocated));
  rows.push_back(row("allocated, as it begins", c.at_begin));
  rows.push_back(row("reserved, highest of all", c.reserved));
  out += table(rows);
  out += fmt::format("the last complete step: {} measured; {} predicted\n", found_by(c.measured_step),
                     found_by(c.predicted_step));
  out += first_difference(c) + curve(c) + matched(c) + unmatched("in the prediction only", c.only_predicted) +
         unmatched("in the measurement only", c.only_measured);
  if (c.block_rounding != Bytes{0})
    out += fmt::format("\nblocks of matched tensors: {} more predicted than measured\n", mib(c.block_rounding));
  return out + (c.agrees(subject.tolerance) ? "" : next_step);
}

std::string comparison_text(const LogComparison& c, const ComparisonSubject& subject) {
  std::string out = verdict(c, subject);
  Rows rows{{"rank", "after step", "of", "predicted", "measured", "difference", ""}};
  for (const RankPeaks& rank : c.ranks) {
    const std::string step = rank.logged.step < 0 ? "-" : std::to_string(rank.logged.step);
    const auto add = [&](const std::string& what, const BytePair& pair) {
      rows.push_back({std::to_string(rank.logged.rank.value), step, what, mib(pair.predicted), mib(pair.measured),
                      mib(pair.difference()), percent(pair)});
    };
    if (rank.allocated) add("allocated", *rank.allocated);
    if (rank.reserved) add("reserved", *rank.reserved);
    if (rank.device) add("device", *rank.device);
  }
  if (rows.size() > 1) out += table(rows);
  for (const RankPeaks& rank : c.ranks)
    if (!rank.predicted_end.empty()) out += fmt::format("rank {} {}\n", rank.logged.rank.value, rank.predicted_end);
  if (c.step) out += step_line(*c.step, subject.tolerance);
  return out + (c.agrees(subject.tolerance) ? "" : next_step);
}

}  // namespace tidemark::scenarios
