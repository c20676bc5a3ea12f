#include "tests/golden/accuracy_page.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/golden/fake_recordings.hpp"
#include "tests/golden/golden_rows.hpp"
#include "tests/golden/kernel_section.hpp"
#include "tests/golden/range_section.hpp"
#include "tests/golden/recording_errors.hpp"

namespace tidemark::tests::golden {
namespace {

double off(double predicted, double measured) { return predicted / measured - 1; }

std::vector<double> shares(const std::vector<Error>& errors) {
  std::vector<double> found;
  for (const Error& error : errors) found.push_back(error.share);
  return found;
}

struct Score {
  int stages = 0, within_5_mib = 0, within_1_mib = 0;
  double worst = 0;

  void add(double predicted, double measured) {
    const double difference = std::abs(predicted - measured);
    ++stages;
    within_5_mib += difference <= 5 ? 1 : 0;
    within_1_mib += difference <= 1 ? 1 : 0;
    worst = std::max(worst, difference / measured);
  }
};

Section family_section(const Family& family) {
  std::string out = fmt::format("## {}\n\n", family.name);
  out += "Source: " + family.rows.front().source + "\n\n";
  out +=
      "Allocated is `torch.cuda.max_memory_allocated`, the highest of a stage's ranks. Reserved is "
      "`torch.cuda.max_memory_reserved`, the median of a stage's ranks (lowest–highest). All in MiB.\n\n"
      "| row | stage | allocated predicted | measured | error | reserved predicted | measured | error |\n"
      "|---|---|---|---|---|---|---|---|\n";
  Score independent, all;
  std::vector<Error> errors, of_dense;
  for (const Row& row : family.rows) {
    const std::vector<StageFigures> stages = predicted(row).stages;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const StageFigures& p = stages[s];
      const double measured = row.allocated_max[s], reserved = row.reserved_median[s];
      all.add(p.allocated_max, measured);
      errors.push_back({row.name, off(p.allocated_max, measured)});
      if (row.dense()) of_dense.push_back(errors.back());
      if (row.independent) independent.add(p.allocated_max, measured);
      out += fmt::format(
          "| {}{} | {} | {:.3f} | {:.3f} | {:+.3f} ({:+.4f} %) | {:.0f} ({:.0f}–{:.0f}) | {:.0f} "
          "({:.0f}–{:.0f}) | {:+.2f} % |\n",
          row.name, row.independent ? "" : " (repeats memory)", s, p.allocated_max, measured,
          p.allocated_max - measured, 100 * (p.allocated_max / measured - 1), p.reserved_median, p.reserved_min,
          p.reserved_max, reserved, row.reserved_min[s], row.reserved_max[s], 100 * (p.reserved_median / reserved - 1));
    }
  }
  out += fmt::format(
      "\nIndependent stages: {}; within 5 MiB {}, within 1 MiB {}; worst {:.4f} %. All {} stages: worst "
      "{:.4f} %.\n\n",
      independent.stages, independent.within_5_mib, independent.within_1_mib, 100 * independent.worst, all.stages,
      100 * all.worst);
  return {std::move(out),
          {claim_of(family.name, "allocated peak of a stage", errors),
           claim_of(family.name, "allocated peak of a stage, without experts", of_dense)}};
}

// Rows of a layout differ in the number of micro-batches only: what a further one takes, and what comes once a step.
struct Line {
  double slope = 0, rest = 0;
};
Line line_of(double count_a, double step_a, double count_b, double step_b) {
  const double slope = (step_b - step_a) / (count_b - count_a);
  return {slope, step_a - slope * count_a};
}

Section step_section(const Family& family) {
  std::string out =
      "### Step time\n\nNothing was fitted on a step.\n\n"
      "| row | predicted ms | measured ms | error |\n|---|---|---|---|\n";
  struct Point {
    double micro_batches, predicted, measured;
  };
  std::map<std::string, std::vector<Point>> layouts;
  std::vector<Error> all;
  int held = 0;
  for (const Row& row : family.rows) {
    const PredictedStep its = predicted(row).step;
    const double step = 1e3 * its.s, error = off(step, row.step_ms);
    held += its.holds(row.step_ms / 1e3) ? 1 : 0;
    all.push_back({row.name, error});
    out += fmt::format("| {} | {:.1f} | {:.1f} | {:+.1f} % |\n", row.name, step, row.step_ms, 100 * error);
    const std::size_t mark = row.name.rfind("_mbc");
    layouts[row.name.substr(0, mark)].push_back({std::stod(row.name.substr(mark + 4)), step, row.step_ms});
  }
  const Errors of_all = errors(shares(all));
  out += fmt::format(
      "\nMedian {:.1f} %, worst {:.1f} %; {} of {} lie in the range that is told.\n\nWhat a further micro-batch takes, "
      "and what comes once a step: the line "
      "through a layout's fewest and most.\n\n"
      "| layout | slope, predicted ms | measured ms | error | rest, predicted ms | measured ms |\n"
      "|---|---|---|---|---|---|\n",
      100 * of_all.median, 100 * of_all.worst, held, all.size());
  std::vector<Error> slopes;
  for (const auto& [layout, points] : layouts) {
    if (points.size() < 2) continue;
    const auto [fewest, most] = std::minmax_element(
        points.begin(), points.end(), [](const Point& a, const Point& b) { return a.micro_batches < b.micro_batches; });
    const Line p = line_of(fewest->micro_batches, fewest->predicted, most->micro_batches, most->predicted);
    const Line m = line_of(fewest->micro_batches, fewest->measured, most->micro_batches, most->measured);
    slopes.push_back({layout, off(p.slope, m.slope)});
    out += fmt::format("| {} | {:.2f} | {:.2f} | {:+.1f} % | {:.1f} | {:.1f} |\n", layout, p.slope, m.slope,
                       100 * off(p.slope, m.slope), p.rest, m.rest);
  }
  out += "\n";
  return {std::move(out),
          {claim_of(family.name, "step time", all), claim_of(family.name, "time of a further micro-batch", slopes)}};
}

Section step_family_section(const StepFamily& family) {
  std::string out = fmt::format(
      "## {}\n\nStep times of runs, or what their tokens per second and device come to. Nothing was fitted on them.\n\n"
      "| row | predicted s | range | measured s | error |\n|---|---|---|---|---|\n",
      family.name);
  std::vector<Error> all;
  int held = 0;
  for (const StepRow& row : family.rows) {
    const PredictedStep its = predicted(row);
    all.push_back({row.name, off(its.s, row.step_s)});
    held += its.holds(row.step_s) ? 1 : 0;
    out += fmt::format("| {} | {:.3f} | {:.3f}–{:.3f} | {:.3f} | {:+.1f} % |\n", row.name, its.s, its.low_s, its.high_s,
                       row.step_s, 100 * (its.s / row.step_s - 1));
  }
  const Errors of_all = errors(shares(all));
  out += fmt::format("\nMedian {:.1f} %, worst {:.1f} %; {} of {} lie in the range that is told.\n",
                     100 * of_all.median, 100 * of_all.worst, held, all.size());
  return {out + "\n", {claim_of(family.name, "step time", all)}};
}

std::string score_text(std::string_view what, const std::vector<Error>& of_rows) {
  if (of_rows.empty()) return {};
  const Errors e = errors(shares(of_rows));
  return fmt::format("| {} | {} | {:.3f} % | {:.3f} % | {:.0f} % |\n", what, of_rows.size(), 100 * e.median,
                     100 * e.worst, 100 * e.within_0_6_percent);
}

// What a last rank's counters are off by, by figure; rows whose configuration is known in full once more on their own.
struct LastRankErrors {
  std::vector<Error> statics, peaks, first_peaks, specified_statics, specified_peaks;

  void add(const LastRankRow& row, const LastRankFigures& predicted) {
    statics.push_back({row.name, share(predicted.static_bytes, row.static_bytes)});
    if (row.peak_bytes) peaks.push_back({row.name, share(predicted.peak_bytes, *row.peak_bytes)});
    if (row.first_step_peak_bytes)
      first_peaks.push_back({row.name, share(predicted.first_step_peak_bytes, *row.first_step_peak_bytes)});
    if (!row.fully_specified) return;
    specified_statics.push_back(statics.back());
    if (row.peak_bytes) specified_peaks.push_back(peaks.back());
  }
};

std::string last_rank_line(const LastRankRow& row, const LastRankFigures& p) {
  const std::string peak =
      row.peak_bytes ? fmt::format("{:.3f} | {:+.3f} ({:+.3f} %)", mib(*row.peak_bytes),
                                   mib(p.peak_bytes - *row.peak_bytes), percent(share(p.peak_bytes, *row.peak_bytes)))
                     : "not published |";
  return fmt::format("| {}{} | {:.3f} | {:.3f} | {:+.3f} ({:+.3f} %) | {:.3f} | {} | {} |\n", row.name,
                     row.fully_specified ? "" : " *", mib(p.static_bytes), mib(row.static_bytes),
                     mib(p.static_bytes - row.static_bytes), percent(share(p.static_bytes, row.static_bytes)),
                     mib(p.peak_bytes), peak,
                     row.first_step_peak_bytes
                         ? fmt::format("{:+.3f} %", percent(share(p.first_step_peak_bytes, *row.first_step_peak_bytes)))
                         : "not measured");
}

// Rows that are not scored, by the feature that keeps them out.
class Excluded {
 public:
  void add(const std::string& feature, const std::string& row) {
    const auto known = std::ranges::find(all_, feature, [](const auto& its) { return its.first; });
    (known == all_.end() ? all_.emplace_back(feature, std::vector<std::string>{}) : *known).second.push_back(row);
  }
  [[nodiscard]] std::string text() const {
    if (all_.empty()) return {};
    std::string out = "\nNot scored, by the feature that keeps them out:\n\n";
    for (const auto& [feature, rows] : all_)
      out += fmt::format("- {} ({}): {}\n", feature, rows.size(), fmt::join(rows, ", "));
    return out;
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> all_;
};

Section last_rank_section(const LastRankFamily& family) {
  std::string out = fmt::format("## {}\n\n", family.name);
  out +=
      "The last rank's counters: allocated after the last step (static), and the highest of the run and of its first "
      "step. " +
      family.precision +
      " Sources stand with the figures, in `tests/golden/last_rank/`. Rows marked * leave a detail of their "
      "configuration to be inferred. All in MiB.\n\n"
      "| row | static predicted | measured | error | peak predicted | measured | error | first step's peak |\n"
      "|---|---|---|---|---|---|---|---|\n";
  LastRankErrors errors;
  Excluded excluded;
  for (const LastRankRow& row : family.rows) {
    if (!row.excluded.empty()) {
      excluded.add(row.excluded, row.name);
      continue;
    }
    const LastRankFigures p = predicted(row);
    errors.add(row, p);
    out += last_rank_line(row, p);
  }
  out += "\n| | rows | median | worst | within 0.6 % |\n|---|---|---|---|---|\n";
  Section section;
  for (const auto& [figure, rows] : {std::pair("static, fully specified", &errors.specified_statics),
                                     {"peak, fully specified", &errors.specified_peaks},
                                     {"static, all", &errors.statics},
                                     {"peak, all", &errors.peaks},
                                     {"first step's peak, all", &errors.first_peaks}}) {
    if (rows->empty()) continue;
    out += score_text(figure, *rows);
    section.claims.push_back(claim_of(family.name, figure, *rows));
  }
  if (!family.remarks.empty()) out += "\n" + family.remarks;
  section.text = out + excluded.text() + "\n";
  return section;
}

Section reserved_section() {
  const std::vector<Family> all = families();
  const ReservedScore score = reserved_score(all);
  const Errors stages = errors(shares(score.predicted)), factor = errors(score.by_factor);
  std::string out =
      "## Reserved\n\nStages of independent rows above, each by the median of its ranks, whose spread stands beside "
      "it. "
      "The best constant factor on measured allocated is chosen on all other stages.\n\n"
      "| | stages | median error | worst |\n|---|---|---|---|\n";
  out += fmt::format("| emulated allocator | {} | {:.2f} % | {:.2f} % |\n", score.predicted.size(), 100 * stages.median,
                     100 * stages.worst);
  out += fmt::format("| constant factor, leave one out | {} | {:.2f} % | {:.2f} % |\n\n", score.by_factor.size(),
                     100 * factor.median, 100 * factor.worst);
  return {std::move(out), {claim_of(all.front().name, "reserved peak, median of a stage's ranks", score.predicted)}};
}

Section reserved_family_section(const ReservedFamily& family) {
  std::string out = fmt::format(
      "## {}\n\n{} memory of the rank that logs, in GiB. Assumptions stand with the figures, in "
      "`tests/golden/reserved/`.\n\n"
      "| row | predicted | measured | error |\n|---|---|---|---|\n",
      family.name, family.allocated ? "Allocated" : "Reserved");
  std::vector<Error> off_by;
  Excluded excluded;
  for (const ReservedRow& row : family.rows) {
    if (!row.excluded.empty()) {
      excluded.add(row.excluded, row.name);
      continue;
    }
    const double reserved = predicted_reserved(family, row).gib;
    off_by.push_back({row.name, off(reserved, row.reserved)});
    out += fmt::format("| {} | {:.2f} | {:.2f} | {:+.2f} % |\n", row.name, reserved, row.reserved,
                       percent(off_by.back().share));
  }
  const Errors e = errors(shares(off_by));
  out += fmt::format("\nMedian {:.2f} %, worst {:.2f} %.\n", 100 * e.median, 100 * e.worst);
  if (!family.remarks.empty()) out += "\n" + family.remarks;
  return {out + excluded.text() + "\n", {claim_of(family.name, figure_of(family), off_by)}};
}

Section band_section(const BandFamily& family) {
  std::string out = fmt::format(
      "## {}\n\nReported only: the sources do not say whether a figure is of allocated or of reserved memory, so that "
      "it "
      "ought to lie between the two. Assumptions stand with the figures, in `tests/golden/bands/`. All in GiB, or as "
      "reported.\n\n"
      "| row | allocated predicted | reported | reserved predicted | |\n|---|---|---|---|---|\n",
      family.name);
  std::vector<Error> errors;
  for (const BandRow& row : family.rows) {
    const Band band = predicted(row);
    const double gap = gap_of(row, band);
    errors.push_back({row.name, gap});
    out += fmt::format("| {} | {:.2f} | {:.2f} | {:.2f} | {} |\n", row.name, band.allocated, row.reported,
                       band.reserved, gap == 0 ? "within" : fmt::format("{:+.1f} %", percent(gap)));
  }
  const Claim claim = claim_of(family.name, "peak, to the nearer of allocated and reserved", errors);
  return {out + fmt::format("\nWithin its band: {} of {}.\n\n", claim.equal, claim.rows), {claim}};
}

Section ran_section() {
  std::string out =
      "## ran\n\nRuns of which only that is known: they had enough memory, or ran out of it. What `predict` tells of "
      "them; "
      "sources and assumptions are in `tests/golden/ran/facts.toml`. Every row above whose memory was published ran "
      "too, "
      "and `off_by.toml` would name each that is told not to fit.\n\n| row | what happened | told |\n|---|---|---|\n";
  Excluded excluded;
  for (const RanRow& row : ran_rows()) {
    if (!row.excluded.empty())
      excluded.add(row.excluded, row.name);
    else
      out += fmt::format("| {} | {} | `{}` |\n", row.name, row.ran ? "ran" : "ran out of memory", stated(row));
  }
  return {out + excluded.text() + "\n", {}};
}

Section recordings_section() {
  std::string out =
      "## fake_tensor\n\nReal PyTorch's modules, autograd and optimizers on tensors without data "
      "(`tests/ground_truth/`): active bytes at the peak of the last step, each tensor rounded up to 512, and the "
      "largest difference of a category at any step's peak, as a share of that peak. All in MiB.\n\n"
      "| recording | predicted | recorded | difference | of a category |\n|---|---|---|---|---|\n";
  std::vector<Error> last, peaks, kinds, after, counted, counted_kinds;
  const auto add = [](std::vector<Error>& to, const Recording& recording, double share) {
    to.push_back({recording.name, share});
  };
  for (const Recording& recording : fake_recordings()) {
    const std::vector<StepPeak> steps = predicted_peaks(recording.scenario, true);
    const RecordingErrors found = recording_errors(recording.scenario, steps, recording.steps);
    const Bytes p = steps.back().total(), r = recording.steps.back().total();
    add(last, recording, share(p, r));
    add(peaks, recording, found.peak);
    add(kinds, recording, found.kind);
    if (found.after) add(after, recording, *found.after);
    if (!recording.out_of_place.empty()) {
      const RecordingErrors mem_tracker =
          recording_errors(recording.scenario, predicted_peaks(recording.scenario, false), recording.out_of_place);
      add(counted, recording, mem_tracker.peak);
      add(counted_kinds, recording, mem_tracker.kind);
    }
    out += fmt::format("| {} | {:.3f} | {:.3f} | {:+.3f} ({:+.4f} %) | {:.4f} % |\n", recording.name, mib(p), mib(r),
                       mib(p - r), percent(last.back().share), std::abs(percent(found.kind)));
  }
  const Errors e = errors(shares(last));
  out +=
      fmt::format("\nRecordings: {}; median {:.4f} %, worst {:.4f} %.\n\n", last.size(), 100 * e.median, 100 * e.worst);
  const std::string family = "fake_tensor";
  return {std::move(out),
          {claim_of(family, "tensors at any step's peak", peaks), claim_of(family, "a category of them", kinds),
           claim_of(family, "tensors after a step", after),
           claim_of(family, "tensors at any step's peak, summed out of place", counted),
           claim_of(family, "a category of them, summed out of place", counted_kinds)}};
}

Section of_plain_runs(const std::string& family, std::string out, const std::vector<Recording>& recordings) {
  out +=
      " `allocated` is the highest of the last step, `reserved` of the run. All in MiB.\n\n"
      "| recording | allocated predicted | recorded | difference | reserved predicted | recorded | difference |\n"
      "|---|---|---|---|---|---|---|\n";
  std::vector<Error> last, allocated, reserved;
  for (const Recording& recording : recordings) {
    const PlainRun p = predicted_plain_run(recording.scenario, recording.rank), &r = recording.plain;
    last.push_back({recording.name, share(p.allocated.back(), r.allocated.back())});
    allocated.push_back({recording.name, worst_of_steps(p, r)});
    reserved.push_back({recording.name, share(p.reserved, r.reserved)});
    out += fmt::format("| {} | {:.1f} | {:.1f} | {:+.3f} % | {:.0f} | {:.0f} | {:+.2f} % |\n", recording.name,
                       mib(p.allocated.back()), mib(r.allocated.back()), percent(last.back().share), mib(p.reserved),
                       mib(r.reserved), percent(reserved.back().share));
  }
  const Errors a = errors(shares(last)), e = errors(shares(reserved));
  out += fmt::format("\nAllocated: median {:.3f} %, worst {:.3f} %. Reserved: median {:.2f} %, worst {:.2f} %.\n\n",
                     100 * a.median, 100 * a.worst, 100 * e.median, 100 * e.worst);
  return {std::move(out),
          {claim_of(family, "allocated peak of the last step", last),
           claim_of(family, "allocated peak of any step", allocated), claim_of(family, "reserved peak", reserved)}};
}

Section plain_runs_section() {
  return of_plain_runs(
      "plain_runs",
      "## Plain runs\n\nThe same trainings without fake tensors: PyTorch's own caching allocator under real host code, "
      "kernels' scratch space included, on a device whose kernels do nothing.",
      fake_recordings());
}

Section sharded_section() {
  return of_plain_runs(
      "sharded",
      "## Sharded\n\nTrainings under `fully_shard` (FSDP2), one rank of worlds of 2 to 64, recorded as "
      "plain runs are (`tests/ground_truth/sharded.py`).",
      sharded_recordings());
}

Section flat_section() {
  return of_plain_runs("flat",
                       "## Flat\n\nTrainings under `FullyShardedDataParallel` (FSDP1), recorded likewise "
                       "(`tests/ground_truth/flat.py`).",
                       flat_recordings());
}

Section titan_section() {
  return of_plain_runs(
      "titan",
      "## titan\n\nTrainings by torchtitan's own trainer, releases 0.1.0 to 0.2.2, one rank of worlds of 2 to 64, "
      "recorded as plain runs are (`tests/ground_truth/titan.py`).",
      titan_recordings());
}

Section megatron_core_section() {
  const std::vector<Recording> recordings = megatron_recordings();
  const auto equal = std::ranges::count_if(
      recordings, [](const Recording& its) { return requested_by_step(its.scenario, its.rank) == its.requested; });
  Section section = of_plain_runs(
      "megatron_core",
      "## Megatron-LM\n\nTrainings by Megatron-LM's own loop (pretrain_gpt.py), core 0.12 to 0.19, local layers "
      "(of rows called te Transformer Engine's, over stand-ins for its extension), one rank of worlds of 1 to 16, "
      "recorded as plain runs are (`tests/ground_truth/megatron_jobs.py`). Drawn rows are by seeds that were committed "
      "with the first figures; what was off was mended for them too, so that of the next ones more may be off.",
      recordings);
  section.text += fmt::format("Tensors, not rounded, are equal to the byte at every step's peak in {} of {}.\n\n",
                              equal, recordings.size());
  return section;
}

Section compiled_section() {
  return of_plain_runs(
      "compiled",
      "## compiled\n\nThe same with torch.compile, by PyTorch 2.15's own Inductor, whose kernels do nothing "
      "(`tests/ground_truth/titan.py`).",
      compiled_recordings());
}

Section zero_section() {
  return of_plain_runs(
      "zero",
      "## ZeRO\n\nTrainings under DeepSpeed's ZeRO-1, 2 and 3, one rank of worlds of 2 to 64, recorded as "
      "plain runs are (`tests/ground_truth/zero.py`).",
      zero_recordings());
}

Section wrapped_section() {
  return of_plain_runs(
      "wrapped",
      "## Under wrappers\n\nTrainings that seeds chose under ten wrappers: plain PyTorch, DDP, FSDP1 "
      "and 2, DeepSpeed's "
      "ZeRO, torchtitan, tensors saved on the host (`tests/ground_truth/drawn_wrapped.py`). They were "
      "chosen before any "
      "was recorded; five of sixty are refused by their frameworks. Seven were off when they were first "
      "compared; why was found in the frameworks' sources and mended, so that of the next ones as many "
      "may be off.",
      wrapped_recordings());
}

Section in_short(const std::string& family, const std::string& intro, const std::vector<Recording>& recordings) {
  const DrawnScore found = score(recordings);
  std::string out =
      intro +
      ", recorded as above. Tensors at the peak are live bytes, each tensor rounded up to 512, in the step where they "
      "are off most; allocated likewise; reserved is the run's.\n\n"
      "| recording | recorded, MiB | tensors at the peak off by, bytes | allocated | reserved "
      "|\n|---|---|---|---|---|\n";
  std::vector<Error> tensors, allocated, reserved;
  for (std::size_t i = 0; i < recordings.size(); ++i) {
    const std::string& name = found.names[i];
    const double recorded = static_cast<double>(recordings[i].plain.allocated.back().count());
    tensors.push_back({name, static_cast<double>(found.off_at_peak[i].count()) / recorded});
    allocated.push_back({name, found.allocated[i]});
    reserved.push_back({name, found.reserved[i]});
    out += fmt::format("| {} | {:.1f} | {:+} | {:+.3f} % | {:+.2f} % |\n", name, recorded / (1 << 20),
                       found.off_at_peak[i].count(), percent(found.allocated[i]), percent(found.reserved[i]));
  }
  const Claim of_tensors = claim_of(family, "tensors at the peak", tensors);
  out += fmt::format("\nTensors at the peak equal to the byte: {} of {}.\n\n", of_tensors.equal, of_tensors.rows);
  return {std::move(out),
          {of_tensors, claim_of(family, "allocated peak of any step", allocated),
           claim_of(family, "reserved peak", reserved)}};
}

Section drawn_section() {
  return in_short("drawn",
                  "## Drawn\n\nTrainings that seeds chose, over all families and modes (`tests/ground_truth/drawn.py`)",
                  drawn_recordings());
}

Section adapted_section() {
  return in_short("adapted", "## Adapted\n\nModels that PEFT adapts (`tests/ground_truth/adapted.py`)",
                  adapted_recordings());
}

Section head() {
  return {
      "# Accuracy\n\nPredictions against real runs that others published. Assumptions are those of the runtime at the "
      "versions that each scenario under `tests/golden/` names; none is set for a single row. Memory has no fitted "
      "constant; those of time are fitted on kernels. "
      "Written by `scripts/accuracy`, as are the claims in `accuracy.toml`, and "
      "`tests/golden/own_figures/off_by.toml`: "
      "what each row is off by, to which tests hold it.\n\n"
      "All claims, the best first, the worst last, in percent of what was measured; negative is predicted too low, the "
      "unsafe side:\n\n",
      {}};
}

}  // namespace

std::vector<SectionWriter> section_writers() {
  std::vector<SectionWriter> writers{{"head", head}};
  for (const Family& family : families()) {
    writers.push_back({family.name, [=] { return family_section(family); }});
    writers.push_back({family.name + "_steps", [=] { return step_section(family); }});
  }
  writers.push_back({"reserved", reserved_section});
  writers.push_back({"ranges", range_section});
  writers.push_back({"kernels", kernel_section});
  for (const StepFamily& family : step_families())
    writers.push_back({family.name, [=] { return step_family_section(family); }});
  for (const LastRankFamily& family : last_rank_families())
    writers.push_back({family.name, [=] { return last_rank_section(family); }});
  writers.push_back({"fake_tensor", recordings_section});
  writers.push_back({"plain_runs", plain_runs_section});
  writers.push_back({"sharded", sharded_section});
  writers.push_back({"flat", flat_section});
  writers.push_back({"titan", titan_section});
  writers.push_back({"megatron_core", megatron_core_section});
  writers.push_back({"compiled", compiled_section});
  writers.push_back({"zero", zero_section});
  writers.push_back({"wrapped", wrapped_section});
  writers.push_back({"drawn", drawn_section});
  writers.push_back({"adapted", adapted_section});
  for (const ReservedFamily& family : reserved_families())
    writers.push_back({family.name, [=] { return reserved_family_section(family); }});
  for (const BandFamily& family : band_families())
    writers.push_back({family.name, [=] { return band_section(family); }});
  writers.push_back({"ran", ran_section});
  return writers;
}

}  // namespace tidemark::tests::golden
