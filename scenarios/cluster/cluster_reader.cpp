#include "scenarios/cluster/cluster_reader.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "scenarios/cluster/calibration_reader.hpp"
#include "scenarios/formats/quantity.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/formats/version_text.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

using namespace literals;

constexpr Bytes largest_device = 1024_GiB * 64;
constexpr IntegerRange device_count{1, 1024};
constexpr IntegerRange nic_count{1, 1024};
constexpr IntegerRange leaf_nodes{1, 1024};
constexpr IntegerRange multiprocessor_count{1, 4096};
constexpr Ratio least_efficiency{1};
constexpr Ratio most_error{900'000};
constexpr Ratio most_code_factor{10'000'000};
constexpr Ratio most_oversubscription = one * 1000;

// Bounds keep sums and times within 64 bits: 1 TB at the lowest bandwidth takes 12 days; a leaf of 1024 x 1024 NICs at
// the highest has 10^18 B/s.
constexpr Bandwidth least_bandwidth{1'000'000};
constexpr Bandwidth most_bandwidth{100'000'000'000'000};
constexpr Bandwidth most_nic_bandwidth{1'000'000'000'000};
constexpr Duration most_latency{picoseconds_per_second};
// Of a kernel that is bound by memory, besides its bytes: what SimuMax gives with the bandwidth that it measured on
// B200 (MooreThreads/SimuMax@4dcaae5, configs/system/b200_bf16_ceperm.json); its figure of an A100 is 40 us.
constexpr Duration usual_kernel_latency{30'000'000};
// NCCL's own figures (src/graph/tuning.cc, 2.30): baseLatencies and hwLatencies of a ring with the Simple protocol.
constexpr Duration usual_collective_start{8'400'000};
constexpr OperationRate least_rate{1'000'000};
constexpr OperationRate most_rate{1'000'000'000'000'000'000};
constexpr Power least_power{1};
constexpr Power most_power{100'000};

Bytes read_size(TomlReader& table, std::string_view key) {
  const Bytes size = table.bytes(key, Presence::Required).value_or(Bytes{});
  if (size > largest_device)
    table.problem(key, fmt::format("{} is more than any device has", key),
                  fmt::format("up to {} would do", text(largest_device)));
  return size;
}

/// Reads the keys of an estimate, beside others that the table may have.
Estimate read_estimate_keys(TomlReader& table) {
  Estimate estimate;
  estimate.bytes = read_size(table, "bytes");
  estimate.low = read_size(table, "low");
  estimate.high = read_size(table, "high");
  estimate.source = table.string("source", Presence::Required).value_or("");
  const bool sound = table.sound("bytes") && table.sound("low") && table.sound("high");
  if (sound && (estimate.low > estimate.bytes || estimate.bytes > estimate.high)) {
    table.problem("bytes", "bytes has to lie between low and high",
                  fmt::format("low is {}, high is {}", text(estimate.low), text(estimate.high)));
  }
  return estimate;
}

Estimate read_estimate(TomlReader table) {
  if (!table.present()) return {};
  const Estimate estimate = read_estimate_keys(table);
  table.refuse_unknown_keys();
  return estimate;
}

/// What is known of a cuBLAS handle where nothing was measured: PyTorch hands it a workspace, so that its own need not
/// be there; where it is, it has the size that cuBLAS's documentation gives (cublasSetWorkspace).
Estimate unmeasured_blas_handle(std::int32_t compute_capability) {
  const Bytes own = compute_capability >= 90 ? 32_MiB : 4_MiB;
  return {own / 2, 0_B, own, "between nothing and cuBLAS's default workspace (documentation of cublasSetWorkspace)"};
}

/// "9.0" is 90.
std::int32_t read_compute_capability(TomlReader& table) {
  constexpr std::string_view key = "compute_capability";
  constexpr std::int32_t highest = 99;
  const std::optional<std::string> given = table.string(key, Presence::Required);
  if (!given) return 0;
  const std::optional<Version> version = parse_version(*given);
  if (version && version->major >= 1 && version->major <= highest && version->minor < 10) {
    return version->major * 10 + version->minor;
  }
  table.problem(key, fmt::format("{} = {} is not a compute capability", key, in_quotes(*given)), "such as \"9.0\"");
  return 0;
}

Bandwidth read_bandwidth(TomlReader& table, std::string_view key, Bandwidth most = most_bandwidth) {
  const std::optional<Bandwidth> given = table.bandwidth(key, Presence::Required);
  if (given && (*given < least_bandwidth || *given > most)) {
    table.problem(key, fmt::format("{} = {} is out of range", key, text(*given)),
                  fmt::format("{} to {} would do", text(least_bandwidth), text(most)));
  }
  return given.value_or(least_bandwidth);
}

Duration read_latency(TomlReader& table, std::string_view key) {
  const std::optional<Duration> given = table.duration(key, Presence::Required);
  if (given && *given > most_latency)
    table.problem(key, fmt::format("{} is more than {}", key, text(most_latency)),
                  fmt::format("0 s to {} would do", text(most_latency)));
  return given.value_or(Duration{});
}

OperationRate read_rate(TomlReader& table, std::string_view key) {
  const std::optional<OperationRate> given = table.operation_rate(key, Presence::Required);
  if (given && (*given < least_rate || *given > most_rate)) {
    table.problem(key, fmt::format("{} = {} is out of range", key, text(*given)),
                  fmt::format("{} to {} would do", text(least_rate), text(most_rate)));
  }
  return given.value_or(least_rate);
}

PeakRates read_peak(TomlReader table) {
  PeakRates peak;
  if (!table.present()) return peak;
  peak.bf16 = read_rate(table, "bf16");
  peak.fp16 = read_rate(table, "fp16");
  peak.tf32 = read_rate(table, "tf32");
  peak.fp32 = read_rate(table, "fp32");
  peak.fp64 = table.has("fp64") ? read_rate(table, "fp64") : OperationRate{};
  table.refuse_unknown_keys();
  return peak;
}

/// Fractions that are left out keep their defaults.
Efficiency read_efficiency(TomlReader table) {
  Efficiency efficiency;
  if (!table.present()) return efficiency;
  efficiency.gemm = table.ratio("gemm", least_efficiency, one).value_or(efficiency.gemm);
  efficiency.attention = table.ratio("attention", least_efficiency, one).value_or(efficiency.attention);
  efficiency.attention_backward =
      table.ratio("attention_backward", least_efficiency, one).value_or(efficiency.attention_backward);
  efficiency.sustained = table.ratio("sustained", least_efficiency, one).value_or(efficiency.sustained);
  efficiency.epilogue = table.ratio("epilogue", Ratio{}, one).value_or(efficiency.epilogue);
  efficiency.memory = table.ratio("memory", least_efficiency, one).value_or(efficiency.memory);
  efficiency.communication = table.ratio("communication", least_efficiency, one).value_or(efficiency.communication);
  efficiency.kernel_error = table.ratio("kernel_error", Ratio{}, most_error).value_or(efficiency.kernel_error);
  efficiency.communication_error =
      table.ratio("communication_error", Ratio{}, most_error).value_or(efficiency.communication_error);
  efficiency.source = table.string("source", Presence::Required).value_or("");
  table.refuse_unknown_keys();
  return efficiency;
}

Power read_power(TomlReader& table, std::string_view key) {
  const std::optional<Power> given = table.power(key, Presence::Required);
  if (given && (*given < least_power || *given > most_power))
    table.problem(key, fmt::format("{} = {} is out of range", key, text(*given)),
                  fmt::format("{} to {} would do", text(least_power), text(most_power)));
  return given.value_or(least_power);
}

std::optional<PowerLimit> read_power_limit(TomlReader table) {
  if (!table.present()) return std::nullopt;
  PowerLimit power;
  power.limit = read_power(table, "limit");
  power.sustained_at = read_power(table, "sustained_at");
  if (table.sound("limit") && table.sound("sustained_at") && power.limit > power.sustained_at)
    table.problem("limit", fmt::format("limit is more than the {} of sustained_at", text(power.sustained_at)),
                  "sustained_at is the limit under which [device.efficiency] sustained was measured; there is no data "
                  "for higher ones");
  power.exponent = table.ratio("exponent", Ratio{}, one, Presence::Required).value_or(one);
  power.source = table.string("source", Presence::Required).value_or("");
  table.refuse_unknown_keys();
  return power;
}

Device read_device(TomlReader table) {
  Device device;
  if (!table.present()) return device;
  device.name = table.string("name", Presence::Required).value_or("");
  device.compute_capability = read_compute_capability(table);
  device.capacity = read_size(table, "capacity");
  if (table.sound("capacity") && device.capacity == Bytes{})
    table.problem("capacity", "capacity is zero", "what cudaMemGetInfo calls total");
  device.multiprocessors = narrow(
      table.integer("multiprocessors", multiprocessor_count, Presence::Required).value_or(device.multiprocessors));
  device.memory_bandwidth = read_bandwidth(table, "memory_bandwidth");
  device.kernel_latency = table.has("kernel_latency") ? read_latency(table, "kernel_latency") : usual_kernel_latency;
  device.peak = read_peak(table.table("peak", Presence::Required));
  device.efficiency = read_efficiency(table.table("efficiency"));
  device.power = read_power_limit(table.table("power"));
  device.context = read_estimate(table.table("context", Presence::Required));
  device.modules = read_estimate(table.table("modules", Presence::Required));
  TomlReader blas = table.table("blas_handle");
  device.blas_handle = blas.present() ? read_estimate(blas) : unmeasured_blas_handle(device.compute_capability);
  table.refuse_unknown_keys();
  return device;
}

Host read_host(TomlReader table) {
  Host host;
  if (!table.present()) return host;
  host.bandwidth = read_bandwidth(table, "bandwidth");
  host.latency = read_latency(table, "latency");
  host.bridge_bandwidth = read_bandwidth(table, "bridge_bandwidth");
  host.launch = read_latency(table, "launch");
  host.code_factor = table.ratio("code_factor", Ratio{}, most_code_factor).value_or(one);
  host.memory_bandwidth = table.has("memory_bandwidth") ? read_bandwidth(table, "memory_bandwidth")
                                                        : Bandwidth{2 * host.bridge_bandwidth.count()};
  host.memory = table.bytes("memory").value_or(Bytes{});
  if (table.has("nvme_read_bandwidth")) host.nvme_read_bandwidth = read_bandwidth(table, "nvme_read_bandwidth");
  if (table.has("nvme_write_bandwidth")) host.nvme_write_bandwidth = read_bandwidth(table, "nvme_write_bandwidth");
  table.refuse_unknown_keys();
  return host;
}

/// Refuses a key that says nothing because of what another one says.
void refuse_idle(TomlReader& table, std::string_view key, std::string_view because) {
  if (table.raw(key) == nullptr) return;
  table.problem(key, fmt::format("{} has no meaning with {}", key, because), "leave it out");
}

void read_node_link(TomlReader& table, Node& node) {
  node.link = read_name(table, "link", node_link_names, {}, Presence::Required).value_or(node.link);
  if (!table.sound("link")) {
    for (const std::string_view key : {"bandwidth", "latency", "nvlink_group", "collective_step"}) table.raw(key);
    return;
  }
  const std::string chosen = fmt::format("link = \"{}\"", word(node_link_names, node.link));
  if (node.link == NodeLink::Pcie) {
    refuse_idle(table, "bandwidth", chosen);
    refuse_idle(table, "latency", chosen);
    refuse_idle(table, "collective_step", chosen);
  } else {
    node.bandwidth = read_bandwidth(table, "bandwidth");
    node.latency = read_latency(table, "latency");
    if (table.has("collective_step")) node.collective_step = read_latency(table, "collective_step");
  }
  if (node.link != NodeLink::NvLink) return refuse_idle(table, "nvlink_group", chosen);
  node.nvlink_group = narrow(table.integer("nvlink_group", {2, 1024}, Presence::Required).value_or(node.nvlink_group));
  if (table.sound("nvlink_group") && table.sound("devices") && node.devices % node.nvlink_group != 0) {
    table.problem("nvlink_group",
                  fmt::format("nvlink_group = {} does not divide {} devices", node.nvlink_group, node.devices));
  }
}

Node read_node(TomlReader table) {
  Node node;
  if (!table.present()) return node;
  node.devices = narrow(table.integer("devices", device_count, Presence::Required).value_or(node.devices));
  if (const auto given = table.integer("job_devices", device_count)) {
    node.job_devices = narrow(*given);
    if (node.job_devices > node.devices && table.sound("devices"))
      table.problem("job_devices", fmt::format("job_devices = {} of devices = {}", node.job_devices, node.devices),
                    "as many as jobs of several nodes take of each, or leave it out");
  }
  read_node_link(table, node);
  node.nics = narrow(table.integer("nics", nic_count, Presence::Required).value_or(node.nics));
  node.nic_bandwidth = read_bandwidth(table, "nic_bandwidth", most_nic_bandwidth);
  node.collective_start =
      table.has("collective_start") ? read_latency(table, "collective_start") : usual_collective_start;
  table.refuse_unknown_keys();
  return node;
}

FabricShape read_fabric(TomlReader table, Node& node) {
  FabricShape shape;
  if (!table.present()) return shape;
  node.gpu_direct_rdma = table.boolean("gpu_direct_rdma", Presence::Required).value_or(node.gpu_direct_rdma);
  shape.latency = read_latency(table, "latency");
  shape.kind = read_name(table, "kind", fabric_kind_names, {}, Presence::Required).value_or(shape.kind);
  if (!table.sound("kind")) {
    for (const std::string_view key : {"rail_optimised", "nodes_per_leaf", "oversubscription"}) table.raw(key);
  } else if (shape.kind == FabricKind::LeafSpine) {
    shape.rail_optimised = table.boolean("rail_optimised", Presence::Required).value_or(shape.rail_optimised);
    shape.nodes_per_leaf =
        narrow(table.integer("nodes_per_leaf", leaf_nodes, Presence::Required).value_or(shape.nodes_per_leaf));
    shape.oversubscription = table.ratio("oversubscription", one, most_oversubscription, Presence::Required)
                                 .value_or(shape.oversubscription);
  } else {
    for (const std::string_view key : {"rail_optimised", "nodes_per_leaf", "oversubscription"})
      refuse_idle(table, key, "kind = \"single\"");
  }
  table.refuse_unknown_keys();
  return shape;
}

NcclChannels read_channels(TomlReader table) {
  const auto count = [&](std::string_view key, std::int64_t least) {
    return narrow(table.integer(key, {least, 64}, Presence::Required).value_or(least));
  };
  const NcclChannels channels{count("collective", 1), count("nvls", 0), count("p2p", 1), count("per_peer", 1)};
  table.refuse_unknown_keys();
  return channels;
}

void read_all_channels(TomlReader table, NcclProfile& nccl) {
  if (!table.present()) return;
  nccl.channels_source = table.string("source", Presence::Required).value_or("");
  const auto read = [&](std::string_view key, std::optional<NcclChannels>& channels) {
    if (TomlReader its = table.table(key); its.present()) channels = read_channels(its);
  };
  read("one_node", nccl.one_node);
  read("several_nodes", nccl.several_nodes);
  read("one_rank_a_node", nccl.one_rank_a_node);
  table.refuse_unknown_keys();
}

/// One communicator that was measured: how its ranks lie, what they do, what it takes.
NcclProfile::Communicator read_communicator(TomlReader table) {
  NcclProfile::Communicator measured;
  CommunicatorUse& use = measured.use;
  use.ranks = narrow(table.integer("ranks", rank_count, Presence::Required).value_or(1));
  use.nodes = narrow(table.integer("nodes", rank_count).value_or(1));
  use.local = narrow(table.integer("local", rank_count).value_or(std::max(1, use.ranks / use.nodes)));
  if (table.sound("nodes") && use.nodes > use.ranks)
    table.problem("nodes", fmt::format("{} ranks do not fill {} nodes evenly", use.ranks, use.nodes));
  if (table.sound("local") && (use.local > use.ranks || (use.nodes == 1 && use.local != use.ranks)))
    table.problem("local", fmt::format("{} of {} ranks are not on one of {} nodes", use.local, use.ranks, use.nodes));
  use.reduces = table.boolean("reduces").value_or(false);
  use.shards = table.boolean("shards").value_or(false);
  use.local_peers = narrow(table.integer("local_peers", {0, use.local - 1}).value_or(0));
  use.remote_peers = narrow(table.integer("remote_peers", {0, use.ranks - 1}).value_or(0));
  measured.memory = read_estimate_keys(table);
  table.refuse_unknown_keys();
  return measured;
}

NcclProfile read_nccl(TomlReader table) {
  NcclProfile nccl;
  if (!table.present()) return nccl;
  nccl.peer_access = read_name(table, "peer_access", peer_access_names).value_or(nccl.peer_access);
  read_all_channels(table.table("channels"), nccl);
  if (TomlReader kernels = table.table("kernels"); kernels.present()) nccl.kernels = read_estimate(kernels);
  TomlReader communicators = table.table("communicators");
  if (communicators.present())
    for (const TomlKey& key : communicators.keys())
      nccl.communicators.push_back(read_communicator(communicators.table(key.name, Presence::Required)));
  table.refuse_unknown_keys();
  return nccl;
}

}  // namespace

std::optional<Ratio> read_dollars_per_gpu_hour(TomlReader& table) {
  constexpr Ratio least{1}, most{std::int64_t{1'000'000'000}};  // a thousand dollars
  return table.ratio("price_per_gpu_hour", least, most);
}

Cluster parse_cluster(std::string_view text, const std::filesystem::path& file) {
  Problems problems(file.string());
  const TomlTable document = parse_toml(text, problems.file());
  TomlReader top(&document, {}, "", problems);
  Cluster cluster;
  cluster.name = file.stem().string();
  cluster.device = read_device(top.table("device", Presence::Required));
  cluster.host = read_host(top.table("host", Presence::Required));
  cluster.node = read_node(top.table("node", Presence::Required));
  cluster.fabric = read_fabric(top.table("fabric", Presence::Required), cluster.node);
  cluster.nccl = read_nccl(top.table("nccl"));
  cluster.calibration = read_calibration_key(top, {file.parent_path(), {}}, problems, cluster.device);
  cluster.dollars_per_gpu_hour = read_dollars_per_gpu_hour(top);
  top.refuse_unknown_keys();
  problems.raise_if_any();
  return cluster;
}

Cluster read_cluster(const std::filesystem::path& path) { return parse_cluster(read_text(path), path); }

}  // namespace tidemark::scenarios
