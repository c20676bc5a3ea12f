#include "scenarios/calibrate/device_file.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/cluster/cluster_reader.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/quantity.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_text.hpp"
#include "scenarios/formats/toml_value.hpp"

namespace tidemark::scenarios {
namespace {

// What a file of points says besides points: the first rank's word.
struct ReportedPoints {
  std::map<std::string, std::string> facts;
  std::vector<Point> points;
};

ReportedPoints reported_by(const std::filesystem::path& file) {
  ReportedPoints reported;
  std::istringstream in(read_text(file));
  std::vector<std::vector<Point>> lines;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const auto wrong = [&] {
      return InputError(Problem{.file = file.string(),
                                .line = number,
                                .column = 1,
                                .message = "is neither a fact nor a point",
                                .hint = "tidemark_gpu_points writes such files"});
    };
    if (line.starts_with("fact ")) {
      const std::size_t colon = line.find(": ");
      if (colon == std::string::npos) throw wrong();
      reported.facts.emplace(line.substr(5, colon - 5), line.substr(colon + 2));
      continue;
    }
    try {
      lines.push_back(parse_points(line));
    } catch (const std::exception&) {
      throw wrong();
    }
  }
  reported.points = merged(lines);
  return reported;
}

std::string fact(const ReportedPoints& reported, const std::filesystem::path& file, const std::string& what) {
  const auto found = reported.facts.find(what);
  if (found == reported.facts.end())
    throw InputError(Problem{.file = file.string(),
                             .message = fmt::format("says no {}", what),
                             .hint = "tidemark_gpu_points writes such files"});
  return found->second;
}

std::int64_t number(const ReportedPoints& reported, const std::filesystem::path& file, const std::string& what) {
  const std::string text = fact(reported, file, what);
  std::int64_t value = 0;
  std::istringstream in(text);
  if (!(in >> value) || value < 0)
    throw InputError(Problem{.file = file.string(),
                             .message = fmt::format("{} = {} is not a number", what, text),
                             .hint = "tidemark_gpu_points writes such files"});
  return value;
}

// Tables hold their keys by name.
TomlValue& at(TomlTable& table, const std::string& key) {
  const auto place = std::ranges::lower_bound(table.keys, key, {}, &TomlKey::name);
  if (place != table.keys.end() && place->name == key) return place->value;
  return table.keys.insert(place, {key, {}, {}})->value;
}
TomlTable& table_at(TomlTable& table, const std::string& key) {
  TomlValue& value = at(table, key);
  if (!std::holds_alternative<TomlTable>(value.value)) value.value = TomlTable{};
  return std::get<TomlTable>(value.value);
}

TomlTable estimate(std::int64_t bytes, const std::string& source) {
  TomlTable table;
  for (const char* key : {"bytes", "high", "low"}) at(table, key).value = text(Bytes{std::max<std::int64_t>(bytes, 0)});
  at(table, "source").value = source;
  return table;
}

double share(double value) { return std::round(std::clamp(value, 1e-3, 1.0) * 1e3) / 1e3; }

void describe(MachineRun& machine, const DeviceRun& run, const ReportedPoints& reported) {
  machine.name = run.name;
  machine.tidemark = run.tidemark;
  machine.date = run.date;
  machine.machine = fmt::format("{}, {}", fact(reported, run.points, "device"), fact(reported, run.points, "machine"));
  machine.mpi = fact(reported, run.points, "versions");
  machine.ranks = static_cast<std::int32_t>(std::max<std::int64_t>(number(reported, run.points, "ranks"), 1));
  machine.ranks_per_host =
      static_cast<std::int32_t>(std::max<std::int64_t>(number(reported, run.points, "ranks_per_host"), 1));
  machine.ranks_per_node = machine.ranks_per_host;
  machine.hosts = {fmt::format("{} hosts", (machine.ranks + machine.ranks_per_host - 1) / machine.ranks_per_host)};
  machine.points = reported.points;
  for (const Point& p : reported.points) machine.repeats = std::max(machine.repeats, p.repeats);
}

// What large products and copies reach of the peaks, and what small copies take in seconds.
struct SharesOfPeaks {
  std::vector<double> products, copies, small_copies;
  double to_host = 0;  ///< bytes per second
};
SharesOfPeaks shares_of(const Calibration& measured, const PeakRates& peak, Bandwidth memory) {
  SharesOfPeaks its;
  for (const Calibration::Kernel& k : measured.kernels) {
    if (k.operation == Operation::Matmul && k.dtype == DType::BF16 &&
        *std::ranges::min_element(k.sizes.begin() + 1, k.sizes.end()) >= 4096)
      its.products.push_back(2.0 * static_cast<double>(k.sizes[1]) * static_cast<double>(k.sizes[2]) *
                             static_cast<double>(k.sizes[3]) / seconds(k.time) /
                             static_cast<double>(peak.bf16.count()));
    if (k.operation != Operation::Copy) continue;
    if (k.sizes[0] <= 1 << 16) its.small_copies.push_back(seconds(k.time));
    if (k.sizes[0] >= 1 << 26)
      its.copies.push_back(static_cast<double>(k.sizes[0]) / seconds(k.time) / static_cast<double>(memory.count()));
  }
  for (const Calibration::Copy& c : measured.copies)
    if (!c.to_device) its.to_host = std::max(its.to_host, static_cast<double>(c.size.count()) / seconds(c.time));
  return its;
}

// What NCCL took for communicators whose collectives all ran.
void write_communicators(TomlTable& document, const DeviceRun& run, const ReportedPoints& reported,
                         const std::string& source) {
  for (const auto& [what, value] : reported.facts) {
    std::istringstream words(what);
    std::string bytes, communicator;
    std::int64_t ranks = 0, nodes = 0;
    if (!(words >> bytes >> communicator >> ranks >> nodes) || communicator != "communicator") continue;
    TomlTable its = estimate(number(reported, run.points, what), source);
    at(its, "ranks").value = ranks;
    at(its, "nodes").value = nodes;
    at(its, "reduces").value = true;
    at(its, "shards").value = true;
    at(its, "local_peers").value = std::max<std::int64_t>(ranks / std::max<std::int64_t>(nodes, 1) - 1, 0);
    table_at(table_at(table_at(document, "nccl"), "communicators"), fmt::format("of_{}", ranks)) = its;
  }
}

}  // namespace

MachineFiles device_files(const DeviceRun& run, MachineRun& machine) {
  const Cluster like = read_cluster(run.like);
  const ReportedPoints reported = reported_by(run.points);
  TomlTable document = parse_toml(read_text(run.like), run.like.string());
  const Calibration measured = calibration_of(reported.points);

  describe(machine, run, reported);
  const std::string source = source_of(machine);

  MachineFiles files;
  const auto kept = [&](const std::string& key) {
    files.not_measured.push_back({key, "kept", fmt::format("{}", run.like.filename().string())});
  };
  at(document, "calibration").value = run.name + ".calibration.toml";
  TomlTable& device = table_at(document, "device");
  at(device, "name").value = fact(reported, run.points, "device");
  at(device, "compute_capability").value = fact(reported, run.points, "compute_capability");
  at(device, "capacity").value = text(Bytes{number(reported, run.points, "capacity")});
  at(device, "multiprocessors").value = number(reported, run.points, "multiprocessors");
  Bandwidth memory = like.device.memory_bandwidth;
  if (const std::int64_t its = number(reported, run.points, "memory_bandwidth"); its > 0) {
    memory = Bandwidth{its};
    at(device, "memory_bandwidth").value = text(memory);
  } else {
    kept("device.memory_bandwidth");
  }
  at(device, "context").value = estimate(number(reported, run.points, "bytes context"), source);
  at(device, "blas_handle").value = estimate(number(reported, run.points, "bytes blas_handle"), source);

  const SharesOfPeaks shares = shares_of(measured, like.device.peak, memory);
  TomlTable& efficiency = table_at(device, "efficiency");
  const auto set_share = [&](const char* key, const std::vector<double>& values) {
    if (values.empty()) return kept(fmt::format("device.efficiency.{}", key));
    at(efficiency, key).value = share(median(values));
  };
  set_share("gemm", shares.products);
  set_share("memory", shares.copies);
  at(efficiency, "source").value = source;
  for (const char* key : {"attention", "attention_backward", "sustained", "epilogue", "communication", "kernel_error",
                          "communication_error"})
    kept(fmt::format("device.efficiency.{}", key));
  if (!shares.small_copies.empty())
    at(device, "kernel_latency").value = text(Duration{std::llround(median(shares.small_copies) * 1e9) * 1000});
  for (const char* key : {"device.peak", "device.power", "device.modules", "host.latency", "host.bridge_bandwidth",
                          "host.memory", "node", "fabric", "nccl.channels"})
    kept(key);
  TomlTable& host = table_at(document, "host");
  if (shares.to_host > 0) at(host, "bandwidth").value = text(Bandwidth{std::llround(shares.to_host / 1e6) * 1'000'000});
  for (const Point& p : reported.points)
    if (p.what == "op")
      at(host, "launch").value = text(Duration{std::max<std::int64_t>(p.median.count() / 1000, 1) * 1000});
  write_communicators(document, run, reported, source);
  files.cluster = fmt::format("# Written by tidemark calibrate --from {}, like {}. Not measured, taken from there:\n",
                              run.points.filename().string(), run.like.filename().string());
  for (const NotMeasured& n : files.not_measured) files.cluster += fmt::format("#   {}\n", n.key);
  files.cluster += toml_text(document);
  files.calibration = calibration_text(machine, measured);
  return files;
}

}  // namespace tidemark::scenarios
