#include "scenarios/predict/measured/measured_ranges.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/version_text.hpp"

namespace tidemark::scenarios {
namespace {

// What is asked for, of 100.
constexpr std::int64_t requested = 99;

struct NamedFigure {
  MeasuredFigure figure;
  std::string_view name;
};
constexpr NamedFigure all_figures[] = {{MeasuredFigure::Allocated, "allocated memory"},
                                       {MeasuredFigure::Reserved, "reserved memory"},
                                       {MeasuredFigure::StepTime, "time"}};

}  // namespace

MeasuredRange range_of(MeasuredFigure figure, std::string_view runtime, std::span<const MeasuredRow> rows) {
  std::vector<double> off;
  for (const MeasuredRow& row : rows)
    if (row.figure == figure && row.runtime != runtime) off.push_back(std::abs(row.off));
  if (off.empty()) return {};
  std::ranges::sort(off);
  const auto n = static_cast<std::int64_t>(off.size());
  const std::int64_t k = std::min(n, (requested * (n + 1) + 99) / 100);
  return {off[static_cast<std::size_t>(k - 1)], static_cast<double>(k) / static_cast<double>(n + 1), n};
}

RowsOfRuntime own_rows(MeasuredFigure figure, std::string_view runtime, std::string_view device,
                       std::span<const MeasuredRow> rows) {
  const double share = range_of(figure, runtime, rows).share;
  RowsOfRuntime own;
  for (const MeasuredRow& row : rows) {
    if (row.figure != figure || row.runtime != runtime) continue;
    ++own.rows;
    own.on_device += row.device == device ? 1 : 0;
    own.within += std::abs(row.off) <= share ? 1 : 0;
    if (std::ranges::find(own.devices, row.device) == own.devices.end()) own.devices.push_back(row.device);
  }
  std::ranges::sort(own.devices);
  return own;
}

std::string releases_of(const Scenario& scenario) {
  const Versions& its = scenario.runtime.versions;
  switch (parallel::runtime_kind(scenario.runtime.name).id) {
    case parallel::RuntimeId::Megatron:
      return fmt::format("megatron {}", text(its.megatron));
    case parallel::RuntimeId::TorchTitan:
      return fmt::format("torchtitan {}, torch {}", text(its.torchtitan), text(its.torch));
    case parallel::RuntimeId::DeepSpeed:
      return fmt::format("deepspeed {}, torch {}", text(its.deepspeed), text(its.torch));
    case parallel::RuntimeId::PyTorch:
    case parallel::RuntimeId::Fsdp:
    case parallel::RuntimeId::Fsdp2:
      break;
  }
  return fmt::format("torch {}", text(its.torch));
}

Bytes unexplained(double share, Bytes allocated) {
  return Bytes{static_cast<std::int64_t>(std::ceil(share * static_cast<double>(allocated.count())))};
}

std::string not_calibrated(const Scenario& scenario) {
  const std::string& runtime = scenario.runtime.name;
  const std::string& device = scenario.cluster.device.name;
  std::vector<std::string> of_runtime, on_device;
  for (const NamedFigure& its : all_figures) {
    const RowsOfRuntime own = own_rows(its.figure, runtime, device);
    if (own.rows == 0)
      of_runtime.emplace_back(its.name);
    else if (own.on_device == 0)
      on_device.emplace_back(its.name);
  }
  std::string out;
  if (!of_runtime.empty()) out = fmt::format("{} of {}", fmt::join(of_runtime, ", "), runtime);
  if (!on_device.empty())
    out += fmt::format("{}{} of {} on {}", out.empty() ? "" : "; ", fmt::join(on_device, ", "), runtime, device);
  return out;
}

std::vector<std::string> range_assumptions(const Scenario& scenario) {
  const std::string& runtime = scenario.runtime.name;
  std::vector<std::string> list;
  for (const auto& [figure, name] : all_figures) {
    if (figure == MeasuredFigure::StepTime) continue;  // its range is of kernels and collectives
    const MeasuredRange range = range_of(figure, runtime);
    const RowsOfRuntime own = own_rows(figure, runtime, scenario.cluster.device.name);
    std::string line = fmt::format(
        "{}: within {:.2f} % of the prediction, the largest error of {} measured runs of other runtimes ({:.0f} % of "
        "such runs)",
        name, 100 * range.share, range.rows, std::floor(100 * range.coverage));
    if (own.rows > 0)
      line += fmt::format("; of {} runs of {} on {}, {} are within it", own.rows, runtime, fmt::join(own.devices, ", "),
                          own.within);
    list.push_back(std::move(line));
  }
  if (const std::string what = not_calibrated(scenario); !what.empty()) list.push_back("not calibrated for " + what);
  return list;
}

}  // namespace tidemark::scenarios
