#include "tests/golden/own_figures.hpp"

#define TOML_EXCEPTIONS 1
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include "tests/golden/fake_recordings.hpp"
#include "tests/golden/golden_rows.hpp"
#include "tests/golden/makers.hpp"
#include "tests/golden/recording_errors.hpp"
#include "tests/golden/root.hpp"

namespace tidemark::tests::golden {
namespace {

// ---- differences ----------------------------------------------------------------------------------------------------

class Differences {
 public:
  void add(const std::string& what, Bytes predicted, Bytes measured) {
    const std::int64_t off = (predicted - measured).count();
    if (off != 0) found_[what] = fmt::format("{}", off);
  }
  void add(const std::string& what, const std::vector<Bytes>& predicted, const std::vector<Bytes>& measured) {
    std::vector<std::int64_t> off;
    for (std::size_t i = 0; i < std::max(predicted.size(), measured.size()); ++i) {
      const auto at = [i](const std::vector<Bytes>& all) { return i < all.size() ? all[i].count() : 0; };
      off.push_back(at(predicted) - at(measured));
    }
    if (std::ranges::any_of(off, [](std::int64_t of_step) { return of_step != 0; }))
      found_[what] = fmt::format("[{}]", fmt::join(off, ", "));
  }
  // Of figures that were published in few digits.
  void add_share(const std::string& what, double share) {
    const std::string text = fmt::format("{:.4f}", percent(share));
    if (text != "0.0000" && text != "-0.0000") found_[what] = text;
  }
  [[nodiscard]] OwnFigures take() { return std::move(found_); }

 private:
  OwnFigures found_;
};

// ---- recordings -----------------------------------------------------------------------------------------------------

void compare_plain_run(const Recording& its, Differences& off) {
  const PlainRun predicted = predicted_plain_run(its.scenario, its.rank);
  off.add("allocated", predicted.allocated, its.plain.allocated);
  off.add("reserved", predicted.reserved, its.plain.reserved);
}

void compare_tensors(const Scenario& scenario, const std::vector<StepPeak>& predicted,
                     const std::vector<StepPeak>& recorded, const std::string& how, Differences& off) {
  const auto by_step = [&](const std::vector<StepPeak>& all, const auto& of_step) {
    std::vector<Bytes> found;
    for (const StepPeak& step : all) found.push_back(of_step(with_shared_gradient(step, scenario)));
    return found;
  };
  const auto compare = [&](const std::string& what, const auto& of_step) {
    off.add(what + how, by_step(predicted, of_step), by_step(recorded, of_step));
  };
  compare("tensors at the peak", [](const StepPeak& step) { return step.total(); });
  for (std::size_t kind = 0; kind < kind_names.size(); ++kind)
    compare(std::string(kind_names[kind]), [kind](const StepPeak& step) { return step.bytes[kind]; });
  if (std::ranges::any_of(recorded, [](const StepPeak& step) { return step.after != Bytes{}; }))
    compare("tensors after a step", [](const StepPeak& step) { return step.after; });
}

OwnFigures of_tensors(const Recording& its) {
  Differences off;
  compare_tensors(its.scenario, predicted_peaks(its.scenario, true), its.steps, "", off);
  if (!its.out_of_place.empty())
    compare_tensors(its.scenario, predicted_peaks(its.scenario, false), its.out_of_place, ", summed out of place", off);
  compare_plain_run(its, off);
  return off.take();
}

// What a recording does not tell apart is among what made the rest. DeepSpeed gathers in several functions, of which
// recordings know two.
void compare_makers(const Recording& its, Differences& off) {
  if (its.live_at_peak.empty()) return;
  MadeBy recorded = its.live_at_peak;
  if (const auto gathered = recorded.find("gathered_parameters"); gathered != recorded.end()) {
    recorded["other"] += gathered->second;
    recorded.erase(gathered);
  }
  MadeBy predicted;
  for (const auto& [made_by, bytes] : made_at_peak(program_of(its.scenario, its.rank)))
    predicted[recorded.contains(made_by) ? made_by : "other"] += bytes;
  for (const auto& [made_by, bytes] : recorded) off.add("at the peak, " + made_by, predicted[made_by], bytes);
}

OwnFigures of_plain_run(const Recording& its) {
  Differences off;
  compare_plain_run(its, off);
  off.add("requested", requested_by_step(its.scenario, its.rank), its.requested);
  compare_makers(its, off);
  return off.take();
}

OwnFigures of_offloaded(const Recording& its) {
  Differences off;
  off.add("requested", requested_by_step(its.scenario, its.rank), its.requested);
  const HostPeaks predicted = predicted_host_peaks(its.scenario, its.rank);
  const std::vector<HostPeaks> by_step = predicted_host_by_step(its.scenario, its.rank);
  for (const auto& [what, name] :
       {std::pair(&HostPeaks::pinned, "pinned"), {&HostPeaks::pageable, "pageable"}, {&HostPeaks::both, "both"}}) {
    off.add(fmt::format("held by the host, {}", name), predicted.*what, its.host.*what);
    const auto of = [what = what](const std::vector<HostPeaks>& all) {
      std::vector<Bytes> found;
      for (const HostPeaks& part : all) found.push_back(part.*what);
      return found;
    };
    off.add(fmt::format("asked of the host, {}", name), of(by_step), of(its.host_by_step));
  }
  return off.take();
}

// Of a GPU.
OwnFigures of_gpu_run(const Recording& its) {
  Differences off;
  const PlainRun predicted = predicted_plain_run(its.scenario, its.rank);
  const auto with_batch = [&](std::vector<Bytes> recorded) {
    for (Bytes& step : recorded) step += its.not_made;
    return recorded;
  };
  off.add("requested", requested_by_step(its.scenario, its.rank), with_batch(its.requested));
  off.add("allocated", predicted.allocated, with_batch(its.plain.allocated));
  off.add("reserved", predicted.reserved, its.plain.reserved);
  return off.take();
}

void add(std::vector<Golden>& all, const std::string& family, std::vector<Recording> recordings,
         OwnFigures (*figures)(const Recording&)) {
  for (Recording& its : recordings) {
    const std::string name = its.name;
    all.push_back({family, name, [its = std::move(its), figures] { return figures(its); }, true});
  }
}

// ---- rows that others published -------------------------------------------------------------------------------------

// Every row ran.
const std::string lacks_figure = "told to lack, though it ran";

OwnFigures of_stages(const Row& row) {
  Differences off;
  const Figures its = predicted(row);
  for (std::size_t stage = 0; stage < its.stages.size(); ++stage) {
    const StageFigures& p = its.stages[stage];
    off.add_share(fmt::format("allocated of stage {}", stage), p.allocated_max / row.allocated_max[stage] - 1);
    off.add_share(fmt::format("reserved of stage {}, median", stage),
                  p.reserved_median / row.reserved_median[stage] - 1);
  }
  off.add_share("step time", 1e3 * its.step.s / row.step_ms - 1);
  off.add(lacks_figure, its.lacks, Bytes{});
  return off.take();
}

OwnFigures of_last_rank(const LastRankRow& row) {
  Differences off;
  const LastRankFigures its = predicted(row);
  off.add("static", its.static_bytes, row.static_bytes);
  if (row.peak_bytes) off.add("peak", its.peak_bytes, *row.peak_bytes);
  if (row.first_step_peak_bytes) off.add("first step's peak", its.first_step_peak_bytes, *row.first_step_peak_bytes);
  off.add(lacks_figure, its.lacks, Bytes{});
  return off.take();
}

OwnFigures of_share(const std::string& figure, double share, Bytes lacks = {}) {
  Differences off;
  off.add_share(figure, share);
  off.add(lacks_figure, lacks, Bytes{});
  return off.take();
}

// What was told where it is not what happened.
OwnFigures of_what_ran(const RanRow& row) {
  const std::string its = stated(row);
  if (its == (row.ran ? "fits" : "does_not_fit")) return {};
  return {{"told", "\"" + its + "\""}};
}

void add_published(std::vector<Golden>& all) {
  for (const Family& family : families())
    for (const Row& row : family.rows) all.push_back({family.name, row.name, [row] { return of_stages(row); }});
  for (const LastRankFamily& family : last_rank_families())
    for (const LastRankRow& row : family.rows)
      if (row.excluded.empty()) all.push_back({family.name, row.name, [row] { return of_last_rank(row); }});
  for (const ReservedFamily& family : reserved_families())
    for (const ReservedRow& row : family.rows)
      if (row.excluded.empty())
        all.push_back({family.name, row.name, [row, allocated = family.allocated] {
                         const ReservedFamily its{{}, allocated, {}, {}};
                         const ReservedFigure figure = predicted_reserved(its, row);
                         return of_share(figure_of(its), figure.gib / row.reserved - 1, figure.lacks);
                       }});
  for (const BandFamily& family : band_families())
    for (const BandRow& row : family.rows)
      all.push_back({family.name, row.name, [row] {
                       const Band its = predicted(row);
                       return of_share("peak, to the nearer of allocated and reserved", gap_of(row, its), its.lacks);
                     }});
  for (const RanRow& row : ran_rows())
    if (row.excluded.empty()) all.push_back({"ran", row.name, [row] { return of_what_ran(row); }});
  for (const RanRow& row : reported_rows())
    if (row.excluded.empty())
      all.push_back({"reported", row.name, [row] { return of_what_ran(row); }, false, row.slow});
  for (const StepFamily& family : step_families())
    for (const StepRow& row : family.rows)
      all.push_back(
          {family.name, row.name, [row] { return of_share("step time", predicted(row).s / row.step_s - 1); }});
}

}  // namespace

std::vector<Golden> goldens() {
  std::vector<Golden> all;
  add(all, "fake_tensor", fake_recordings(), of_tensors);
  add(all, "drawn", drawn_recordings(), of_tensors);
  add(all, "optimizers", optimizer_recordings(), of_tensors);
  add(all, "fused", fused_recordings(), of_tensors);
  add(all, "packed", packed_recordings(), of_tensors);
  add(all, "adapted", adapted_recordings(), of_tensors);
  add(all, "experts", expert_recordings(), of_tensors);
  add(all, "sharded", sharded_recordings(), of_plain_run);
  add(all, "flat", flat_recordings(), of_plain_run);
  add(all, "zero", zero_recordings(), of_plain_run);
  add(all, "titan", titan_recordings(), of_plain_run);
  add(all, "megatron_core", megatron_recordings(), of_plain_run);
  add(all, "wrapped", wrapped_recordings(), of_plain_run);
  add(all, "compiled", compiled_recordings(), of_plain_run);
  add(all, "compiled_models", compiled_model_recordings(), of_plain_run);
  for (const auto& recordings : {offload_recordings, offloaded_zero_recordings, offloaded_flat_recordings,
                                 saved_on_cpu_recordings, offloaded_titan_recordings})
    add(all, "offload", recordings(), of_offloaded);
  add(all, "gpu_recordings", gpu_plain_runs(), of_gpu_run);
  add_published(all);
  std::ranges::stable_sort(all, {}, [](const Golden& its) { return std::pair(its.family, its.row); });
  return all;
}

std::string figures_text(const std::map<std::string, FiguresOfRows>& families) {
  std::string out =
      "# How far each golden is off: what is predicted less what was measured, in bytes (of several steps in "
      "brackets),\n"
      "# or, with a point, in percent where no bytes were published. What is equal is not here. Tests hold every "
      "golden\n"
      "# to its own line (OwnFigures). Written by scripts/accuracy, of what is predicted now.\n";
  for (const auto& [family, rows] : families)
    for (const auto& [row, figures] : rows) {
      if (figures.empty()) continue;
      out += fmt::format("\n[{}.\"{}\"]\n", family, row);
      for (const auto& [figure, off] : figures) out += fmt::format("\"{}\" = {}\n", figure, off);
    }
  return out;
}

std::map<std::string, FiguresOfRows> recorded_figures() {
  const auto number = [](const toml::node& node) {
    if (node.is_string()) return fmt::format("\"{}\"", *node.value<std::string>());
    return node.is_integer() ? fmt::format("{}", *node.value<std::int64_t>())
                             : fmt::format("{:.4f}", *node.value<double>());
  };
  std::map<std::string, FiguresOfRows> found;
  for (const auto& [family, rows] : toml::parse_file(own_figures_file(root).string()))
    for (const auto& [row, figures] : *rows.as_table())
      for (const auto& [figure, node] : *figures.as_table()) {
        std::vector<std::string> numbers;
        if (const toml::array* const all = node.as_array())
          for (const toml::node& one : *all) numbers.push_back(number(one));
        found[std::string(family.str())][std::string(row.str())][std::string(figure.str())] =
            node.is_array() ? fmt::format("[{}]", fmt::join(numbers, ", ")) : number(node);
      }
  return found;
}

}  // namespace tidemark::tests::golden
