#include "scenarios/io/cluster_reader.hpp"

#include <fmt/format.h>

#include "scenarios/io/names.hpp"
#include "scenarios/io/suggestion.hpp"
#include "scenarios/io/text_file.hpp"
#include "scenarios/io/toml_reader.hpp"
#include "scenarios/io/version_text.hpp"

namespace tidemark {
namespace {

using namespace literals;

constexpr Bytes largest_device = 1024_GiB * 64;
constexpr IntegerRange device_count{1, 1024};
constexpr IntegerRange nic_count{0, 1024};

std::int32_t narrow(std::int64_t n) { return static_cast<std::int32_t>(n); }

Bytes read_size(TomlReader& table, std::string_view key) {
  const Bytes size = table.bytes(key, Presence::Required).value_or(Bytes{});
  if (size > largest_device) table.problem(key, fmt::format("{} is more than any device has", key));
  return size;
}

Estimate read_estimate(TomlReader table) {
  Estimate estimate;
  if (!table.present()) return estimate;
  estimate.bytes = read_size(table, "bytes");
  estimate.low = read_size(table, "low");
  estimate.high = read_size(table, "high");
  estimate.source = table.string("source", Presence::Required).value_or("");
  table.refuse_unknown_keys();
  const bool sound = table.sound("bytes") && table.sound("low") && table.sound("high");
  if (sound && (estimate.low > estimate.bytes || estimate.bytes > estimate.high)) {
    table.problem("bytes", "bytes has to lie between low and high");
  }
  return estimate;
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
  table.problem(key, fmt::format("{} = {} is no compute capability", key, in_quotes(*given)), "such as \"9.0\"");
  return 0;
}

Device read_device(TomlReader table) {
  Device device;
  if (!table.present()) return device;
  device.name = table.string("name", Presence::Required).value_or("");
  device.compute_capability = read_compute_capability(table);
  device.capacity = read_size(table, "capacity");
  if (table.sound("capacity") && device.capacity == Bytes{}) table.problem("capacity", "capacity is nothing at all");
  device.context = read_estimate(table.table("context", Presence::Required));
  device.modules = read_estimate(table.table("modules", Presence::Required));
  table.refuse_unknown_keys();
  return device;
}

Node read_node(TomlReader& node_table, TomlReader& fabric) {
  Node node;
  if (node_table.present()) {
    node.devices = narrow(node_table.integer("devices", device_count, Presence::Required).value_or(node.devices));
    node.link = read_name(node_table, "link", node_link_names, {}, Presence::Required).value_or(node.link);
    node.nics = narrow(node_table.integer("nics", nic_count, Presence::Required).value_or(node.nics));
    node_table.refuse_unknown_keys();
  }
  if (fabric.present()) {
    node.gpu_direct_rdma = fabric.boolean("gpu_direct_rdma", Presence::Required).value_or(node.gpu_direct_rdma);
    fabric.refuse_unknown_keys();
  }
  return node;
}

}  // namespace

Cluster parse_cluster(std::string_view text, const std::filesystem::path& file) {
  Problems problems(file.string());
  const TomlTable document = parse_toml(text, problems.file());
  TomlReader top(&document, {}, "", problems);
  Cluster cluster;
  cluster.name = file.stem().string();
  cluster.device = read_device(top.table("device", Presence::Required));
  TomlReader node = top.table("node", Presence::Required);
  TomlReader fabric = top.table("fabric", Presence::Required);
  cluster.node = read_node(node, fabric);
  top.refuse_unknown_keys();
  problems.raise_if_any();
  return cluster;
}

Cluster read_cluster(const std::filesystem::path& path) { return parse_cluster(read_text(path), path); }

}  // namespace tidemark
