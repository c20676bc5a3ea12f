#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/golden/fake_recordings.hpp"
#include "tests/golden/golden_rows.hpp"

// Predicted, measured and error of every golden row, as a table of Markdown. With a file's name, written there too.

namespace tidemark::tests::golden {
namespace {

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

std::string family_text(const Family& family) {
  std::string out = fmt::format("## {}\n\n", family.name);
  out += "Source: " + family.rows.front().source + "\n\n";
  out +=
      "Allocated is `torch.cuda.max_memory_allocated`, the highest of a stage's ranks. Reserved is "
      "`torch.cuda.max_memory_reserved`, the median of a stage's ranks (lowest–highest). All in MiB.\n\n"
      "| row | stage | allocated predicted | measured | error | reserved predicted | measured | error |\n"
      "|---|---|---|---|---|---|---|---|\n";
  Score independent, all;
  for (const Row& row : family.rows) {
    const std::vector<StageFigures> stages = predicted(row).stages;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const StageFigures& p = stages[s];
      const double measured = row.allocated_max[s], reserved = row.reserved_median[s];
      all.add(p.allocated_max, measured);
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
  return out;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// A layout is one whose rows differ in the number of micro-batches only: its fitted row is its name's other ones' too.
std::string step_text(const Family& family) {
  std::string out =
      "### Step time\n\nThe device's three efficiencies were fitted on the rows marked so, one of each of three "
      "layouts; "
      "their siblings differ in the number of micro-batches; the others are a layout that was left unseen.\n\n"
      "| row | | predicted ms | measured ms | error |\n|---|---|---|---|---|\n";
  const auto layout = [](const Row& row) { return row.name.substr(0, row.name.rfind("_mbc")); };
  std::vector<std::string> fitted_layouts;
  for (const Row& row : family.rows)
    if (row.step_fitted) fitted_layouts.push_back(layout(row));
  std::vector<double> unseen, siblings;
  for (const Row& row : family.rows) {
    const bool seen = std::find(fitted_layouts.begin(), fitted_layouts.end(), layout(row)) != fitted_layouts.end();
    const double step = predicted(row).step_ms, error = 100 * (step / row.step_ms - 1);
    if (!row.step_fitted) (seen ? siblings : unseen).push_back(std::abs(error));
    out += fmt::format("| {} | {} | {:.1f} | {:.1f} | {:+.1f} % |\n", row.name,
                       row.step_fitted ? "fitted"
                       : seen          ? "sibling"
                                       : "unseen",
                       step, row.step_ms, error);
  }
  return out + fmt::format("\nUnseen: median {:.1f} %, worst {:.1f} %. Siblings: median {:.1f} %, worst {:.1f} %.\n\n",
                           median(unseen), *std::max_element(unseen.begin(), unseen.end()), median(siblings),
                           *std::max_element(siblings.begin(), siblings.end()));
}

std::string step_family_text(const StepFamily& family) {
  std::string out = fmt::format(
      "## {}\n\nStep times of runs whose memory was not published; rows marked so were fitted on.\n\n"
      "| row | | predicted s | measured s | error |\n|---|---|---|---|---|\n",
      family.name);
  for (const StepRow& row : family.rows) {
    const double step = predicted_step_s(row);
    out += fmt::format("| {} | {} | {:.3f} | {:.2f} | {:+.1f} % |\n", row.name, row.fitted ? "fitted" : "unseen", step,
                       row.step_s, 100 * (step / row.step_s - 1));
  }
  return out + "\n";
}

double off(Bytes predicted_bytes, Bytes measured) {
  return static_cast<double>(predicted_bytes.count()) / static_cast<double>(measured.count()) - 1;
}

std::string score_text(std::string_view what, const std::vector<double>& of_rows) {
  const Errors e = errors(of_rows);
  return fmt::format("| {} | {} | {:.3f} % | {:.3f} % | {:.0f} % |\n", what, of_rows.size(), 100 * e.median,
                     100 * e.worst, 100 * e.within_0_6_percent);
}

std::string last_rank_text(const LastRankFamily& family) {
  std::string out = fmt::format("## {}\n\n", family.name);
  out +=
      "The last rank's counters, exact to the byte: allocated after the last step (static), and the highest of the run "
      "and of its first step. Sources stand with the figures, in `tests/golden/last_rank/`. Rows marked * leave a "
      "detail "
      "of their configuration to be inferred. All in MiB.\n\n"
      "| row | static predicted | measured | error | peak predicted | measured | error | first step's peak |\n"
      "|---|---|---|---|---|---|---|---|\n";
  const auto mib = [](Bytes bytes) { return static_cast<double>(bytes.count()) / (1 << 20); };
  std::vector<double> statics, peaks, first_peaks, specified_statics, specified_peaks;
  std::vector<std::pair<std::string, std::vector<std::string>>> excluded;
  for (const LastRankRow& row : family.rows) {
    if (!row.excluded.empty()) {
      const auto known =
          std::find_if(excluded.begin(), excluded.end(), [&](const auto& e) { return e.first == row.excluded; });
      (known == excluded.end() ? excluded.emplace_back(row.excluded, std::vector<std::string>{}) : *known)
          .second.push_back(row.name);
      continue;
    }
    const LastRankFigures p = predicted(row);
    statics.push_back(off(p.static_bytes, row.static_bytes));
    peaks.push_back(off(p.peak_bytes, row.peak_bytes));
    first_peaks.push_back(off(p.first_step_peak_bytes, row.first_step_peak_bytes));
    if (row.fully_specified) {
      specified_statics.push_back(statics.back());
      specified_peaks.push_back(peaks.back());
    }
    out += fmt::format(
        "| {}{} | {:.3f} | {:.3f} | {:+.3f} ({:+.3f} %) | {:.3f} | {:.3f} | {:+.3f} ({:+.3f} %) | {:+.3f} % |\n",
        row.name, row.fully_specified ? "" : " *", mib(p.static_bytes), mib(row.static_bytes),
        mib(p.static_bytes - row.static_bytes), 100 * statics.back(), mib(p.peak_bytes), mib(row.peak_bytes),
        mib(p.peak_bytes - row.peak_bytes), 100 * peaks.back(), 100 * first_peaks.back());
  }
  out += "\n| | rows | median | worst | within 0.6 % |\n|---|---|---|---|---|\n";
  out +=
      score_text("static, fully specified", specified_statics) + score_text("peak, fully specified", specified_peaks);
  out += score_text("static, all", statics) + score_text("peak, all", peaks);
  out += score_text("first step's peak, all", first_peaks);
  if (!family.remarks.empty()) out += "\n" + family.remarks;
  out += "\nNot scored, by the feature that keeps them out:\n\n";
  for (const auto& [feature, rows] : excluded)
    out += fmt::format("- {} ({}): {}\n", feature, rows.size(), fmt::join(rows, ", "));
  return out + "\n";
}

std::string reserved_text() {
  const ReservedScore score = reserved_score(families());
  const Errors stages = errors(score.predicted), factor = errors(score.by_factor);
  std::string out =
      "## Reserved\n\nStages of independent rows above, each by the median of its ranks, whose spread stands beside "
      "it. "
      "The best constant factor on measured allocated is chosen on all other stages.\n\n"
      "| | stages | median error | worst |\n|---|---|---|---|\n";
  out += fmt::format("| emulated allocator | {} | {:.2f} % | {:.2f} % |\n", score.predicted.size(), 100 * stages.median,
                     100 * stages.worst);
  return out + fmt::format("| constant factor, leave one out | {} | {:.2f} % | {:.2f} % |\n\n", score.by_factor.size(),
                           100 * factor.median, 100 * factor.worst);
}

std::string band_text(const BandFamily& family) {
  std::string out = fmt::format(
      "## {}\n\nReported only: the sources do not say whether a figure is of allocated or of reserved memory, so that "
      "it "
      "ought to lie between the two. Assumptions stand with the figures, in `tests/golden/bands/`. All in GiB, or as "
      "reported.\n\n"
      "| row | allocated predicted | reported | reserved predicted | |\n|---|---|---|---|---|\n",
      family.name);
  int inside = 0;
  for (const BandRow& row : family.rows) {
    const Band band = predicted(row);
    const bool within = band.allocated <= row.reported && row.reported <= band.reserved;
    inside += within ? 1 : 0;
    const double nearest = row.reported < band.allocated ? band.allocated : band.reserved;
    out +=
        fmt::format("| {} | {:.2f} | {:.2f} | {:.2f} | {} |\n", row.name, band.allocated, row.reported, band.reserved,
                    within ? std::string("within") : fmt::format("{:+.1f} %", 100 * (nearest / row.reported - 1)));
  }
  return out + fmt::format("\nWithin its band: {} of {}.\n\n", inside, family.rows.size());
}

std::string recordings_text() {
  std::string out =
      "## fake_tensor\n\nReal PyTorch's modules, autograd and optimizers on tensors without data "
      "(`tests/ground_truth/`): active bytes at the peak of the last step, each tensor rounded up to 512, and the "
      "largest difference of a category at any step's peak, as a share of that peak. All in MiB.\n\n"
      "| recording | predicted | recorded | difference | of a category |\n|---|---|---|---|---|\n";
  const auto mib = [](Bytes bytes) { return static_cast<double>(bytes.count()) / (1 << 20); };
  std::vector<double> totals;
  for (const Recording& recording : fake_recordings()) {
    const std::vector<StepPeak> steps = predicted_peaks(recording.scenario, true);
    double worst = 0;
    for (std::size_t s = 0; s < steps.size(); ++s)
      for (std::size_t k = 0; k < kind_names.size(); ++k)
        worst = std::max(
            worst, std::abs(mib(steps[s].bytes[k] - recording.steps[s].bytes[k])) / mib(recording.steps[s].total()));
    const Bytes p = steps.back().total(), r = recording.steps.back().total();
    totals.push_back(off(p, r));
    out += fmt::format("| {} | {:.3f} | {:.3f} | {:+.3f} ({:+.4f} %) | {:.4f} % |\n", recording.name, mib(p), mib(r),
                       mib(p - r), 100 * totals.back(), 100 * worst);
  }
  const Errors e = errors(totals);
  return out + fmt::format("\nRecordings: {}; median {:.4f} %, worst {:.4f} %.\n\n", totals.size(), 100 * e.median,
                           100 * e.worst);
}

std::string plain_runs_text() {
  std::string out =
      "## Plain runs\n\nThe same trainings without fake tensors: PyTorch's own caching allocator under real host code, "
      "kernels' scratch space included, on a device whose kernels do nothing. `allocated` is the highest of the last "
      "step, `reserved` of the run. All in MiB.\n\n"
      "| recording | allocated predicted | recorded | difference | reserved predicted | recorded | difference |\n"
      "|---|---|---|---|---|---|---|\n";
  const auto mib = [](Bytes bytes) { return static_cast<double>(bytes.count()) / (1 << 20); };
  std::vector<double> allocated, reserved;
  for (const Recording& recording : fake_recordings()) {
    const PlainRun p = predicted_plain_run(recording.scenario), &r = recording.plain;
    allocated.push_back(off(p.allocated.back(), r.allocated.back()));
    reserved.push_back(off(p.reserved, r.reserved));
    out += fmt::format("| {} | {:.1f} | {:.1f} | {:+.3f} % | {:.0f} | {:.0f} | {:+.2f} % |\n", recording.name,
                       mib(p.allocated.back()), mib(r.allocated.back()), 100 * allocated.back(), mib(p.reserved),
                       mib(r.reserved), 100 * reserved.back());
  }
  const Errors a = errors(allocated), e = errors(reserved);
  return out +
         fmt::format("\nAllocated: median {:.3f} %, worst {:.3f} %. Reserved: median {:.2f} %, worst {:.2f} %.\n\n",
                     100 * a.median, 100 * a.worst, 100 * e.median, 100 * e.worst);
}

std::string drawn_text() {
  const std::vector<Recording> recordings = drawn_recordings();
  const DrawnScore found = score(recordings);
  std::string out =
      "## Drawn\n\nTrainings that seeds chose, over all families and modes (`tests/ground_truth/drawn.py`), recorded "
      "as "
      "above. Tensors at the peak are live bytes, each tensor rounded up to 512, in the step where they are off most; "
      "allocated likewise; reserved is the run's.\n\n"
      "| recording | recorded, MiB | tensors at the peak off by, bytes | allocated | reserved "
      "|\n|---|---|---|---|---|\n";
  for (std::size_t i = 0; i < recordings.size(); ++i)
    out += fmt::format("| {} | {:.1f} | {:+} | {:+.3f} % | {:+.2f} % |\n", found.names[i],
                       static_cast<double>(recordings[i].plain.allocated.back().count()) / (1 << 20),
                       found.off_at_peak[i].count(), 100 * found.allocated[i], 100 * found.reserved[i]);
  const auto worst = [&](const std::vector<double>& of) {
    const auto at =
        std::max_element(of.begin(), of.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
    return fmt::format("{:.3f} % ({})", 100 * std::abs(*at), found.names[static_cast<std::size_t>(at - of.begin())]);
  };
  return out + fmt::format(
                   "\nTensors at the peak equal to the byte: {} of {}. Allocated: median {:.3f} %, worst {}. Reserved: "
                   "median {:.2f} %, worst {}.\n\n",
                   found.equal(), found.names.size(), 100 * errors(found.allocated).median, worst(found.allocated),
                   100 * errors(found.reserved).median, worst(found.reserved));
}

int run(int argc, char** argv) {
  std::string out =
      "# Accuracy\n\nPredictions against real runs that others published. Assumptions are those of the runtime at the "
      "versions that each scenario under `tests/golden/` names; none is set for a single row. Memory has no fitted "
      "constant, but for 3.5 KiB of scalars whose number was read off such runs; time has at most three per device. "
      "Written by `scripts/accuracy`.\n\n";
  for (const Family& family : families()) out += family_text(family) + step_text(family);
  out += reserved_text();
  for (const StepFamily& family : step_families()) out += step_family_text(family);
  for (const LastRankFamily& family : last_rank_families()) out += last_rank_text(family);
  out += recordings_text();
  out += plain_runs_text();
  out += drawn_text();
  for (const BandFamily& family : band_families()) out += band_text(family);
  std::fputs(out.c_str(), stdout);
  if (argc < 2) return 0;
  std::ofstream file(argv[1], std::ios::binary);
  file << out;
  file.close();
  return file ? 0 : 3;
}

}  // namespace
}  // namespace tidemark::tests::golden

int main(int argc, char** argv) {
  try {
    return tidemark::tests::golden::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 3;
  }
}
