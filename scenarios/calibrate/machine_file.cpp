#include "scenarios/calibrate/machine_file.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>

#include <fmt/format.h>

#include "kernels/cost/calibrated_kernel.hpp"
#include "scenarios/cluster/calibration_names.hpp"
#include "scenarios/formats/quantity.hpp"
#include "scenarios/formats/toml_value.hpp"
#include "topology/cluster.hpp"

namespace tidemark::scenarios {
namespace {

using namespace literals;

// To three digits: a measurement has no more.
std::int64_t rounded(double value) {
  if (value < 1) return 1;
  const double unit = std::pow(10, std::max(std::floor(std::log10(value)) - 2, 0.0));
  return std::llround(value / unit) * std::llround(unit);
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[static_cast<std::size_t>(static_cast<double>(values.size() - 1) * share)];
}

Operation operation_of(const std::string& word) {
  const std::span<const OperationFacts> all = all_operations();
  for (std::size_t o = 0; o < all.size(); ++o)
    if (all[o].name == word) return static_cast<Operation>(o);
  throw std::runtime_error("there is no operation " + word);
}

bool is_attention(Operation operation) {
  return operation == Operation::Attention || operation == Operation::AttentionBackward;
}

// Floating-point operations of a product or of attention.
double operations_of(const Calibration::Kernel& k) {
  double product = 2;
  for (std::size_t d = 0; d < std::min<std::size_t>(k.sizes.size(), 5); ++d) product *= static_cast<double>(k.sizes[d]);
  if (!is_attention(k.operation)) return product;
  return product * (k.operation == Operation::Attention ? 2 : 5) * (k.sizes[5] != 0 ? 0.5 : 1);
}
double rate_of(const Calibration::Kernel& k) { return operations_of(k) / seconds(k.time); }

std::vector<double> rates(const Calibration& calibration, Operation operation, std::optional<DType> dtype,
                          double least_operations) {
  std::vector<double> found;
  for (const Calibration::Kernel& k : calibration.kernels)
    if (k.operation == operation && (!dtype || k.dtype == *dtype) && operations_of(k) >= least_operations)
      found.push_back(rate_of(k));
  return found;
}

double best(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

// How far off a time is that the other points of its kind tell: what interpolating comes to.
std::vector<double> errors_of_kernels(const Calibration& calibration, const Device& device) {
  std::map<std::pair<Operation, DType>, std::vector<MeasuredPoint>> points;
  for (const Calibration::Kernel& k : calibration.kernels)
    points[{k.operation, k.dtype}].push_back(
        {k.sizes, k.time, kernels::modelled_by_sizes(k.operation, k.dtype, k.sizes, device)});
  std::vector<double> errors;
  for (auto& [key, its] : points)
    for (std::size_t i = 0; i < its.size(); ++i) {
      const MeasuredPoint left_out = its[i];
      std::vector<MeasuredPoint> others = its;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      if (const auto reported = time_by_points(others, left_out.sizes, left_out.modelled))
        errors.push_back(std::abs(seconds(reported->time) / seconds(left_out.time) - 1));
    }
  return errors;
}
std::vector<double> errors_of_collectives(const Calibration& calibration) {
  std::vector<double> errors;
  for (std::size_t i = 0; i < calibration.collectives.size(); ++i) {
    Calibration others;
    others.collectives = calibration.collectives;
    const Calibration::Collective c = others.collectives[i];
    others.collectives.erase(others.collectives.begin() + static_cast<std::ptrdiff_t>(i));
    if (const auto reported = measured_time(others, c.kind, c.ranks, c.nodes, c.size))
      errors.push_back(std::abs(seconds(reported->time) / seconds(c.time) - 1));
  }
  return errors;
}

std::string share(double value, double low, double high) { return fmt::format("{:.3f}", std::clamp(value, low, high)); }

std::string quoted(const std::string& text) { return scenarios::text(TomlValue{text, {}}); }

std::string kernel_line(const Calibration::Kernel& k) {
  std::string line = fmt::format("kind = \"{}\", dtype = \"{}\", ", name(k.operation), name(k.dtype));
  const auto& s = k.sizes;
  if (k.operation == Operation::Matmul)
    line += (s[0] == 1 ? "" : fmt::format("batches = {}, ", s[0])) +
            fmt::format("m = {}, n = {}, k = {}", s[1], s[2], s[3]);
  else if (is_attention(k.operation))
    line += fmt::format("batch = {}, heads = {}, queries = {}, keys = {}, width = {}, causal = {}", s[0], s[1], s[2],
                        s[3], s[4], s[5] != 0);
  else
    line += fmt::format("bytes = \"{}\"", text(Bytes{s[0]}));
  return line + fmt::format(", time = \"{}\"", text(k.time));
}

}  // namespace

std::string source_of(const MachineRun& run) {
  return fmt::format("tidemark calibrate {}{}, {} {} on {} ({}), {}; medians of {} repeats on each rank", run.tidemark,
                     run.date.empty() ? "" : ", " + run.date, run.ranks, run.ranks == 1 ? "rank" : "ranks",
                     fmt::join(run.hosts, ", "), run.machine, run.mpi, run.repeats);
}

std::string calibration_text(const MachineRun& run, const Calibration& calibration) {
  std::string out = fmt::format("source = {}\n", quoted(source_of(run)));
  const auto spread = [](const Point& p) {
    return fmt::format("  # half of {} from {} to {}\n", p.repeats, text(p.low), text(p.high));
  };
  struct List {
    std::string kernels, collectives, messages, copies;
  } lists;
  std::size_t kernel = 0, collective = 0, message = 0, copy = 0;
  for (const Point& point : run.points) {
    const std::string kind = words_of(point.what).front();
    if (kind == "kernel")
      lists.kernels += fmt::format("  {{{}}},", kernel_line(calibration.kernels[kernel++])) + spread(point);
    if (kind == "collective") {
      const Calibration::Collective& c = calibration.collectives[collective++];
      lists.collectives += fmt::format("  {{kind = \"{}\", ranks = {}, nodes = {}, bytes = \"{}\", time = \"{}\"}},",
                                       name(c.kind), c.ranks, c.nodes, text(c.size), text(c.time)) +
                           spread(point);
    }
    if (kind == "message") {
      const Calibration::Message& m = calibration.messages[message++];
      lists.messages += fmt::format("  {{{}bytes = \"{}\", time = \"{}\"}},",
                                    m.between_nodes ? "between_nodes = true, " : "", text(m.size), text(m.time)) +
                        spread(point);
    }
    if (kind == "copy") {
      const Calibration::Copy& c = calibration.copies[copy++];
      lists.copies += fmt::format("  {{direction = \"{}\", bytes = \"{}\", time = \"{}\"}},",
                                  c.to_device ? "to_device" : "to_host", text(c.size), text(c.time)) +
                      spread(point);
    }
  }
  for (const auto& [key, list] : {std::pair("kernels", &lists.kernels), std::pair("collectives", &lists.collectives),
                                  std::pair("messages", &lists.messages), std::pair("copies", &lists.copies)})
    if (!list->empty()) out += fmt::format("{} = [\n{}]\n", key, *list);
  return out;
}

Calibration calibration_of(const std::vector<Point>& points) {
  Calibration made;
  for (const Point& point : points) {
    const std::vector<std::string> words = words_of(point.what);
    const auto number = [&](std::size_t word) { return std::int64_t{std::stoll(words.at(word))}; };
    const Duration time = std::max(point.median, Duration{1});
    if (words[0] == "kernel") {
      Calibration::Kernel kernel{operation_of(words.at(1)), value_of(calibrated_types, words.at(2)), {}, time};
      for (std::size_t w = 3; w < words.size(); ++w) kernel.sizes.push_back(number(w));
      made.kernels.push_back(std::move(kernel));
    } else if (words[0] == "collective") {
      made.collectives.push_back({value_of(collective_kind_names, words.at(1)), static_cast<std::int32_t>(number(2)),
                                  static_cast<std::int32_t>(number(3)), Bytes{number(4)}, time});
    } else if (words[0] == "message") {
      made.messages.push_back({number(1) != 0, Bytes{number(2)}, time});
    } else if (words[0] == "copy") {
      made.copies.push_back({number(1) != 0, Bytes{number(2)}, time});
    }
  }
  return made;
}

namespace {

std::string time_text(double its) { return text(Duration{rounded(its * 1e9) * 1000}); }
std::string bandwidth_text(double its) {
  return text(Bandwidth{std::clamp<std::int64_t>(rounded(its), 1'000'000, 1'000'000'000'000)});
}

// Peaks of a core are what it was seen to do: no data sheet says what OpenBLAS should.
struct PeaksOfCore {
  double fp32, bf16, fp64;
};
PeaksOfCore peaks_of(const Calibration& measured) {
  return {best(rates(measured, Operation::Matmul, DType::FP32, 0)),
          best(rates(measured, Operation::Matmul, DType::BF16, 0)),
          best(rates(measured, Operation::Matmul, DType::FP64, 0))};
}

struct MemoryOfCore {
  double bandwidth = 0, to_host = 0;
  double smallest_copy = 0;   ///< seconds
  double kernel_latency = 0;  ///< seconds
  double reached = 0;         ///< share of the bandwidth that large kernels reach, in the median
};
MemoryOfCore memory_of(const Calibration& measured) {
  MemoryOfCore made;
  std::vector<double> small_copies, small, reached;
  for (const Calibration::Copy& c : measured.copies) {
    const double its = static_cast<double>(c.size.count()) / seconds(c.time);
    made.to_host = std::max(made.to_host, its);
    if (c.size >= 1_MiB) made.bandwidth = std::max(made.bandwidth, 2 * its);  // read and written, beyond caches
    if (c.size <= Bytes{64}) small_copies.push_back(seconds(c.time));
  }
  if (made.bandwidth <= 0) made.bandwidth = 2 * made.to_host;
  made.smallest_copy = median(small_copies);
  const auto moves_bytes = [](const Calibration::Kernel& k) {
    return k.operation != Operation::Matmul && !is_attention(k.operation);
  };
  for (const Calibration::Kernel& k : measured.kernels)
    if (moves_bytes(k) && k.sizes[0] <= 4096) small.push_back(seconds(k.time));
  made.kernel_latency = median(small);
  for (const Calibration::Kernel& k : measured.kernels)
    if (moves_bytes(k) && k.sizes[0] >= 65536)
      reached.push_back(static_cast<double>(k.sizes[0]) / std::max(seconds(k.time) - made.kernel_latency, 1e-9) /
                        made.bandwidth);
  made.reached = median(reached);
  return made;
}

// The best rate of a message, and what the smallest one takes.
struct LinkOfRanks {
  double rate = 0, hop = 0;
};
LinkOfRanks link_of(const Calibration& measured, bool between_nodes) {
  LinkOfRanks its;
  for (const Calibration::Message& m : measured.messages) {
    if (m.between_nodes != between_nodes) continue;
    its.rate = std::max(its.rate, static_cast<double>(m.size.count()) / seconds(m.time));
    if (m.size <= Bytes{64}) its.hop = seconds(m.time);
  }
  return its;
}

// What an all-reduce of two ranks takes beyond its two hops.
double collective_start(const Calibration& measured, double hop) {
  double start = 0;
  for (const Calibration::Collective& c : measured.collectives)
    if (c.kind == CollectiveKind::AllReduce && c.ranks == 2 && c.nodes == 1 && c.size <= Bytes{64})
      start = std::max(seconds(c.time) - 2 * hop, 0.0);
  return start;
}

// Values of keys that a host does not have or that were not measured, each with where it comes from.
class Unmeasured {
 public:
  explicit Unmeasured(std::vector<NotMeasured>& list) : list_(list) {}
  std::string operator()(std::string key, std::string value, std::string from) const {
    list_.push_back({std::move(key), value, std::move(from)});
    return value;
  }

 private:
  std::vector<NotMeasured>& list_;
};

// What a cluster file says of peaks, links and errors.
struct ValuesOfHost {
  std::string fp32, bf16, fp64, fp16, tf32, link, hop, communication_error, nic, wire;
};

ValuesOfHost values_of(const Calibration& measured, const PeaksOfCore& peaks, const MemoryOfCore& memory,
                       const Unmeasured& not_measured) {
  const auto rate = [](double value) { return text(OperationRate{rounded(value)}); };
  const std::string of_fp32 = "that of fp32 products";
  ValuesOfHost its;
  its.fp32 = rate(peaks.fp32);
  its.bf16 = peaks.bf16 > 0 ? rate(peaks.bf16) : not_measured("device.peak.bf16", its.fp32, of_fp32);
  its.fp64 = peaks.fp64 > 0 ? rate(peaks.fp64) : not_measured("device.peak.fp64", rate(peaks.fp32 / 2), "half of fp32");
  its.fp16 = not_measured("device.peak.fp16", its.bf16, "that of bf16 products");
  its.tf32 = not_measured("device.peak.tf32", its.fp32, of_fp32);
  const LinkOfRanks link = link_of(measured, false), network = link_of(measured, true);
  const bool has_messages = link.rate > 0, has_network = network.rate > 0;
  const std::string one_rank = has_network ? "one rank a node: its own copies" : "one rank has no peer: its own copies";
  its.link = has_messages ? bandwidth_text(link.rate)
                          : not_measured("node.bandwidth", bandwidth_text(memory.to_host), one_rank);
  its.hop =
      has_messages ? time_text(link.hop) : not_measured("node.latency", time_text(memory.smallest_copy), one_rank);
  const std::vector<double> of_collectives = errors_of_collectives(measured);
  its.communication_error = of_collectives.empty()
                                ? not_measured("device.efficiency.communication_error", "0.250", "the default")
                                : share(quantile(of_collectives, 0.8), 0.01, 0.9);
  for (const char* key : {"device.context", "device.modules", "device.blas_handle"})
    not_measured(key, "0 B", "there is no driver: ranks are processes");
  not_measured("device.compute_capability", "8.0", "a value that lowering needs; a host has none");
  not_measured("device.efficiency.epilogue", "0", "within the products' own times");
  not_measured("device.efficiency.sustained", "1", "products are measured one after another, as in a step");
  const std::string one_node = "one host: messages between processes";
  its.nic = has_network ? bandwidth_text(network.rate) : not_measured("node.nic_bandwidth", its.link, one_node);
  // Two hops, and the links of both hosts to their devices.
  const double wire = std::max((network.hop - 2 * memory.smallest_copy) / 2, 1e-9);
  its.wire = has_network ? time_text(wire) : not_measured("fabric.latency", its.hop, one_node);
  return its;
}

std::string heading(const MachineRun& run, const std::vector<NotMeasured>& not_measured) {
  std::string out =
      fmt::format("# Written by tidemark calibrate: {} with a core for each rank, {} cores.\n", run.machine, run.cores);
  out += fmt::format("# {} points measured; their times are in {}.calibration.toml.\n", run.points.size(), run.name);
  out += "# Not measured:\n";
  for (const NotMeasured& n : not_measured) out += fmt::format("#   {} = {}: {}\n", n.key, n.value, n.from);
  return out + fmt::format("calibration = {}\n\n", quoted(run.name + ".calibration.toml"));
}

std::string device_tables(const MachineRun& run, const Calibration& measured, const PeaksOfCore& peaks,
                          const MemoryOfCore& memory, const ValuesOfHost& values) {
  Device device;
  device.multiprocessors = 1;
  device.kernel_latency = Duration{std::max<std::int64_t>(rounded(memory.kernel_latency * 1e12), 1)};
  device.memory_bandwidth = Bandwidth{rounded(memory.bandwidth)};
  device.efficiency.memory = Ratio{std::llround(std::clamp(memory.reached, 1e-3, 1.0) * 1e6)};
  const double kernel_error = quantile(errors_of_kernels(measured, device), 0.8);
  const std::string capacity = text(Bytes{run.host_memory.count() / run.ranks_per_host / (1 << 20) * (1 << 20)});
  std::string out = fmt::format(
      "[device]\nname = {}\ncompute_capability = \"8.0\"\ncapacity = \"{}\"\nmultiprocessors = 1\n"
      "memory_bandwidth = \"{}\"\nkernel_latency = \"{}\"\n\n",
      quoted("one core of " + run.machine), capacity, bandwidth_text(memory.bandwidth),
      time_text(std::max(memory.kernel_latency, 1e-9)));
  out += fmt::format(
      "[device.peak]  # the best products measured, not a data sheet's\nbf16 = \"{}\"\nfp16 = \"{}\"\n"
      "tf32 = \"{}\"\nfp32 = \"{}\"\nfp64 = \"{}\"\n\n",
      values.bf16, values.fp16, values.tf32, values.fp32, values.fp64);
  constexpr double large = 1 << 23, of_attention = 1 << 20;
  const double peak = std::max({peaks.fp32, peaks.bf16, peaks.fp64});
  out += fmt::format(
      "[device.efficiency]\ngemm = {}\nattention = {}\nattention_backward = {}\nsustained = 1\nepilogue = 0\n"
      "memory = {}\ncommunication = 1\nkernel_error = {}\ncommunication_error = {}\nsource = {}\n\n",
      share(median(rates(measured, Operation::Matmul, DType::FP32, large)) / peaks.fp32, 1e-3, 1),
      share(median(rates(measured, Operation::Attention, {}, of_attention)) / peak, 1e-3, 1),
      share(median(rates(measured, Operation::AttentionBackward, {}, of_attention)) / peak, 1e-3, 1),
      share(memory.reached, 1e-3, 1), share(kernel_error, 0.01, 0.9), values.communication_error,
      quoted(source_of(run)));
  for (const char* row : {"context", "modules", "blas_handle"})
    out += fmt::format(
        "[device.{}]\nbytes = \"0 B\"\nlow = \"0 B\"\nhigh = \"0 B\"\nsource = \"a host: no driver\"\n\n", row);
  return out;
}

std::string host_tables(const MachineRun& run, const Calibration& measured, const MemoryOfCore& memory,
                        const ValuesOfHost& values) {
  double op = 0;
  for (const Point& point : run.points)
    if (point.what == "op") op = seconds(point.median);
  const std::int64_t of_node = run.host_memory.count() / run.ranks_per_host * run.ranks_per_node;
  const std::string memory_text = text(Bytes{of_node / (1 << 20) * (1 << 20)});
  const double start = collective_start(measured, link_of(measured, false).hop);
  std::string out = fmt::format(
      "[host]\nbandwidth = \"{}\"\nlatency = \"{}\"\nbridge_bandwidth = \"{}\"\nlaunch = \"{}\"\n"
      "code_factor = 0  # programs run directly: no framework code calls them\n"
      "memory_bandwidth = \"{}\"\nmemory = \"{}\"\n\n",
      bandwidth_text(memory.to_host), time_text(memory.smallest_copy),
      bandwidth_text(memory.to_host * run.ranks_per_node), time_text(std::max(op, 1e-9)),
      bandwidth_text(memory.bandwidth * run.ranks_per_node), memory_text);
  out += fmt::format(
      "[node]\ndevices = {}\nlink = \"nvswitch\"  # processes reach each other alike\nbandwidth = \"{}\"\n"
      "latency = \"{}\"\ncollective_start = \"{}\"\ncollective_step = \"0 s\"\nnics = 1\nnic_bandwidth = \"{}\"\n\n",
      run.ranks_per_node, values.link, values.hop, start > 0 ? time_text(start) : "0 s", values.nic);
  return out + fmt::format("[fabric]\nkind = \"single\"\nlatency = \"{}\"\ngpu_direct_rdma = true\n", values.wire);
}

}  // namespace

MachineFiles host_files(const MachineRun& run) {
  const Calibration measured = calibration_of(run.points);
  const PeaksOfCore peaks = peaks_of(measured);
  if (peaks.fp32 <= 0 || measured.copies.empty()) throw std::runtime_error("neither products nor copies were measured");
  const MemoryOfCore memory = memory_of(measured);
  MachineFiles files;
  const ValuesOfHost values = values_of(measured, peaks, memory, Unmeasured(files.not_measured));
  files.cluster = heading(run, files.not_measured) + device_tables(run, measured, peaks, memory, values) +
                  host_tables(run, measured, memory, values);
  files.calibration = calibration_text(run, measured);
  return files;
}

}  // namespace tidemark::scenarios
