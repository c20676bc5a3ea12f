#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/dry_run/dry_run.hpp"
#include "scenarios/formats/format.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::size_t shown_places = 12, shown_frames = 12;
constexpr Bytes smallest_shown{64 << 10};

std::string plural(std::int64_t n, std::string_view what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

const DryRank& fullest(const DryRunAnswer& answer) {
  return *std::ranges::max_element(answer.ranks, {}, [](const DryRank& rank) { return rank.device_upper(); });
}

// Python's messages may go on below, which the traceback has.
std::string first_line_of(const DryFailure& failure) {
  return printable(failure.message.substr(0, failure.message.find('\n')));
}

std::string how_it_failed(const RankReport& report) {
  if (!report.failure)
    return fmt::format("the script failed on rank {}: it ended with status {} before a step\n", report.rank,
                       report.exit_status.value_or(1));
  std::string text = fmt::format("the script failed on rank {}: {}: {}\n", report.rank, report.failure->type,
                                 first_line_of(*report.failure));
  if (report.failure->type == "ModuleNotFoundError")
    text += fmt::format(
        "  hint: the command's Python {} lacks it: activate the training's environment, or name its python\n",
        report.python);
  return text;
}

std::string what_stopped_it(const DryFailure& failure) {
  if (failure.type == "message") return fmt::format("waits for {}", printable(failure.message));
  if (failure.type == "experts")
    return fmt::format("asks the device which tokens its experts get, by {}, and nothing stands in for that",
                       printable(failure.message));
  const bool graphs = failure.message.starts_with("cudaGraph") || failure.message.starts_with("cudaStreamBeginCapture");
  return fmt::format(
      "uses {}, which needs real hardware{}", printable(failure.message),
      graphs ? "\n  hint: without CUDA graphs it runs, and lacks the memory that they keep for themselves" : "");
}

std::string first_line(const DryRunAnswer& answer) {
  const Bytes capacity = answer.cluster.device.capacity;
  switch (answer.verdict()) {
    case DryVerdict::Fits:
      return fmt::format("yes, it fits: {} to spare on {}\n", gib(capacity - fullest(answer).device_upper()),
                         answer.ranks.size() == 1 ? "the rank that was run" : "the fullest of the ranks that ran");
    case DryVerdict::DoesNotFit:
      for (const DryRank& rank : answer.ranks)
        if (rank.ran_out() && rank.report.ran_out)
          return fmt::format("no, it does not fit: rank {} runs out {}, where it asks for {} more\n", rank.report.rank,
                             rank.report.ran_out->after_steps == 0
                                 ? std::string("before its first step is over")
                                 : fmt::format("in step {}", rank.report.ran_out->after_steps + 1),
                             mib(rank.report.ran_out->wanted));
      return "no, it does not fit\n";
    case DryVerdict::ScriptFailed:
      for (const DryRank& rank : answer.ranks)
        if (rank.script_failed()) return how_it_failed(rank.report);
      return "the script failed\n";
    case DryVerdict::CannotSay:
      for (const DryRank& rank : answer.ranks) {
        if (rank.report.outcome == DryOutcome::Refused && rank.report.failure)
          return fmt::format("cannot say whether it fits: rank {} {}\n", rank.report.rank,
                             what_stopped_it(*rank.report.failure));
        if (rank.report.steps.empty() && !rank.ran_out())
          return fmt::format(
              "cannot say whether it fits: on rank {} the script ended before an optimizer had stepped\n{}",
              rank.report.rank,
              rank.report.torch.empty()
                  ? ""
                  : "  hint: steps are told by torch.optim's optimizers; what it held until its end is told below\n");
      }
      return "cannot say whether it fits: memory outside the allocator leaves room at the lower ends of estimates, but "
             "not at the upper ends\n";
  }
  return {};
}

std::string what_was_run(const DryRunAnswer& answer) {
  const RankReport& report = answer.ranks.front().report;
  const std::int64_t nodes = (answer.world.ranks + answer.world.per_node - 1) / answer.world.per_node;
  double seconds = 0;
  for (const DryRank& rank : answer.ranks) seconds += rank.report.seconds + (rank.need ? rank.need->seconds : 0);
  std::string out =
      fmt::format("{}\n  {} by {} on {} of {}", printable(fmt::format("{}", fmt::join(answer.command, " "))),
                  plural(answer.world.ranks, "rank"), launcher_text(answer.launch.launcher), plural(nodes, "node"),
                  answer.cluster.device.name);
  out += fmt::format("; the script's own steps, on a device that does nothing: PyTorch {}, CUDA {}; {:.1f} s\n",
                     report.torch.empty() ? "not imported" : report.torch, report.cuda.empty() ? "none" : report.cuda,
                     seconds);
  return out;
}

std::string by_rank(const DryRunAnswer& answer) {
  std::vector<std::vector<std::string>> rows{
      {"rank", "steps", "allocated", "reserved", "device", "at most", "to spare", "host"}};
  for (const DryRank& rank : answer.ranks) {
    const AllocatorCounters peak = rank.held().peak();
    rows.push_back({fmt::format("{}{}", rank.report.rank, rank.need ? " without a limit" : ""),
                    fmt::format("{}", rank.held().steps.size()), gib(peak.allocated), gib(peak.reserved),
                    gib(rank.device()), gib(rank.device_upper()),
                    gib(answer.cluster.device.capacity - rank.device_upper()),
                    rank.held().host_resident ? gib(*rank.held().host_resident) : "?"});
  }
  return "\nby rank, at the highest\n" + table(rows);
}

std::string by_step(const DryRank& rank) {
  std::vector<std::vector<std::string>> rows{{"part", "allocated", "reserved", "allocated after it"}};
  const auto add = [&](const std::string& name, const DryStep& step) {
    rows.push_back({name, mib(step.peak.allocated), mib(step.peak.reserved), mib(step.after.allocated)});
  };
  const RankReport& report = rank.held();
  if (report.set_up) add("set-up", *report.set_up);
  for (std::size_t i = 0; i < report.steps.size(); ++i) add(fmt::format("step {}", i + 1), report.steps[i]);
  return fmt::format("\nrank {}, by step\n", rank.report.rank) + table(rows);
}

std::string percent(Bytes part, Bytes whole) {
  if (whole == Bytes{}) return "0.0 %";
  return fmt::format("{:.1f} %", 100 * static_cast<double>(part.count()) / static_cast<double>(whole.count()));
}

std::string composition(const DryRank& rank) {
  const RankReport& report = rank.held();
  if (report.at_peak == Bytes{}) return {};
  std::string out =
      fmt::format("\nwhat rank {}'s tensors are at their highest, {}\n", rank.report.rank, gib(report.at_peak));
  std::vector<std::vector<std::string>> rows;
  for (const NamedBytes& part : report.by_what)
    rows.push_back({part.name == "other" ? std::string("other, by the code that asked for it") : part.name,
                    mib(part.bytes), percent(part.bytes, report.at_peak)});
  Bytes rest;
  for (std::size_t i = 0; i < report.by_place.size(); ++i) {
    const NamedBytes& part = report.by_place[i];
    if (i >= shown_places || part.bytes < smallest_shown) {
      rest += part.bytes;
      continue;
    }
    const std::string name = part.name == "autograd" ? "autograd, in backward" : part.name;
    rows.push_back({"  " + printable(name), mib(part.bytes), percent(part.bytes, report.at_peak)});
  }
  if (rest > Bytes{}) rows.push_back({"  elsewhere", mib(rest), percent(rest, report.at_peak)});
  return out + table(rows);
}

std::string beside_the_allocator(const DryRank& rank) {
  std::vector<std::vector<std::string>> rows;
  for (const DryRow& row : rank.rows)
    rows.push_back({row.name, mib(row.cost.bytes),
                    row.cost.low == row.cost.high ? std::string()
                                                  : fmt::format("{} to {}", mib(row.cost.low), mib(row.cost.high))});
  return fmt::format("\nother device memory of rank {}, estimated by Tidemark\n", rank.report.rank) + table(rows);
}

// The innermost of the frames from there on that is no installed package's.
std::string of_the_script(const std::vector<std::string>& stack, std::size_t from) {
  for (std::size_t i = from; i < stack.size(); ++i)
    if (stack[i].find("-packages/") == std::string::npos && !stack[i].starts_with("<"))
      return ", of which " + printable(stack[i]);
  return {};
}

std::string where_it_ended(const DryRunAnswer& answer) {
  std::string out;
  for (const DryRank& rank : answer.ranks) {
    const bool is_out = rank.ran_out() && rank.report.ran_out;
    const std::vector<std::string>* stack = is_out                ? &rank.report.ran_out->stack
                                            : rank.report.failure ? &rank.report.failure->stack
                                                                  : nullptr;
    if (stack == nullptr || stack->empty()) continue;
    out += fmt::format("\nrank {} {} at\n", rank.report.rank, is_out ? "runs out" : "ended");
    for (std::size_t i = 0; i < std::min(stack->size(), shown_frames); ++i) out += "  " + printable((*stack)[i]) + '\n';
    if (stack->size() > shown_frames)
      out += fmt::format("  and {} more{}\n", stack->size() - shown_frames, of_the_script(*stack, shown_frames));
    if (rank.need && rank.need->steps.empty())
      out += fmt::format("without a limit it ended before a step, too, so that it needs more than is told below{}\n",
                         rank.need->failure
                             ? fmt::format(": {}: {}", rank.need->failure->type, first_line_of(*rank.need->failure))
                             : std::string());
  }
  return out;
}

std::string stood_in(const DryRunAnswer& answer) {
  std::vector<std::string> lines;
  for (const DryRank& rank : answer.ranks)
    for (const StoodIn& line : rank.held().stood_in) {
      std::string text = printable(line.what);
      if (!line.where.empty()) text += fmt::format(" (first at {})", printable(line.where));
      if (std::ranges::find(lines, text) == lines.end()) lines.push_back(std::move(text));
    }
  std::string out =
      "\nreplaced by stand-ins\n  kernels: they do not run, and their results are zero: losses and norms are 0, and "
      "nothing overflows\n";
  for (const std::string& line : lines) out += "  " + line + '\n';
  for (const std::string& line : answer.not_modelled) out += "  not modelled: " + printable(line) + '\n';
  if (std::ranges::any_of(answer.ranks, [](const DryRank& rank) { return rank.held().host_resident.has_value(); }))
    out += "  the host: resident memory is a lower bound for a real run, which also has CUDA's and NCCL's\n";
  return out;
}

}  // namespace

std::string dry_run_text(const DryRunAnswer& answer) {
  std::string out = first_line(answer) + what_was_run(answer) + where_it_ended(answer);
  const bool counted =
      std::ranges::any_of(answer.ranks, [](const DryRank& rank) { return rank.held().peak().reserved > Bytes{}; });
  if (counted) {
    const DryRank& rank = fullest(answer);
    out += by_rank(answer) + by_step(rank) + composition(rank) + beside_the_allocator(rank);
  }
  const bool imported =
      std::ranges::any_of(answer.ranks, [](const DryRank& rank) { return !rank.held().torch.empty(); });
  if (imported || !fullest(answer).held().stood_in.empty()) out += stood_in(answer);
  for (const std::string& comparison : answer.comparisons) out += '\n' + comparison;
  return out;
}

}  // namespace tidemark::scenarios
