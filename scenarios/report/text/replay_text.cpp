#include "scenarios/report/text/replay_text.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/formats/format.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::size_t shown_groups = 10;

std::string count(std::int64_t n, std::string_view what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::string verdict(const SnapshotReplay& answer) {
  const ReplayReport& r = answer.report;
  if (r.exact())
    return fmt::format("yes: {} of device {} replay exactly: every address, every segment, and what is left at the end",
                       count(r.events, "event"), answer.device);
  return fmt::format("no: the replay of device {} differs from the recording: {}", answer.device,
                     r.first_divergence ? r.first_divergence->text : std::string("the end differs"));
}

std::string what_was_recorded(const SnapshotReplay& answer) {
  const ReplayReport& r = answer.report;
  std::string out = fmt::format("  {}, {}, {} / {} cudaMalloc / cudaFree", count(r.allocs, "allocation"),
                                count(r.frees, "free"), r.segment_allocs, r.segment_frees);
  if (r.segment_maps + r.segment_unmaps > 0)
    out += fmt::format(", {} / {} maps / unmaps", r.segment_maps, r.segment_unmaps);
  if (r.ooms > 0) out += fmt::format(", {} out of memory", r.ooms);
  out += fmt::format("\n  peak reserved {}, peak allocated {}; at the end {} reserved in {}\n", gib(r.peak_reserved),
                     gib(r.peak_allocated), gib(r.reserved), count(r.segments, "segment"));
  if (!r.exact())
    out +=
        fmt::format("  {} elsewhere, {}, {}, {}; the end {}\n", count(r.mismatched_addresses, "block"),
                    count(r.mismatched_segment_events, "event") + " of the device", count(r.mismatched_frees, "free"),
                    count(r.mismatched_snapshots, "mark"), r.same_end ? "is the same" : "differs");
  const std::int64_t open = answer.trace.ambiguous_gaps - answer.trace.decided_gaps;
  if (answer.trace.ambiguous_gaps > 0)
    out += fmt::format(
        "  the recording begins with blocks in use; the owners of {} behind them are not recorded ({} counted as "
        "free)\n",
        count(answer.trace.ambiguous_gaps, "gap"), open);
  if (r.ties == ReplayReport::Ties::ByAge)
    out += "  of free blocks of equal size, that of the oldest segment went first, as since PyTorch 2.13\n";
  for (const std::string& remark : answer.trace.remarks) out += "  note: " + remark + '\n';
  return out;
}

std::string what_stays(const SnapshotReplay& answer) {
  if (answer.steps.evidence == StepEvidence::None)
    return "steps: none found: no two marks of an optimizer, and the requested sizes do not repeat\n";
  const bool marked = answer.steps.evidence == StepEvidence::Annotations;
  std::string out = fmt::format("steps: {}, by {}; allocated at their bounds: ", answer.steps.count(),
                                marked ? "the optimizer's marks" : "the repetition of the requested sizes");
  const std::vector<Bytes>& at = answer.allocated_at_steps;
  out += at.size() <= 6
             ? fmt::format("{}", fmt::join(
                                     [&] {
                                       std::vector<std::string> all;
                                       for (const Bytes bytes : at) all.push_back(mib(bytes));
                                       return all;
                                     }(),
                                     ", "))
             : fmt::format("{}, {}, … {}, {}", mib(at[0]), mib(at[1]), mib(at[at.size() - 2]), mib(at.back()));
  out += '\n';
  if (answer.steps.count() < 4) return out + "  too few steps to see what stays\n";
  if (answer.survivors.empty()) return out + "  no size from one place is left behind step after step\n";
  Bytes growth;
  for (const Survivors& group : answer.survivors) growth += group.growth();
  out += fmt::format("  left behind by every step between the first and the last: at least {} a step\n", mib(growth));
  std::vector<std::vector<std::string>> rows{{"  where", "size", "a step", "live at the end"}};
  for (std::size_t i = 0; i < std::min(answer.survivors.size(), shown_groups); ++i) {
    const Survivors& group = answer.survivors[i];
    const std::string place = place_text(answer.snapshot, group.stack, 3);
    rows.push_back({"  " + (place.empty() ? "(recorded without frames)" : place),
                    fmt::format("{} B", group.size.count()), mib(group.growth()), count(group.live, "block")});
  }
  out += table(rows);
  if (answer.survivors.size() > shown_groups)
    out += fmt::format("  and {} more: see --json\n", answer.survivors.size() - shown_groups);
  return out;
}

std::vector<std::string> row(const std::string& name, const RerunOutcome& outcome) {
  const HeldAtPeak& peak = outcome.reserved_peak;
  return {"  " + name,
          gib(peak.reserved),
          gib(outcome.peak_allocated),
          fmt::format("{} ({:.1f} %)", gib(peak.fragmentation()),
                      peak.reserved > Bytes{} ? 100 * static_cast<double>(peak.fragmentation().count()) /
                                                    static_cast<double>(peak.reserved.count())
                                              : 0.0),
          fmt::format("{} / {}", outcome.device_allocs, outcome.device_frees),
          fmt::format("{}", outcome.alloc_retries)};
}

std::string settings(const WhatIf& what) {
  std::string out = what.allocator_conf.empty() ? "default or recorded settings" : what.allocator_conf;
  if (what.conditions.capacity) out += fmt::format(", {} for the allocator", gib(*what.conditions.capacity));
  if (what.capacity_from_recording) out += " (where the recording ran out)";
  if (what.conditions.options.memory_fraction < 1)
    out += fmt::format(", of which it may take {:g}", what.conditions.options.memory_fraction);
  return out;
}

std::string what_is_open(const RerunRange& wanted) {
  if (wanted.open.empty()) return {};
  std::string out = "  the recording leaves open:\n";
  for (const std::string& what : wanted.open) out += "    " + what + '\n';
  if (wanted.lowest_peak != wanted.highest_peak)
    out += fmt::format("  read otherwise, {} to {} are reserved at the peak\n", gib(wanted.lowest_peak),
                       gib(wanted.highest_peak));
  if (wanted.may_fit && wanted.may_run_out) out += "  read otherwise, memory may suffice or run out\n";
  return out;
}

std::string what_if_text(const SnapshotReplay& answer) {
  if (!answer.what_if) return {};
  const WhatIf& what = *answer.what_if;
  std::string out = fmt::format("what if: {}\n", settings(what));
  const RerunRange& wanted = what.requested;
  if (const std::optional<RanOut>& none = wanted.likeliest.ran_out) {
    out += fmt::format(
        "  no: it runs out at event {}: {} asked for, {} of the device, which has {}; {} reserved, {} of it"
        " allocated\n",
        none->event, mib(none->requested), mib(none->segment), mib(none->available), gib(none->reserved),
        gib(none->allocated));
    if (none->limit) out += fmt::format("  the allocator may take {}\n", gib(*none->limit));
    out += "  next: another --alloc-conf, such as expandable_segments:True, or a larger --capacity\n";
  } else {
    out += "  yes: every request is served";
    if (wanted.likeliest.served_ooms > 0)
      out += fmt::format(", and {} that ran out in the recording", count(wanted.likeliest.served_ooms, "one"));
    out += '\n';
  }
  out +=
      table({{"  ", "peak reserved", "peak allocated", "free in pieces at the peak", "device gives / takes", "retries"},
             row("as recorded, from an empty device", what.recorded.likeliest),
             row(wanted.likeliest.ran_out ? "what if, until it runs out" : "what if", wanted.likeliest)});
  out += what_is_open(wanted);
  if (!answer.trace.start.empty())
    out += "  blocks from before the recording are requested first, in order of address\n";
  for (const std::string& remark : what.remarks) out += "  note: " + remark + '\n';
  return out;
}

}  // namespace

std::string place_text(const MemorySnapshot& snapshot, StackId stack, std::size_t frames) {
  std::string out;
  if (!stack.valid()) return out;
  std::size_t shown = 0;
  for (const FrameId id : snapshot.stacks[stack.index()]) {
    if (!id.valid()) continue;
    const StackFrame& frame = snapshot.frames[id.index()];
    if (!std::string_view(frame.file).ends_with(".py") || shown++ == frames) continue;
    if (shown > frames) break;
    const std::string_view file = std::string_view(frame.file).substr(frame.file.rfind('/') + 1);
    out += fmt::format("{}{}:{} {}", out.empty() ? "" : " < ", file, frame.line, frame.name);
  }
  return out;
}

std::string replay_text(const SnapshotReplay& answer) {
  return verdict(answer) + '\n' + what_was_recorded(answer) + what_stays(answer) + what_if_text(answer);
}

}  // namespace tidemark::scenarios
